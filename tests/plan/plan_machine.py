"""An accelerator in Python that runs a `RegionPlan`: written from hwlib_hal.h alone, to test plans.

What descriptors say (scales and zero points) is its own too, of plan_scales.py. Parameters of output channels are
those of the plan.

It refuses what hardware could not do: accesses outside a memory, reads of local bytes that nothing
wrote, unaligned copies, a copy and a job in flight on the same bytes, and waits for nothing.
"""

import numpy as np
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

    def indices(self, offset, count):
        if offset < 0 or offset + count > len(self.bytes):
            raise RefusedError(f"{self.name}: {count} bytes at {offset} of {len(self.bytes)}")
        return slice(offset, offset + count)

    def read(self, offset, count, padding=0):
        """The last `padding` bytes need not have been written."""
        part = self.indices(offset, count)
        if not self.written[self.indices(offset, count - padding)].all():
            raise RefusedError(f"{self.name}: unwritten bytes read at {offset}")
        return self.bytes[part].copy()

    def write(self, offset, data, written=True):
        part = self.indices(offset, len(data))
        self.bytes[part] = data
        self.written[part] = written


def padded(data, word):
    return data + bytes(-len(data) % word)


class Access:
    """The bytes of local memory that one copy or job in flight touches."""

    def __init__(self, kind):
        self.kind = kind
        self.reads = set()
        self.writes = set()


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
            if access.writes & (other.reads | other.writes) or access.reads & other.writes:
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
        places = (
            job.image.offset
            + np.arange(rows)[:, None, None] * job.image.strides[0]
            + np.arange(pitch)[None, :, None] * job.image.strides[1]
            + np.arange(channels)
        )
        if job.image.pitch:  # many rows as one, with what lies between them
            start = job.image.first * channels
            inside = np.broadcast_to(np.arange(pitch)[None, :, None] < pixels, places.shape)
            inside = inside.ravel()[start : start + values.size]
            places, values = places.ravel()[start : start + values.size][inside], values[inside]
        places = places.ravel()
        again = made[places]
        if (whole[places][again] != values[again]).any():
            raise RefusedError("a job makes other values than the one before it")
        whole[places], made[places] = values, True

    def local_tile(self, job):
        height, width, channels = job.ofm_shape
        data = self.memories[ACTIVATIONS].bytes
        places = (
            job.ofm
            + np.arange(height)[:, None, None] * job.ofm_row
            + np.arange(width)[None, :, None] * job.ofm_pixel
            + np.arange(channels)
        )
        return data[places].view(np.int8)

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
        access = Access(Copy)
        for row in range(copy.rows):
            source = copy.source.offset + row * copy.source_stride
            target = copy.target.offset + row * copy.target_stride
            padding = self.accelerator.dma_alignment - 1  # a tensor may end inside the last word
            memory = self.memories[copy.source.space]
            written = memory.written[memory.indices(source, copy.nbytes)].copy()
            self.memories[copy.target.space].write(target, memory.read(source, copy.nbytes, padding), written)
            touched = access.reads, access.writes
            for space, offset, spans in ((copy.source.space, source, 0), (copy.target.space, target, 1)):
                if space in local:
                    touched[spans].update((space, byte) for byte in range(offset, offset + copy.nbytes))
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
        self.access.reads.update((space, byte) for byte in range(offset, offset + count))
        return self.memories[space].read(offset, count)

    def store(self, offset, data):
        self.access.writes.update((ACTIVATIONS, byte) for byte in range(offset, offset + len(data)))
        self.memories[ACTIVATIONS].write(offset, data)

    def load_tile(self, start, shape, row, pixel):
        height, width, channels = shape
        if height > 1 and row < (width - 1) * pixel + channels and not self.accelerator.packed_rows:
            raise RefusedError("rows that overlap")
        lines = [
            [self.local(ACTIVATIONS, start + y * row + x * pixel, channels) for x in range(width)]
            for y in range(height)
        ]
        return np.array(lines, np.uint8).view(np.int8).astype(np.int64)

    def store_tile(self, values, job):
        for y, line in enumerate(values):
            for x, pixel in enumerate(line):
                offset = job.ofm + y * job.ofm_row + x * job.ofm_pixel
                self.store(offset, pixel.astype(np.int8).view(np.uint8))

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
        for y in range(height):
            for x in range(width):
                top, left = y * strides[0], x * strides[1]
                yield y, x, padded[top : top + reach[0] : dilation[0], left : left + reach[1] : dilation[1]]

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
        sums = np.zeros(job.ofm_shape, np.int64)
        for y, x, window in self.windows(padded, job, kernel, strides, dilation):
            sums[y, x] = (
                np.einsum("yxk,kyx->k", window, weights[..., 0])
                if depthwise
                else np.einsum("yxc,kyxc->k", window, weights)
            )
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
            self.store(job.psum, np.frombuffer(sums.astype("<i4").tobytes(), np.uint8))
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
        result = np.zeros(job.ofm_shape, np.int64)
        inside = np.pad(
            np.ones(job.ifm_shape, np.int64),
            [(job.padding[0], job.padding[2]), (job.padding[1], job.padding[3]), (0, 0)],
        )
        counts = self.windows(inside, job, layer.kernel, layer.strides)
        padded = self.padded(layer, job, -128 if layer.mode == "max" else 0)
        for (y, x, window), (_, _, there) in zip(
            self.windows(padded, job, layer.kernel, layer.strides), counts, strict=True
        ):
            if layer.mode == "max":
                result[y, x] = window.max(axis=(0, 1))
                continue
            count = there.size // there.shape[2] if layer.count_include_pad else max(int(there[..., 0].sum()), 1)
            total = window.sum(axis=(0, 1))
            if offset is not None:
                result[y, x] = scaled(total + offset, scale) + after
                continue
            average = np.sign(total) * (np.abs(total) // count)
            result[y, x] = upward(average - before, scale) + after
        self.store_tile(np.clip(result, layer.act_min, layer.act_max), job)
