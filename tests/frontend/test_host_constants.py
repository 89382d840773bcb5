"""Float constants of host functions: seven digits where they do, else all."""

import numpy as np
import pytest
from relay_samples import const, module, variable
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference


@pytest.mark.parametrize(
    ("scale", "literal"),
    [(0.14469250679, "1.44692510e-01f"), (0.1, "1.000000e-01f"), (0.5, "5.000000e-01f"), (1e-42, "1.000527e-42f")],
)
def test_a_dequantized_tensor_has_the_bits_of_tvm(scale, literal):
    x = variable((1, 256))
    mod = module(relay.qnn.op.dequantize(x, const(scale, "float32"), const(14, "int32")), x)
    project = byoc_hw.build(mod)
    assert literal in (project.directory / "src" / "default_host.c").read_text(encoding="utf-8")
    values = np.arange(-128, 128, dtype=np.int8)[None]
    assert project.run(values).outputs[0].tobytes() == Reference(mod).run([values])[0].tobytes()


def test_constants_of_doubles_keep_their_digits_too():
    x = variable((1, 8), "float64")
    mod = module(relay.clip(x * const(1 / 3, "float64"), -0.7, 2 / 3), x)
    values = np.linspace(-3, 3, 8)[None]
    assert byoc_hw.build(mod).run(values).outputs[0].tobytes() == Reference(mod).run([values])[0].tobytes()
