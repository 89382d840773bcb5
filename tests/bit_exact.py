"""The comparison that counts: generated C beside TVM's own answer, element by element."""

import numpy as np

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.frontend.relay.reference import Reference

SANITIZED = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"


def input_arrays(mod, count=3, seed=0):
    """Inputs for a module: the rails of each type, then random ones, each a list in model order."""
    rng = np.random.default_rng(seed)
    shapes = [(tuple(int(n) for n in p.checked_type.shape), p.checked_type.dtype) for p in mod["main"].params]

    def filled(pick):
        return [pick(shape, dtype).astype(dtype) for shape, dtype in shapes]

    def limits(dtype):
        return (-4.0, 4.0) if dtype.startswith("float") else (np.iinfo(dtype).min, np.iinfo(dtype).max)

    def random(shape, dtype):
        low, high = limits(dtype)
        return rng.uniform(low, high, shape) if dtype.startswith("float") else rng.integers(low, high + 1, shape)

    yield filled(lambda shape, dtype: np.full(shape, limits(dtype)[0]))
    yield filled(lambda shape, dtype: np.full(shape, limits(dtype)[1]))
    for _ in range(count):
        yield filled(random)


def assert_bit_exact(mod, *, accelerator=REFERENCE, params=None, count=3, cflags="-O1", **options):
    """Partition, build, run on the simulator: every output and layer equals TVM's. The project."""
    partitioned = byoc_hw.partition_for_hwlib(mod, params, accelerator=accelerator, **options)
    project = byoc_hw.build(partitioned)
    assert_equals_tvm(project, partitioned, Reference(mod, params), list(input_arrays(mod, count)), cflags)
    return project


def assert_equals_tvm(project, partitioned, original, inputs, cflags="-O1"):
    """Outputs equal those of the original module, and each offloaded layer's those of the same layer in TVM."""
    shown = Reference(partitioned, layers=True)
    results = project.run_batch(inputs, trace=True, toolchain=byoc_hw.Toolchain(cflags=cflags))
    numbers = layer_numbers(project)
    for arrays, result in zip(inputs, results, strict=True):
        assert (result.cycles.total if result.cycles else 0) == project.schedule.cycles
        expected = original.run(arrays)
        for index, (found, wanted) in enumerate(zip(result.outputs, expected, strict=True)):
            np.testing.assert_array_equal(found, wanted, err_msg=f"output {index}")
        shown.run(arrays)
        for name, wanted in shown.layers().items():
            assert numbers[name] in result.trace, f"{name} is not in the trace"
            found = np.frombuffer(result.trace[numbers[name]], wanted.dtype)
            np.testing.assert_array_equal(found, wanted.ravel(), err_msg=name)


def layer_numbers(project):
    """The number of each offloaded layer by region and name."""
    return {f"{layer['region']}:{layer['name']}": layer["id"] for layer in project.layers if layer["region"]}
