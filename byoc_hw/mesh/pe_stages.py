"""Which stages are on one PE: so which programs there are, their names, and the bytes that the stages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc_hw.mesh.machine import Coordinates


def stages_by_place(places: Sequence[Coordinates | None]) -> list[tuple[int, ...]]:
    """The numbers of the stages of each PE, by the PEs of the stages."""
    found: dict[Coordinates | None, list[int]] = {}
    for number, place in enumerate(places):
        found.setdefault(place, []).append(number)
    return [tuple(numbers) for numbers in found.values()]


def programs_of(replicas: Sequence[Sequence[Coordinates]]) -> list[tuple[int, ...]]:
    """The stages of each program, by the PEs of the stages of each pipeline. PEs with the same stages share one."""
    return list(dict.fromkeys(numbers for places in replicas for numbers in stages_by_place(places)))


def program_name(model: str, program: int) -> str:
    """The name of a PE's program, and of its project, by its number."""
    return f"{model}_pe{program}"


def stage_label(number: int) -> str:
    """What names of stage `number` have in a program of several."""
    return f"stage{number}"


def bytes_of_pe(stages: Iterable[tuple[int, int]]) -> int:
    """Bytes for data of a PE with some stages: `stages` has those of each alone, and how many of these are its arena.
    As one stage computes at a time, they share the largest arena."""
    own, arenas = zip(*((nbytes - arena, arena) for nbytes, arena in stages), strict=True)
    return int(sum(own) + max(arenas))
