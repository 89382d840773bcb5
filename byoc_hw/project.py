"""A generated project: its directory, its memory, and running it."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from byoc_hw.errors import InvalidInput
from byoc_hw.report.explain import Report, from_plain
from byoc_hw.run.files import Inputs, read_metadata
from byoc_hw.run.host import DEFAULT_CFLAGS, run_on_host
from byoc_hw.run.result import Result

RUNNERS = ("host",)
"""Where a project can run."""


@dataclass(frozen=True)
class Memory:
    """What a project needs, in bytes.

    `arena` is the one static buffer for everything that is written (the caller's inputs and outputs
    are not in it), `lower_bound` the least that it could be, `blocks` what lies in it and where, by
    name: (owner, offset, bytes). `flash` is constant data by owner, without code.
    """

    arena: int
    lower_bound: int
    blocks: dict[str, tuple[str, int, int]]
    flash: dict[str, int]

    @property
    def flash_bytes(self) -> int:
        """All constant data."""
        return sum(self.flash.values())

    def __str__(self) -> str:
        owners = "".join(f"\n  flash {nbytes:>10}  {owner}" for owner, nbytes in self.flash.items() if nbytes)
        return f"RAM   {self.arena:>12}  arena (lower bound {self.lower_bound}){owners}"


class Project:
    """A C project on disk. Needs neither Python nor TVM; this class is how Python runs it.

    `Project(directory)` opens one that was built before; `InvalidInput` if the directory holds none.
    """

    def __init__(self, directory: str | Path, *, temporary: bool = False) -> None:
        self.directory = Path(directory)
        if temporary:  # the directory goes when the project does
            weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        self._metadata: dict[str, Any] = read_metadata(self.directory)

    def __repr__(self) -> str:
        return f"Project({str(self.directory)!r})"

    @property
    def mod_name(self) -> str:
        """The name that every C name of the model starts with."""
        return str(self._metadata["model"]["name"])

    @cached_property
    def memory(self) -> Memory:
        """RAM and flash in bytes, by owner."""
        ram, flash = self._metadata["memory"]["ram"], self._metadata["memory"]["flash"]
        blocks = {entry["name"]: (entry["owner"], entry["offset"], entry["bytes"]) for entry in ram["buffers"]}
        return Memory(ram["arena"], ram["lower_bound"], blocks, dict(flash))

    @cached_property
    def report(self) -> Report:
        """What goes where, and why not."""
        return from_plain(self._metadata["report"])

    @property
    def layers(self) -> list[dict[str, Any]]:
        """Every layer and host function in the order of execution.

        Each with its number `id` (what a failing run, a profile and a trace name it by), `name`,
        `kind`, `region` (None on the host) and `source` operators.
        """
        return list(self._metadata["layers"])

    def run(
        self,
        inputs: Inputs,
        on: str = "host",
        *,
        trace: bool = False,
        timeout: float = 120.0,
        cc: str = "gcc",
        cflags: str = DEFAULT_CFLAGS,
    ) -> Result:
        """One inference of the generated C, built with `cc` where anything changed.

        `inputs` by name (the model file's), in the model's order, or one array; each has exactly the
        model's shape and dtype. With `trace` the result has every layer's output. `timeout` is in
        seconds. Raises `InvalidInput`, `ToolchainMissing` (with the package to install), or
        `RunError` with what compiler or program said.
        """
        return self.run_batch([inputs], on, trace=trace, timeout=timeout, cc=cc, cflags=cflags)[0]

    def run_batch(
        self,
        inferences: Sequence[Inputs],
        on: str = "host",
        *,
        trace: bool = False,
        timeout: float = 120.0,
        cc: str = "gcc",
        cflags: str = DEFAULT_CFLAGS,
    ) -> list[Result]:
        """Several inferences, one after another in one process. As `run`."""
        if on not in RUNNERS:
            raise InvalidInput(f"on is one of {', '.join(RUNNERS)}: got {on!r}")
        return run_on_host(self.directory, inferences, trace=trace, timeout=timeout, cc=cc, cflags=cflags)
