"""numerics="tflite": offloaded layers equal TFLite's reference kernels, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import tflite
import tvm
from relay_samples import Add, Conv, const, module, variable
from test_networks import MLPERF_TINY, structured
from tflite_samples import NONE, RELU, Node, OperatorSample, TensorSample, model_bytes, network_bytes
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.compiler import BACKEND
from byoc_hw.demo import heldout, model_path
from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.partition import folding, prepare
from byoc_hw.frontend.relay.record import regions
from byoc_hw.frontend.relay.rewrite.chains import chains
from byoc_hw.frontend.relay.rewrite.tflite_tables import tflite_tables
from byoc_hw.graph import Dense
from byoc_hw.params.requantize import scale_of_ratio, sum_scales
from byoc_hw.tensor import Quantization, Tensor

interpreter = pytest.importorskip(
    "tflite_runtime.interpreter", reason="the oracle: install the package tflite-runtime==2.14.0"
)


def project_of(path, **options):
    mod, params = byoc_hw.load_tflite(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="net", numerics="tflite", **options)
    return byoc_hw.build(partitioned)


def assert_equals_tflite(path, inputs, **options):
    """Every operator is offloaded, and every output and every layer that can be seen equals TFLite's."""
    project = project_of(path, **options)
    assert not project.report.host, str(project.report)
    validation = byoc_hw.validate(
        project, [[array] if isinstance(array, np.ndarray) else array for array in inputs], path
    )
    assert validation, str(validation)
    assert validation.inferences == len(inputs)
    return validation


# ---------------------------------------------------------------- whole networks


@pytest.mark.parametrize("mlperf_model", MLPERF_TINY, indirect=True)
def test_mlperf_tiny_equals_tflite_layer_by_layer(mlperf_model):
    mod, _ = byoc_hw.load_tflite(mlperf_model)
    (shape,) = (tuple(int(n) for n in p.type_annotation.shape) for p in mod["main"].params[:1])
    validation = assert_equals_tflite(mlperf_model, structured(shape, 50, seed=0))
    assert len(validation.compared) > len(validation.unseen)


@pytest.mark.slow
@pytest.mark.parametrize("accelerator", [REFERENCE, byoc_hw.SMALL], ids=lambda preset: preset.label)
def test_digits_equal_tflite_on_what_they_were_not_trained_on(accelerator):
    images = [image[None] for image in heldout().images]
    assert_equals_tflite(model_path(), images, accelerator=accelerator)


# ---------------------------------------------------------------- single operators, random quantization


def tensor(rng, shape, low=0.01, high=0.2):
    return TensorSample(shape, float(rng.uniform(low, high)), int(rng.integers(-128, 128)))


def addition(rng):
    shape = (1, 16, 16, 8)
    options = {"FusedActivationFunction": int(rng.choice([NONE, RELU]))}
    # Scales that are far apart, either way round.
    inputs = [tensor(rng, shape, 0.001), tensor(rng, shape, 0.05, 0.5)]
    rng.shuffle(inputs)
    return OperatorSample("ADD", inputs, tensor(rng, shape, 0.05, 0.4), options)


def subtraction(rng):
    """Halves of the smaller input's units are rounded before it is subtracted: with these scales 1 - 1 shows it."""
    if rng.integers(2):
        return replace(addition(rng), operator="SUB")
    shape = (1, 16, 16, 8)
    inputs = [TensorSample(shape, 0.5, 0), TensorSample(shape, 0.25 * (1 + 2**-20), 0)]
    return OperatorSample("SUB", inputs, TensorSample(shape, 0.5, 0), {})


def multiplication(rng):
    """With an output that the products fill, and with one that most of them leave."""
    inputs = [tensor(rng, (1, 16, 16, 8)), tensor(rng, (1, 16, 16, 8), 0.001, 0.5)]
    scale = inputs[0].scale * inputs[1].scale * float(rng.choice([3, 60, 200]))
    ofm = TensorSample(inputs[0].shape, scale, int(rng.integers(-128, 128)))
    return OperatorSample("MUL", inputs, ofm, {"FusedActivationFunction": int(rng.choice([NONE, RELU]))})


