"""What of a Relax module stays on the host: its C, its arithmetic, and its calls."""

import numpy as np
import pytest
import tvm
from relax_samples import convolution, module, real, stored
from tvm import relax

import byoc_hw
from byoc_hw import Unsupported
from byoc_hw.compiler import region_graphs
from byoc_hw.demo import heldout, model_path
from byoc_hw.mesh.pieces import NodePiece
from byoc_hw.mesh.plan import Stage
from byoc_hw.mesh_builder import build_mesh, mesh_network

SHAPE = (1, 3, 5, 4)
SCALE = np.float32(0.0123456789)


def given(shape=SHAPE, seed=0):
    return np.random.default_rng(seed).integers(-128, 128, shape).astype("int8")


def built(mod, tmp_path, **options):
    return byoc_hw.build(byoc_hw.partition_for_hwlib(mod, mod_name="m", **options), output_dir=tmp_path / "m")


def host_source(project):
    return (project.directory / "src" / "m_host.c").read_text()


def halved(value):
    """Real values as int8 with scale 0.5, as quantize of Relax has them: halves go to the even number."""
    return np.clip(np.rint(value / np.float32(0.5)) + 1, -128, 127).astype("int8")


def test_an_operator_in_no_pattern_is_float_between_dequantize_and_quantize(tmp_path):
    mod = module(lambda x: stored(relax.op.ceil(real(x, SCALE, 3)), 0.5, 1), SHAPE)
    expected = halved(np.ceil((given().astype("int32") - 3) * SCALE))
    assert np.array_equal(built(mod, tmp_path).run([given()]).outputs[0], expected)


def test_scales_are_written_with_all_their_digits(tmp_path):
    mod = module(lambda x: stored(relax.op.ceil(real(x, SCALE, 3)), 0.5, 1), SHAPE)
    assert "1.23456791e-02f" in host_source(built(mod, tmp_path))


def test_a_module_that_was_not_partitioned_runs_on_the_host(tmp_path):
    mod = module(convolution, (1, 6, 6, 8))
    alone = byoc_hw.build(mod, mod_name="m", output_dir=tmp_path / "m")
    assert "tvmgen_m_hwlib" not in (alone.directory / "src" / "m_main.c").read_text()
    outputs = [one.run([given((1, 6, 6, 8))]).outputs[0] for one in (alone, built(mod, tmp_path / "offloaded"))]
    apart = np.abs(outputs[0].astype("int32") - outputs[1])
    assert apart.max() <= 1  # float sums, and integer ones
    assert (apart == 0).mean() > 0.95


def test_pes_of_a_mesh_have_the_scratch_of_their_host_functions(tmp_path):
    """Each of two PEs has a convolution and a softmax, whose loops need sums of rows."""

    def body(x):
        for _ in range(2):
            x = stored(relax.op.nn.softmax(real(convolution(x), 0.05, -5)), 1 / 200, -100)
        return x

    partitioned = byoc_hw.partition_for_hwlib(module(body, (1, 6, 6, 8)), mod_name="m")
    network = mesh_network(partitioned)
    half = len(network.nodes) // 2
    stages = []
    for part in (range(half), range(half, len(network.nodes))):
        calls = [call for call in (network.nodes[number].call for number in part) if call is not None]
        assert any(buffer.name not in network.tensors for call in calls for buffer in call.arguments)
        stages.append(Stage(tuple(NodePiece(number) for number in part)))
    mesh = build_mesh(partitioned, stages, output_dir=tmp_path / "mesh")
    frames = [[given((1, 6, 6, 8), seed)] for seed in range(5)]
    alone = byoc_hw.build(partitioned, output_dir=tmp_path / "m").run_batch(frames)
    for here, there in zip(mesh.run(frames).outputs, alone, strict=True):
        assert np.array_equal(here[0], there.outputs[0])
    assert mesh.validate(frames)


