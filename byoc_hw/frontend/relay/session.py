"""The state of one partitioning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from byoc_hw.frontend.relay.opaque import Bodies
from byoc_hw.frontend.seam import FixedPoint
from byoc_hw.graph import Layer
from byoc_hw.pattern import Recorder
from byoc_hw.soc import Hardware


@dataclass(frozen=True)
class Session:
    """The state of one partitioning, for pattern checks and the optimize hook (TVM passes the hook only a module).

    `why_no_plan` is `Backend.why_no_plan`. `no_nchw` is the reason why NCHW operators stay on the host, or "".
    `bodies` has the bodies of composites that TVM's passes do not see.
    """

    accelerator: Hardware
    why_no_plan: Callable[[Layer, Hardware], str | None]
    deny: Sequence[str] = ()
    numerics: str = "relay"
    no_nchw: str = ""
    recorder: Recorder = field(default_factory=Recorder)
    arithmetic: FixedPoint | None = None
    bodies: Bodies = field(default_factory=Bodies)

    @property
    def nchw_problem(self) -> str:
        """Why NCHW operators cannot be offloaded, or ""."""
        return self.no_nchw or ("" if "transpose" in self.accelerator.limits else "the accelerator has no transpose")


session: ContextVar[Session | None] = ContextVar("byoc_hw.session", default=None)
"""The session that is being partitioned in this context."""
