"""C functions of what TVM's loops compute: plain pointers, exact literals, every buffer from outside.

    int32_t f(int8_t *x, float *own, int8_t *out, uint8_t *arena)

TVM's C target has functions for its own runtime only. Here the arguments of a lowered function become pointers, and
what it would allocate becomes arguments, between its inputs and its outputs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm_ffi import structural

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.powers import power
from byoc_hw.frontend.relax.narrow_integers import with_own_bits
from byoc_hw.frontend.relax.versions import blocks, tir
from byoc_hw.names import distinct
from byoc_hw.tensor import Array

_FUNCTION = re.compile(r"^TVM_DLL void (?P<name>\w+)\((?P<arguments>[^)]*)\) \{\n(?P<body>.*?)^\}\n", re.S | re.M)
_RUNTIME = re.compile(r"\b(?:TVM(?:Backend|Func|FFI|Value)\w*|tvm_\w+)")
_MARK = "exact_constant"
_FORMATS = {"float32": ("{:.8e}f", "INFINITY", "NAN"), "float64": ("{:.16e}", "(double)INFINITY", "(double)NAN")}
_MATH_TEXT = """
acos acosh asin asinh atan atan2 atanh ceil cos cosh erf exp exp2 fabs floor fmod log log10 log1p log2 nearbyint pow
round sin sinh sqrt tan tanh trunc
"""
_LIBRARY = ("exp2", "fabs", "trunc")
_FORMULAS = {
    "tanh": "llvm.FLowerIntrinsic",
    **dict.fromkeys(("tan", "atanh", "asin", "acos", "exp10"), "llvm.FLegalize"),
}
"""Functions that TVM's llvm build computes by a formula, with the attribute that has it."""
_MATH = frozenset(_MATH_TEXT.split())
_TAKEN = frozenset([*_MATH, *(f"{name}f" for name in _MATH), "bool", "restrict", "inline", "memcpy", "memset"])
"""Names that a parameter must not have, beside the keywords that TVM knows."""

_MOST_LETTERS = 60
"""Of a name that TVM makes of the operators in a function."""


@dataclass(frozen=True)
class Loops:
    """A lowered function: its C without the first line, and its parameters in order, as pairs of C type and name.

    `own` are the types and shapes of what it needs beside inputs and outputs; these parameters stand before the
    `results` last ones.
    """

    body: str
    parameters: tuple[tuple[str, str], ...]
    own: tuple[tuple[str, tuple[int, ...]], ...]
    results: int


def lowered_loops(functions: Mapping[str, tuple[Any, int]], operators: Mapping[str, str]) -> dict[str, Loops]:
    """The C of TVM's functions, by name; with each comes how many results it has. `operators` describes them in
    messages: `Unsupported` for one that needs TVM's runtime."""
    if not functions:
        return {}
    target = tvm.target.Target("c")
    own = {}
    prepared = {}
    for name, (function, results) in functions.items():
        explicit, own[name] = _with_buffers_outside(with_own_bits(_inlined_blocks(function)), results)
        prepared[name] = explicit.with_attr("global_symbol", name).with_attr("target", target)
    lowered = tvm.transform.Sequential(_passes())(tvm.IRModule(prepared))
    literals = _Literals()
    plain = {variable.name_hint: literals.with_pointers(function) for variable, function in lowered.functions.items()}
    found = {}
    for name in functions:  # one by one, so that an error has the name of its operator
        module = tir.transform.LowerIntrin()(tvm.IRModule({name: plain[name]}))
        try:
            text = tvm.get_global_func("target.build.c")(module, target).inspect_source()
        except tvm.error.InternalError as error:
            said = str(error).strip().splitlines()[-1]
            raise Unsupported(f"{operators[name]} on the host: TVM's C target cannot write it: {said}") from error
        match = _FUNCTION.search(text)
        assert match is not None, f"TVM's C target writes {name}"
        problem = _problem(match["body"])
        if problem:
            raise Unsupported(f"{operators[name]} on the host: {problem}")
        found[name] = match
    return {name: _loops(found[name], literals, own[name], functions[name][1]) for name in functions}