def test_buffers_of_a_host_function_are_in_the_arena(tmp_path):
    """A softmax with another output scale than TFLite's is no integer function: TVM's loops need sums of rows."""
    mod = module(lambda x: stored(relax.op.nn.softmax(real(x, 0.1, 0)), 0.5, 1), (2, 6))
    project = built(mod, tmp_path)
    assert "TVMBackendAllocWorkspace" not in host_source(project)
    real_values = given((2, 6)).astype("float32") * np.float32(0.1)
    powers = np.exp(real_values - real_values.max(axis=1, keepdims=True))
    assert np.array_equal(project.run([given((2, 6))]).outputs[0], halved(powers / powers.sum(axis=1, keepdims=True)))


def test_outputs_may_be_inputs_or_one_value_twice(tmp_path):
    def body(x, y):
        total = stored(relax.op.ceil(real(x, SCALE, 3)), 0.5, 1)
        return total, y, total

    mod = module(body, SHAPE, SHAPE)
    left, right = given(), given(seed=1)
    outputs = built(mod, tmp_path).run([left, right]).outputs
    assert np.array_equal(outputs[1], right)
    assert np.array_equal(outputs[0], outputs[2])
    assert np.array_equal(outputs[0], halved(np.ceil((left.astype("int32") - 3) * SCALE)))


@pytest.mark.parametrize("composite", ["qnn_add", "qnn_dense", "avg_pool2d", "qnn_softmax"])
def test_with_tflites_numerics_layers_have_the_same_bits_on_the_host(composite, tmp_path):
    mod, params = byoc_hw.load_tflite(model_path())
    image = [heldout().images[:1]]
    outputs = []
    for deny in ([], [composite]):
        partitioned = byoc_hw.partition_for_hwlib(mod, params, "m", numerics="tflite", deny=deny)
        project = byoc_hw.build(partitioned, output_dir=tmp_path / str(len(deny)))
        outputs.append(project.run(image).outputs[0])
    assert np.array_equal(*outputs)
    assert "tflite_" in host_source(project)


def test_with_tflites_numerics_what_follows_tvm_is_marked():
    mod = module(lambda x: stored(relax.op.ceil(real(x, SCALE, 3)), 0.5, 1), SHAPE)
    report = byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, numerics="tflite"))
    assert [mark for outcome in report.outcomes for mark in outcome.tvm_arithmetic] == [
        "dequantize",
        "ceil",
        "quantize",
    ]


def test_an_operator_of_tvms_runtime_is_refused_by_name(tmp_path):
    mod = module(lambda x: relax.op.sort(x), (4, 6))
    with pytest.raises(Unsupported, match="sort"):
        built(mod, tmp_path)
    assert not (tmp_path / "m").exists()


def test_a_layer_is_sent_to_the_host_with_its_bits(tmp_path):
    mod = module(lambda x: convolution(convolution(x), filters=4, seed=1), (1, 6, 6, 8))
    partitioned = byoc_hw.partition_for_hwlib(mod, mod_name="m")
    (graph,) = region_graphs(partitioned).values()
    place = {graph.layers[1].name: "host"}
    projects = [
        byoc_hw.build(partitioned, output_dir=tmp_path / "all"),
        byoc_hw.build(partitioned, place=place, output_dir=tmp_path / "placed"),
    ]
    outputs = [project.run([given((1, 6, 6, 8))]).outputs[0] for project in projects]
    assert np.array_equal(*outputs)
    assert "by place=" in str([outcome.rejections for outcome in projects[1].report.host])
    assert "upward_conv2d" in host_source(projects[1])


def test_a_quantized_layer_on_the_host_is_no_float_operator(tmp_path):
    mod = module(convolution, (1, 6, 6, 8))
    named = byoc_hw.partition_for_hwlib(byoc_hw.load_tflite(model_path())[0], mod_name="m", deny=["qnn_dense"])
    assert "float32" not in str(byoc_hw.explain(named))
    assert "float32" not in str(byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, mod_name="m", deny=["qnn_conv2d"])))


