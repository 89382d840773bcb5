"""How many broken HALs the HAL test kit finds: mutants of the template HAL, each with one token or statement changed.

    python benchmarks/hal_mutants.py --mutants 600 --check

A mutant that the kit passes runs all models, in both numerics. It is harmless if no result differs, and missed if
one does. The goal is that the kit finds 99 % of all mutants that are not harmless. Missed mutants are listed.
`--check` exits 1 if the goal is missed.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tables import models

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.run.files import read_model
from byoc_hw.run.hal_test import write_kit
from byoc_hw.run.new_hal import new_hal
from byoc_hw.run.real_values import Interface

GOAL = 0.99
"""Of the mutants that change a result or that the kit finds, those that the kit finds."""

CFLAGS = ("-std=c11", "-O1", "-w")
INFERENCES = 2
_LIMITED = ("sh", "-c", 'ulimit -t 10; exec "$@"', "sh")
"""A mutant may loop for ever: seconds of the processor, of which the kit needs one and a model less."""

# ---------------------------------------------------------------- mutants


@dataclass(frozen=True)
class Mutant:
    """A change of one place in a file of the HAL."""

    file: str
    line: int
    function: str
    before: str
    after: str
    text: str
    """The whole file, changed."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.before} -> {self.after}"


_TOKEN = re.compile(
    r"(?P<skip>/\*.*?\*/|^#.*?$|\"[^\"]*\")|(?P<member>[a-z_]\w*(?:(?:->|\.)[a-z_]\w*)+)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<number>0x[0-9a-fA-F]+|\d+)(?P<suffix>[uU]?)"
    r"|(?P<operator><<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|\+=|-=|->|[-+*/%&|<>!?:=~^])",
    re.MULTILINE | re.DOTALL,
)
_OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "%": "/",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "<": ("<=", ">", "!="),
    ">": (">=", "<"),
    "<=": "<",
    ">=": (">", "<", "=="),
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "++": "--",
    "+=": ("-=", "="),
    "-=": ("+=", "="),
}
_TYPES = {
    "uint64_t": ("uint32_t", "int64_t"),
    "int64_t": ("int32_t", "uint64_t"),
    "uint32_t": ("uint16_t", "uint8_t", "int32_t"),
    "int32_t": ("int16_t", "uint32_t"),
    "size_t": ("uint16_t", "uint8_t"),
    "unsigned": ("uint8_t", "int"),
    "uint8_t": ("int8_t",),
    "int8_t": ("uint8_t",),
    "int": ("int8_t",),
}
_MASKS = ("0x7fu", "0xffu", "0xfffu", "0x7fffu", "0xffffu")
_CONDITION = re.compile(r"\bif \((?P<condition>.*)\) \{$", re.MULTILINE)
_STATEMENT = re.compile(r"^ +(?P<statement>[a-z_*+][\w\->.\[\]]*(?: [-+]?= |\(|\+\+|--).*;|return .*;)$", re.MULTILINE)
_DECLARED = re.compile(r"(?:_t|int|unsigned|const|void|char|struct|enum|return|case|default)\s*\**\s*$")
_FUNCTION = re.compile(r"^(?:\w[\w *]*?)\b(\w+)\([^;]*?\)\s*\{", re.MULTILINE)


def mutants_of(directory: Path) -> list[Mutant]:
    """All mutants of the C files of a HAL, in the order of the text."""
    return [mutant for file in sorted(directory.glob("*.c")) for mutant in _mutants(file.name, file.read_text())]


def shuffled(mutants: Sequence[Mutant], seed: int) -> list[Mutant]:
    """The mutants in a random order, the same for a seed."""
    return random.Random(seed).sample(mutants, len(mutants))


def _mutants(name: str, text: str) -> Iterator[Mutant]:
    functions = [(match.start(), match.end(), match[1]) for match in _FUNCTION.finditer(text)]
    for start, end, after in sorted(set(_changes(text))):
        inside = [function for opened, body, function in functions if opened <= start and body <= start]
        if not inside:
            continue  # declarations; those that matter are inside
        line = text.count("\n", 0, start) + 1
        yield Mutant(name, line, inside[-1], text[start:end], after, text[:start] + after + text[end:])


