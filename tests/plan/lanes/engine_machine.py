"""A chip in Python whose engines wait by themselves: each may be as far ahead of the others as its queue and events
allow. Written from hwlib_hal.h alone, to test plans."""

from collections import Counter, deque
from itertools import islice, permutations
from random import Random

import numpy as np
from chip_machine import ChipMachine
from plan_machine import RefusedError

from byoc_hw.plan.steps import (
    SLOTS,
    Await,
    EngineAwait,
    EngineSignal,
    Queued,
    Signal,
    Started,
    Turn,
    WholeLayer,
    engine_of,
)

SCHEDULES = 24
"""The orders of preference that are tried."""


class Entry:
    """A step in the queue of an engine."""

    def __init__(self, step, layer, ofm):
        self.step, self.layer, self.ofm = step, layer, ofm
        self.done = False


class EngineChip(ChipMachine):
    """`first` is the order in which engines, by lane and name, are preferred: the first that can go on does one step.
    The core is quicker than all of them."""

    def __init__(self, plan, inputs, first):
        super().__init__(plan, inputs, range(len(plan.parts)))
        self.first = first
        self.queues = {engine: deque() for engine in engines_of(plan)}
        self.counts = Counter()
        for machine in self.machines:
            machine.start = self.start

    @staticmethod
    def start(slot, access):
        """What engines do at the same time is found by its results, in one of many orders."""
        if not 0 <= slot < SLOTS:
            raise RefusedError(f"slot {slot} of {SLOTS}")

    def run(self):
        cores = [self.core(at, part.plan) for at, part in enumerate(self.plan.parts)]
        while cores or any(self.queues.values()):
            cores = [core for core in cores if next(core, "ended") != "ended"]
            engine = next((engine for engine in self.first if self.goes_on(engine)), None)
            if engine is None and (cores or any(self.queues.values())):
                raise RefusedError("nobody goes on")
        outputs = self.main[len(self.main) - len(self.plan.graph.outputs) :]
        return [
            memory.read(0, tensor.nbytes).view(tensor.dtype).reshape(tensor.shape)
            for memory, tensor in zip(outputs, self.plan.graph.outputs, strict=True)
        ]

    def core(self, at, plan):
        """Gives out the steps of a lane; stops where it waits itself."""
        slots = {}
        calls = [(call.steps, plan.layers[call.index], plan.graph.layers[call.index].ofm) for call in plan.calls]
        for steps, layer, ofm in (*calls, (plan.tail, None, None)):
            for step in steps:
                if isinstance(step, Queued):
                    entry = Entry(step, layer, ofm)
                    self.queues[at, engine_of(step)].append(entry)
                    if isinstance(step, Started):
                        slots[step.slot] = entry
                elif isinstance(step, Signal):
                    assert step.event not in self.signalled
                    self.signalled[step.event] = slots[step.slot]
                elif isinstance(step, Await):
                    while step.event not in self.signalled or not self.signalled[step.event].done:
                        yield
                elif not isinstance(step, Turn):
                    while not slots[step.slot].done:
                        yield
        for (lane, _), queue in self.queues.items():
            if lane == at and any(isinstance(entry.step, Started) for entry in queue):
                raise RefusedError("a lane ends with work in flight")

    def goes_on(self, engine):
        """Have an engine do the next step of its queue, if it can."""
        queue = self.queues[engine]
        if not queue:
            return False
        entry = queue[0]
        if isinstance(entry.step, EngineAwait):
            if self.counts[entry.step.event] < entry.step.value:
                return False
        elif isinstance(entry.step, EngineSignal):
            self.counts[entry.step.event] += 1
        elif isinstance(entry.step, WholeLayer):
            self.whole(self.machines[engine[0]].memories, entry.step, entry.layer)
        else:
            self.machines[engine[0]].steps([entry.step], entry.layer, entry.ofm)
        entry.done = True
        queue.popleft()
        return True


def engines_of(plan):
    return [(at, engine) for at in range(len(plan.parts)) for engine in ("dma", "array")]


def schedules(plan):
    """Orders of preference: all of four engines, some of more."""
    engines = engines_of(plan)
    if len(engines) <= 4:
        return list(permutations(engines))
    random = Random(1)
    return [random.sample(engines, len(engines)) for _ in range(SCHEDULES)]


def check_engines(plan, expected, inputs, most=SCHEDULES):
    """The plan gives the expected outputs, whichever engines are the faster ones."""
    for first in islice(schedules(plan), most):
        outputs = EngineChip(plan, inputs, first).run()
        for tensor, value in zip(plan.graph.outputs, outputs, strict=True):
            np.testing.assert_array_equal(value, expected[tensor], err_msg=tensor.name)
