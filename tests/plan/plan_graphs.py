"""Random accelerators, and random graphs of layers that each of them can plan one by one."""

from dataclasses import replace
from math import prod

from hypothesis import assume
from hypothesis import strategies as st
from plan_choices import layer_by_layer
from plan_samples import Samples, accelerator, graph_of, single

from byoc_hw.errors import PlanError
from byoc_hw.graph import Moving
from byoc_hw.integers import ceil_div
from byoc_hw.plan.array.in_place import storages
from byoc_hw.plan.array.mapping import map_layers
from byoc_hw.plan.array.packing import bands
from byoc_hw.plan.choices import Blocks, Choices, Group, Tiling

ACTIVATIONS = st.sampled_from([700, 1024, 1500, 2048, 3000, 4096, 6000, 8192, 16384, 65536])
WEIGHTS = st.sampled_from([300, 512, 777, 1024, 2048, 4096, 65536])

KINDS = [
    *("conv", "conv", "conv", "pointwise", "depthwise", "depthwise", "pool", "add", "mul", "broadcast", "constant"),
    "branch",
]
PAIRS = [*["matmul"] * 6, "broadcast", "pixel"]
SUBTRAHENDS = st.sampled_from(["", "ifm", "ifm2"])
TABLES = ["lookup", "lookup"]
MOVED = ["concat", "concat", "slice", "pad", "resize", "spread"]
FLAT = [
    *("concat", "slice", "pad", "dense", "dense", "softmax", "add", "mul", "broadcast", "constant", "lookup"),
    "unflat",
]


@st.composite
def accelerators(draw):
    """Small ones, on which most graphs have to be cut."""
    return accelerator(
        draw(ACTIVATIONS),
        draw(WEIGHTS),
        array_rows=draw(st.sampled_from([2, 4, 8, 16])),
        array_columns=draw(st.sampled_from([2, 4, 8, 16])),
        depthwise_rows=draw(st.sampled_from([1, 2, 4, 16])),
        local_alignment=draw(st.sampled_from([4, 8, 16])),
        dma_alignment=draw(st.sampled_from([1, 1, 1, 2, 4, 8])),
        dma_width=draw(st.sampled_from([1, 2, 4, 8, 16])),
        dma_setup=draw(st.sampled_from([0, 10, 70])),
        dma_row_setup=draw(st.sampled_from([0, 0, 1, 12])),
        job_setup=draw(st.sampled_from([0, 0, 60, 200])),
        queue=draw(st.sampled_from([1, 2, 3, 4, 8, 64])),
        packed_rows=draw(st.booleans()),
    )


