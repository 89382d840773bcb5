"""How long a plan takes, found by walking from event to event: a second opinion on `cost.timeline`.

Costs are written here once more, from the figures of the reference accelerator's description.
"""

from collections import deque
from math import prod

from byoc_hw.graph import Add, DepthwiseConv2d, Lookup, MatMul, Mul, Pool2d, Softmax
from byoc_hw.plan.steps import Copy, CopyWait, Job, JobWait

ENGINES = {Copy: "dma", CopyWait: "dma", Job: "array", JobWait: "array"}


def run_time(plan, accelerator):
    """Cycles until both engines are done, on a host that takes no time."""
    steps = deque((step, plan.layers[call.index]) for call in plan.calls for step in call.steps)
    steps.extend((step, None) for step in plan.tail)
    queues = {"dma": deque(), "array": deque()}  # [cycles that are left, number]; the first one runs
    slots = {}
    now = number = 0
    while True:
        while steps and _host_goes_on(steps[0][0], queues, slots, accelerator):
            step, layer = steps.popleft()
            if isinstance(step, Copy | Job):
                number += 1
                queues[ENGINES[type(step)]].append([_cycles(step, layer, accelerator), number])
                slots[step.slot] = number
        running = [queue for queue in queues.values() if queue]
        if not running:
            assert not steps, "the host waits for nothing"
            return now
        elapsed = min(queue[0][0] for queue in running)
        now += elapsed
        for queue in running:
            queue[0][0] -= elapsed
            if queue[0][0] == 0:
                queue.popleft()


def _host_goes_on(step, queues, slots, accelerator):
    """Whether the host passes a step at once."""
    queue = queues[ENGINES[type(step)]]
    if isinstance(step, Copy | Job):
        return len(queue) < accelerator.queue
    return all(number != slots[step.slot] for _, number in queue)


def _cycles(step, layer, accelerator):
    if isinstance(step, Copy):
        further = (step.rows - 1) * accelerator.dma_row_setup
        return accelerator.dma_setup + further + step.rows * _up(step.nbytes, accelerator.dma_width)
    return accelerator.job_setup + _array_cycles(step, layer, accelerator)


def _array_cycles(step, layer, accelerator):
    height, width, channels = step.ofm_shape
    if isinstance(layer, Lookup):
        return _up(height * width * channels, accelerator.elementwise_width)
    if isinstance(layer, Add | Mul | Softmax | Pool2d):
        passes = 2 if isinstance(layer, Add | Mul) else 3 if isinstance(layer, Softmax) else prod(layer.kernel)
        return _up(height * width * channels * passes, accelerator.elementwise_width)
    kernel = (1, 1) if isinstance(layer, MatMul) else step.kernel
    rows, depth = accelerator.array_rows, step.ifm_shape[2]
    if isinstance(layer, DepthwiseConv2d):
        rows, depth = accelerator.depthwise_rows, 1
    bits = 8 if isinstance(layer, MatMul) else layer.weights.bits
    group = _up(depth * prod(kernel) * bits, 8) + 2 * depth * kernel[0] + accelerator.job_overhead
    return height * _up(width, accelerator.array_columns) * _up(channels, rows) * group


def _up(value, unit):
    return -(-value // unit)
