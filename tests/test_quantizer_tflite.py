"""int8 TFLite files of quantized float ones: the same integers, in TFLite's own arithmetic too."""

import numpy as np
import pytest
import tflite
import tvm
from test_tflite_numerics import assert_equals_tflite
from tflite_floats import FloatSample
from tflite_samples import NONE, RELU, Node
from tvm import relay

import byoc_hw
from byoc_hw import InvalidInput
from byoc_hw.compiler import front_end
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.frontend.tflite_file import read_tflite
from byoc_hw.frontend.tflite_integers import integers_of
from byoc_hw.frontend.tflite_quantized import FORMS
from byoc_hw.quantization.layers import QuantizedNetwork

interpreter = pytest.importorskip(
    "tflite_runtime.interpreter", reason="the oracle: install the package tflite-runtime==2.14.0"
)
ANY = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
"""The reference kernels lack some operators."""

RELU6 = tflite.ActivationFunctionType.RELU6
FLOATS = [f"float/{name}" for name in ("kws_ref_model_float32", "pretrainedResnet", "vww_96_float", "ad01_fp32")]


def small_network(stored="float32"):
    """A residual network of every operator with weights, some with bounds."""
    net = FloatSample(stored)
    x = net.input(1, 8, 7, 3)
    first = net.conv(x, 8, activation=RELU6)
    deep = net.conv(net.depthwise(first, activation=RELU), 8, kernel=1)
    total = net.operator("ADD", [first, deep], net.shape(first), FusedActivationFunction=RELU)
    pooled = net.operator("MAX_POOL_2D", [total], (1, 4, 4, 8), **pool(2))
    means = net.operator("MEAN", [pooled, net.constant(np.array([1, 2], np.int32))], (1, 8))
    return net.file(net.operator("SOFTMAX", [net.dense(means, 5)], (1, 5), Beta=1.0))


def pool(size, padding=tflite.Padding.SAME):
    return {"Padding": padding, "StrideH": size, "StrideW": size, "FilterHeight": size, "FilterWidth": size}


def saved(tmp_path, file, packed=False, **options):
    """A float file quantized, and the path of its int8 file."""
    path = tmp_path / "float.tflite"
    path.write_bytes(file)
    made = quantized(path, **options)
    made.save_tflite(tmp_path / "int8.tflite", packed=packed)
    return made, tmp_path / "int8.tflite"


def quantized(path, samples=8, **options):
    file = read_tflite(path)
    rng = np.random.default_rng(1)
    shapes = {file.tensors[number].name: file.tensors[number].shape for number in file.inputs}
    calibration = {name: rng.normal(size=(samples, *shape)).astype(np.float32) for name, shape in shapes.items()}
    return byoc_hw.quantize(path, calibration, progress=False, **options)


def layers_of(mod, params=None):
    """The integers and scales of each offloaded layer with weights."""
    graphs = front_end().partitioned(byoc_hw.partition_for_hwlib(mod, params)).graphs
    layers = [layer for graph in graphs.values() for layer in graph.layers if hasattr(layer, "weights")]
    return [
        (
            [layer.weights.data.tolist(), layer.bias.data.tolist(), layer.weights.bits],
            [tensor.quantization for tensor in (layer.ifm, layer.weights, layer.ofm)],
        )
        for layer in layers
    ]


def images(path, count, seed=2):
    file = read_tflite(path)
    rng = np.random.default_rng(seed)
    shapes = [file.tensors[number].shape for number in file.inputs]
    return [[rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes] for _ in range(count)]


def tflites(path, inputs, kernels="BUILTIN_REF"):
    """The outputs of TFLite's runtime."""
    resolver = getattr(interpreter.OpResolverType, kernels)
    runtime = interpreter.Interpreter(str(path), experimental_op_resolver_type=resolver)
    runtime.allocate_tensors()
    found = []
    for values in inputs:
        for detail, value in zip(runtime.get_input_details(), values, strict=True):
            runtime.set_tensor(detail["index"], value)
        runtime.invoke()
        found.append([runtime.get_tensor(detail["index"]) for detail in runtime.get_output_details()])
    return found


@pytest.mark.parametrize(("stored", "bits"), [("float32", 8), ("int8", 4), ("float16", 8)])
def test_the_file_has_the_integers_of_the_module(bits, stored, tmp_path):
    made, path = saved(tmp_path, small_network(stored), bits=bits)
    mod, params = byoc_hw.load_tflite(path)
    assert len(layers_of(mod, params)) == 4
    assert layers_of(mod, params) == layers_of(made.mod)
    file = read_tflite(path)
    assert list(made.inputs) == [file.tensors[number].name for number in file.inputs]