def test_a_product_of_real_values_is_a_float_operator():
    def body(x):
        return relax.op.matmul(x, relax.const(np.ones((6, 3), "float32")))

    report = str(byoc_hw.explain(byoc_hw.partition_for_hwlib(module(body, (2, 6), dtype="float32"), mod_name="m")))
    assert report.startswith("m is a float model: 1 of its 1 convolutions and matrix products are of float32")
    assert "matmul: activations are quantized to int8 or uint8: got float32" in report


def sums(operator, bound=None):
    def body(x, y):
        total = operator(real(x, 0.02, 3), real(y, 0.07, -4))
        return stored(total if bound is None else bound(total), 0.05, -5)

    return body


LAYERS = {
    "add": (sums(relax.op.add), (1, 4, 4, 8), (1, 4, 4, 8)),
    "add of one by channel": (sums(relax.op.add), (1, 4, 4, 8), (1, 1, 1, 8)),
    "subtract": (sums(relax.op.subtract), (1, 4, 4, 8), (1, 4, 4, 8)),
    "multiply": (sums(relax.op.multiply, relax.op.nn.relu), (1, 4, 4, 8), (1, 4, 4, 8)),
    "convolution": (convolution, (1, 6, 6, 8)),
    "depthwise": (
        lambda x: stored(
            relax.op.nn.conv2d(
                real(relax.op.nn.pad(x, [0, 0, 1, 1, 1, 1, 0, 0], pad_value=3.0), 0.02, 3),
                real(relax.const(given((3, 3, 8, 1))), 0.01, 0),
                groups=8,
                data_layout="NHWC",
                kernel_layout="HWOI",
            ),
            0.3,
            0,
        ),
        (1, 6, 6, 8),
    ),
    "mean": (lambda x: stored(relax.op.mean(real(x, 0.02, 3), [1, 2]), 0.01, -5), (1, 6, 6, 8)),
    "max": (lambda x: stored(relax.op.max(real(x, 0.02, 3), [1, 2]), 0.02, 3), (1, 6, 6, 8)),
    "concat": (
        lambda x, y: stored(relax.op.concat([real(x, 0.02, 3), real(y, 0.03, 1)], 3), 0.02, 3),
        *((1, 4, 4, 3), (1, 4, 4, 5)),
    ),
    "slice": (lambda x: relax.op.strided_slice(x, axes=[1, 3], begin=[1, 0], end=[4, 4], strides=[2, 1]), (1, 4, 4, 6)),
    "leaky relu": (lambda x: stored(relax.op.nn.leakyrelu(real(x, 0.02, 3), 0.1), 0.015, 2), (1, 4, 4, 6)),
    "relu": (lambda x: stored(relax.op.nn.relu(real(x, 0.02, 3)), 0.015, -128), (1, 4, 4, 6)),
    "requantize": (lambda x: stored(real(x, 0.02, 3), 0.0151, -20), (1, 4, 4, 6)),
    "one constant": (
        lambda x: stored(relax.op.add(real(x, 0.02, 3), real(relax.const(np.int8(9)), 0.1, 0)), 0.03, 2),
        SHAPE,
    ),
}


@pytest.mark.parametrize("case", LAYERS)
def test_layers_have_the_same_bits_on_the_host(case, tmp_path):
    body, *shapes = LAYERS[case]
    mod = module(body, *shapes)
    offloaded = built(mod, tmp_path)
    assert not offloaded.report.host, str(offloaded.report)
    alone = byoc_hw.build(mod, mod_name="m", output_dir=tmp_path / "alone")
    inputs = [given(shape, seed) for seed, shape in enumerate(shapes)]
    for one, other in zip(offloaded.run(inputs).outputs, alone.run(inputs).outputs, strict=True):
        assert np.array_equal(one, other)
        assert len(np.unique(one)) > 1
    kernels = alone.directory / "src" / "m_kernels.c"
    float_loops = host_source(alone) if (alone.directory / "src" / "m_host.c").exists() else ""
    assert "float" not in float_loops + (kernels.read_text() if kernels.exists() else "")