def broadcast(rng):
    """An addition, subtraction or multiplication whose one input, either one, has a value for each channel, or one."""
    sample = [addition, subtraction, multiplication][int(rng.integers(3))](rng)
    shape = [(1, 1, 1, 8), (8,), (1,), (1, 1, 1, 1)][int(rng.integers(4))]
    small = int(rng.integers(2))
    inputs = [replace(one, shape=shape) if side == small else one for side, one in enumerate(sample.inputs)]
    return replace(sample, inputs=inputs)


def average(rng):
    """With padding, whose elements do not count, and windows of odd and even sizes."""
    ifm = tensor(rng, (1, 13, 11, 8))
    height, width, stride = (int(value) for value in rng.integers((2, 2, 1), (6, 6, 3)))
    shape = (1, -(-13 // stride), -(-11 // stride), 8)
    options = {"Padding": tflite.Padding.SAME, "FilterHeight": height, "FilterWidth": width}
    options |= {"StrideH": stride, "StrideW": stride, "FusedActivationFunction": int(rng.choice([NONE, RELU]))}
    return OperatorSample("AVERAGE_POOL_2D", [ifm], replace(ifm, shape=shape), options)


def mean(rng):
    """Over neighbouring axes; the output's scale is the input's in every other sample."""
    shape = tuple(int(extent) for extent in rng.integers(2, 9, rng.integers(2, 5)))
    first = int(rng.integers(0, len(shape)))
    axes = np.arange(first, min(first + 1 + int(rng.integers(0, 2)), len(shape)), dtype=np.int32)
    if np.prod([shape[axis] for axis in axes]) > 32:
        axes = axes[:1]
    keep = bool(rng.integers(0, 2))
    reduced = np.zeros(shape).sum(axis=tuple(axes), keepdims=keep).shape
    ifm = tensor(rng, shape)
    ofm = replace(ifm, shape=reduced) if rng.integers(0, 2) else tensor(rng, reduced, 0.003)
    return OperatorSample("MEAN", [ifm, TensorSample(axes.shape, None, data=axes)], ofm, {"KeepDims": keep})


def product(rng):
    """Of matrices with either operand transposed or not, and a batch; the second one's may be 1."""
    batch, rows, depth, columns = (int(extent) for extent in rng.integers(1, (4, 12, 24, 12)))
    adj_x, adj_y = bool(rng.integers(0, 2)), bool(rng.integers(0, 2))
    first = (batch, depth, rows) if adj_x else (batch, rows, depth)
    second = (int(rng.choice([1, batch])), *((columns, depth) if adj_y else (depth, columns)))
    inputs = [tensor(rng, first), tensor(rng, second)]
    scale = inputs[0].scale * inputs[1].scale * 80 * depth**0.5
    ofm = TensorSample((batch, rows, columns), scale, int(rng.integers(-60, 60)))
    return OperatorSample("BATCH_MATMUL", inputs, ofm, {"AdjX": adj_x, "AdjY": adj_y})


def softmax(rng):
    rows, channels = int(rng.integers(1, 5)), int(rng.integers(2, 200))
    scale = float(np.exp(rng.uniform(np.log(0.002), np.log(1.5))))
    ifm = TensorSample((rows, channels), scale, int(rng.integers(-128, 128)))
    return OperatorSample("SOFTMAX", [ifm], TensorSample(ifm.shape, 1 / 256, -128), {"Beta": 1.0})


def weighted(rng, operator, groups=1, multiplier=1, dilation=1, kernel=(3, 3)):
    """Sums whose outputs spread over int8 and beyond: of a convolution in groups, or with several filters a channel."""
    dense, depthwise = operator == "FULLY_CONNECTED", operator == "DEPTHWISE_CONV_2D"
    channels, depth = 16, 16 // multiplier
    ifm = tensor(rng, (2, 3, depth) if dense else (1, 7, 6, depth))
    shape = {"FULLY_CONNECTED": (channels, depth), "CONV_2D": (channels, *kernel, depth // groups)}.get(
        operator, (1, *kernel, channels)
    )
    scales = rng.uniform(0.001, 0.01, 1 if dense else channels).astype(np.float32)
    weights = TensorSample(
        shape, tuple(scales), 0, rng.integers(-127, 128, shape).astype(np.int8), axis=3 if depthwise else 0
    )
    products = np.float32(ifm.scale) * scales
    bias = TensorSample((channels,), tuple(products), 0, rng.integers(-9000, 9000, channels).astype(np.int32))
    spread = 60 * 74 * np.sqrt(np.prod(shape[:-1] if depthwise else shape[1:]))
    ofm = TensorSample(
        (2, 3, channels) if dense else (1, 7, 6, channels),
        float(products.mean() * spread / 100),
        int(rng.integers(-60, 60)),
    )
    window = {"Padding": tflite.Padding.SAME, "StrideH": 1, "StrideW": 1}
    window |= {"DilationHFactor": dilation, "DilationWFactor": dilation}
    options = {"KeepNumDims": True} if dense else window | ({"DepthMultiplier": multiplier} if depthwise else {})
    options["FusedActivationFunction"] = int(rng.choice([NONE, RELU]))
    return OperatorSample(operator, [ifm, weights, bias], ofm, options)


def check_operator_file(path, sample, rng, count=40):
    path.write_bytes(model_bytes(sample))
    shapes = [entry.shape for entry in sample.inputs if entry.data is None]
    inputs = [[rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes] for _ in range(count)]
    inputs += [[np.full(shape, value, np.int8) for shape in shapes] for value in (-128, 127)]
    assert_equals_tflite(path, inputs)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "operator", [addition, subtraction, multiplication, average, softmax], ids=lambda operator: operator.__name__
)
def test_operator_equals_tflite(tmp_path, operator, seed):
    rng = np.random.default_rng(seed)
    check_operator_file(tmp_path / "one.tflite", operator(rng), rng)


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 24))])
def test_a_broadcast_input_gives_what_tflite_does(tmp_path, seed):
    rng = np.random.default_rng(seed)
    check_operator_file(tmp_path / "one.tflite", broadcast(rng), rng, count=10)


