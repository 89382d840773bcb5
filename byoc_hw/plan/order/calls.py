"""Splits the steps into calls: each job in a call of its layer, copies and waits with the neighbouring jobs."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_hw.plan.order.waits import Owned
from byoc_hw.plan.steps import Job, LayerCall, Step


def calls_of(steps: Sequence[Owned], layers: int) -> tuple[tuple[LayerCall, ...], tuple[Step, ...]]:
    """The steps of a region with `layers` layers by call, and the tail: the steps of no layer.

    Copies and waits between two layers' jobs go to the first one's call, up to the first
    that is for the second.
    """
    owners = _owners(steps, layers)
    calls: list[tuple[int, list[Step]]] = []
    tail: list[Step] = []
    for owned, owner in zip(steps, owners, strict=True):
        if owner is None:
            tail.append(owned.step)
        elif calls and calls[-1][0] == owner:
            calls[-1][1].append(owned.step)
        else:
            calls.append((owner, [owned.step]))
    return tuple(LayerCall(owner, tuple(taken)) for owner, taken in calls), tuple(tail)


def _owners(steps: Sequence[Owned], layers: int) -> list[int | None]:
    """The layer in whose call each step is; None for the tail."""
    with_jobs = {owned.layer for owned in steps if isinstance(owned.step, Job)}

    def leads(owned: Owned) -> bool:
        """Whether a step must be in a call of its own layer: a job, or a copy of a layer without jobs."""
        return isinstance(owned.step, Job) or (owned.layer not in with_jobs and owned.layer < layers)

    leaders = [at for at, owned in enumerate(steps) if leads(owned)]
    if not leaders:
        return [None] * len(steps)
    owners: list[int | None] = [None] * len(steps)
    current = steps[leaders[0]].layer
    following = iter([*leaders, None])
    upcoming = next(following)
    for at, owned in enumerate(steps):
        if upcoming is not None and at > upcoming:
            current, upcoming = steps[upcoming].layer, next(following)
        ahead = None if upcoming is None else steps[upcoming].layer
        if at == upcoming or (ahead is not None and owned.layer == ahead):
            current = ahead if ahead is not None else current
        owners[at] = current
    last = len(steps)  # the waits at the very end, and copies from argument to argument, are the tail
    while last > leaders[-1] + 1 and (steps[last - 1].op is None or steps[last - 1].layer >= layers):
        last -= 1
        owners[last] = None
    return owners