def short_symbol(name: str) -> str:
    """The name of a function, no longer than a C compiler must tell apart."""
    return name[:_MOST_LETTERS].rstrip("_")


def _passes() -> list[Any]:
    """From blocks to loops over flat buffers, without vectors, which C has not, and TVM's calling convention."""
    return [
        blocks.transform.CanonicalizeLoop(),
        blocks.transform.LowerInitBlock(),
        blocks.transform.PlanAndUpdateBufferAllocationLocation(),
        blocks.transform.ConvertBlocksToOpaque(),
        blocks.transform.LowerMatchBuffer(),
        blocks.transform.StmtSimplify(),
        blocks.transform.LowerOpaqueBlock(),
        tir.transform.FlattenBuffer(),
        tir.transform.NarrowDataType(32),
        blocks.transform.LoopPartition(),
        tir.transform.VectorizeLoop(False),
        tir.transform.UnrollLoop(),
        tir.transform.StmtSimplify(),
        tir.transform.RemoveNoOp(),
        blocks.transform.RewriteUnsafeSelect(),
    ]


def _inlined_blocks(function: Any) -> Any:
    """The function with each value computed where it is read, if it is read once, and not again and again by a sum."""
    schedule = blocks.Schedule(function)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        readers = schedule.get_consumers(block)
        if len(readers) == 1 and not any(int(one.iter_type) for one in schedule.get(readers[0]).iter_vars):
            try:
                schedule.compute_inline(block)
            except blocks.ScheduleError:
                continue  # a value that depends on more than one element: it stays in a buffer
    return schedule.mod["main"]


def _with_buffers_outside(function: Any, results: int) -> tuple[Any, tuple[tuple[str, tuple[int, ...]], ...]]:
    """The function with its buffers as parameters before its results, and their types and shapes."""
    realize = function.body
    root = realize.block
    buffers = list(root.alloc_buffers)
    place = len(function.params) - results
    bare = type(root)(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        root.body,
        root.init,
        [],
        root.match_buffers,
        root.annotations,
    )
    parameters = [*function.params[:place], *buffers, *function.params[place:]]
    body = type(realize)(realize.iter_values, realize.predicate, bare)
    own = tuple((str(buffer.dtype), tuple(map(int, buffer.shape))) for buffer in buffers)
    return tir.PrimFunc(parameters, body, function.ret_type, function.attrs), own


class _Literals:
    """The numbers that TVM's C target writes with too few digits, as calls that stand for them until C is written."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}

    def with_pointers(self, function: Any) -> Any:
        """The function with pointers for its buffers, and with calls for such numbers."""
        pointers, declared = [], []
        names = distinct((_plain_name(buffer.name) for buffer in function.params), taken=("arena",))
        for buffer, name in zip(function.params, names, strict=True):
            of = tvm.ir.PointerType(tvm.ir.PrimType(str(buffer.dtype)))
            pointers.append(tir.Var(name, of))
            declared.append(tir.DeclBuffer(buffer, data=pointers[-1]))
        body = structural.structural_map(function.body, [(tvm.ir.Call, _as_llvm_has_it)], order="post")
        rules = [(tir.FloatImm, self._marked), (tvm.ir.Call, _of_the_library)]
        body = structural.structural_map(body, rules, order="post")
        return tir.PrimFunc(pointers, tir.SeqStmt([*declared, body]), function.ret_type, function.attrs)

    def _marked(self, literal: Any) -> Any:
        dtype, value = str(literal.ty.dtype), float(literal.value)
        if dtype not in _FORMATS:
            return literal
        rounded = np.dtype(dtype).type
        if np.isfinite(value) and rounded(f"{value:e}") == rounded(value):
            return literal
        number = self._texts.setdefault(_word(value, dtype), len(self._texts))
        return tir.call_pure_extern(dtype, _MARK, number)

    def spelt(self, body: str) -> str:
        """C with the numbers in place of the calls."""
        texts = list(self._texts)
        return re.sub(rf"\b{_MARK}\((\d+)\)", lambda found: texts[int(found[1])], body)


def _plain_name(name: str) -> str:
    """The name of a parameter: that of a value, which may be any text, without what C and its headers have."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not re.match("[A-Za-z]", plain) or plain.isupper() or plain.endswith("_t") or plain in _TAKEN:
        plain = f"p_{plain}"
    return plain