class Network:
    """A graph as it grows: what has been made, and what may be added to it."""

    first_axis = 1  # the first dimension along which tensors are joined and padded: not along batches

    def __init__(self, draw, hardware, seed, kinds=()):
        self.draw, self.hardware, self.samples, self.kinds = draw, hardware, Samples(seed), kinds
        self.inputs, self.layers, self.outputs = [], [], []
        self.value = self.input(self.first_shape())

    def first_shape(self):
        height, width = self.draw(st.sampled_from([(0, 0), (0, 0), (0, 1), (1, 0)]))  # 1-D lines too
        return (1, height or self.draw(st.integers(1, 14)), width or self.draw(st.integers(1, 14)), self.channels())

    def channels(self):
        """Often whole words of the DMA."""
        step = self.draw(st.sampled_from([1, self.hardware.dma_alignment, self.hardware.dma_alignment]))
        return step * self.draw(st.integers(1, max(1, 24 // step)))

    def input(self, shape):
        self.inputs.append(self.samples.tensor(shape))
        return self.inputs[-1]

    def tensors(self):
        """Those that any layer may read."""
        return [one for one in (*self.inputs, *(layer.ofm for layer in self.layers)) if one.quantization is not None]

    def grow(self):
        """Add a layer of a random kind, unless the accelerator cannot plan that one."""
        kinds = KINDS + self.draw(st.sampled_from([[], MOVED, TABLES, PAIRS])) if len(self.value.shape) == 4 else FLAT
        layer = getattr(self, self.draw(st.sampled_from(self.kinds or [*kinds, "flat", "rows", "transposed"])))()
        made = None if layer is None else self.put(layer)
        self.value = self.value if made is None else made

    def put(self, layer):
        """The output of a layer that is now part of the graph; None where the accelerator cannot run or plan it."""
        if any(self.hardware.broken_rules(layer)):
            return None
        try:
            layer_by_layer(single(layer), self.hardware)
        except PlanError:
            return None
        self.layers.append(layer)
        return layer.ofm

    # ------------------------------------------------------------ kinds

    def window(self, kernels=((1, 1), (3, 3), (3, 3), (1, 5), (5, 1), (2, 2), (4, 3))):
        """A kernel, strides, and any padding that leaves an output."""
        kernel = self.draw(st.sampled_from(kernels))
        padding = [self.draw(st.integers(0, kernel[side % 2] - 1)) for side in range(4)]
        if any(self.value.shape[1 + axis] + padding[axis] + padding[axis + 2] < kernel[axis] for axis in (0, 1)):
            kernel, padding = (1, 1), [0] * 4
        strides = self.draw(st.tuples(*[st.sampled_from([1, 1, 2])] * 2))
        return {"kernel": kernel, "strides": strides, "padding": tuple(padding)}

    def bits(self):
        return self.draw(st.sampled_from([8, 8, 4, 2]))

    def conv(self):
        return self.samples.conv2d(self.value, self.channels(), bits=self.bits(), **self.window())

    def pointwise(self):
        return self.samples.conv2d(self.value, self.channels(), (1, 1), bits=self.bits())

    def depthwise(self):
        return self.samples.depthwise(self.value, bits=self.bits(), **self.window())

    def pool(self):
        mode, include = self.draw(st.sampled_from(["avg", "max"])), self.draw(st.booleans())
        rescaled = mode == "avg" and self.draw(st.booleans())
        return self.samples.pool(self.value, mode, include=include, rescaled=rescaled, **self.window())

    def add(self):
        """With any tensor of the same shape, be it the very same one."""
        fitting = [tensor for tensor in self.tensors() if tensor.shape == self.value.shape]
        other = self.draw(st.sampled_from(fitting))
        return self.samples.add(self.value, other, self.rounding(), subtract=self.draw(SUBTRAHENDS))

    def mul(self):
        fitting = [tensor for tensor in self.tensors() if tensor.shape == self.value.shape]
        return self.samples.mul(self.value, self.draw(st.sampled_from(fitting)), self.rounding())

    def broadcast(self):
        """With one value for each channel, or one: of any tensor that is so small, or of another input."""
        channels, rank = self.value.shape[-1], len(self.value.shape)
        shapes = [(1,) * ones + (extent,) for extent in (channels, 1) for ones in range(rank)] + [()]
        small = [tensor for tensor in self.tensors() if tensor.shape in shapes]
        known = self.draw(st.booleans()) and small
        other = self.draw(st.sampled_from(small)) if known else self.input(self.draw(st.sampled_from(shapes)))
        if self.draw(st.booleans()):
            return self.samples.mul(self.value, other, self.rounding())
        return self.samples.add(self.value, other, self.rounding(), subtract=self.draw(SUBTRAHENDS))

    def pixel(self):
        """A mean over all pixels: what squeeze-and-excite blocks broadcast."""
        kernel = self.value.shape[1:3]
        return self.samples.pool(self.value, kernel=kernel, strides=(1, 1), rescaled=True)

    def matmul(self):
        """Of pixels as rows, in one item or two, by another input or by the rows of a tensor that is there."""
        depth = self.value.shape[3]
        rows = self.value.elements // depth
        items = self.draw(st.sampled_from([count for count in (1, 2) if rows % count == 0]))
        fitting = [one for one in self.tensors() if one.shape[-1:] == (depth,) and one.elements // depth % items == 0]
        if self.draw(st.booleans()):
            other = self.input((items, self.draw(st.integers(1, 12)), depth))
        else:
            other = self.draw(st.sampled_from(fitting))
            other = self.put(self.samples.reshape(other, (items, other.elements // depth // items, depth)))
        one = self.put(self.samples.reshape(self.value, (items, rows // items, 1, depth)))
        product = self.put(self.samples.matmul(one, other, self.rounding()))
        return None if product is None else self.samples.reshape(product, (1, rows, 1, product.shape[3]))

    def constant(self):
        one, other = self.samples.constant(self.value.shape), self.value
        kind = self.draw(st.sampled_from([self.samples.add, self.samples.mul]))
        return kind(*((one, other) if self.draw(st.booleans()) else (other, one)), self.rounding())

    def lookup(self):
        return self.samples.lookup(self.value, self.draw(st.booleans()))

    def rounding(self):
        return self.draw(st.sampled_from(["upward", "tflite"]))

    def branch(self):
        """Go on from any tensor, or from another input."""
        four = [tensor for tensor in self.tensors() if len(tensor.shape) == 4]
        self.value = self.draw(st.sampled_from(four)) if self.draw(st.booleans()) else self.input(self.value.shape)

    def branched(self):
        """Go on from a tensor that is there."""
        self.value = self.draw(st.sampled_from([tensor for tensor in self.tensors() if len(tensor.shape) == 4]))

    def flat(self):
        return self.samples.reshape(self.value, (1, self.value.elements))

    def rows(self):
        """Pixels as rows of a tensor without batches, as tokens are."""
        return self.samples.reshape(self.value, (self.value.elements // self.value.shape[-1], self.value.shape[-1]))

    def unflat(self):
        """Pixels again: in another order of extents, if there are several."""
        total = self.value.elements
        sizes = [size for size in range(1, total + 1) if total % size == 0]
        channels = self.draw(st.sampled_from([size for size in sizes if size <= 64]))
        height = self.draw(st.sampled_from([size for size in sizes if total // channels % size == 0]))
        return self.samples.reshape(self.value, (1, height, total // channels // height, channels))

    def dense(self):
        return self.samples.dense(self.value, self.channels(), self.bits())

    def softmax(self):
        return self.samples.softmax(self.value) if self.value.shape[-1] < 4096 else self.lookup()

    def concat(self):
        """With any tensors that fit along an axis, be it the very same one."""
        axis = self.draw(st.sampled_from(range(self.first_axis, len(self.value.shape))))
        rank, fits = len(self.value.shape), without(self.value, axis)
        fitting = [one for one in self.tensors() if len(one.shape) == rank and without(one, axis) == fits]
        others = self.draw(st.lists(st.sampled_from(fitting), max_size=2))
        if self.draw(st.booleans()):
            extent = self.draw(st.integers(1, 8)) * (self.hardware.dma_alignment if axis > 2 else 1)
            shape = (*self.value.shape[:axis], extent, *self.value.shape[axis + 1 :])
            others.append(self.samples.constant(shape) if self.draw(st.booleans()) else self.input(shape))
        return self.samples.concat(self.draw(st.permutations([self.value, *others])), axis)

    def slice(self):
        """Along each axis all of it, some from the first on, or any."""
        begin, shape, steps = [], [], []
        for axis, size in enumerate(self.value.shape):
            kind = self.draw(st.sampled_from(["all", "first", "any"]))
            if kind == "all":
                begin, shape, steps = [*begin, 0], [*shape, size], [*steps, 1]
                continue
            unit = self.hardware.dma_alignment if axis == len(self.value.shape) - 1 and size > 8 else 1
            first = self.draw(st.integers(0, (size - 1) // unit)) * unit if kind == "any" else 0
            step = self.draw(st.sampled_from([1, 1, 1, 2, 3])) if unit == 1 else 1
            begin.append(first)
            steps.append(step)
            shape.append(self.draw(st.integers(1, ceil_div(size - first, step * unit))) * unit)
        fits = all(a + (n - 1) * s < e for a, n, s, e in zip(begin, shape, steps, self.value.shape, strict=True))
        return self.samples.slice(self.value, begin, shape, steps) if fits else None

    def pad(self):
        before, after = ([self.draw(st.sampled_from([0, 0, 1, 3])) for _ in self.value.shape] for _ in range(2))
        unit = self.hardware.dma_alignment
        before, after = (
            [*[0] * self.first_axis, *widths[self.first_axis : -1], widths[-1] * unit] for widths in (before, after)
        )
        return self.samples.pad(self.value, before, after, self.draw(st.integers(-128, 127)))

    def resize(self):
        """As nearest neighbours do, or anyhow."""
        if self.value.shape[0] != 1:
            return None
        indices = []
        for size in self.value.shape[1:3]:
            most = self.draw(st.integers(1, 2 * size))
            nearest = tuple(place * size // most for place in range(most))
            anyhow = st.lists(st.integers(0, size - 1), min_size=1, max_size=5)
            indices.append(self.draw(st.just(nearest) | anyhow))
        return self.samples.resize(self.value, *indices)

    def spread(self):
        """Pixels from channels, as a transposed convolution has them: the last layer of three comes back."""
        down, along = self.draw(st.sampled_from([(2, 2), (1, 2), (2, 1)]))
        batch, *_, channels = self.value.shape
        if batch != 1 or channels % (down * along):
            return None
        *moved, image = self.samples.blocks_apart(self.value, (down, along))
        return None if any(self.put(layer) is None for layer in moved) else image

    def transposed(self):
        rank = len(self.value.shape)
        axes = self.draw(st.sampled_from([(0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3)] if rank == 4 else [(0, 1), (1, 0)]))
        return self.samples.transpose(self.value, axes) if rank == 4 else None


class AnyRank(Network):
    """Tensors of any rank, of which the first dimension is one as the others are."""

    first_axis = 0

    def first_shape(self):
        return (*self.draw(st.lists(st.integers(1, 5), max_size=4)), self.channels())

    def branched(self):
        self.value = self.draw(st.sampled_from([tensor for tensor in self.tensors() if tensor.shape]))

    def transposed(self):
        return self.samples.transpose(self.value, self.draw(st.permutations(range(len(self.value.shape)))))

    def reshaped(self):
        """Two dimensions in one, or one more."""
        shape, rank = self.value.shape, len(self.value.shape)
        at = self.draw(st.integers(0, rank - 1))
        joined = (*shape[:at], prod(shape[at : at + 2]), *shape[at + 2 :])
        return self.samples.reshape(self.value, self.draw(st.sampled_from([joined, (*shape[:at], 1, *shape[at:])])))


ANY_RANK = [
    *["concat", "slice", "pad", "branched"] * 2,
    *("add", "mul", "broadcast", "lookup", "softmax", "reshaped", "transposed"),
]


def without(tensor, axis):
    """The shape but for one extent."""
    return (*tensor.shape[:axis], *tensor.shape[axis + 1 :])


@st.composite
def graphs(draw, hardware, most=9, kinds=(), network=Network):
    """Outputs are what nothing reads, or almost, and some of the rest: twice, or an input, if it so happens."""
    network = network(draw, hardware, draw(st.integers(0, 2**32 - 1)), kinds)
    for _ in range(draw(st.integers(1, most))):
        network.grow()
    assume(any(layer.kind != "reshape" for layer in network.layers))
    read = {tensor for layer in network.layers for tensor in layer.inputs}
    network.outputs = [layer.ofm for layer in network.layers if layer.ofm not in read]
    if len(network.outputs) > 1 and draw(st.integers(0, 9)) == 0:
        network.outputs.pop()  # a layer for nothing
    aligned = [tensor for tensor in network.tensors() if tensor.nbytes % hardware.dma_alignment == 0]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2])) if aligned else 0):
        network.outputs.append(draw(st.sampled_from(aligned)))
    return as_stated(graph_of(network.inputs, network.layers, network.outputs))


def as_stated(graph):
    """The graph without the quantization of tensors that layers only move: no operator of a model states one."""
    working = [layer for layer in graph.layers if not isinstance(layer, Moving)]
    stated = {tensor for layer in working for tensor in (*layer.inputs, layer.ofm)}
    as_told = {one: one if one in stated else replace(one, quantization=None) for one in graph.tensors}
    layers = (layer.on([as_told[one] for one in layer.inputs], as_told[layer.ofm]) for layer in graph.layers)
    return graph_of(map(as_told.get, graph.inputs), layers, map(as_told.get, graph.outputs))


@st.composite
def choices(draw, graph, hardware):
    """Any choices of the right shape, good or bad."""
    direct = draw(st.booleans())
    swapped = tuple(draw(st.booleans()) and draw(st.booleans()) for _ in map_layers(graph, hardware).swapped)
    try:
        mapping = map_layers(graph, hardware, swapped, direct)
    except PlanError:
        mapping = map_layers(graph, hardware, swapped := (False,) * len(swapped), direct)
    placed = stored = frozenset()
    if draw(st.booleans()):  # sometimes of layers that cannot be
        joins = [index for index, layer in enumerate(graph.layers) if layer.kind in ("concat", "slice")]
        placed = frozenset(index for index in joins if draw(st.booleans()))
        kinds = {index: layer.kind for index, layer in enumerate(graph.layers) if index not in placed}
        moved = [index for index, kind in kinds.items() if kind in ("concat", "pad", "resize", "slice", "transpose")]
        stored = frozenset(index for index in moved if draw(st.booleans()))
    numbers = {number for number in bands(graph.layers) if number is not None} if hardware.packed_rows else ()
    packed = frozenset(number for number in numbers if draw(st.booleans()))
    count = len(storages(graph, mapping).all)
    groups = []
    left = len(graph.layers)
    whole = frozenset()
    while left:
        layers = draw(st.integers(1, min(left, 4)))
        left -= layers
        if draw(st.booleans()):
            whole = draw(st.sampled_from([frozenset(), frozenset(range(count))])) or frozenset(
                draw(st.sets(st.integers(0, count - 1)))
            )
        tiling = draw(st.none() | tilings) if layers == 1 and draw(st.integers(0, 3)) == 0 else None
        columns, slices = (draw(st.integers(2, 6)) if draw(st.integers(0, 2)) == 0 else 1 for _ in range(2))
        if columns > 1 or slices > 1:  # more often those that can be
            whole = draw(st.sampled_from([whole, frozenset(), frozenset()]))
        flags = draw(st.booleans()), draw(st.booleans())
        kept = draw(st.sampled_from([frozenset(), frozenset(range(count))]))
        summed, outer = False, False
        if slices > 1:
            summed, outer = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
        stripes, pieces = draw(st.integers(1, 16)), draw(st.sampled_from([1, 1, 4]))
        group = Group(layers, stripes, whole, *flags, tiling, columns, slices, kept, summed=summed, pieces=pieces)
        groups.append(replace(group, slices_outer=outer))
    blocks = tuple(draw(st.none() | st.builds(Blocks, st.integers(1, 26), st.integers(1, 26))) for _ in graph.layers)
    apart, fine = draw(st.sampled_from([(False, False), (True, False), (False, True), (True, True)]))
    by_jobs = hardware.packed_rows and draw(st.booleans())
    return Choices(swapped, tuple(groups), blocks, direct, placed, stored, packed, apart, fine, by_jobs)


tilings = st.builds(
    Tiling,
    st.integers(1, 15),
    st.integers(1, 15) | st.integers(1, 60),  # the pixels of a pointwise layer are one row
    st.integers(1, 26),
    st.integers(1, 26),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@st.composite
def regions(draw, most=9):
    """An accelerator, and a graph for it."""
    hardware = draw(accelerators())
    return replace(hardware, label="RANDOM"), draw(graphs(hardware, most))


JOINED = ["pointwise", "conv", "depthwise", "pool", *["branched", "concat"] * 2, "slice", "pad", "resize", "spread"]


@st.composite
def joined_regions(draw):
    """Branches that come together, often in memories that hold them."""
    hardware = replace(draw(accelerators()), activation_memory=draw(st.sampled_from([2048, 8192, 65536])))
    return replace(hardware, label="RANDOM"), draw(graphs(hardware, 10, JOINED))


@st.composite
def regions_of_any_rank(draw):
    """Tensors of any rank inside one another."""
    hardware = draw(accelerators())
    return replace(hardware, label="RANDOM"), draw(graphs(hardware, 7, ANY_RANK, AnyRank))
