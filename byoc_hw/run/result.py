"""What an inference gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class LayerCycles:
    """One layer's share of the total, and what it asked of the engines meanwhile.

    `id` and `name` are those of the generated code. A function of the host takes no accelerator
    cycles.
    """

    id: int
    name: str
    kind: str
    cycles: int
    array_cycles: int = 0
    dma_cycles: int = 0
    dma_bytes: int = 0
    jobs: int = 0
    copies: int = 0


@dataclass(frozen=True)
class Cycles:
    """Accelerator cycles of one inference; the layers, in order, add up to the total."""

    total: int
    by_layer: tuple[LayerCycles, ...]


@dataclass(frozen=True, eq=False)
class Result:
    """One inference: `outputs` in the model's order, and what was asked or could be had besides.

    `cycles` is None without a simulated accelerator, `trace` (each layer's output bytes by the
    layer's number, for layers whose whole output is in main memory) without a traced run,
    `host_instructions` where the runner cannot count them.
    """

    outputs: list[Array]
    cycles: Cycles | None = None
    trace: Mapping[int, bytes] | None = None
    host_instructions: int | None = None