@pytest.mark.parametrize("seed", range(6))
def test_mean_over_any_axes_equals_tflite(tmp_path, seed):
    """The whole window of a network's end too, whose count is no power of two."""
    rng = np.random.default_rng(seed)
    sample = mean(rng)
    if seed == 0:
        axes = np.array([1, 2], np.int32)
        sample = OperatorSample(
            "MEAN",
            [tensor(rng, (1, 7, 11, 24)), TensorSample((2,), None, data=axes)],
            tensor(rng, (1, 1, 1, 24)),
            {"KeepDims": True},
        )
    check_operator_file(tmp_path / "one.tflite", sample, rng)


@pytest.mark.parametrize("seed", range(4))
def test_matrix_product_equals_tflite(tmp_path, seed):
    rng = np.random.default_rng(seed)
    check_operator_file(tmp_path / "one.tflite", product(rng), rng)


WEIGHTED = {
    "conv2d": {"operator": "CONV_2D"},
    "conv2d in groups": {"operator": "CONV_2D", "groups": 4},
    "depthwise": {"operator": "DEPTHWISE_CONV_2D"},
    "depthwise, several filters a channel": {"operator": "DEPTHWISE_CONV_2D", "multiplier": 4},
    "conv2d, dilated": {"operator": "CONV_2D", "dilation": 2},
    "conv2d, kernel in parts": {"operator": "CONV_2D", "kernel": (15, 2)},
    "depthwise, kernel in parts": {"operator": "DEPTHWISE_CONV_2D", "kernel": (12, 13)},
    "dense": {"operator": "FULLY_CONNECTED"},
}


@pytest.mark.parametrize("form", WEIGHTED.values(), ids=WEIGHTED)
def test_weighted_operator_equals_tflite(tmp_path, form):
    rng = np.random.default_rng(len(form["operator"]))
    check_operator_file(tmp_path / "one.tflite", weighted(rng, **form), rng)


@pytest.mark.parametrize(("kernel", "padding"), [(3, tflite.Padding.SAME), (4, tflite.Padding.VALID)])
def test_transposed_convolution_equals_tflite(tmp_path, kernel, padding):
    rng = np.random.default_rng(kernel)
    ifm, filters = tensor(rng, (1, 5, 4, 7)), 6
    scales = rng.uniform(0.001, 0.01, filters).astype(np.float32)
    data = rng.integers(-127, 128, (filters, kernel, kernel, 7)).astype(np.int8)
    weights = TensorSample(data.shape, tuple(scales), 0, data)
    extents = (10, 8) if padding == tflite.Padding.SAME else (4 * 2 + kernel, 3 * 2 + kernel)
    shape = TensorSample((4,), None, data=np.array([1, *extents, filters], np.int32))
    products = np.float32(ifm.scale) * scales
    bias = TensorSample((filters,), tuple(products), 0, rng.integers(-9000, 9000, filters).astype(np.int32))
    ofm = TensorSample((1, *extents, filters), float(products.mean() * 600), int(rng.integers(-60, 60)))
    options = {"Padding": padding, "StrideH": 2, "StrideW": 2}
    sample = OperatorSample("TRANSPOSE_CONV", [shape, weights, ifm, bias], ofm, options)
    check_operator_file(tmp_path / "one.tflite", sample, rng)


