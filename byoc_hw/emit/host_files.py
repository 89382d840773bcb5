"""The sources of the host: what TVM generated, and functions of ours that it calls."""

from __future__ import annotations

import re
from collections.abc import Mapping

from byoc_hw.emit.parts import Parts
from byoc_hw.emit.rendering import render
from byoc_hw.params.host_kernels import KERNEL_PARTS, KERNELS
from byoc_hw.program import ORDERED_TYPES

# Functions of <mod_name>_math.c, which the host functions call in place of the C library's.
_MATH = {
    "expf": "float {}(float x);",
    "softmax_int8": """\
void {}(const int8_t *ifm, int8_t *ofm, uint32_t *exponentials, int32_t rows, int32_t columns,
    int32_t zero_point, int32_t scale);""",
}


def host_sources(parts: Parts) -> dict[str, str]:
    """What TVM generated, and the functions of ours that it calls."""
    title = parts.banner("the host's functions, as TVM generated them.")
    mod_name, source = parts.mod_name, parts.host_source.rstrip()
    math = {name: form.format(f"{mod_name}_{name}") for name, form in _MATH.items() if _calls(source, name)}
    kernels = {name: kernel for name, kernel in KERNELS.items() if _calls(source, name)}
    own, files = "", dict[str, str]()
    if math:
        own += f"#include <math.h>\n{_declared(f'The same on every machine, in {mod_name}_math.c', mod_name, math)}"
        purpose = parts.banner("what the host's functions compute in whole numbers.")
        files[f"src/{mod_name}_math.c"] = render("model_math.c.j2", banner=purpose, mod_name=mod_name, functions=math)
    if kernels:
        declared = {name: kernel.prototype(f"{mod_name}_{name}") for name, kernel in kernels.items()}
        own += _declared(f"Not of TVM, in {mod_name}_kernels.c", mod_name, declared)
        purpose = parts.banner("what the host computes by functions that are not TVM's.")
        structs = {kernel.struct or name: kernel.fields for name, kernel in kernels.items()}
        needed = [part for part in KERNEL_PARTS if any(part in kernel.parts for kernel in kernels.values())]
        files[f"src/{mod_name}_kernels.c"] = render(
            "model_kernels.c.j2",
            banner=purpose,
            mod_name=mod_name,
            structs=structs,
            needed=needed,
            types=ORDERED_TYPES,
            rounding="upward" if "scale_upward" in needed else "tflite",
        )
    return {f"src/{mod_name}_host.c": f"{title}\n{own and own + chr(10)}{source}\n", **files}


def _declared(what: str, mod_name: str, prototypes: Mapping[str, str]) -> str:
    """C that declares functions of the project, so that host code calls them without the module's name."""
    lines = "".join(f"{prototype}\n#define {name} {mod_name}_{name}\n" for name, prototype in prototypes.items())
    return f"#include <stdint.h>\n\n/* {what}. */\n{lines}"


def _calls(source: str, function: str) -> bool:
    return re.search(rf"\b{function}\(", source) is not None
