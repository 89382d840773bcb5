"""What of a Relax module stays on the host: its C, its arithmetic, and its calls."""

import numpy as np
import pytest
from relax_samples import convolution, module, real, stored
from tvm import relax

import byoc_hw
from byoc_hw import Unsupported
from byoc_hw.demo import heldout, model_path

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
