"""What a model is placed for: the time of an inference, or energy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from byoc_hw.arguments import check_number, check_type, shown
from byoc_hw.errors import InvalidInput
from byoc_hw.graph import Layer

HOST = "host"
"""The name of the core in `place` and in reports."""


@dataclass(frozen=True)
class Energy:
    """Weights of energy, in a unit of yours, such as picojoules.

    `array` has the weight of a cycle in which an accelerator's array works, by the accelerator's name; `copied` is that
    of a byte that a DMA moves, `host` that of an instruction of the core.
    """

    array: Mapping[str, float]
    copied: float
    host: float

    def __post_init__(self) -> None:
        check_type("energy: array", self.array, Mapping, "a mapping from accelerators to weights")
        for name, weight in self.array.items():
            check_number(f"energy: array: weight of {shown(name)}", weight, positive=False)
        check_number("energy: copied", self.copied, positive=False)
        check_number("energy: host", self.host, positive=False)


Objective = Literal["latency"] | Energy


def check_objective(objective: object, accelerators: list[str]) -> None:
    """Raise `InvalidInput` unless it is None, "latency", or an `Energy` with a weight for each accelerator."""
    if objective is None or objective == "latency":
        return
    if not isinstance(objective, Energy):
        raise InvalidInput(f'objective is None, "latency" or an Energy: got {shown(objective)}')
    for name in [*accelerators, *objective.array]:
        if name not in objective.array:
            raise InvalidInput(f"energy: array has a weight for each of {', '.join(accelerators)}: none for {name}")
        if name not in accelerators:
            raise InvalidInput(f"energy: array has weights for {', '.join(accelerators)}: got one for {shown(name)}")


def on_accelerators(place: Mapping[str, str]) -> dict[str, str]:
    """The wishes of `place` that are not for the host."""
    return {name: one for name, one in place.items() if one != HOST}


def wished(layer: Layer, place: Mapping[str, str]) -> str | None:
    """Where a layer is wished by `place`: by its name, else by an operator of the model, else by its kind."""
    return next((place[name] for name in layer.names if name in place), None)