@pytest.mark.slow
def test_the_imported_file_computes_what_the_module_does(tmp_path):
    made, path = saved(tmp_path, small_network())
    ours, theirs = Reference(made.mod, {}), Reference(*byoc_hw.load_tflite(path))
    for values in images(path, 8):
        np.testing.assert_array_equal(ours.run(values)[0], theirs.run(values)[0])


def test_the_file_computes_in_the_runtime_what_the_project_does(tmp_path):
    _, path = saved(tmp_path, small_network())
    assert_equals_tflite(path, images(path, 20))


def test_rows_of_a_dense_layer_equal_the_runtimes_with_a_scale_for_each_output(tmp_path):
    net = FloatSample()
    _, path = saved(tmp_path, net.file(net.dense(net.input(2, 3, 16), 12, activation=RELU, keep=True)))
    assert_equals_tflite(path, images(path, 20))


@pytest.mark.slow
@pytest.mark.parametrize("mlperf_model", FLOATS, indirect=True)
def test_mlperf_tiny_float_models_become_int8_files(mlperf_model, tmp_path):
    made = quantized(mlperf_model, samples=2, rounding="nearest", activations="minmax")
    path = tmp_path / "int8.tflite"
    made.save_tflite(path)
    mod, params = byoc_hw.load_tflite(path)
    assert layers_of(mod, params) == layers_of(made.mod)
    assert_equals_tflite(path, images(path, 2))


# ---------------------------------------------------------------- operators


def one(kind, shape, *constants, of=(1, 6, 6, 4), **options):
    """A network of one operator, behind an input."""
    net = FloatSample()
    x = net.input(*of)
    return net.file(net.operator(kind, [x, *map(net.constant, constants)], shape, **options))


def weighted(grow):
    """A network of one operator with weights."""
    net = FloatSample()
    return net.file(grow(net, net.input(1, 6, 6, 4)))


def two(kind, shape, of=(1, 6, 6, 4), **options):
    """A network of one operator of two values, one of them larger."""
    net = FloatSample()
    x, y = net.input(*of), net.input(*of)
    four = net.operator("MUL", [y, net.constant(np.array([4.0], np.float32))], of)
    return net.file(net.operator(kind, [x, four], shape, **options))


def ints(*values):
    return np.array(values, np.int32)


