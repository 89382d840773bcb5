"""Routes of messages: first along the row, then along the column, and what the links on them carry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from byoc_hw.mesh.machine import Coordinates, Mesh

MeshLink = tuple[Coordinates, Coordinates]
"""A link: from a PE to its neighbour. From a PE to itself it is the port between PE and router, see `route`."""

PORT = (-1, -1)
"""Stands for the PE at the end of a port."""


def link_name(way: MeshLink) -> str:
    """A link or port as messages name it."""
    source, target = way
    if PORT in way:
        return f"the port out of PE {target}" if source == PORT else f"the port into PE {source}"
    return f"the link from {source} to {target}"


@dataclass(frozen=True)
class Traffic:
    """Bytes that go from one PE to another for each frame."""

    source: Coordinates
    target: Coordinates
    nbytes: int


def hops(source: Coordinates, target: Coordinates) -> int:
    """The links between two PEs."""
    return abs(source[0] - target[0]) + abs(source[1] - target[1])


def route(source: Coordinates, target: Coordinates) -> tuple[MeshLink, ...]:
    """The links of a message, in order: out of the PE, along the row, along the column, into the PE. None for one that
    stays where it is."""
    if source == target:
        return ()
    (x, y), (there, down) = source, target
    places = [(at, y) for at in range(x, there, 1 if there > x else -1)]
    places += [(there, at) for at in range(y, down, 1 if down > y else -1)]
    places.append(target)
    return ((PORT, source), *pairwise(places), (target, PORT))


def beats(mesh: Mesh, way: MeshLink, nbytes: int) -> int:
    """The cycles that a message keeps a link or a port busy; ports are as fast as links inside a chip."""
    link = mesh.link if PORT in way else mesh.link_of(*way)
    return link.beats(nbytes)


def delay(mesh: Mesh, way: MeshLink) -> int:
    """The cycles from a message's start on a link to its start on the next one; 0 for a port."""
    return 0 if PORT in way else mesh.link_of(*way).hop_cycles


def link_loads(mesh: Mesh, transfers: Iterable[Traffic]) -> dict[MeshLink, int]:
    """The cycles that each link is busy for a frame of each of the transfers, ports among them."""
    found: dict[MeshLink, int] = {}
    for transfer in transfers:
        for way in route(transfer.source, transfer.target):
            found[way] = found.get(way, 0) + beats(mesh, way, transfer.nbytes)
    return found


def flight_cycles(mesh: Mesh, source: Coordinates, target: Coordinates, nbytes: int) -> int:
    """The cycles from sending a message to its arrival, if no other is in the way."""
    ways = route(source, target)
    return sum(delay(mesh, way) for way in ways) + max((beats(mesh, way, nbytes) for way in ways), default=0)


def credit_cycles(mesh: Mesh, source: Coordinates, target: Coordinates) -> int:
    """The cycles that a credit takes back from `target` to `source`: it has no bytes to speak of."""
    return sum(delay(mesh, way) for way in route(target, source))
