"""One case of fuzzing: a class and a seed. What may come of it, and how findings are told apart."""

from __future__ import annotations

import importlib
import os
import random
import re
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from byoc_hw.errors import ByocHwError, RunError, ToolchainMissing
from byoc_hw.run.toolchain import Toolchain

CLASSES = (
    *("relay", "structures", "tflite", "coverage", "arithmetic"),
    *("accelerators", "plans", "names", "files", "failures"),
)
"""A class is a module `fuzz_<class>` with `run(case)`."""

OUT = Path(__file__).resolve().parents[2] / "out" / "fuzz"

QUICK = Toolchain(cflags="-O0")
"""gcc takes most of the time of a case that is run."""


class Finding(Exception):
    """What must not happen. `what` names the cause: findings of a class with the same kind and cause are one."""

    def __init__(self, kind: str, what: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {what}\n{detail}".rstrip())
        self.kind, self.what, self.detail = kind, what, detail


@dataclass
class Case:
    """What a class makes one case of: random choices from the seed, a directory, and a place to count.

    `tally` counts what was right: "exact" (the bits of the oracle), "built" (not compared), "refused".
    """

    name: str
    seed: int
    directory: Path
    leave: Callable[[str], None] = lambda stage: None
    tally: Counter[str] = field(default_factory=Counter)
    found: list[Outcome] = field(default_factory=list)

    @cached_property
    def rng(self) -> random.Random:
        return random.Random(f"{self.name} {self.seed}")

    @cached_property
    def arrays(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @contextmanager
    def outside(self, what: str) -> Iterator[None]:
        """While TVM or a generator works and not the product: a crash there is not a finding."""
        self.leave(what)
        yield
        self.leave("")

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """An error of byoc_hw in here is an answer; the case goes on behind it."""
        try:
            yield
        except ByocHwError as error:
            if isinstance(error, (RunError, ToolchainMissing)):
                raise
            self.tally["refused"] += 1

    def note(self, what: str, detail: object) -> None:
        """What is tried from here on, for the log: all that is known of it after a crash."""
        print(f"# {what}\n{detail}", file=sys.stderr, flush=True)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability


@dataclass(frozen=True)
class Outcome:
    """What came of a case. `kind` and `what` are empty without a finding; `detail` is for people."""

    tally: dict[str, int]
    kind: str = ""
    what: str = ""
    detail: str = ""
    others: tuple[Outcome, ...] = ()


def try_case(name: str, seed: int, leave: Callable[[str], None] = lambda stage: None) -> Outcome:
    """Run one case in this process."""
    return judged(name, seed, importlib.import_module(f"fuzz_{name}").run, leave)


def judged(
    name: str, seed: int, run: Callable[[Case], None], leave: Callable[[str], None] = lambda stage: None
) -> Outcome:
    """What comes of `run` with a new case."""
    case = Case(name, seed, Path(tempfile.mkdtemp(prefix=f"fuzz_{name}_")), leave)
    kind = what = detail = ""
    before = Path.cwd()
    os.chdir(case.directory)  # where a relative path leads to
    try:
        with case.refusing():
            run(case)
    except ToolchainMissing:
        raise
    except Exception as error:
        kind, what = _described(error)
        detail = f"{getattr(error, 'detail', '')}\n{traceback.format_exc()}".strip()
    finally:
        os.chdir(before)
        shutil.rmtree(case.directory, ignore_errors=True)
    return Outcome(dict(case.tally), kind, what, detail, tuple(case.found))


def _described(error: Exception) -> tuple[str, str]:
    """Kind and cause of the finding that an error is."""
    if isinstance(error, Finding):
        return error.kind, error.what
    if isinstance(error, RunError):
        return "does not compile" if "does not build" in str(error) else "the program failed", _complaint(str(error))
    return "memory" if isinstance(error, MemoryError) else "foreign error", _innermost(error)


def _innermost(error: BaseException) -> str:
    """The error's class and message, the last line of the product, and the last line of all; without numbers."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/byoc_hw/" in frame.filename or "/patterns/" in frame.filename]
    shown = dict.fromkeys(f"{Path(frame.filename).name}:{frame.name}" for frame in (*own[-1:], *frames[-1:]))
    said = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__} in {' < '.join(reversed(shown))}: {_plain(said[-1])}".removesuffix(": ")


def _complaint(said: str) -> str:
    lines = [line for line in said.splitlines() if re.search(r"\berror\b|undefined|multiple definition", line)]
    return _plain((lines or said.splitlines() or [""])[0])


def _plain(line: str) -> str:
    """A message without what differs from case to case: paths, names in quotes, numbers."""
    line = re.sub(r"'[^']*'|\"[^\"]*\"|\u2018[^\u2019]*\u2019|`[^`']*[`']", "'...'", line)
    line = re.sub(r"\S*/(?=[^/\s]+)", "", line)
    return re.sub(r"-?\d[\d.e+-]*", "N", line)[:160]