@pytest.mark.parametrize("operator", ["CONV_2D", "FULLY_CONNECTED"])
def test_scales_are_multiplied_in_the_precision_that_tflite_has(tmp_path, operator):
    """In double for a convolution, in float32 for a dense layer: sums that tell the two apart."""
    rng = np.random.default_rng(1)
    dense = operator == "FULLY_CONNECTED"
    ifm_scale, weight_scale = (np.float32(value) for value in rng.uniform(0.01, 0.3, 2))
    ofm_scale = np.float32(float(ifm_scale * weight_scale) * 2**30 / 200)
    narrow = scale_of_ratio(float(ifm_scale * weight_scale) / float(ofm_scale))
    wide = scale_of_ratio(float(ifm_scale) * float(weight_scale) / float(ofm_scale))
    near = [int((step + 0.5) * 2**30 / 200) + offset for step in range(20, 100) for offset in range(-60, 60)]
    telling = [total for total in near if narrow.apply(total, "tflite") != wide.apply(total, "tflite")][:16]
    assert len(telling) == 16
    shape = (16, 4) if dense else (16, 1, 1, 4)
    weights = TensorSample(shape, float(weight_scale), 0, np.zeros(shape, np.int8))
    weights.data.reshape(16, 4)[:, 0] = 1  # else the requantize's scale would say nothing
    product = float(ifm_scale * weight_scale)
    bias = TensorSample((16,), product, 0, np.array(telling, np.int32))
    outer = (1,) if dense else (1, 1, 1)
    ends = TensorSample((*outer, 4), float(ifm_scale)), TensorSample((*outer, 16), float(ofm_scale))
    options = {} if dense else {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    sample = OperatorSample(operator, [ends[0], weights, bias], ends[1], options)
    path = tmp_path / "one.tflite"
    path.write_bytes(model_bytes(sample))
    assert_equals_tflite(path, [np.zeros(ends[0].shape, np.int8)])


# ---------------------------------------------------------------- an attention block


def attention(rng, rows=6, channels=16, heads=2):
    """Queries, keys and values by head, their products with a softmax between, and a residual: as a TFLite file."""
    depth = channels // heads
    tensors, nodes = [TensorSample((1, rows, channels), 0.03, 5, name="x")], []

    def node(operator, inputs, shape, scale, zero_point, **options):
        tensors.append(TensorSample(shape, scale, zero_point, name=f"{operator.lower()}{len(nodes)}"))
        nodes.append(Node(operator, [*inputs], [len(tensors) - 1], options))
        return len(tensors) - 1

    def constant(data, scale=None):
        tensors.append(TensorSample(data.shape, scale, 0, data, name=f"c{len(tensors)}"))
        return len(tensors) - 1

    def dense(ifm, scale, zero_point):
        weights = constant(rng.integers(-127, 128, (channels, channels)).astype(np.int8), 0.01)
        bias = constant(
            rng.integers(-900, 900, channels).astype(np.int32), float(np.float32(tensors[ifm].scale) * np.float32(0.01))
        )
        options = {"FusedActivationFunction": NONE, "KeepNumDims": True}
        return node("FULLY_CONNECTED", [ifm, weights, bias], (1, rows, channels), scale, zero_point, **options)

    def by_head(ifm):
        ends = tensors[ifm].scale, tensors[ifm].zero_point
        split = node("RESHAPE", [ifm, constant(np.array([rows, heads, depth], np.int32))], (rows, heads, depth), *ends)
        return node("TRANSPOSE", [split, swap], (heads, rows, depth), *ends)

    swap = constant(np.array([1, 0, 2], np.int32))
    queries, keys, values = (by_head(dense(0, 0.05, int(rng.integers(-9, 9)))) for _ in range(3))
    scores = node("BATCH_MATMUL", [queries, keys], (heads, rows, rows), 0.2, 3, AdjX=False, AdjY=True)
    weights = node("SOFTMAX", [scores], (heads, rows, rows), 1 / 256, -128, Beta=1.0)
    mixed = node("BATCH_MATMUL", [weights, values], (heads, rows, depth), 0.04, -2, AdjX=False, AdjY=False)
    back = node("TRANSPOSE", [mixed, swap], (rows, heads, depth), 0.04, -2)
    joined = node("RESHAPE", [back, constant(np.array([1, rows, channels], np.int32))], (1, rows, channels), 0.04, -2)
    out = dense(joined, 0.05, 1)
    total = node("ADD", [0, out], (1, rows, channels), 0.06, 0, FusedActivationFunction=NONE)
    return network_bytes(tensors, nodes, [0], [total])


@pytest.mark.slow
def test_an_attention_block_equals_tflite_layer_by_layer(tmp_path):
    rng = np.random.default_rng(3)
    path = tmp_path / "attention.tflite"
    path.write_bytes(attention(rng))
    assert_equals_tflite(path, structured((1, 6, 16), 20, seed=0))


# ---------------------------------------------------------------- layers that only move bytes

IFM = TensorSample((1, 7, 6, 8), 0.1, 5)


def numbers(*values):
    """A constant int32 operand."""
    data = np.array(values, np.int32)
    return TensorSample(data.shape, None, 0, data)


def nearest(size, **options):
    return OperatorSample("RESIZE_NEAREST_NEIGHBOR", [IFM, numbers(*size)], replace(IFM, shape=(1, *size, 8)), options)


MOVED = {
    "concatenation": OperatorSample(
        "CONCATENATION",
        [IFM, replace(IFM, shape=(1, 7, 6, 3)), IFM],
        replace(IFM, shape=(1, 7, 6, 19)),
        {"Axis": -1, "FusedActivationFunction": NONE},
    ),
    "strided slice": OperatorSample(
        "STRIDED_SLICE",
        [IFM, numbers(0, 1, 0, 2), numbers(1, 7, 6, 8), numbers(1, 2, 3, 1)],
        replace(IFM, shape=(1, 3, 2, 6)),
    ),
    "pad": OperatorSample("PAD", [IFM, numbers([0, 0], [1, 2], [0, 3], [1, 0])], replace(IFM, shape=(1, 10, 9, 9))),
    "depth to space": OperatorSample("DEPTH_TO_SPACE", [IFM], replace(IFM, shape=(1, 14, 12, 2)), {"BlockSize": 2}),
    "space to depth": OperatorSample(
        "SPACE_TO_DEPTH", [replace(IFM, shape=(1, 6, 4, 3))], replace(IFM, shape=(1, 3, 2, 12)), {"BlockSize": 2}
    ),
    "transpose": OperatorSample("TRANSPOSE", [IFM, numbers(0, 3, 1, 2)], replace(IFM, shape=(1, 8, 7, 6))),
    "nearest, twice": nearest((14, 12)),
    "nearest, other sizes": nearest((5, 17)),
    "nearest, corners": nearest((13, 11), AlignCorners=True),
    "nearest, half pixels": nearest((10, 9), HalfPixelCenters=True),
}


@pytest.mark.parametrize("sample", MOVED.values(), ids=MOVED)
def test_operator_that_only_moves_equals_tflite(tmp_path, sample):
    check_operator_file(tmp_path / "one.tflite", sample, np.random.default_rng(0), count=2)


def test_declines_a_resize_where_tflite_chooses_other_rows(tmp_path):
    """2/82 * 41 is less than 1 in float32: TFLite takes row 0, TVM, which adds a little, row 1."""
    path = tmp_path / "one.tflite"
    sample = OperatorSample(
        "RESIZE_NEAREST_NEIGHBOR", [replace(IFM, shape=(1, 2, 3, 8)), numbers(82, 3)], replace(IFM, shape=(1, 82, 3, 8))
    )
    path.write_bytes(model_bytes(sample))
    mod, params = byoc_hw.load_tflite(path)
    assert not byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, params)).host
    report = str(byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, params, numerics="tflite")))
    assert "resize: TFLite chooses the same rows and columns as TVM: got others" in report


