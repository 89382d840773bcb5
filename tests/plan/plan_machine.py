"""An accelerator in Python that runs a `RegionPlan`: written from hwlib_hal.h alone, to test plans.

What descriptors say (scales and zero points) is its own too, of plan_scales.py. Parameters of output channels are
those of the plan.

It refuses what hardware could not do: accesses outside a memory, reads of local bytes that nothing
wrote, unaligned copies, a copy and a job in flight on the same bytes, and waits for nothing.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from packed_weights import unpacked
from plan_reference import softmax
from plan_scales import add_scales, matmul_scale, mul_scale, pool_scale, twice, upward, zero_point

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Add, Dense, DepthwiseConv2d, Lookup, MatMul, Mul, Pool2d, Softmax, Weighted
from byoc_hw.plan.steps import ACTIVATIONS, ARGUMENT, FLASH, SCRATCH, SLOTS, WEIGHTS, Copy, CopyWait, Job, JobWait


class RefusedError(Exception):
    pass


class Memory:
    def __init__(self, name, data, written=False):
        self.name = name
        self.bytes = np.frombuffer(bytearray(data), np.uint8)
        self.written = np.full(len(data), written)

    def read(self, offset, count):
        return self.read_at(np.arange(offset, offset + count))

    def read_at(self, places, padding=0):
        """The last `padding` bytes of each row need not have been written."""
        self.reached(places)
        if not self.written[places[..., : max(places.shape[-1] - padding, 0)]].all():
            raise RefusedError(f"{self.name}: unwritten bytes read from {places.min()} on")
        return self.bytes[places]

    def write(self, offset, data):
        self.write_at(np.arange(offset, offset + len(data)), data)

    def write_at(self, places, data, written=True):
        """Of bytes for the same place the last one stays."""
        self.reached(places)
        self.bytes[places] = data
        self.written[places] = written

    def reached(self, places):
        if places.min() < 0 or places.max() >= len(self.bytes):
            raise RefusedError(f"{self.name}: bytes at {places.min()} to {places.max()} of {len(self.bytes)}")


def padded(data, word):
    return data + bytes(-len(data) % word)


def places(start, shape, row, pixel):
    """Where the values of a tile lie."""
    height, width, channels = shape
    rows, pixels = np.arange(height) * row, np.arange(width) * pixel
    return start + rows[:, None, None] + pixels[:, None] + np.arange(channels)


class Touched(dict):
    """Bytes of local memories: for each memory arrays of places, and the lowest and the highest of each."""

    def add(self, memory, places):
        self.setdefault(memory, []).append((int(places.min()), int(places.max()), places.ravel()))

    def meets(self, other):
        """Whether some bytes are among others'."""
        return any(
            low <= high2 and low2 <= high and np.isin(places, places2).any()
            for memory, mine in self.items()
            for low2, high2, places2 in other.get(memory, ())
            for low, high, places in mine
        )


class Access:
    """The bytes of local memory that one copy or job in flight touches."""

    def __init__(self, kind):
        self.kind = kind
        self.reads = Touched()
        self.writes = Touched()

    def conflicts(self, other):
        """Whether one of two writes what the other touches."""
        return self.writes.meets(other.writes) or self.writes.meets(other.reads) or self.reads.meets(other.writes)


