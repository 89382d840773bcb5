"""Quantized programs of torch.export: what is offloaded, and how far the results are from torch's.

Where torch is missing, a program is what `tests/torch_programs.py` has written of it: the module that TVM makes of it
with its weights, images, and torch's results.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import byoc_hw
from byoc_hw import InvalidInput
from byoc_hw.compiler import region_graphs

PROGRAMS = Path(__file__).parent / "programs"
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed: pip install torch")
KINDS = {"transpose", "conv2d", "depthwise_conv2d", "add", "pool2d", "lookup", "concat", "reshape", "dense"}


def stored_program():
    arrays = dict(np.load(PROGRAMS / "net.npz"))
    images, results = arrays.pop("images"), arrays.pop("results")
    mod = tvm.script.from_source((PROGRAMS / "net.txt").read_text())
    assert isinstance(mod["main"], relax.Function)
    return mod, arrays, images, results


def check(mod, params, images, results, directory):
    """All but the ends is offloaded; values are those of TVM's floats, and torch's but for the rounding of a few."""
    partitioned = byoc_hw.partition_for_hwlib(mod, params, "m", numerics="float")
    (graph,) = region_graphs(partitioned).values()
    assert {layer.kind for layer in graph.layers} == KINDS
    project = byoc_hw.build(partitioned, output_dir=directory)
    step = np.diff(np.unique(results)).min()
    found = np.stack([project.run([image]).outputs[0] for image in images])
    apart = np.abs(found - results)
    assert np.ptp(results) > 20 * step
    assert apart.max() <= 1.01 * step
    assert (apart < step / 2).mean() > 0.9
    assert byoc_hw.validate(project, [[image] for image in images], partitioned).ok


def test_a_stored_program_is_offloaded_and_gives_torchs_results(tmp_path):
    check(*stored_program(), tmp_path / "m")


@needs_torch
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_program_is_offloaded_and_gives_torchs_results(dtype, tmp_path):
    import torch
    import torch_programs

    program = torch_programs.exported(getattr(torch, dtype), seed=1)
    torch.export.save(program, tmp_path / "net.pt2")
    images = np.random.default_rng(0).normal(size=(4, *torch_programs.SHAPE)).astype(np.float32)
    results = np.stack([program.module()(torch.from_numpy(image)).detach().numpy() for image in images])
    mod, params = byoc_hw.load(tmp_path / "net.pt2")
    check(mod, params, images, results, tmp_path / "m")
    names = [one.name for one in byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, params)).outcomes]
    assert {"first/conv2d", "max_pool2d", "sigmoid", "last/linear"} <= set(names)  # by the modules that have them


@needs_torch
def test_an_operator_without_an_importer_is_named(tmp_path):
    import torch

    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x)

    torch.export.save(torch.export.export(Odd(), (torch.ones(2, 3),)), tmp_path / "odd.pt2")
    with pytest.raises(InvalidInput, match=r"operators are those that TVM's importer knows: got .*bessel_j0"):
        byoc_hw.load(tmp_path / "odd.pt2")


@needs_torch
def test_a_damaged_program_is_named(tmp_path):
    (tmp_path / "net.pt2").write_bytes(b"none")
    with pytest.raises(InvalidInput, match=r"net\.pt2: is no program that torch\.export\.save wrote"):
        byoc_hw.load(tmp_path / "net.pt2")


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_without_torch_the_message_says_what_to_install(tmp_path):
    (tmp_path / "net.pt2").write_bytes(b"none")
    with pytest.raises(InvalidInput, match=r"net\.pt2: a program of torch\.export is read with the package torch"):
        byoc_hw.load(tmp_path / "net.pt2")


@needs_torch
@pytest.mark.filterwarnings("ignore:The tensor attributes self.lstm")  # torch's own, of each LSTM
def test_what_tvms_importer_has_wrong_has_torchs_results(tmp_path):
    import torch

    class Wrong(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.lstm = torch.nn.BatchNorm1d(4), torch.nn.LSTM(4, 6, batch_first=True)

        def forward(self, x):
            y, (hidden, _) = self.lstm(self.norm(x.transpose(1, 2)).transpose(1, 2))
            return torch.add(y[:, -1], hidden[0], alpha=2) - x.narrow(1, 1, 1).amax((1, 2)).logsumexp(0)

    net = Wrong().eval()
    net.norm.running_mean.fill_(0.3)
    net.norm.running_var.fill_(2.0)
    x = torch.randn(1, 5, 4)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    mod, params = byoc_hw.load(tmp_path / "net.pt2")
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, "m"), output_dir=tmp_path / "m")
    assert np.allclose(project.run([x.numpy()]).outputs[0], net(x).detach().numpy(), atol=1e-5)


@needs_torch
@pytest.mark.filterwarnings("ignore:The tensor attributes self.lstm")
def test_a_state_that_is_not_imported_is_named(tmp_path):
    import torch

    class Cell(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 6)

        def forward(self, x):
            return self.lstm(x)[1][1]

    torch.export.save(torch.export.export(Cell(), (torch.ones(5, 1, 4),)), tmp_path / "net.pt2")
    with pytest.raises(InvalidInput, match=r"lstm: result 2 of aten\.lstm\.input cannot be imported, and it is read"):
        byoc_hw.load(tmp_path / "net.pt2")