READ = {
    "concatenate": lambda token, x: relax.op.concat([token, x], 1),
    "qnn_add": lambda token, x: stored(relax.op.add(real(token, 0.03, 1), real(x, 0.02, 3)), 0.05, -5),
}


@pytest.mark.parametrize("composite", READ)
def test_a_constant_that_is_computed_is_an_operand_of_a_region_and_of_a_layer_on_the_host(composite, tmp_path):
    """As a vision transformer's class token, whose scale is not that of what it is put in front of."""
    token, image = given((1, 4, 6), 9), given((1, 4, 6))
    again = np.clip(np.rint((token.astype(np.float32) - 3) * np.float32(0.02) / np.float32(0.03)) + 1, -128, 127)

    def body(x):
        return READ[composite](stored(real(relax.const(token), 0.02, 3), 0.03, 1), x)

    mod = module(body, (1, 4, 6))
    results = []
    for name, deny in {"region": [], "host": [composite]}.items():
        partitioned = byoc_hw.partition_for_hwlib(mod, mod_name="m", deny=deny)
        assert bool(region_graphs(partitioned)) is not bool(deny)
        project = byoc_hw.build(partitioned, output_dir=tmp_path / name)
        results += project.run([image]).outputs
    whole = module(lambda token, x: READ[composite](token, x), (1, 4, 6), (1, 4, 6))
    expected = byoc_hw.build(whole, output_dir=tmp_path / "whole").run([again.astype(np.int8), image]).outputs
    for found in results:
        assert np.array_equal(found, expected[0])


NARROW = {
    "sum": lambda x: relax.op.add(x, x),
    "product": lambda x: relax.op.multiply(x, x),
    "shift": lambda x: relax.op.left_shift(x, relax.const(np.array(2, str(x.ty.dtype)))),
    "complement": relax.op.bitwise_not,
    "another sign": lambda x: relax.op.astype(x, OTHER_SIGN[str(x.ty.dtype)]),
    "fewer bits": lambda x: relax.op.astype(relax.op.multiply(relax.op.astype(x, "int32"), relax.const(7)), "int8"),
}
OTHER_SIGN = {"int8": "uint8", "uint8": "int8", "int16": "uint16", "uint16": "int16"}


