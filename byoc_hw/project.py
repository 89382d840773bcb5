"""A generated C project: its memory, its report, its schedule, and running it."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from byoc_hw.arguments import check_flag, check_number, check_type
from byoc_hw.emit.directory import changed_files
from byoc_hw.errors import InvalidInput
from byoc_hw.html_tables import table_html
from byoc_hw.plan.place.arena import CONSTANTS
from byoc_hw.report import schedule
from byoc_hw.report.cycles import short_name
from byoc_hw.report.explain import Report
from byoc_hw.report.line import share_of
from byoc_hw.report.summary import Summary, summary_of
from byoc_hw.run.files import Inputs, stored_inputs
from byoc_hw.run.host import run_on_host
from byoc_hw.run.metadata import read_metadata, read_report
from byoc_hw.run.qemu import run_on_riscv32
from byoc_hw.run.real_values import Interface
from byoc_hw.run.result import Result
from byoc_hw.run.toolchain import Toolchain, build_program
from byoc_hw.tensor import Array

_RUN = {"host": run_on_host, "riscv32": run_on_riscv32}

RUNNERS = tuple(_RUN)
"""Where a project can run."""


@dataclass(frozen=True)
class Memory:
    """RAM and flash of a project, in bytes.

    `arena` is the one static buffer for all that the model writes. Inputs and outputs are the caller's,
    and not in it, unless the project was built with `io_in_arena`. `blocks` is what lies in it, by name:
    (owner, offset, bytes).

    `lower_bound` is the largest sum of bytes that are alive at the same time. That is at `peak`, a layer
    or function, and `owners` has the bytes of each owner there. `gap` is the most that a better placement
    could save. `tvm` is the arena that TVM's own planner makes for the same module, plus the scratch of
    every region.

    `flash` is constant data by owner, without code. `constants` are those bytes of it that lie in RAM beside the arena
    as well: start-up code copies them there for a DMA that cannot read flash. `optimize` is the objective that `build`
    planned for. `narrow` are the layers whose weights have fewer than 8 bits: the bits of each weight, and the bytes of
    flash that they save against 8.
    """

    arena: int
    lower_bound: int
    gap: int
    tvm: int
    peak: str
    owners: dict[str, int]
    blocks: dict[str, tuple[str, int, int]]
    flash: dict[str, int]
    optimize: str = "speed"
    constants: int = 0
    narrow: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def ram_bytes(self) -> int:
        """The arena, and constants beside it."""
        return self.arena + self.constants

    @property
    def flash_bytes(self) -> int:
        """All constant data."""
        return sum(self.flash.values())

    def __repr__(self) -> str:
        arena = f"arena {self.arena:,} bytes (lower bound {self.lower_bound:,})"
        constants = f", constants in RAM {self.constants:,} bytes" if self.constants else ""
        return f"<Memory: {arena}{constants}, flash {self.flash_bytes:,} bytes>"

    def _repr_html_(self) -> str:
        rows = [
            ("RAM", f"arena, most at {self.peak}", self.arena),
            *(("", f"there: {owner}", nbytes) for owner, nbytes in self.owners.items()),
            *([("RAM", CONSTANTS, self.constants)] if self.constants else []),
            ("flash", "constants", self.flash_bytes),
            *(("", owner, nbytes) for owner, nbytes in self.flash.items() if nbytes),
        ]
        return table_html(repr(self).strip("<>"), ("memory", "owner", "bytes"), rows)

    def __str__(self) -> str:
        bounds = f"lower bound {self.lower_bound}, gap at most {self.gap}, TVM's planner {self.tvm}"
        lines = [f"RAM   {self.arena:>12}  arena ({bounds}); at its peak:"]
        lines += [f"      {nbytes:>12}    {owner}" for owner, nbytes in self.owners.items()]
        if self.constants:
            lines += [f"RAM   {self.constants:>12}  {CONSTANTS}, together {self.ram_bytes}"]
        lines += [f"flash {self.flash_bytes:>12}  constants:"]
        lines += [f"      {nbytes:>12}    {owner}" for owner, nbytes in self.flash.items() if nbytes]
        if self.narrow:
            lines += [f"saved {sum(saved for _, saved in self.narrow.values()):>12}  by weights of fewer than 8 bits:"]
        for name, (bits, saved) in self.narrow.items():
            lines += [f"      {saved:>12}    {bits} bits, {short_name(name)}"]
        lines += [f"      {'':>12}  planned for {self.optimize}"] if self.optimize != "speed" else []
        return "\n".join(lines)


class Project:
    """A C project on disk. The project itself needs neither Python nor TVM; this class runs it from Python.

    `Project(directory)` opens one that was built before; `InvalidInput` if the directory holds none.
    """

    def __init__(self, directory: str | Path, *, temporary: bool = False) -> None:
        check_type("directory", directory, str | Path, "a path")
        self.directory = Path(directory)
        if temporary:  # the directory goes when the project does
            weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        self._metadata: dict[str, Any] = read_metadata(self.directory)

    def __repr__(self) -> str:
        return f"Project({str(self.directory)!r})"

    def _repr_html_(self) -> str:
        ends = [
            (what, one.name, f"{one.dtype} {' x '.join(map(str, one.shape))}")
            for what, several in (("input", self.inputs), ("output", self.outputs))
            for one in several
        ]
        found, memory = self.summary(), self.memory
        cycles = "not known" if found.cycles is None else f"{found.cycles:,}"
        rows = [
            *ends,
            ("operators", "offloaded", share_of(found.offloaded, found.operators)),
            ("cycles", "accelerator", cycles),
            ("bytes", "RAM", memory.ram_bytes),
            ("bytes", "flash", memory.flash_bytes),
        ]
        place = "" if found.accelerator is None else f" on {found.accelerator}"
        return table_html(f"{self.mod_name}{place} in {self.directory}", ("", "", ""), rows)

    @property
    def mod_name(self) -> str:
        """The name that every C name of the model starts with."""
        return str(self._metadata["model"]["name"])

    @property
    def changed(self) -> tuple[str, ...]:
        """The project's files that are not as `build` wrote them: changed, missing, or added among its sources.

        A rebuild keeps those of `app/`; see `build`.
        """
        return changed_files(self.directory)

    @cached_property
    def memory(self) -> Memory:
        """RAM and flash in bytes, by owner."""
        ram, flash = self._metadata["memory"]["ram"], self._metadata["memory"]["flash"]
        blocks = {entry["name"]: (entry["owner"], entry["offset"], entry["bytes"]) for entry in ram["buffers"]}
        peak = ram["peak"]
        return Memory(
            ram["arena"],
            ram["lower_bound"],
            ram["gap"],
            ram["tvm"],
            peak["where"],
            dict(peak["owners"]),
            blocks,
            dict(flash),
            self._metadata.get("optimize", "speed"),
            ram.get("constants", 0),
            {
                layer["name"]: (entry["bits"], entry["saved"])
                for layer in self.layers
                if (entry := layer.get("weights"))
            },
        )

    @cached_property
    def report(self) -> Report:
        """The offload report: where each operator runs, and why not on the accelerator."""
        found = Report.from_plain(read_report(self.directory, self._metadata))
        if self.schedule.missing is not None:
            return found
        return replace(found, cycles=self.schedule.cycles, bound=self.schedule.bound)

    @cached_property
    def schedule(self) -> schedule.Schedule:
        """The planned times: when the engines work, and what memory holds; as a table and as pictures."""
        return schedule.from_metadata(self._metadata)

    def summary(self, clock: float | None = None) -> Summary:
        """One page: what is offloaded, cycles, memory, bytes moved, and the costliest layers.

        With the `clock` of the accelerator, in Hz, it has times. `InvalidInput` for a clock that is none.
        """
        if clock is not None:
            check_number("clock", clock, positive=True)
        ram, flash = self.memory.ram_bytes, self.memory.flash_bytes
        return summary_of(self._metadata, self.report, self.schedule, ram, flash, clock)

    @property
    def layers(self) -> list[dict[str, Any]]:
        """Every layer and host function in the order of execution.

        Each has `id` (its number in errors, profiles and traces), `name`, `kind`, `region` (None on the
        host) and `source`, the operators that it was made of.
        """
        return list(self._metadata["layers"])

    @property
    def inputs(self) -> tuple[Interface, ...]:
        """The model's inputs in order: name, dtype, shape, bytes, and scale and zero point where they are known."""
        return tuple(map(Interface.from_plain, self._metadata["model"]["inputs"]))

    @property
    def outputs(self) -> tuple[Interface, ...]:
        """The model's outputs, as `inputs`."""
        return tuple(map(Interface.from_plain, self._metadata["model"]["outputs"]))

    def run(
        self,
        inputs: Inputs,
        on: str = "host",
        *,
        quantize: bool = False,
        trace: bool = False,
        timeout: float = 120.0,
        toolchain: Toolchain = Toolchain(),
    ) -> Result:
        """Build the project, where anything changed, and run one inference.

        Only a program that `run` itself built, from the files and with the toolchain at hand, is executed;
        anything else in its place is built anew. `changed` of the result names files that were changed.

        `inputs` are given by name (as in the model file), as a list in the model's order, or as one array;
        each has exactly the model's shape and dtype. `on` is "host", or "riscv32": the same sources on a
        bare-metal core that QEMU emulates, with exact counts of what it executes. With `quantize` inputs
        are real values, such as a picture's pixels from 0 to 1, and so are the outputs, as float32; those without a
        scale (see `Project.inputs`) are as before. With `trace` the result has every layer's output. `timeout` is in
        seconds, for the run. `toolchain` says how to build: compiler, flags, your own HAL.

        Raises `InvalidInput`, `ToolchainMissing` (with the package to install), or `RunError` with
        what compiler or program said and where it was.
        """
        return self._run([inputs], on, toolchain, trace, timeout, quantize)[0]

    def run_batch(
        self,
        inferences: Sequence[Inputs],
        on: str = "host",
        *,
        quantize: bool = False,
        trace: bool = False,
        timeout: float = 120.0,
        toolchain: Toolchain = Toolchain(),
    ) -> list[Result]:
        """Run several inferences, one after another in one process; otherwise as `run`."""
        return self._run(inferences, on, toolchain, trace, timeout, quantize)

    def build(
        self,
        on: str = "host",
        *,
        trace: bool = False,
        toolchain: Toolchain = Toolchain(),
    ) -> Path:
        """Build the program without running it; the path of the program. Arguments and errors are those of `run`."""
        self._check_run(on, toolchain, trace)
        return build_program(self.directory, on, toolchain, trace=trace)

    def _run(
        self, inferences: Sequence[Inputs], on: str, toolchain: Toolchain, trace: bool, timeout: float, quantize: bool
    ) -> list[Result]:
        self._check_run(on, toolchain, trace)
        check_number("timeout", timeout, positive=True)
        check_type("inferences", inferences, Sequence, "a list, each as the inputs of one run")
        check_flag("quantize", quantize)
        if quantize:
            self._check_scales()
            inferences = [stored_inputs(self.inputs, inputs) for inputs in inferences]
        changed = self.changed
        results = _RUN[on](self.directory, inferences, toolchain, trace=trace, timeout=timeout)
        if quantize:
            results = [replace(result, outputs=self._real(result.outputs)) for result in results]
        return [replace(result, changed=changed) for result in results]

    def _check_scales(self) -> None:
        if all(interface.scale is None for interface in (*self.inputs, *self.outputs)):
            raise InvalidInput("quantize is for inputs and outputs with a scale: the model states none of any")

    def _real(self, outputs: Sequence[Array]) -> list[Array]:
        """The outputs as real values, where they have a scale."""
        pairs = zip(self.outputs, outputs, strict=True)
        return [values if interface.scale is None else interface.dequantize(values) for interface, values in pairs]

    def _check_run(self, on: str, toolchain: Toolchain, trace: bool) -> None:
        if not isinstance(on, str) or on not in RUNNERS:
            raise InvalidInput(f"on is one of {', '.join(RUNNERS)}: got {on!r}")
        check_type("toolchain", toolchain, Toolchain, "a Toolchain")
        check_flag("trace", trace)
