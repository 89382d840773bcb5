"""Plans with one thing wrong."""

from dataclasses import replace
from functools import partial

from byoc_hw.plan.steps import Copy, CopyWait, Job, JobWait


def places(plan, *kinds):
    """Where the steps of these kinds are, counted through all calls and the tail."""
    return [at for at, step in enumerate(plan.steps) if isinstance(step, kinds)]


def changed(plan, steps):
    """The plan with other steps, in calls as many as before: a list with one tuple for each step."""
    left = iter(steps)

    def taken(count):
        return tuple(step for _ in range(count) for step in next(left))

    calls = tuple(replace(call, steps=taken(len(call.steps))) for call in plan.calls)
    return replace(plan, calls=calls, tail=taken(len(plan.tail)))


def without(plan, at):
    """The plan without one step."""
    return changed(plan, [() if index == at else (step,) for index, step in enumerate(plan.steps)])


def with_step(plan, at, **fields):
    """The plan with one step altered."""
    steps = list(plan.steps)
    altered = steps[at]._replace if isinstance(steps[at], Copy | Job) else partial(replace, steps[at])
    steps[at] = altered(**fields)
    return changed(plan, [(step,) for step in steps])


def without_each_wait(plan):
    """A plan for each wait that there is, by what it waits for."""
    for at in places(plan, CopyWait, JobWait):
        yield at, without(plan, at)


def copies(plan, space, inward):
    """Where the copies from main memory to a local memory are, or those from there."""
    return [
        at for at in places(plan, Copy) if (plan.steps[at].target if inward else plan.steps[at].source).space == space
    ]


def jobs(plan):
    """Where the jobs are."""
    return places(plan, Job)
