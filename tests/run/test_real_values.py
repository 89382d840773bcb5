"""Real values for stored ones: in Python, in the generated header as C and C++, and in TFLite, the same bits."""

import ctypes
import subprocess
from itertools import pairwise

import numpy as np
import pytest
from relay_samples import const, module, variable
from tflite_samples import OperatorSample, TensorSample, model_bytes
from tvm import relay

import byoc_hw
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.run.real_values import Interface

TYPES = {"int8": (0.0039215689, -128), "uint8": (0.017, 131), "int16": (3.1e-5, 0)}
ODD = [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40]


def requantized(name, dtype, scale, zero_point):
    x = variable((1, 4), dtype, name)
    both = const(scale, "float32"), const(zero_point, "int32")
    return x, relay.qnn.op.requantize(x, *both, *both, out_dtype=dtype)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """An input and an output of each type, and ones without a scale: floats, a type that has none, an unknown one."""
    pairs = [requantized(dtype, dtype, *of) for dtype, of in TYPES.items()]
    plain = [variable((1, 4), "float32", "float"), variable((), "int32", "scalar"), variable((2,), name="unknown")]
    body = relay.Tuple([*(y for _, y in pairs), *(relay.add(x, x) for x in plain)])
    mod = module(body, *(x for x, _ in pairs), *plain)
    return byoc_hw.build(mod, output_dir=tmp_path_factory.mktemp("interface") / "out")


def near(interface):
    """The middle between any two stored values, and its neighbours in float32; and odd values."""
    limits = np.iinfo(interface.dtype)
    every = np.arange(limits.min - 3, limits.max + 4, dtype=np.float64)
    scale = np.float32(interface.scale)
    middles = ((every + 0.5 - interface.zero_point) * scale).astype(np.float32)
    exact = ((every - interface.zero_point) * scale).astype(np.float32)
    around = [np.nextafter(middles, np.float32(end)) for end in (-np.inf, np.inf)]
    return np.concatenate([middles, exact, *around, np.array(ODD, np.float32)])


LANGUAGES = {"c": ["gcc", "-std=c11", "-Wdouble-promotion", "-Wfloat-equal"], "c++": ["g++", "-std=c++17"]}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_header_gives_the_same_bits_as_python(project, language, tmp_path):
    code = [
        '#include "default.h"\n#include <stddef.h>',
        '#ifdef __cplusplus\n#define EXPORT extern "C"\n#else\n#define EXPORT\n#endif',
    ]
    for interface, ofm in zip(project.inputs[:3], project.outputs, strict=False):
        name, element = interface.name, f"{interface.dtype}_t"
        code.append(f"""
EXPORT void q_{name}(const float *x, {element} *y, size_t n);
EXPORT void q_{name}(const float *x, {element} *y, size_t n)
{{
  static const unsigned shape[DEFAULT_INPUT_{name.upper()}_RANK] = DEFAULT_INPUT_{name.upper()}_SHAPE;
  for (size_t i = 0; i < n; ++i) y[i] = default_quantize_{name}(x[i]);
  if (shape[0] * shape[1] != DEFAULT_INPUT_{name.upper()}_ELEMENTS) y[0] ^= 1;
}}
EXPORT void d_{name}(const {element} *x, float *y, size_t n);
EXPORT void d_{name}(const {element} *x, float *y, size_t n)
{{
  for (size_t i = 0; i < n; ++i) y[i] = default_dequantize_{ofm.name}(x[i]);
}}""")
    source, library = tmp_path / "all.c", tmp_path / "all.so"
    source.write_text("\n".join(code))
    flags = [
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Wpedantic",
        "-Wno-sign-compare",
        "-Werror",
        "-O1",
        "-shared",
        "-fPIC",
    ]
    include = f"-I{project.directory / 'include'}"
    subprocess.run([*LANGUAGES[language], *flags, include, "-x", language, source, "-o", library], check=True)
    functions = ctypes.CDLL(str(library))
    for interface in project.inputs[:3]:
        values = near(interface)
        stored = np.zeros(values.shape, interface.dtype)
        getattr(functions, f"q_{interface.name}")(*map(pointer, (values, stored)), ctypes.c_size_t(values.size))
        np.testing.assert_array_equal(stored, interface.quantize(values), err_msg=interface.name)
        limits = np.iinfo(interface.dtype)
        every = np.arange(limits.min, limits.max + 1).astype(interface.dtype)
        real = np.zeros(every.shape, np.float32)
        getattr(functions, f"d_{interface.name}")(*map(pointer, (every, real)), ctypes.c_size_t(every.size))
        np.testing.assert_array_equal(real, interface.dequantize(every), err_msg=interface.name)
        np.testing.assert_array_equal(interface.quantize(real), every)


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_values_are_rounded_as_tflite_rounds_them(dtype, tmp_path):
    scale, zero_point = TYPES[dtype]
    interface = Interface("x", dtype, (), 1, scale, zero_point)
    values = near(interface)
    values = values[np.isfinite(values) & (abs(values) < 1e6)]  # others have no defined result there
    expected = interface.quantize(values)
    x = variable(values.shape, "float32")
    tvms = relay.qnn.op.quantize(x, const(scale, "float32"), const(zero_point, "int32"), out_dtype=dtype)
    steps = values / np.float32(scale)
    half = abs(abs(steps - np.trunc(steps)) - 0.5) < 1e-4  # TVM multiplies by 1 / scale, which may fall below a half
    difference = Reference(module(tvms, x)).run([values])[0].astype(int) - expected
    assert not difference[~half].any()
    assert abs(difference).max() <= 1
    runtime = pytest.importorskip("tflite_runtime.interpreter", reason="install tflite-runtime==2.14.0")
    ifm = TensorSample(values.shape, None, dtype="FLOAT32")
    ofm = TensorSample(values.shape, scale, zero_point, dtype=dtype.upper())
    content = model_bytes(OperatorSample("QUANTIZE", [ifm], ofm))
    resolver = runtime.OpResolverType.BUILTIN_REF
    tflites = runtime.Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    tflites.allocate_tensors()
    tflites.set_tensor(tflites.get_input_details()[0]["index"], values)
    tflites.invoke()
    np.testing.assert_array_equal(tflites.get_tensor(tflites.get_output_details()[0]["index"]), expected)