# ---------------------------------------------------------------- what is refused and declined


@pytest.mark.parametrize(
    ("numerics", "rounding", "others"), [("tflite", "tflite", "upward"), ("relay", "upward", "tflite")]
)
def test_refuses_an_accelerator_that_lacks_the_rounding(numerics, rounding, others):
    lacking = replace(REFERENCE, label="ONE", roundings=(others,))
    needs = f"numerics '{numerics}' needs the rounding '{rounding}': its roundings are {others}"
    message = f"accelerator hwlib \\(ONE\\): {needs}"
    with pytest.raises(InvalidInput, match=message):
        byoc_hw.partition_for_hwlib(Conv().module(), accelerator=lacking, numerics=numerics)


def test_declines_a_requantize_that_tflite_could_not_state():
    """A Relay model may scale sums by anything; TFLite has nothing but the scales of input and weights."""
    x, zero, scale = variable((1, 8)), const(0, "int32"), const(0.1, "float32")
    weights = const(np.arange(32).reshape(4, 8) - 16, "int8")
    total = relay.qnn.op.dense(x, weights, zero, zero, scale, scale, units=4, out_dtype="int32")
    other = const(0.02, "float32")
    body = relay.qnn.op.requantize(total, other, zero, const(0.2, "float32"), zero, out_dtype="int8")
    mod = byoc_hw.partition_for_hwlib(module(body, x), numerics="tflite")
    assert not regions(mod)
    assert (
        "requantize's scale is the product of input's and weights', as TFLite's rounding asks: got 0.02 for 0.01"
        in str(byoc_hw.explain(mod))
    )


