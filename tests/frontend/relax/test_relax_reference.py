"""`validate` on Relax: the C of a project beside what TVM's virtual machine computes of the same module."""

import numpy as np
import pytest
from relax_samples import convolution, module, real, stored
from tvm import relax

import byoc_hw
from byoc_hw import InvalidInput
from byoc_hw import __main__ as cli
from byoc_hw.demo import heldout, model_path


def validated(mod, directory, **options):
    partitioned = byoc_hw.partition_for_hwlib(mod, mod_name="m")
    project = byoc_hw.build(partitioned, output_dir=directory)
    random = np.random.default_rng(0)
    inputs = [[random.integers(-128, 128, one.shape).astype(one.dtype) for one in project.inputs] for _ in range(3)]
    return byoc_hw.validate(project, inputs, partitioned, **options)


def test_convolutions_are_exact(tmp_path):
    """Sums of products are exact in float32 as well, and hardly any lies in the middle of two steps."""

    def body(x):
        return convolution(
            relax.op.nn.max_pool2d(convolution(x, bound=relax.op.nn.relu), (2, 2), (2, 2), layout="NHWC")
        )

    found = validated(module(body, (1, 8, 8, 8)), tmp_path / "m")
    assert found.ok, str(found)
    assert [one.kind for one in found.comparisons] == ["conv2d", "pool2d", "conv2d", "output"]
    assert not found.unseen


def test_without_a_linker_tvm_compiles_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("byoc_hw.frontend.linked._LINKER", "no-such-linker")
    monkeypatch.setattr("byoc_hw.frontend.relax.reference.create_shared", None)
    assert validated(module(convolution, (1, 8, 8, 8)), tmp_path / "m").ok


def test_a_power_whose_reference_is_optimized_is_exact(tmp_path):
    def body(x):
        return stored(relax.op.power(real(convolution(x), 0.05, -5), relax.const(2.0, "float32")), 0.02, 3)

    assert validated(module(body, (1, 6, 6, 8)), tmp_path / "m").ok


def test_layers_of_two_regions_are_compared(tmp_path):
    def body(x):
        return convolution(stored(relax.op.ceil(real(convolution(x), 0.05, -5)), 0.02, 3))

    found = validated(module(body, (1, 6, 6, 8)), tmp_path / "m", tolerance=1)
    assert [one.kind for one in found.comparisons] == ["conv2d", "conv2d", "output"]
    assert found.ok


def test_another_step_is_found_and_counted(tmp_path):
    """The integers of an addition round halves upward, TVM's floats to the even number."""

    def body(x):
        return stored(relax.op.add(real(x, 0.5, 0), real(x, 0.5, 0)), 2, 0)

    (first, output) = validated(module(body, (1, 8, 8, 8)), tmp_path / "m").comparisons
    assert (first.kind, first.largest, output.largest) == ("add", 1, 1)
    assert 0.15 < first.differing / first.elements < 0.35  # every other half
    assert validated(module(body, (1, 8, 8, 8)), tmp_path / "n", tolerance=1).ok


def test_an_input_that_is_missing_is_named(tmp_path):
    partitioned = byoc_hw.partition_for_hwlib(module(convolution, (1, 6, 6, 8)), mod_name="m")
    project = byoc_hw.build(partitioned, output_dir=tmp_path / "m")
    with pytest.raises(InvalidInput, match="x0"):
        byoc_hw.validate(project, {"y": np.zeros((1, 6, 6, 8), np.int8)}, partitioned)


def test_the_command_line_compares_with_tvm(tmp_path, capsys):
    np.save(tmp_path / "images.npy", heldout().images[:2])
    options = ["--samples", str(tmp_path / "images.npy")]
    assert cli.main(["validate", str(model_path()), *options]) == 1
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].endswith("of 14 layers and outputs in 2 inferences differ")
    assert sum(row.endswith("exact") for row in rows) >= 7  # all in front of the first addition
    assert cli.main(["validate", str(model_path()), *options, "--tolerance", "16"]) == 0