@pytest.mark.parametrize("dtype", OTHER_SIGN)
def test_narrow_integers_have_the_bits_of_their_type_where_more_is_computed_of_them(dtype, tmp_path):
    """A division by 3 shows the sign, and what overflows."""

    def divided(value):
        return relax.op.floor_divide(value, relax.const(np.array(3, str(value.ty.dtype))))

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((256,), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = [builder.emit(compute(x)) for compute in NARROW.values()]
            result = builder.emit_output(relax.Tuple([builder.emit(divided(one)) for one in made]))
        builder.emit_func_output(result)
    limits = np.iinfo(dtype)
    given = np.linspace(limits.min, limits.max, 256).round().astype(dtype)
    with np.errstate(over="ignore"):
        two = np.array(2, dtype)
        wanted = [given + given, given * given, given << two, ~given, given.astype(OTHER_SIGN[dtype])]
        wanted.append((given.astype("int32") * 7).astype("int8"))
    project = built(tvm.IRModule({"main": builder.get()["main"]}), tmp_path)
    found = project.run([given], toolchain=byoc_hw.Toolchain(cflags="-O1 -fsanitize=undefined")).outputs
    for name, one, other in zip(NARROW, found, wanted, strict=True):
        np.testing.assert_array_equal(one, other // np.array(3, other.dtype), err_msg=name)


def test_a_sum_of_narrow_integers_that_is_stored_is_computed_as_it_is(tmp_path):
    assert "(int8_t)(" not in host_source(built(module(lambda x: relax.op.add(x, x), SHAPE), tmp_path))


def test_outputs_in_nested_tuples_are_all_written(tmp_path):
    """Also all results of an operator that has several."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            halves, twice = builder.emit(relax.op.split(x, [1], axis=3)), builder.emit(relax.op.add(x, x))
            inner = builder.emit(relax.Tuple([twice, halves]))
            result = builder.emit_output(relax.Tuple([x, relax.Tuple([inner, twice])]))
        builder.emit_func_output(result)
    project = built(tvm.IRModule({"main": builder.get()["main"]}), tmp_path)
    one = given()
    wanted = [one, one + one, one[..., :1], one[..., 1:], one + one]
    for found, value in zip(project.run([one]).outputs, wanted, strict=True):
        np.testing.assert_array_equal(found, value)


NAMES = ("a/b", "a_b", "x y", "0", 'q"', "arena", "bool", "NULL", "int8_t", "expf", "int", "*/", "\n")


def test_inputs_have_any_names(tmp_path):
    """The host's functions have parameters of these names, as far as C takes them."""
    inputs = [relax.Var(name, relax.TensorType((2, 3), "float32")) for name in NAMES]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            value = inputs[0]
            for one in inputs[1:]:
                value = builder.emit(relax.op.subtract(value, relax.op.exp(one)))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    given = [np.full((2, 3), place / 8, "float32") for place in range(len(NAMES))]
    found = built(tvm.IRModule({"main": builder.get()["main"]}), tmp_path).run(given).outputs[0]
    np.testing.assert_allclose(found, given[0] - sum(map(np.exp, given[1:])), rtol=1e-5)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ones(3, "int8"), r"params: w: shape is \(2,\): got \(3,\)"),
        (np.ones(2, "float32"), "params: w: dtype is int8: got float32"),
        ([1, 2], r"params: w is an array: got \[1, 2\]"),
    ],
)
def test_weights_that_are_none_are_refused(value, message):
    x, w = (relax.Var(name, relax.TensorType((2,), "int8")) for name in "xw")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.add(x, w))
        builder.emit_func_output(result)
    with pytest.raises(byoc_hw.InvalidInput, match=message):
        byoc_hw.partition_for_hwlib(tvm.IRModule({"main": builder.get()["main"]}), {"w": value})


def two_to_the(x):
    return relax.op.power(relax.const(2.0, "float32"), x)


FUNCTIONS = {
    "any real number": ("exp tanh tan sin cos sinh cosh erf atan asinh sigmoid gelu gelu_tanh silu softplus", -6, 6),
    "-1 to 1": ("asin acos atanh", -0.999, 0.999),
    "positive": ("log sqrt rsqrt acosh", 1, 6),
}


@pytest.mark.parametrize(("names", "low", "high"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_have_tvms_bits(tmp_path, names, low, high):
    """By TVM's formulas where its llvm build has one, whatever the C compiler makes of a call."""
    functions = [getattr(relax.op, name, None) or getattr(relax.op.nn, name) for name in names.split()]
    check_functions(tmp_path, functions, low, high)


def test_powers_have_tvms_bits(tmp_path):
    exponents = [relax.const(value, "float32") for value in (2.0, 0.5, -1.0, 1.5, -0.5)]
    functions = [lambda x, exponent=one: relax.op.power(x, exponent) for one in exponents]
    check_functions(tmp_path, [*functions, two_to_the], 0.01, 6)


def check_functions(tmp_path, functions, low, high):
    mod = module(lambda x: relax.Tuple([function(x) for function in functions]), (20, 16), dtype="float32")
    rng = np.random.default_rng(0)
    inputs = [[rng.uniform(low, high, (20, 16)).astype("float32")] for _ in range(4)]
    partitioned = byoc_hw.partition_for_hwlib(mod, mod_name="m")
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    for cflags in ("-O0", "-O2"):
        found = byoc_hw.validate(project, inputs, partitioned, toolchain=byoc_hw.Toolchain(cflags=cflags))
        assert found, str(found)