def test_module_records_its_numerics_and_the_descriptors_say_it():
    mod = byoc_hw.partition_for_hwlib(Add().module(), numerics="tflite")
    assert byoc_hw.explain(mod).numerics == "tflite"
    project = byoc_hw.build(mod)
    code = (project.directory / "src" / f"{project.mod_name}_hwlib.c").read_text()
    assert "HWLIB_ROUND_TFLITE" in code
    assert "HWLIB_ROUND_UPWARD" not in code


def test_refuses_a_region_of_other_numerics_than_its_module():
    mod = byoc_hw.partition_for_hwlib(Add().module(), numerics="tflite")
    ((region, function),) = regions(mod).items()
    mod[region] = function.with_attr("byoc_hw_numerics", "relay")
    with pytest.raises(InvalidInput, match="follows numerics 'tflite', as the module: got 'relay'"):
        byoc_hw.build(mod)


def test_plain_relay_build_follows_the_recorded_numerics():
    mod = byoc_hw.partition_for_hwlib(Add().module(), numerics="tflite")
    executor = relay.backend.Executor("aot", {"interface-api": "c", "unpacked-api": True})
    with tvm.transform.PassContext(opt_level=3, config={"tir.disable_vectorize": True}):
        library = relay.build(mod, "c", executor=executor, runtime=relay.backend.Runtime("crt"))
    sources = [module.get_source() for module in library.lib.imported_modules]
    assert any("HWLIB_ROUND_TFLITE" in source for source in sources)


def test_silent_channels_have_any_scale():
    """A channel without weights and bias is 0 under every scale, and partitioning gives dead ones another."""
    quantized = Quantization((0.1,), (0,))
    layer = Dense(
        "fc",
        (),
        Tensor("x", (1, 2), quantization=quantized),
        Tensor("y", (1, 2), quantization=quantized),
        rounding="tflite",
        weights=Tensor("w", (2, 2), quantization=Quantization((0.1, 0.2), (0,), 0), data=np.array([[1, 2], [0, 0]])),
        bias=None,
        accumulator=Quantization((0.01, 7.0), (0,)),
        act_min=-128,
        act_max=127,
    )
    assert list(layer.problems()) == []
    assert len(sum_scales(layer)) == 2


# ---------------------------------------------------------------- tables


UNARY = (
    *("LOGISTIC", "TANH", "EXP", "LEAKY_RELU", "RELU", "RELU6", "RELU_N1_TO_1", "QUANTIZE", "ADD", "MUL"),
    *("ELU", "GELU", "HARD_SWISH", "RSQRT", "ABS", "PRELU"),
)


