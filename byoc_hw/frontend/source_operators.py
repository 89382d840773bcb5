"""What a front end finds out of each operator of a model file: what it has to do, and where it was placed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class OperatorWork:
    """Of one operator: multiply-accumulates, bytes of the tensors that it reads and writes, and the operators whose
    results it reads. A scale of one value is no tensor."""

    macs: int = 0
    nbytes: int = 0
    reads: tuple[str, ...] = ()


@dataclass
class Placed:
    """Where the calls of one operator were placed."""

    composites: list[str] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    host: list[str] = field(default_factory=list)

    @property
    def placement(self) -> str:
        """As `Outcome.placement` has it."""
        if self.host:
            return "split" if self.regions else "host"
        return "accelerator" if self.regions else "folded"