class Machine:
    def __init__(self, plan, accelerator: Accelerator, inputs):
        self.plan, self.accelerator = plan, accelerator
        self.memories = {
            ACTIVATIONS: Memory("activations", bytes(accelerator.activation_memory)),
            WEIGHTS: Memory("weights", bytes(accelerator.weight_memory)),
            FLASH: Memory("flash", plan.flash, written=True),
            SCRATCH: Memory("scratch", bytes(plan.scratch_bytes)),
        }
        word = accelerator.dma_alignment
        for index, data in enumerate(inputs):
            memory = self.memories[ARGUMENT + index] = Memory(f"input {index}", padded(data.tobytes(), word))
            memory.written[: data.nbytes] = True
        for index, tensor in enumerate(plan.graph.outputs):
            place = ARGUMENT + len(inputs) + index
            self.memories[place] = Memory(f"output {index}", padded(bytes(tensor.nbytes), word))
        self.in_flight: list[tuple[int, Access]] = []
        self.slots: dict[int, int] = {}
        self.started = 0
        self.layer_outputs = {}

    def run(self):
        for call in self.plan.calls:
            self.steps(call.steps, self.plan.layers[call.index], self.plan.graph.layers[call.index].ofm)
        self.steps(self.plan.tail, None, None)
        if self.in_flight_at_the_end():
            raise RefusedError("the region ends with work in flight")
        first = ARGUMENT + len(self.plan.graph.inputs)
        return [self.tensor(first + index, 0, tensor) for index, tensor in enumerate(self.plan.graph.outputs)]

    def in_flight_at_the_end(self):
        return self.in_flight

    def tensor(self, space, offset, tensor):
        return self.memories[space].read(offset, tensor.nbytes).view(tensor.dtype).reshape(tensor.shape)

    def steps(self, steps, layer, ofm):
        for step in steps:
            if isinstance(step, Copy):
                self.start(step.slot, self.copy(step))
            elif isinstance(step, Job):
                self.start(step.slot, self.job(layer, step))
                if step.last:
                    self.trace(step, ofm)
            else:
                self.wait(step)

    def start(self, slot, access):
        if not 0 <= slot < SLOTS:
            raise RefusedError(f"slot {slot} of {SLOTS}")
        for _, other in self.in_flight:
            if other.kind == access.kind:
                continue
            if access.conflicts(other):
                raise RefusedError("a copy and a job in flight on the same bytes")
        self.started += 1
        self.slots[slot] = self.started
        self.in_flight.append((self.started, access))

    def wait(self, step):
        """For one, and with it for all that the same engine began before it."""
        assert isinstance(step, CopyWait | JobWait)
        kind = Copy if isinstance(step, CopyWait) else Job
        number = self.slots.get(step.slot)
        found = [access for index, access in self.in_flight if index == number]
        if not found or found[0].kind is not kind:
            raise RefusedError(f"a wait for slot {step.slot}, which holds no such work")
        self.in_flight = [
            (index, access) for index, access in self.in_flight if access.kind is not kind or index > number
        ]

    def trace(self, job, ofm):
        """What a job made, at its place in its layer's output."""
        values = self.local_tile(job).ravel()
        whole, made = self.layer_outputs.setdefault(
            ofm, (np.zeros(ofm.elements, np.int8), np.zeros(ofm.elements, bool))
        )
        rows, pixels, channels = job.image.shape
        pitch = job.image.pitch or pixels
        there = places(job.image.offset, (rows, pitch, channels), *job.image.strides)
        if job.image.pitch:  # many rows as one, with what lies between them
            start = job.image.first * channels
            inside = np.broadcast_to(np.arange(pitch)[None, :, None] < pixels, there.shape)
            inside = inside.ravel()[start : start + values.size]
            there, values = there.ravel()[start : start + values.size][inside], values[inside]
        there = there.ravel()
        again = made[there]
        if (whole[there][again] != values[again]).any():
            raise RefusedError("a job makes other values than the one before it")
        whole[there], made[there] = values, True

    def local_tile(self, job):
        return (
            self.memories[ACTIVATIONS].bytes[places(job.ofm, job.ofm_shape, job.ofm_row, job.ofm_pixel)].view(np.int8)
        )

    # ------------------------------------------------------------ copies

    def copy(self, copy):
        local = {ACTIVATIONS, WEIGHTS}
        if (copy.target.space in local) == (copy.source.space in local):
            raise RefusedError("one side of a copy is local, the other is not")
        if copy.nbytes < 1 or copy.rows < 1:
            raise RefusedError("a copy of nothing")
        values = [copy.target.offset, copy.source.offset, copy.nbytes]
        values += [copy.target_stride, copy.source_stride] if copy.rows > 1 else []
        if any(value % self.accelerator.dma_alignment for value in values):
            raise RefusedError(f"unaligned copy: {copy}")
        access, memories = Access(Copy), (self.memories[copy.source.space], self.memories[copy.target.space])
        source, target = (
            places(place.offset, (1, copy.rows, copy.nbytes), 0, stride)[0]
            for place, stride in ((copy.source, copy.source_stride), (copy.target, copy.target_stride))
        )
        padding = self.accelerator.dma_alignment - 1  # a tensor may end inside the last word
        data = memories[0].read_at(source, padding)
        memories[1].write_at(target, data, memories[0].written[source])
        for space, there, touched in (
            (copy.source.space, source, access.reads),
            (copy.target.space, target, access.writes),
        ):
            if space in local:
                touched.add(self.memories[space], there)
        return access

    # ------------------------------------------------------------ jobs

    def job(self, layer, job):
        self.access = Access(Job)
        if job.psum % 4 or job.params % 4:
            raise RefusedError(f"unaligned job: {job}")
        if min(*job.ifm_shape, *job.ofm_shape) < 1:
            raise RefusedError(f"an empty tile: {job}")
        if isinstance(layer, Add | Mul):
            self.pairwise(layer, job)
        elif isinstance(layer, Lookup):
            assert job.ifm_shape == job.ofm_shape
            assert (job.ifm_shape[0], job.ifm_shape[2]) == (1, len(layer.tables))
            values = self.load_tile(job.ifm, job.ifm_shape, job.ifm_row, job.ifm_pixel).astype(np.uint8)
            self.store_tile(layer.tables[np.arange(len(layer.tables)), values].view(np.int8), job)
        elif isinstance(layer, Softmax):
            assert job.ifm_shape == job.ofm_shape
            values = self.load_tile(job.ifm, job.ifm_shape, job.ifm_row, job.ifm_pixel)
            self.store_tile(softmax(layer, values), job)
        elif isinstance(layer, MatMul):
            self.matmul(layer, job)
        elif isinstance(layer, Pool2d):
            self.pool(layer, job)
        else:
            self.weighted(layer, job)
        return self.access

    def local(self, space, offset, count):
        return self.load(space, np.arange(offset, offset + count))

    def load(self, space, there):
        found = self.memories[space].read_at(there)
        self.access.reads.add(self.memories[space], there)
        return found

    def store(self, there, data):
        self.memories[ACTIVATIONS].write_at(there, data)
        self.access.writes.add(self.memories[ACTIVATIONS], there)

    def load_tile(self, start, shape, row, pixel):
        height, width, channels = shape
        if height > 1 and row < (width - 1) * pixel + channels and not self.accelerator.packed_rows:
            raise RefusedError("rows that overlap")
        return self.load(ACTIVATIONS, places(start, shape, row, pixel)).view(np.int8).astype(np.int64)

    def store_tile(self, values, job):
        there = places(job.ofm, values.shape, job.ofm_row, job.ofm_pixel)
        self.store(there, values.astype(np.int8).view(np.uint8))

    def padded(self, layer, job, value):
        top, left, bottom, right = job.padding
        tile = self.load_tile(job.ifm, job.ifm_shape, job.ifm_row, job.ifm_pixel)
        return np.pad(tile, ((top, bottom), (left, right), (0, 0)), constant_values=value)

    def windows(self, padded, job, kernel, strides, dilation=(1, 1)):
        height, width, _ = job.ofm_shape
        reach = [(extent - 1) * step + 1 for extent, step in zip(kernel, dilation, strict=True)]
        needed = ((height - 1) * strides[0] + reach[0], (width - 1) * strides[1] + reach[1])
        # One row or column that no window reaches is there behind padding only.
        behind = [
            there == 1 and before == extent and after == 0
            for there, before, after, extent in zip(job.ifm_shape, job.padding, job.padding[2:], needed, strict=False)
        ]
        if any(size != extent + one for size, extent, one in zip(padded.shape, needed, behind, strict=False)):
            raise RefusedError(f"a tile of {padded.shape[:2]} where its window sees {needed}")
        every = sliding_window_view(padded, reach, (0, 1))[:: strides[0], :: strides[1]][:height, :width]
        return every[..., :: dilation[0], :: dilation[1]].transpose(0, 1, 3, 4, 2)

    def weighted(self, layer, job):
        if isinstance(layer, Dense):
            strides = dilation = (1, 1)
        else:
            strides, dilation = layer.strides, layer.dilation
        assert isinstance(layer, Weighted)
        kernel, limits = job.kernel, self.accelerator.limits[layer.kind]
        if not limits.kernel_parts:
            assert kernel == layer.filter
        elif max(size - most for size, most in zip(kernel, limits.max_kernel, strict=True)) > 0 or min(kernel) < 1:
            raise RefusedError(f"a kernel of {kernel}")
        depthwise = isinstance(layer, DepthwiseConv2d)
        if depthwise and not limits.kernel_parts:
            assert (job.first, job.last) == (True, True)
        channels = job.ofm_shape[2]
        depth = 1 if depthwise else job.ifm_shape[2]
        weights = self.unpack(job.weights, (channels, *kernel, depth), layer.weights.bits)
        weights = weights - zero_point(layer.weights)
        padded = self.padded(layer, job, zero_point(layer.ifm))
        windows = self.windows(padded, job, kernel, strides, dilation)
        if depthwise:
            sums = np.einsum("yxabk,kab->yxk", windows, weights[..., 0])
        else:
            sums = windows.reshape(*job.ofm_shape[:2], -1) @ weights.reshape(channels, -1).T
        if job.first or job.last:  # a job between those carries sums from psum to psum
            params = self.local(WEIGHTS, job.params, 12 * channels).view(
                np.dtype([("bias", "<i4"), ("multiplier", "<i4"), ("left", "u1"), ("right", "u1"), ("reserved", "<u2")])
            )
        if job.first:
            sums += params["bias"]
        else:
            sums += self.local(ACTIVATIONS, job.psum, 4 * sums.size).view("<i4").reshape(sums.shape)
        assert np.abs(sums).max() < 2**31
        if not job.last:
            stored = np.frombuffer(sums.astype("<i4").tobytes(), np.uint8)
            self.store(np.arange(job.psum, job.psum + len(stored)), stored)
            return
        scaled = upward(sums, (params["multiplier"], params["left"], params["right"]))
        self.store_tile(np.clip(scaled + zero_point(layer.ofm), layer.act_min, layer.act_max), job)

    def unpack(self, offset, shape, bits):
        bytes_of_channel = (int(np.prod(shape[1:])) * bits + 7) // 8
        return unpacked(self.local(WEIGHTS, offset, shape[0] * bytes_of_channel), shape, bits)

    def matmul(self, layer, job):
        (_, rows, depth), (_, vectors, channels) = job.ifm_shape, job.ofm_shape
        assert rows == vectors
        assert (job.ifm_row, job.ifm_pixel, job.ofm_pixel) == (rows * depth, depth, channels)
        one = self.load_tile(job.ifm, job.ifm_shape, job.ifm_row, job.ifm_pixel)[0] - zero_point(layer.ifm)
        other = self.load_tile(job.ifm2, (1, channels, depth), channels * depth, depth)[0] - zero_point(layer.ifm2)
        scaled = upward if layer.rounding == "upward" else twice
        values = scaled(one @ other.T, matmul_scale(layer)) + zero_point(layer.ofm)
        self.store_tile(np.clip(values, layer.act_min, layer.act_max)[np.newaxis], job)

    def pairwise(self, layer, job):
        assert job.ifm_shape == job.ofm_shape
        again = layer.ifm2.elements < layer.ifm.elements
        height, width, channels = job.ifm_shape
        assert (height, channels) == (1, layer.ifm2.elements if again else 1)
        assert (job.ifm_row, job.ifm_pixel) == (job.ofm_row, job.ofm_pixel) == (width * channels, channels)
        one, other = (
            self.load_tile(start, shape, job.ifm_row, job.ifm_pixel) - zero_point(tensor)
            for start, tensor, shape in (
                (job.ifm, layer.ifm, job.ifm_shape),
                (job.ifm2, layer.ifm2, (1, 1, channels) if again else job.ifm_shape),
            )
        )
        total = self.product(layer, one * other) if isinstance(layer, Mul) else self.sum(layer, one, other)
        self.store_tile(np.clip(total + zero_point(layer.ofm), layer.act_min, layer.act_max), job)

    def sum(self, layer, one, other):
        first, second, summed = add_scales(layer)
        scaled = upward if layer.rounding == "upward" else twice
        one, other = scaled(one, first), scaled(other, second)
        total = {"": one + other, "ifm2": one - other, "ifm": other - one}[layer.subtract]
        return total if layer.rounding == "upward" else twice(total, summed)

    def product(self, layer, product):
        scale = upward if layer.rounding == "upward" else twice
        return scale(product, mul_scale(layer))

    def pool(self, layer, job):
        scale, before, after, offset = pool_scale(layer)
        scaled = upward if layer.rounding == "upward" else twice
        padded = self.padded(layer, job, -128 if layer.mode == "max" else 0)
        windows = self.windows(padded, job, layer.kernel, layer.strides)
        if layer.mode == "max":
            result = windows.max(axis=(2, 3))
        elif offset is not None:
            result = scaled(windows.sum(axis=(2, 3)) + offset, scale) + after
        else:
            sides = list(zip(job.padding[:2], job.padding[2:], strict=True))
            inside = np.pad(
                np.ones((*job.ifm_shape[:2], 1), np.int64), [*sides, (0, 0)], constant_values=layer.count_include_pad
            )
            counts = self.windows(inside, job, layer.kernel, layer.strides).sum(axis=(2, 3))
            total = windows.sum(axis=(2, 3))
            average = np.sign(total) * (np.abs(total) // np.maximum(counts, 1))
            result = upward(average - before, scale) + after
        self.store_tile(np.clip(result, layer.act_min, layer.act_max), job)