PICTURE = (1, 6, 6, 4)
ALPHA = np.array([[[0.1, 0.2, 0.3, 0.4]]], np.float32)
ONE_OPERATOR = {
    **{kind: one(kind, PICTURE) for kind in ("RELU", "RELU6", "RELU_N1_TO_1", "HARD_SWISH", "ELU", "LOGISTIC", "TANH")},
    **{kind: two(kind, PICTURE) for kind in ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")},
    **{kind: one(kind, (1, 3, 3, 4), **pool(2)) for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D")},
    **{kind: one(kind, (1, 6, 4), ints(2)) for kind in ("MEAN", "SUM", "REDUCE_MAX")},
    **{kind: one(kind, (1, 12, 12, 4), ints(12, 12)) for kind in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")},
    "ADD of a constant": one("ADD", PICTURE, ALPHA),
    "MAXIMUM of a constant": one("MAXIMUM", PICTURE, np.array([-0.5], np.float32)),
    "MAX_POOL_2D with a bound": one("MAX_POOL_2D", (1, 3, 3, 4), **pool(2), FusedActivationFunction=RELU),
    "BATCH_MATMUL": two("BATCH_MATMUL", (6, 5, 5), of=(6, 5, 5)),
    "CONCATENATION": two("CONCATENATION", (1, 6, 6, 8), Axis=3),
    "CONV_2D": weighted(lambda net, x: net.conv(x, 5, stride=2, activation=RELU)),
    "DEPTHWISE_CONV_2D": weighted(lambda net, x: net.depthwise(x)),
    "DEPTHWISE_CONV_2D with a multiplier": weighted(lambda net, x: net.depthwise(x, multiplier=2)),
    "FULLY_CONNECTED": weighted(lambda net, x: net.dense(x, 7, activation=RELU6, keep=True)),
    "DEPTH_TO_SPACE": one("DEPTH_TO_SPACE", (1, 12, 12, 1), BlockSize=2),
    "SPACE_TO_DEPTH": one("SPACE_TO_DEPTH", (1, 3, 3, 16), BlockSize=2),
    "EXPAND_DIMS": one("EXPAND_DIMS", (1, 1, 6, 6, 4), ints(1)),
    "SQUEEZE": one("SQUEEZE", (6, 6, 4), SqueezeDims=ints(0)),
    "RESHAPE": one("RESHAPE", (1, 144), ints(1, 144), NewShape=ints(1, 144)),
    "LEAKY_RELU": one("LEAKY_RELU", PICTURE, Alpha=0.1),
    "PAD": one("PAD", (1, 8, 9, 4), np.array([[0, 0], [1, 1], [1, 2], [0, 0]], np.int32)),
    "PADV2": one(
        "PADV2", (1, 8, 9, 4), np.array([[0, 0], [1, 1], [1, 2], [0, 0]], np.int32), np.array([-1.5], np.float32)
    ),
    "PRELU": one("PRELU", PICTURE, ALPHA),
    "SOFTMAX": one("SOFTMAX", PICTURE, Beta=1.0),
    "STRIDED_SLICE": one("STRIDED_SLICE", (1, 2, 3, 4), ints(0, 1, 0, 0), ints(1, 5, 6, 4), ints(1, 2, 2, 1)),
    "TRANSPOSE": one("TRANSPOSE", (1, 4, 6, 6), ints(0, 3, 1, 2)),
}


def test_each_operator_is_one_that_follows():
    assert {kind.split(" ")[0] for kind in ONE_OPERATOR} == set(FORMS)


@pytest.mark.parametrize("kind", ONE_OPERATOR)
def test_the_runtime_computes_what_the_float_file_does(kind, tmp_path):
    made, path = saved(tmp_path, ONE_OPERATOR[kind], activations="minmax")
    reals = [
        [grid_values(grid, value) for grid, value in zip(made.inputs.values(), values, strict=True)]
        for values in images(path, 8)
    ]
    expected = tflites(tmp_path / "float.tflite", reals, ANY)
    ((scale, zero_point),) = made.outputs
    low, high = ((level - zero_point) * scale for level in (-128, 127))
    for levels, (real,) in zip(tflites(path, images(path, 8), ANY), expected, strict=True):
        found = grid_values((scale, zero_point), levels[0])
        assert found.shape == real.shape
        assert np.abs(found - real.clip(low, high)).max() <= 6 * scale


def grid_values(grid, levels):
    return ((levels.astype(np.float32) - grid[1]) * grid[0]).astype(np.float32)


# ---------------------------------------------------------------- widths, and float ends


@pytest.mark.parametrize("bits", [4, 2])
def test_narrow_weights_are_narrow_when_they_are_imported(bits, tmp_path):
    made, wide = saved(tmp_path, small_network(), bits=bits)
    made.save_tflite(tmp_path / "packed.tflite", packed=True)
    modules = [byoc_hw.load_tflite(path) for path in (wide, tmp_path / "packed.tflite")]
    assert_equal_modules(*modules)
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(*modules[1]))
    assert str(report).count(f"weights of {bits} bits") == 4
    assert types_of(wide, "INT4") == 0
    assert types_of(tmp_path / "packed.tflite", "INT4") == 4
    assert (tmp_path / "packed.tflite").stat().st_size < wide.stat().st_size


def test_layers_of_8_bits_are_not_packed(tmp_path):
    _, path = saved(tmp_path, small_network(), packed=True, bits={"conv_2d_0": 4})
    assert types_of(path, "INT4") == 1


def test_the_runtime_computes_packed_convolutions_as_wide_ones(tmp_path):
    net = FloatSample()
    made, wide = saved(tmp_path, net.file(net.depthwise(net.conv(net.input(1, 6, 6, 3), 5))), bits=4)
    made.save_tflite(tmp_path / "packed.tflite", packed=True)
    inputs = images(wide, 4)
    for packed, other in zip(tflites(tmp_path / "packed.tflite", inputs, ANY), tflites(wide, inputs, ANY), strict=True):
        np.testing.assert_array_equal(packed, other)


def assert_equal_modules(first, second):
    (mod, params), (other, same) = first, second
    assert tvm.ir.structural_equal(mod, other)
    assert params.keys() == same.keys()
    for name, values in params.items():
        np.testing.assert_array_equal(values.numpy(), same[name].numpy())


def types_of(path, kind):
    """How many tensors of a file are of a type."""
    graph = tflite.Model.GetRootAs(path.read_bytes(), 0).Subgraphs(0)
    types = [graph.Tensors(number).Type() for number in range(graph.TensorsLength())]
    return types.count(getattr(tflite.TensorType, kind))


def test_float_ends_are_quantized_and_dequantized_in_the_file(tmp_path):
    made, path = saved(tmp_path, small_network(), integer_ends=False)
    (tmp_path / "whole").mkdir()
    whole, integer = saved(tmp_path / "whole", small_network())
    file = read_tflite(path)
    assert [file.tensors[number].dtype for number in (*file.inputs, *file.outputs)] == ["float32", "float32"]
    (grid,), ((scale, zero_point),) = made.inputs.values(), made.outputs
    assert whole.inputs == made.inputs
    for values in images(integer, 4):
        ((inner,),) = tflites(integer, [values])
        ((outer,),) = tflites(path, [[grid_values(grid, values[0])]])
        np.testing.assert_array_equal(outer, grid_values((scale, zero_point), inner))
    mod, params = byoc_hw.load_tflite(path)
    assert layers_of(mod, params) == layers_of(made.mod)


# ---------------------------------------------------------------- what has no file


def refused(grow, message, tmp_path, **options):
    net = FloatSample()
    path = tmp_path / "float.tflite"
    path.write_bytes(net.file(*grow(net, net.input(1, 6, 6, 4))))
    made = quantized(path, **options)
    with pytest.raises(InvalidInput, match=message):
        made.save_tflite(tmp_path / "int8.tflite")
    assert not (tmp_path / "int8.tflite").exists()


def test_an_operator_without_int8_is_named(tmp_path):
    refused(
        lambda net, x: [net.operator("EXP", [x], PICTURE)],
        r"EXP \(exp_0\): operators of an int8 file are ADD, .*: got EXP",
        tmp_path,
    )


def test_a_value_that_stays_float_is_named(tmp_path):
    refused(
        lambda net, x: [net.operator("LOGISTIC", [net.operator("LEAKY_RELU", [x], PICTURE, Alpha=0.1)], PICTURE)],
        r"LEAKY_RELU \(leaky_relu_0\): .* has a scale: it stays float up to logistic_1",
        tmp_path,
    )


def test_a_scale_that_tflite_does_not_take_is_named(tmp_path):
    refused(
        lambda net, x: [net.operator("RELU", [net.operator("TANH", [x], PICTURE)], PICTURE)],
        r"TANH \(tanh_0\): scale and zero point of its int8 output are \(0.0078125, 0\): got \(",
        tmp_path,
    )


@pytest.mark.parametrize(("kind", "activation"), [("MUL", NONE), ("ADD", NONE), ("ADD", RELU)])
def test_an_operator_that_is_folded_into_weights_is_named(kind, activation, tmp_path):
    def grow(net, x):
        operands = [net.conv(x, 4, bias=False), net.constant(np.array([1, 2, 3, 4], np.float32))]
        return [net.operator(kind, operands, PICTURE, FusedActivationFunction=activation)]

    refused(
        grow, rf"({kind} \({kind.lower()}_1|CONV_2D \(conv_2d_0)\): .* is not folded: its constants are in", tmp_path
    )


def test_an_operator_of_several_outputs_is_named(tmp_path):
    net = FloatSample()
    x, *parts = (net.input(*shape) for shape in ((2, 6, 4), (6, 4), (6, 4)))
    net.inputs = [x]
    net.nodes.append(Node("UNPACK", [x], parts, {"Num": 2}))
    path = tmp_path / "float.tflite"
    path.write_bytes(net.file(*parts))
    network = front_end().float_model(*front_end().load_float_tflite(path)).network
    with pytest.raises(InvalidInput, match=r"UNPACK \(input_1, input_2\): .* has one output: got 2"):
        integers_of(read_tflite(path), network, QuantizedNetwork({network.inputs[0]: (1.0, 0)}, {}))


def test_a_module_has_no_file(tmp_path):
    x = relay.var("x", shape=(1, 4))
    made = byoc_hw.quantize(tvm.IRModule.from_expr(relay.nn.relu(x)), np.ones((2, 1, 4), np.float32), progress=False)
    with pytest.raises(InvalidInput, match=r"save_tflite writes what was quantized from a .tflite file: got a module"):
        made.save_tflite(tmp_path / "int8.tflite")


@pytest.mark.parametrize(
    ("path", "packed", "message"),
    [(3, False, "path is the name of a file: got 3"), ("", 1, "packed is True or False: got 1")],
)
def test_arguments_are_checked(path, packed, message, tmp_path):
    made, _ = saved(tmp_path, ONE_OPERATOR["RELU"])
    with pytest.raises(InvalidInput, match=message):
        made.save_tflite(path, packed=packed)


def test_a_directory_is_no_file(tmp_path):
    made, _ = saved(tmp_path, ONE_OPERATOR["RELU"])
    with pytest.raises(InvalidInput, match="is a new file or an earlier one: it is a directory"):
        made.save_tflite(tmp_path)