def _as_llvm_has_it(call: Any) -> Any:
    """What TVM's llvm build, or LLVM itself, computes in place of a function of the C library, so that results are
    those of TVM."""
    name, dtype = _called(call)
    if name in _FORMULAS:
        return call.op.get_attr(_FORMULAS[name])(call)
    found = power(tir, dtype, *call.args) if name == "pow" and dtype in _FORMATS else None
    return call if found is None else found


def _of_the_library(call: Any) -> Any:
    """The C library's function where TVM's C target has none."""
    name, dtype = _called(call)
    if name not in _LIBRARY or dtype not in _FORMATS:
        return call
    return tir.call_pure_extern(dtype, f"{name}f" if dtype == "float32" else name, *call.args)


def _called(call: Any) -> tuple[str, str]:
    """The function that is called, and the type of what it returns."""
    return str(getattr(call.op, "name", "")).removeprefix("tirx."), str(getattr(call.ty, "dtype", ""))


def _problem(body: str) -> str:
    """Why a function cannot be part of a project, or ""."""
    found = _RUNTIME.search(body)
    if found is not None:
        return f"a C project has no TVM runtime: TVM uses {found[0]}"
    for name in re.findall(r"\b([a-z]\w*)\(", body):
        if name not in ("for", "if", "while", "return", "sizeof", _MARK) and name.removesuffix("f") not in _MATH:
            return f"a C project calls the C library's mathematics only: TVM calls {name}"
    return ""


def _loops(
    found: re.Match[str], literals: _Literals, own: tuple[tuple[str, tuple[int, ...]], ...], results: int
) -> Loops:
    arguments = [one.strip().rpartition(" ") for one in found["arguments"].split(",")]
    parameters = tuple((of.replace(" ", ""), name) for of, _, name in arguments)
    return Loops(literals.spelt(found["body"]), parameters, own, results)


# ---------------------------------------------------------------- C


_C_TYPES = {"bool": "bool", "float32": "float", "float64": "double"}


def loop_type(dtype: str) -> str:
    """The C type of elements."""
    return _C_TYPES.get(dtype, f"{dtype}_t")


def c_constant(name: str, values: Array) -> str:
    """The definition of a constant array."""
    flat = np.ascontiguousarray(values).reshape(-1)
    words = [_word(value, str(flat.dtype)) for value in flat.tolist()]
    rows = "".join(f"  {', '.join(words[start : start + 8])},\n" for start in range(0, len(words), 8))
    return (
        f"static const {loop_type(str(flat.dtype))} {name}[{len(words)}] __attribute__((aligned(16))) = {{\n{rows}}};\n"
    )


def _word(value: Any, dtype: str) -> str:
    if dtype in _FORMATS:
        form, infinity, nan = _FORMATS[dtype]
        if np.isnan(value):
            return nan
        return form.format(value) if np.isfinite(value) else infinity if value > 0 else f"(-{infinity})"
    if dtype == "int64":
        return "(-9223372036854775807LL - 1)" if value == -(2**63) else f"{value}LL"
    return "(-2147483647 - 1)" if value == -(2**31) else f"{int(value)}"


def c_function(symbol: str, parameters: Sequence[tuple[str, str]], body: str) -> str:
    """A host function of a project."""
    arguments = ", ".join([*(f"{of} {name}" for of, name in parameters), "uint8_t* arena"])
    return f"int32_t {symbol}({arguments}) {{\n  (void)arena;\n{body}  return 0;\n}}\n"
