"""Quantized programs of torch.export, of torch alone, and what tests of machines without torch have of them.

python tests/torch_programs.py     writes tests/frontend/relax/programs: module, weights, images, results
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # the operators
import tvm
from torch import nn
from tvm import relax

import byoc_hw
from byoc_hw.frontend.relax.bindings import call_on, steps_of, with_steps
from byoc_hw.frontend.relax.versions import Literal, array_of

PROGRAMS = Path(__file__).parent / "frontend" / "relax" / "programs"
SHAPE = (1, 3, 16, 16)
OPERATORS = torch.ops.quantized_decomposed


class Quantized(nn.Module):
    """A value as int8 or uint8, and real again, with the scale that its values on samples need."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.least, self.most = dtype, 0.0, 0.0
        self.levels = torch.iinfo(dtype)

    @property
    def grid(self):
        scale = (self.most - self.least) / (self.levels.max - self.levels.min)
        return scale, self.levels.min - round(self.least / scale), self.levels.min, self.levels.max, self.dtype

    def forward(self, real):
        if not torch.compiler.is_compiling() and not self.frozen:
            self.least, self.most = min(self.least, real.min().item()), max(self.most, real.max().item())
            return real
        stored = OPERATORS.quantize_per_tensor(real, *self.grid)
        return OPERATORS.dequantize_per_tensor(stored, *self.grid)

    frozen = False


class Layer(nn.Module):
    """A convolution or matrix product of int8 weights with a scale for each channel; perhaps a function behind it."""

    def __init__(self, of, after, dtype):
        super().__init__()
        peaks = of.weight.detach().abs().flatten(1).amax(1)
        self.of, self.after, self.out = of, after, Quantized(dtype)
        self.register_buffer("scales", peaks / 127)
        self.register_buffer("zero_points", torch.zeros(len(peaks), dtype=torch.int64))
        shown = self.scales.reshape(-1, *[1] * (of.weight.dim() - 1))
        self.register_buffer("stored", (of.weight.detach() / shown).round().clamp(-127, 127).to(torch.int8))

    def forward(self, x):
        grid = self.scales, self.zero_points, 0, -127, 127, torch.int8
        weights = OPERATORS.dequantize_per_channel(self.stored, *grid)
        if isinstance(self.of, nn.Linear):
            real = nn.functional.linear(x, weights, self.of.bias)
        else:
            options = self.of.stride, self.of.padding, self.of.dilation, self.of.groups
            real = nn.functional.conv2d(x, weights, self.of.bias, *options)
        return self.out(self.after(real))


class Net(nn.Module):
    """Convolutions, one depthwise, with an addition, pooling, a concatenation, a sigmoid, and a matrix product."""

    def __init__(self, dtype=torch.int8):
        super().__init__()
        same, relu = nn.Identity(), nn.ReLU()
        self.ends = nn.ModuleList(Quantized(dtype) for _ in range(5))
        self.first = Layer(nn.Conv2d(3, 8, 3, stride=2, padding=1), relu, dtype)
        self.deep = Layer(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU6(), dtype)
        self.wide = Layer(nn.Conv2d(8, 8, 1), same, dtype)
        self.last = Layer(nn.Linear(16, 10), same, dtype)

    def forward(self, x):
        x = self.first(self.ends[0](x))
        y = self.ends[1](torch.relu(self.wide(self.deep(x)) + x))
        y = self.ends[2](torch.sigmoid(nn.functional.max_pool2d(y, 2)))
        y = self.ends[3](torch.cat([y, nn.functional.max_pool2d(x, 2)], 1))
        y = self.ends[4](nn.functional.adaptive_avg_pool2d(y, 1))
        return self.last(y.flatten(1))


def exported(dtype=torch.int8, seed=0):
    """A program whose scales fit random images."""
    torch.manual_seed(seed)
    net = Net(dtype).eval()
    with torch.no_grad():
        for _ in range(8):
            net(torch.randn(SHAPE))
    for one in net.modules():
        one.frozen = True
    return torch.export.export(net, (torch.randn(SHAPE),))


def with_parameters(mod):
    """A module whose constants are parameters, and their values by name: TVM writes no constants as text."""
    main, values, steps = mod["main"], {}, []
    parameters = list(main.params)
    for variable, value in steps_of(main):
        operands = []
        for one in value.args if isinstance(value, relax.Call) else ():
            operands.append(one)
            if isinstance(one, Literal) and array_of(one).size > 1:
                operands[-1] = relax.Var(f"weights_{len(values)}", one.ty)
                values[operands[-1].name] = array_of(one)
                parameters.append(operands[-1])
        steps.append((variable, call_on(value, operands, value.ty) if operands else value))
    body = with_steps(main, steps)
    made = relax.Function(parameters, body.body, body.ret_ty, body.is_pure, body.attrs)
    return tvm.IRModule({"main": made}), values


def main():
    PROGRAMS.mkdir(exist_ok=True)
    program = exported()
    path = PROGRAMS / "net.pt2"
    torch.export.save(program, path)
    mod, weights = with_parameters(byoc_hw.load(path)[0])
    path.unlink()
    (PROGRAMS / "net.txt").write_text(mod.script())
    images = np.random.default_rng(0).normal(size=(4, *SHAPE)).astype(np.float32)
    results = [program.module()(torch.from_numpy(image)).detach().numpy() for image in images]
    np.savez_compressed(PROGRAMS / "net.npz", images=images, results=np.stack(results), **weights)


if __name__ == "__main__":
    sys.exit(main())