def test_a_run_takes_real_values_and_gives_them(project):
    rng = np.random.default_rng(0)
    stored = [rng.integers(*limits_of(end), end.shape, endpoint=True).astype(end.dtype) for end in project.inputs[:3]]
    plain = [np.ones((1, 4), np.float32), np.array(3, np.int32), np.ones(2, np.int8)]
    real = [end.dequantize(values).astype(np.float64) for end, values in zip(project.inputs, stored, strict=False)]
    as_stored = project.run([*stored, *plain])
    as_real, _ = project.run_batch([[*real, *plain]] * 2, quantize=True)
    for end, one, other in zip(project.outputs, as_stored.outputs, as_real.outputs, strict=True):
        if end.scale is None:
            np.testing.assert_array_equal(one, other)
        else:
            assert other.dtype == np.float32
            np.testing.assert_array_equal(end.dequantize(one), other)
    assert [end.scale is None for end in project.inputs] == [False] * 3 + [True] * 3


def limits_of(end):
    limits = np.iinfo(end.dtype)
    return limits.min, limits.max


def test_says_what_has_no_scale(project):
    x = variable((2,), "float32")
    floats = byoc_hw.build(module(relay.nn.relu(x), x))
    with pytest.raises(byoc_hw.InvalidInput, match="quantize is for inputs and outputs with a scale: the model states"):
        floats.run(np.zeros(2, np.float32), quantize=True)
    with pytest.raises(byoc_hw.InvalidInput, match="float has a scale and a zero point: the model states none, its ty"):
        project.inputs[3].quantize(np.zeros(4))
    with pytest.raises(byoc_hw.InvalidInput, match="input int8: real values are numbers: got bool"):
        project.run([np.zeros((1, 4), bool)] * 6, quantize=True)


def test_stored_values_are_in_order():
    """Larger real values have no smaller stored ones."""
    interface = Interface("x", "int8", (), 1, 0.1, 3)
    stored = interface.quantize(np.sort(near(interface)[: -len(ODD)]))
    assert all(one <= other for one, other in pairwise(stored.tolist()))
