"""The offload report: where each operator runs, and why not on the accelerator; as text, JSON and HTML."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from byoc_hw.pattern import Outcome
from byoc_hw.report.line import counted, line, share_of, times_bound

_NAME_WIDTH = 60

_PRODUCTS = {
    *("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv2d_transpose", "nn.dense", "nn.matmul", "nn.batch_matmul"),
    *("conv1d", "conv2d", "conv3d", "conv2d_transpose", "dense", "matmul", "batch_matmul"),
}
"""Float operators that sum products, and the quantized ones without their `qnn.`."""


@dataclass(frozen=True)
class Report:
    """The offload report of one model: an `Outcome` for each operator of the model file, in order.

    `str()` is for people, `to_json()` for programs; a notebook shows it as a table. `accelerator` is
    None for a module that was never partitioned. `tuning` says how many regions are tuned, `planning` what
    the plans are for where it is not speed alone; they are empty otherwise. On a chip of several accelerators `engines`
    says by operator which of them run it, and what it takes on each. `cycles` are those of the planned regions, None
    where nothing is planned yet; no plan takes fewer than `bound`. `polled` says whether the model can be run in steps.
    """

    mod_name: str
    accelerator: str | None
    numerics: str | None
    outcomes: tuple[Outcome, ...]
    tuning: str = ""
    planning: str = ""
    engines: Mapping[str, str] = field(default_factory=dict)
    cycles: int | None = None
    bound: int | None = None
    polled: bool = False

    @property
    def offloaded(self) -> tuple[Outcome, ...]:
        """Operators that run on the accelerator as a whole."""
        return tuple(outcome for outcome in self.outcomes if outcome.placement == "accelerator")

    @property
    def host(self) -> tuple[Outcome, ...]:
        """Operators that run on the host, as a whole or in part."""
        return tuple(outcome for outcome in self.outcomes if outcome.placement in ("host", "split"))

    @property
    def macs(self) -> int:
        """Multiplications with additions of all operators."""
        return sum(outcome.macs for outcome in self.outcomes)

    @property
    def offloaded_macs(self) -> int:
        """Those of the operators that run on the accelerator as a whole."""
        return sum(outcome.macs for outcome in self.offloaded)

    @property
    def tvm_arithmetic(self) -> tuple[Outcome, ...]:
        """Operators on the host whose results are TVM's, and may not be TFLite's; only with numerics "tflite"."""
        return tuple(outcome for outcome in self.outcomes if outcome.tvm_arithmetic)

    @property
    def stops(self) -> tuple[Outcome, ...]:
        """Operators that keep the model from being built: the others are reported as if these were cut out."""
        return tuple(outcome for outcome in self.outcomes if outcome.placement == "stops")

    def __repr__(self) -> str:
        on = f" on {self.accelerator}" if self.accelerator is not None else ""
        return line(self, f"{self.mod_name}{on}", self._offloaded())

    def __str__(self) -> str:
        return "\n".join([*self._warning(), self._headline(), *self._legend(), *self._rows()])

    def to_json(self) -> str:
        """The report as JSON: the fields of `Outcome`, `Rejection` and `BrokenRule` by name."""
        return json.dumps(vars(self), default=vars, indent=2)

    def plain(self) -> dict[str, Any]:
        """The report as plain data, for `from_plain`."""
        return json.loads(json.dumps(vars(self), default=vars))  # type: ignore[no-any-return]

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Report:
        """The report that `plain` gave, out of a project's metadata."""
        outcomes = tuple(Outcome.from_plain(entry) for entry in plain["outcomes"])
        said = plain["tuning"], plain.get("planning", ""), plain.get("engines", {})
        named = plain["mod_name"], plain["accelerator"], plain["numerics"]
        return cls(*named, outcomes, *said, polled=plain.get("polled", False))

    def _repr_html_(self) -> str:
        head = "".join(
            f"<th>{title}</th>" for title in ("operator", "Relay", "where", "composite", "figures, or why not")
        )
        rows = "".join(
            "<tr>"
            + "".join(
                f'<td style="text-align:left">{html.escape(cell)}</td>'
                for cell in (
                    _short(outcome.name.split(";")[0]),
                    ", ".join(outcome.relay),
                    _where(outcome),
                    ", ".join(outcome.composites),
                    "; ".join(self._said(outcome)),
                )
            )
            + "</tr>"
            for outcome in self.outcomes
        )
        above = "<br>".join(map(html.escape, [*self._warning(), self._headline(), *self._legend()]))
        return f"<p>{above}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    @property
    def title(self) -> str:
        """The model, its accelerator, and how much is offloaded."""
        return self._headline()

    def _headline(self) -> str:
        where = f" on {self.accelerator} (numerics {self.numerics})" if self.accelerator is not None else ""
        made = "; ".join(filter(None, (self.tuning, self.planning)))
        return f"{self.mod_name}{where}: {self._offloaded()}{made and f' ({made})'}"

    def _offloaded(self) -> str:
        """How many operators are offloaded; what is folded at compile time is not counted."""
        operators = sum(outcome.placement != "folded" for outcome in self.outcomes)
        if self.accelerator is None:
            return f"not partitioned, all {operators} operators on the host"
        regions = len({region for outcome in self.outcomes for region in outcome.regions})
        offloaded = f"{len(self.offloaded)} of {operators} operators offloaded, in {counted(regions, 'region')}"
        if not self.stops:
            return offloaded
        stop = "operator stops" if len(self.stops) == 1 else "operators stop"
        return f"cannot be built, {len(self.stops)} {stop} the import; without, {offloaded}"

    def _warning(self) -> Iterator[str]:
        """What is wrong with the model as a whole, before the reasons of its operators."""
        products = [
            name for outcome in self.outcomes for name in outcome.relay if name.removeprefix("qnn.") in _PRODUCTS
        ]
        floats = sum(
            name in _PRODUCTS
            for outcome in self.outcomes
            # There a sum of integers that is shifted is a layer, too; and Relax has real sums of dequantized values.
            if outcome.placement != "accelerator" and not self._reads_stored(outcome)
            for name in outcome.relay
        )
        if floats:
            what = "a float model" if floats == len(products) else "a model that is quantized in part"
            yield (
                f"{self.mod_name} is {what}: {floats} of its {len(products)} convolutions and matrix products are of "
                "float32, the accelerator's are of int8. docs/models.md says how to quantize it"
            )

    def _reads_stored(self, outcome: Outcome) -> bool:
        """Whether an operator makes stored values real, or reads those of an operator that does."""
        others = (one for one in self.outcomes if one.name in outcome.reads)
        return any("dequantize" in one.relay for one in (outcome, *others))

    def _legend(self) -> Iterator[str]:
        if self.macs and self.accelerator is not None:
            yield f"  {share_of(self.offloaded_macs, self.macs)} MACs offloaded"
        if self.bound:
            planned = self.cycles and f"regions take {self.cycles:,} cycles, {times_bound(self.cycles, self.bound)}: "
            yield f"  {planned or ''}no plan takes fewer than {self.bound:,} cycles"
        if self.polled:
            yield f"  {self._longest_poll()}"
        if self.tvm_arithmetic:
            yield f"  * {following_tvm(len(self.tvm_arithmetic))}"

    def _longest_poll(self) -> str:
        """The longest time between two returns, as far as it is known: a poll computes at most one function of the
        host."""
        if not self.host:
            return "polls compute nothing: they start copies and jobs"
        slowest = max(self.host, key=lambda outcome: outcome.host_instructions)
        unknown = sum(not outcome.host_instructions for outcome in self.host)
        figures = []
        if slowest.host_instructions:
            figures.append(f"about {slowest.host_instructions:,} instructions, in {_short(slowest.name)}")
        if unknown:
            figures.append(f"no estimate for {counted(unknown, 'operator')} on the host")
        return f"longest time between two returns of a poll: {'; '.join(figures)}"

    def _rows(self) -> Iterator[str]:
        width = max((len(", ".join(outcome.composites)) for outcome in self.outcomes), default=0)
        for outcome in self.outcomes:
            composites = ", ".join(outcome.composites) or "-"
            yield f"  {_where(outcome):<11}  {composites:<{width}}  {_short(outcome.name)}"
            for said in self._said(outcome):
                yield f"               {said}"

    def _said(self, outcome: Outcome) -> Iterator[str]:
        work = f"{outcome.macs:,} MACs, " if outcome.macs else ""
        amounts = [f"{work}{outcome.nbytes:,} bytes"] if outcome.macs or outcome.nbytes else []
        engines = [self.engines[outcome.name]] if outcome.name in self.engines else []
        if amounts or engines:
            yield "; ".join([*amounts, *engines])
        yield from _reasons(outcome)


def following_tvm(operators: int) -> str:
    """What is said of this many operators of `Report.tvm_arithmetic`."""
    follow = "follows" if operators == 1 else "follow"
    return f"{counted(operators, 'operator')} {follow} TVM's arithmetic, not TFLite's"


def _reasons(outcome: Outcome) -> Iterator[str]:
    if outcome.host_instructions:
        yield f"on the host {outcome.host_instructions:,} instructions"
    for rejection in outcome.rejections:
        yield str(rejection)
    if outcome.uncovered:
        yield f"no pattern covers {', '.join(outcome.uncovered)}"
    if outcome.tvm_arithmetic:
        yield f"* TVM's arithmetic: {', '.join(outcome.tvm_arithmetic)}"


def _where(outcome: Outcome) -> str:
    return f"{outcome.placement}{(outcome.tvm_arithmetic and ' *') or ''}"


def _short(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else name[: _NAME_WIDTH - 3] + "..."
