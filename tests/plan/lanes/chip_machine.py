"""A chip in Python that runs a `ChipPlan`: one machine for each lane, on one main memory, in any order of the lanes."""

import numpy as np
from plan_chips import WORKSPACE
from plan_machine import Access, Machine, Memory, RefusedError
from plan_reference import run_layer

from byoc_hw.graph import Whole
from byoc_hw.params.whole_layers import workspace_bytes
from byoc_hw.plan.steps import ACTIVATIONS, ARGUMENT, FLASH, SCRATCH, Await, Copy, Job, Signal, WholeLayer


class Window(Memory):
    """The bytes of another memory from an offset on."""

    def __init__(self, memory, offset):
        self.name = f"{memory.name} from {offset} on"
        self.bytes, self.written = memory.bytes[offset:], memory.written[offset:]


class LaneMachine(Machine):
    """A machine beside others, some of which have the same activation memory: it refuses bytes that one of these may
    still be at. `flying` is its work that nobody knows to have ended."""

    def __init__(self, plan, accelerator, others):
        super().__init__(plan, accelerator, [])
        self.others, self.flying = others, []

    def start(self, slot, access):
        for other in self.others:
            if other is not self and any(access.conflicts(there) for _, there in other.flying):
                raise RefusedError("work of two accelerators in flight on the same bytes")
        known, self.in_flight = self.in_flight, list(self.flying)  # an event may have told that work has ended
        super().start(slot, access)
        self.flying.append((self.started, access))
        self.in_flight = [*known, self.flying[-1]]

    def wait(self, step):
        super().wait(step)
        self.ended(self.slots[step.slot])

    def ended(self, number):
        """Work has ended, and with it all that the same engine began before it."""
        kinds = [access.kind for index, access in self.flying if index == number]
        self.flying = [one for one in self.flying if one[0] > number or one[1].kind not in kinds]


class ChipMachine:
    """`first` is the order in which lanes are preferred: each goes on as far as its waits and events allow."""

    def __init__(self, plan, inputs, first):
        self.plan, self.first = plan, first
        word = plan.chip.dma_alignment
        self.main = [Memory(f"input {index}", data.tobytes() + bytes(word)) for index, data in enumerate(inputs)]
        for memory, data in zip(self.main, inputs, strict=True):
            memory.written[: data.nbytes] = True
        outputs = plan.graph.outputs
        self.main += [Memory(f"output {index}", bytes(one.nbytes + word)) for index, one in enumerate(outputs)]
        self.scratch = Memory("scratch", bytes(plan.scratch_bytes + word))
        self.machines = []
        self.lanes = [self.lane(part) for part in plan.parts]
        self.signalled = {}

    def lane(self, part):
        chip = self.plan.chip
        machine = LaneMachine(part.plan, chip.accelerators[part.lane], self.machines)
        machine.memory = chip.memory_of(part.lane)
        for other in self.machines:
            if other.memory == machine.memory:
                machine.memories[ACTIVATIONS] = other.memories[ACTIVATIONS]
        self.machines.append(machine)
        machine.memories[FLASH] = Memory("flash", part.plan.flash, written=True)
        for index, address in enumerate(part.arguments):
            if address.space == SCRATCH:
                there = Window(self.scratch, self.plan.blocks[address.block] + address.offset)
            else:
                there = Window(self.main[address.space - ARGUMENT], address.offset)
            machine.memories[ARGUMENT + index] = there
        return self.steps(machine, part.plan)

    def steps(self, machine, plan):
        """Carries out a lane's steps; stops where it awaits an event that has not been signalled."""
        calls = [(call.steps, plan.layers[call.index], plan.graph.layers[call.index].ofm) for call in plan.calls]
        for steps, layer, ofm in (*calls, (plan.tail, None, None)):
            for step in steps:
                if isinstance(step, Await):
                    while step.event not in self.signalled:
                        yield
                    there, number = self.signalled[step.event]
                    there.ended(number)
                elif isinstance(step, Signal):
                    assert step.event not in self.signalled
                    kind = Job if step.job else Copy
                    (started,) = [one for index, one in machine.in_flight if index == machine.slots[step.slot]]
                    assert started.kind is kind
                    self.signalled[step.event] = machine, machine.slots[step.slot]
                    yield  # a lane that is preferred goes on before this one does
                elif isinstance(step, WholeLayer):
                    machine.start(step.slot, self.whole(machine.memories, step, layer))
                else:
                    machine.steps([step], layer, ofm)
        if machine.in_flight:
            raise RefusedError("a lane ends with work in flight")

    def whole(self, memories, step, layer):
        """Carries out a layer as a whole, at once: events alone keep others from its output until then."""
        inputs = [
            tensor.data
            if there is None
            else memories[there.space].read(there.offset, tensor.nbytes).view(tensor.dtype).reshape(tensor.shape)
            for tensor, there in zip(layer.inputs, step.inputs, strict=True)
        ]
        if step.workspace is not None:
            nbytes = workspace_bytes(layer) if isinstance(layer, Whole) else WORKSPACE
            memories[step.workspace.space].write(step.workspace.offset, np.full(nbytes, 0xA5, np.uint8))
        output = np.ascontiguousarray(run_layer(layer, *inputs))
        memories[step.output.space].write(step.output.offset, output.view(np.uint8).ravel())
        return Access(Job)

    def run(self):
        running = [self.lanes[index] for index in self.first]
        while running:
            before = len(self.signalled), len(running)
            for lane in list(running):
                known = len(self.signalled)
                if next(lane, "ended") == "ended":
                    running.remove(lane)
                if len(self.signalled) != known:
                    break  # a lane that comes first may go on
            if (len(self.signalled), len(running)) == before:
                raise RefusedError("each lane awaits another")
        outputs = self.main[len(self.main) - len(self.plan.graph.outputs) :]
        return [
            memory.read(0, tensor.nbytes).view(tensor.dtype).reshape(tensor.shape)
            for memory, tensor in zip(outputs, self.plan.graph.outputs, strict=True)
        ]


def check_chip_plan(plan, expected, inputs, orders):
    """The plan gives the expected outputs, whichever lane is the faster one."""
    for first in orders:
        outputs = ChipMachine(plan, inputs, first).run()
        for tensor, value in zip(plan.graph.outputs, outputs, strict=True):
            np.testing.assert_array_equal(value, expected[tensor], err_msg=tensor.name)