def unary(rng, operator, channels=1):
    """An operator of one input, whose output its values fill or leave; TFLite fixes some outputs' quantization."""
    fixed = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}
    shape = (1, 1, 256, channels)
    ifm, ofm = (TensorSample(shape, float(np.exp(rng.uniform(-6, -1))), int(rng.integers(-128, 128))) for _ in range(2))
    if operator in fixed:
        ofm = replace(ofm, scale=fixed[operator][0], zero_point=fixed[operator][1])
    number = replace(tensor(rng, (1, 1, 1, 1)), data=rng.integers(-128, 128, (1, 1, 1, 1)).astype(np.int8))
    slopes = replace(tensor(rng, (1, 1, channels)), data=rng.integers(-128, 128, (1, 1, channels)).astype(np.int8))
    options = {
        "LEAKY_RELU": {"Alpha": float(rng.uniform(0.01, 1.5))},
        "GELU": {"Approximate": bool(rng.integers(0, 2))},
        **{name: {"FusedActivationFunction": int(rng.choice([NONE, RELU]))} for name in ("ADD", "MUL")},
    }.get(operator, {})
    others = {"ADD": [number], "MUL": [number], "PRELU": [slopes]}.get(operator, [])
    return OperatorSample(operator, [ifm, *others], ofm, options)


def of_tflite(path, values, operator=""):
    """TFLite's reference kernel; of ELU, which has none, the only one there is."""
    kernels = interpreter.OpResolverType.BUILTIN_REF
    if operator == "ELU":
        kernels = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    runner = interpreter.Interpreter(model_path=str(path), experimental_op_resolver_type=kernels)
    runner.allocate_tensors()
    runner.set_tensor(runner.get_input_details()[0]["index"], values)
    runner.invoke()
    return runner.get_tensor(runner.get_output_details()[0]["index"])


def tables_of(path):
    mod, params = byoc_hw.load_tflite(path)
    main = tvm.transform.Sequential(folding())(prepare(mod, params))["main"]
    (chain,) = chains(main, lambda chain: True)
    return tflite_tables(chain, BACKEND.arithmetic)


REFUSED = {
    "EXP": "values in units of the output are int32",
    "HARD_SWISH": "the input's scale is less than 128 times the output's",
}


def assert_tables_equal_tflite(path, sample):
    """For all 256 values of each channel. False where TFLite itself does not define the outputs."""
    path.write_bytes(model_bytes(sample))
    tables = tables_of(path)
    if isinstance(tables, str):
        assert REFUSED[sample.operator] in tables
        return False
    every = np.arange(-128, 128, dtype=np.int8)
    if sample.operator == "RSQRT":  # TFLite stops at negative values
        every = np.maximum(every, sample.inputs[0].zero_point).astype(np.int8)
    channels = sample.output.shape[-1]
    values = np.ascontiguousarray(np.broadcast_to(every.reshape(1, 1, 256, 1), (1, 1, 256, channels)))
    expected = of_tflite(path, values, sample.operator).reshape(256, channels)
    found = tables.view(np.int8)[:, every.view(np.uint8)].T
    np.testing.assert_array_equal(np.broadcast_to(found, expected.shape), expected)
    return True


@pytest.mark.parametrize("operator", UNARY)
def test_tables_equal_tflite_for_all_256_values(tmp_path, operator):
    rng = np.random.default_rng(0)
    channels = 3 if operator == "PRELU" else 1
    samples = (unary(rng, operator, channels) for _ in range(12))
    assert sum(assert_tables_equal_tflite(tmp_path / "one.tflite", sample) for sample in samples) >= 6


@pytest.mark.parametrize("operator", ["RELU_N1_TO_1", "QUANTIZE"])
def test_tables_divide_scales_in_the_precision_that_tflite_has(tmp_path, operator):
    """In float32 for an activation, in double for QUANTIZE: with these scales halves tell the two apart."""
    shape = (1, 1, 256, 1)
    ends = TensorSample(shape, 0.0442500039935112, -128), TensorSample(shape, 0.029500001219171207, -128)
    assert assert_tables_equal_tflite(tmp_path / "one.tflite", OperatorSample(operator, [ends[0]], ends[1]))


def test_files_of_real_functions_run_as_tables_and_others_stay(tmp_path):
    rng = np.random.default_rng(1)
    check_operator_file(tmp_path / "one.tflite", unary(rng, "LEAKY_RELU"), rng, count=3)
    check_operator_file(tmp_path / "two.tflite", unary(rng, "PRELU", channels=5), rng, count=3)
    (tmp_path / "three.tflite").write_bytes(model_bytes(unary(rng, "NEG")))
    report = str(project_of(tmp_path / "three.tflite").report)
    assert "lookup: qnn.quantize (t1): its arithmetic in TFLite is not known" in report