def _changes(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and replacement."""
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        kind, token = match.lastgroup, match[0]
        if match["skip"]:
            continue
        if match["number"]:
            value = int(match["number"], 0)
            for other in {value + 1, max(value - 1, 0), 0, 2 * value} - {value}:
                yield start, end, f"{other}{match['suffix']}"
        elif kind == "operator":
            others = _OPERATORS.get(token, ())
            for operator in (others,) if isinstance(others, str) else others:
                yield start, end, operator
        elif token in _TYPES:
            for other in _TYPES[token]:
                yield start, end, other
        elif token[0].islower() and not token.endswith("_t") and _is_read(text, start, end):
            for mask in _MASKS:
                yield start, end, f"({token} & {mask})"
    for match in _CONDITION.finditer(text):
        for value in ("0", "1"):
            yield *match.span("condition"), value
    for match in _STATEMENT.finditer(text):
        statement = match["statement"]
        yield *match.span("statement"), "return 0;" if statement.startswith("return") else ";"


def _is_read(text: str, start: int, end: int) -> bool:
    """Whether the name is a value that is read: not declared, assigned, called or taken the address of."""
    before, after = text[max(0, start - 30) : start], text[end : end + 12]
    written = re.match(r"\s*(?:\(|\[|->|\.|\+\+|--|[-+*/&|]?=(?!=)|:|\{)", after)
    return not (written or _DECLARED.search(before) or re.search(r"(?:->|\.|&|\+\+|--|sizeof) ?$", before))


# ---------------------------------------------------------------- what they are tried with


class Bench:
    """The kit and the models, compiled once; a mutant's HAL is linked to them."""

    def __init__(self, directory: Path, projects: Iterable[Path] = ()) -> None:
        self.directory, self.hal, self.kit = directory, directory / "hal", directory / "kit"
        new_hal(self.hal, REFERENCE)
        write_kit(self.kit, REFERENCE)
        for source in sorted(self.kit.glob("*.c")):
            self._compile(source, source.with_suffix(".o"))
        for source in sorted(self.hal.glob("*.c")):
            self._compile(source, source.with_suffix(".o"))
        self.programs = [Program(project, self.hal) for project in projects]

    def mutants(self) -> list[Mutant]:
        return mutants_of(self.hal)

    def _compile(self, source: Path, target: Path) -> bool:
        includes = (f"-I{self.kit}", f"-I{self.hal}")
        command = ["gcc", *CFLAGS, *includes, "-c", source, "-o", target]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def objects(self, mutant: Mutant, directory: Path) -> list[Path] | None:
        """The HAL's objects with the mutant; None if it does not compile, or to the same code."""
        original = (self.hal / mutant.file).with_suffix(".o")
        source, changed = directory / mutant.file, directory / original.name
        source.write_text(mutant.text)
        if not self._compile(source, changed) or changed.read_bytes() == original.read_bytes():
            return None
        return [changed if path.name == original.name else path for path in sorted(self.hal.glob("*.o"))]

    def named(self, objects: Sequence[Path], directory: Path) -> str | None:
        """The first function of the HAL in which the kit finds a fault; None if it passes."""
        program = directory / "kit"
        if not _linked([*sorted(self.kit.glob("*.o")), *objects], program):
            return "the linker"
        checking = "hwlib_hal_init"
        process = subprocess.Popen([*_LIMITED, program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                if found := re.match(r"(checking|FAILED) (\w+):", line):
                    checking = found[2]
                    if found[1] == "FAILED":
                        process.kill()
                        return checking
        return checking if process.returncode != 0 else None

    def changed(self, objects: Sequence[Path], directory: Path) -> str | None:
        """The first model of which a result changes; None if none does."""
        return next((program.name for program in self.programs if program.differs(objects, directory)), None)


class Program:
    """A project, compiled but for the HAL, with inputs and what it gives for them."""

    def __init__(self, project: Path, hal: Path) -> None:
        build = ["make", "-s", "-C", str(project), f"HAL={hal}", "CFLAGS=-O2"]
        subprocess.run(build, check=True, capture_output=True)
        model = read_model(project)
        self.name, self.directory = project.name, project
        self._objects = [path for path in sorted(project.glob("build/**/*.o")) if path.parent.name != "hal"]
        generator = np.random.default_rng(0)
        self._inputs = project / "inputs.bin"
        drawn = (_random(generator, one) for _ in range(INFERENCES) for one in model.inputs)
        self._inputs.write_bytes(b"".join(drawn))
        self._expected = self._run([hal / f"{path.stem}.o" for path in sorted(hal.glob("*.c"))], project)
        assert self._expected

    def differs(self, objects: Sequence[Path], directory: Path) -> bool:
        return self._run(objects, directory) != self._expected

    def _run(self, objects: Sequence[Path], directory: Path) -> bytes:
        """The outputs; nothing if it fails."""
        program, outputs = directory / "model", directory / "outputs.bin"
        outputs.unlink(missing_ok=True)
        if not _linked([*self._objects, *objects], program):
            return b""
        command = [*_LIMITED, program, self._inputs, outputs, directory / "profile.json"]
        done = subprocess.run(command, capture_output=True, check=False)
        return outputs.read_bytes() if done.returncode == 0 else b""


def _random(generator: np.random.Generator, one: Interface) -> bytes:
    if one.dtype.startswith("float"):
        return generator.standard_normal(one.shape).astype(one.dtype).tobytes()
    low, high = np.iinfo(one.dtype).min, np.iinfo(one.dtype).max
    return generator.integers(low, high, one.shape, dtype=one.dtype, endpoint=True).tobytes()


def _linked(objects: Sequence[Path], program: Path) -> bool:
    return subprocess.run(["gcc", *objects, "-lm", "-o", program], capture_output=True, check=False).returncode == 0


# ---------------------------------------------------------------- what became of them

_COPIES = {"hwlib_hal_copy_1d", "hwlib_hal_copy_2d"}
_STARTS = _COPIES | {"hwlib_hal_job_start"}
_NAMES = {"bytes_at": _COPIES, "hwlib_hal_copy_2d": _COPIES, "started": _STARTS}


def names_of(mutant: Mutant) -> set[str]:
    """The functions of the HAL that the function of the mutant belongs to."""
    if mutant.file != "chip_hal.c":
        return {"hwlib_hal_job_start"}
    return _NAMES.get(mutant.function, {mutant.function})


@dataclass(frozen=True)
class Outcome:
    """`what` is "no mutant" (it does not compile, or to the same code), "found", "missed" or "harmless"."""

    mutant: Mutant
    what: str
    who: str = ""
    """The function that the kit names, or the model of which a result changes."""

    @property
    def well_named(self) -> bool:
        return self.who in names_of(self.mutant)


def judged(bench: Bench, mutant: Mutant) -> Outcome:
    """What the kit says of the mutant, and what the models say if the kit passes."""
    with tempfile.TemporaryDirectory(dir=bench.directory) as name:
        directory = Path(name)
        objects = bench.objects(mutant, directory)
        if objects is None:
            return Outcome(mutant, "no mutant")
        if function := bench.named(objects, directory):
            return Outcome(mutant, "found", function)
        model = bench.changed(objects, directory)
        return Outcome(mutant, "harmless" if model is None else "missed", model or "")


def judge(bench: Bench, mutants: Sequence[Mutant], count: int, jobs: int) -> list[Outcome]:
    """The outcomes of the first `count` mutants that are one."""
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(jobs) as pool:
        for start in range(0, len(mutants), 8 * jobs):
            some = pool.map(lambda mutant: judged(bench, mutant), mutants[start : start + 8 * jobs])
            outcomes += (outcome for outcome in some if outcome.what != "no mutant")
            if len(outcomes) >= count:
                break
    return outcomes[:count]


def projects(given: Sequence[Path], directory: Path) -> Iterator[Path]:
    """A project of each model in each of the numerics."""
    for path in models(given):
        mod, params = byoc_hw.load_tflite(path)
        for numerics in ("relay", "tflite"):
            partitioned = byoc_hw.partition_for_hwlib(mod, params, accelerator=REFERENCE, numerics=numerics)
            yield byoc_hw.build(partitioned, output_dir=directory / f"{path.stem}_{numerics}").directory


def report(outcomes: Sequence[Outcome], listed: Sequence[str]) -> bool:
    """Print the figures, and the mutants with one of these outcomes; whether the goal is met."""
    counts = Counter(outcome.what for outcome in outcomes)
    found = [outcome for outcome in outcomes if outcome.what == "found"]
    harmful = counts["found"] + counts["missed"]
    share = counts["found"] / max(harmful, 1)
    for outcome in outcomes:
        if outcome.what in listed:
            print(f"  {outcome.what}  {outcome.mutant}  {outcome.who}")
    for outcome in found:
        if not outcome.well_named:
            print(f"  found in {outcome.who}  {outcome.mutant}")
    print(f"{len(outcomes)} mutants: {', '.join(f'{counts[what]} {what}' for what in ('found', 'missed', 'harmless'))}")
    print(f"  of those found, {sum(outcome.well_named for outcome in found)} with the function that was changed")
    met = harmful > 0 and share >= GOAL
    print(f"  found of those that are not harmless  {share:.4f}   goal {GOAL}: {'met' if met else 'not met'}")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="the digits model, and those in $BYOC_HW_MODELS")
    parser.add_argument("--mutants", type=int, default=600, help="how many to try (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of mutants (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--harmless", action="store_true", help="list the mutants that change nothing")
    parser.add_argument("--check", action="store_true", help="exit 1 if the goal is missed")
    given = parser.parse_args()
    if shutil.which("gcc") is None:
        parser.error("gcc is missing: sudo apt install gcc (or your system's package)")
    with tempfile.TemporaryDirectory(prefix="byoc_hw_") as name:
        directory = Path(name)
        bench = Bench(directory, list(projects(given.models, directory)))
        every = bench.mutants()
        outcomes = judge(bench, shuffled(every, given.seed), given.mutants, given.jobs)
    print(f"{len(every)} changes of the HAL")
    met = report(outcomes, ("missed", "harmless") if given.harmless else ("missed",))
    return 1 if given.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
