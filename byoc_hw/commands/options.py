"""What several commands share: options, the model that they name, the accelerator, and how a command is described."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import byoc_hw
from byoc_hw.accelerator import KIB
from byoc_hw.accelerator_file import FILES, load_accelerator
from byoc_hw.compiler import OBJECTIVES
from byoc_hw.errors import InvalidInput
from byoc_hw.names import distinct
from byoc_hw.numerics import NUMERICS
from byoc_hw.program import mod_name_of
from byoc_hw.soc import Hardware

if TYPE_CHECKING:
    import tvm

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a command is added."""

ACCELERATORS = {
    preset.label: preset for preset in (byoc_hw.REFERENCE, byoc_hw.SMALL, byoc_hw.DIANA_DIGITAL, byoc_hw.DSP)
}

PICTURES = (".svg", ".png", ".pdf")

EXIT_CODES = """\
exit codes:
  0  done
  1  the generated program, or the HAL, could not be built, or failed
  2  a bad option or input: nothing was written
  3  a tool is missing: the message says what to install
  130  interrupted
"""


def add_command(commands: Commands, name: str, summary: str, example: str, above: str = "") -> argparse.ArgumentParser:
    """The parser of a command, with its example and the exit codes in its help; `above` is that it is part of."""
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  python -m byoc_hw {above}{name} {example}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the model, and the shapes that its file leaves open."""
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="a .tflite or .onnx file, Relay as .relay, .txt or .json, or with Relax .pt2",
    )
    add_shapes(parser)


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Add the shapes that an ONNX file leaves open."""
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1,3,32,32",
        help="of an input whose shape an ONNX file leaves open; once for each",
    )


def add_accelerator(parser: argparse.ArgumentParser, group: argparse._ActionsContainer) -> None:
    """Add what a model is partitioned for. `--accelerator` may be in a group of its own."""
    add_preset(group, ", or a chip of several, as in DIANA_DIGITAL+DSP")
    add_numerics(parser)


def add_numerics(parser: argparse.ArgumentParser) -> None:
    """Add the arithmetic of what is offloaded, and what is not offloaded."""
    parser.add_argument(
        "--numerics",
        choices=NUMERICS,
        default="relay",
        help="whose arithmetic offloaded layers follow: that of TVM's integers, of TFLite's reference kernels, or of "
        "the floats of a Relax module (%(default)s)",
    )
    parser.add_argument(
        "--deny",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="composites or operators to keep on the host",
    )


def add_preset(group: argparse._ActionsContainer, several: str) -> None:
    """Add `--accelerator`; `several` says how a chip is named, where one may be."""
    text = f"{', '.join(ACCELERATORS)}{several}, or a file: chip.toml, .json, .py (%(default)s)"
    group.add_argument("--accelerator", default="REFERENCE", metavar="NAME", help=text)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add `--ram` and `--flash`."""
    for name, what in (("ram", "for all data that is written"), ("flash", "for constant data")):
        text = f"{what}, such as 320k (that of the preset)"
        parser.add_argument(f"--{name}", type=size_in_bytes, metavar="BYTES", help=text)


def add_optimize(parser: argparse.ArgumentParser) -> None:
    """Add `--optimize`."""
    text = "what to plan for: the fastest plans that fit, or the smallest (%(default)s)"
    parser.add_argument("--optimize", choices=OBJECTIVES, default=OBJECTIVES[0], help=text)


_SIZE = re.compile(r"(\d+)\s*(|k|K|Ki|KiB|M|Mi|MiB)B?", re.ASCII)


def size_in_bytes(text: str) -> int:
    """A size such as 65536, 64k or 64KiB."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"a size is bytes, KiB or MiB, as in 65536, 64k, 64KiB, 2M: got {text!r}")
    return int(found[1]) * {"": 1, "k": KIB, "m": KIB * KIB}[found[2][:1].lower()]


def picture_path(text: str) -> Path:
    """The file of a picture."""
    path = Path(text)
    if path.suffix not in PICTURES:
        raise argparse.ArgumentTypeError(f"a picture is one of {', '.join(PICTURES)}: got {text!r}")
    return path


def shape_of_option(text: str) -> tuple[str, tuple[int, ...]]:
    """An option --shape; a name may hold an equals sign, extents do not."""
    name, _, extents = text.rpartition("=")
    try:
        return name, tuple(int(extent) for extent in extents.split(","))
    except ValueError:
        raise InvalidInput(f"--shape is NAME=EXTENTS, as in x=1,3,32,32: got {text!r}") from None


def loaded_model(options: argparse.Namespace) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """The model of the options, and its weights."""
    return byoc_hw.load(options.model, shapes=dict(map(shape_of_option, options.shape)))


def partitioned_model(options: argparse.Namespace, accelerator: Hardware | None = None) -> tvm.IRModule:
    """The model of the options, partitioned for their accelerator, or for another one."""
    mod, params = loaded_model(options)
    accelerator = accelerator_of_options(options) if accelerator is None else accelerator
    return byoc_hw.partition_for_hwlib(
        mod, params, name_of_model(options), accelerator=accelerator, numerics=options.numerics, deny=options.deny
    )


def name_of_model(options: argparse.Namespace) -> str:
    """What the model is called: as its file, unless `--mod-name` is given."""
    given: str | None = getattr(options, "mod_name", None)
    return mod_name_of(options.model.stem) if given is None else given


def accelerator_of_options(options: argparse.Namespace) -> Hardware:
    """The preset, or the chip of presets, with the given RAM and flash."""
    sizes = {name: getattr(options, name, None) for name in ("ram", "flash")}
    given = {name: nbytes for name, nbytes in sizes.items() if nbytes is not None}
    return replace(hardware_named(options.accelerator), **given)


def hardware_named(text: str) -> Hardware:
    """A preset by its label, a chip of several, labels with + between them, or the description in a file."""
    if Path(text).suffix in FILES:
        return load_accelerator(text)
    labels = text.split("+")
    for label in labels:
        if label not in ACCELERATORS:
            known = ", ".join(ACCELERATORS)
            rule = f"one of {known}, or several, as in DIANA_DIGITAL+DSP, or a file that ends in {', '.join(FILES)}"
            raise InvalidInput(f"--accelerator is {rule}: got {text!r}")
    if len(labels) == 1:
        return ACCELERATORS[text]
    names = distinct(label.lower() for label in labels)
    presets = (ACCELERATORS[label] for label in labels)
    return byoc_hw.Soc(tuple(replace(one, name=name) for one, name in zip(presets, names, strict=True)), label=text)


def print_note(text: str) -> None:
    """Print a line beside the output."""
    print(f"byoc_hw: note: {text}", file=sys.stderr)


def ignore_interrupts() -> None:
    """In a worker: the search ends in the process that the interrupt is meant for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