# ---------------------------------------------------------------- uint8


def unsigned(entry):
    """An activation as uint8; constants as they are."""
    if entry.data is not None or entry.dtype == "UINT8":
        return entry
    return replace(entry, dtype="UINT8", zero_point=int(np.clip(entry.zero_point + 128, 0, 255)))


def unsigned_weighted(rng, operator, zero_point):
    """Weights with one scale and a zero point; 128 is that for which int8 weights would have none."""
    ifm, weights, bias = weighted(rng, operator).inputs
    scale = float(np.float32(rng.uniform(0.001, 0.01)))
    data = rng.integers(1, 256, weights.shape).astype(np.uint8)
    bias = replace(bias, scale=float(np.float32(ifm.scale) * np.float32(scale)))
    sample = weighted(rng, operator)
    inputs = [unsigned(ifm), TensorSample(weights.shape, scale, zero_point, data), bias]
    return OperatorSample(operator, inputs, unsigned(sample.output), sample.options)


def unsigned_average(rng, size):
    ifm = tensor(rng, (1, 9, 9, 3))
    target = (9 - size) // 2 + 1
    options = {"Padding": tflite.Padding.VALID, "FilterHeight": size, "FilterWidth": size, "StrideH": 2, "StrideW": 2}
    return OperatorSample("AVERAGE_POOL_2D", [ifm], replace(ifm, shape=(1, target, target, 3)), options)


def unsigned_concat(rng):
    ifm = tensor(rng, (1, 4, 5, 3))
    return OperatorSample("CONCATENATION", [ifm, ifm], replace(ifm, shape=(1, 4, 5, 6)), {"Axis": 3})


UNSIGNED = {
    "conv2d": lambda rng: unsigned_weighted(rng, "CONV_2D", 131),
    "conv2d without a zero point in int8": lambda rng: unsigned_weighted(rng, "CONV_2D", 128),
    "depthwise": lambda rng: unsigned_weighted(rng, "DEPTHWISE_CONV_2D", 100),
    "dense": lambda rng: unsigned_weighted(rng, "FULLY_CONNECTED", 128),
    "addition": addition,
    "subtraction": subtraction,
    "multiplication": multiplication,
    "average of 4": lambda rng: unsigned_average(rng, 2),
    "average of 9": lambda rng: unsigned_average(rng, 3),
    "concatenation": unsigned_concat,
    **{name: lambda rng, name=name: unary(rng, name) for name in ("RELU", "RELU6", "QUANTIZE", "LEAKY_RELU")},
}


@pytest.mark.slow
@pytest.mark.parametrize("made", UNSIGNED.values(), ids=UNSIGNED)
def test_an_operator_of_uint8_equals_tflite_as_one_of_int8(tmp_path, made):
    rng, path = np.random.default_rng(3), tmp_path / "one.tflite"
    sample = made(rng)
    sample = replace(sample, inputs=[unsigned(entry) for entry in sample.inputs], output=unsigned(sample.output))
    if sample.operator in ("ADD", "MUL", "SUB"):
        sample = replace(sample, options={"FusedActivationFunction": RELU})
    path.write_bytes(model_bytes(sample))
    project = project_of(path)
    assert any(layer["region"] for layer in project.layers)
    assert not project.report.tvm_arithmetic
    shapes = [entry.shape for entry in sample.inputs if entry.data is None]
    inputs = [[rng.integers(0, 256, shape).astype(np.uint8) for shape in shapes] for _ in range(4)]
    validation = byoc_hw.validate(project, inputs, path)
    assert validation, str(validation)


def test_operators_of_which_tflites_uint8_kernels_are_others_are_marked(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "one.tflite"
    ends = [unsigned(replace(IFM, scale=scale)) for scale in (0.1, 0.3)]
    output = replace(ends[0], shape=(1, 7, 6, 16))
    joined = OperatorSample("CONCATENATION", ends, output, {"Axis": 3, "FusedActivationFunction": NONE})
    for sample, marked in ((joined, "qnn.concatenate"), (softmax(rng), "nn.softmax"), (mean(rng), "mean")):
        inputs = [unsigned(entry) for entry in sample.inputs]
        path.write_bytes(model_bytes(replace(sample, inputs=inputs, output=unsigned(sample.output))))
        (outcome,) = project_of(path).report.tvm_arithmetic
        assert marked in outcome.tvm_arithmetic
