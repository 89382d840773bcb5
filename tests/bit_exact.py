"""The comparison that counts: generated C beside TVM's own answer, element by element."""

import numpy as np
import tvm
from tvm import relay

import byoc_hw
from byoc_hw.accelerator import REFERENCE
from byoc_hw.compiler import region_graphs
from byoc_hw.frontend.relay.interface import output_values
from byoc_hw.frontend.relay.partition import folding, prepare
from byoc_hw.frontend.relay.reference import Reference, with_layers


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
    assert_equals_tvm(project, partitioned, mod, list(input_arrays(mod, count)), cflags, params)
    return project


def assert_equals_tvm(project, partitioned, mod, inputs, cflags="-O1", params=None):
    """Outputs equal those of the original module, and each offloaded layer's those of the same layer in TVM. TVM's.
    Layers of which the planner has made others are left out."""
    expected = OriginalAndLayers(mod, params, partitioned)
    planned = {f"{graph.name}:{layer.name}" for graph in region_graphs(partitioned).values() for layer in graph.layers}
    results = project.run_batch(inputs, trace=True, toolchain=byoc_hw.Toolchain(cflags=cflags))
    numbers, wanted = layer_numbers(project), []
    axes = {layer["id"]: layer["axes"] for layer in project.layers if "axes" in layer}
    for arrays, result in zip(inputs, results, strict=True):
        assert (result.cycles.total if result.cycles else 0) == project.schedule.cycles
        outputs, layers = expected.run(arrays)
        for index, (found, want) in enumerate(zip(result.outputs, outputs, strict=True)):
            np.testing.assert_array_equal(found, want, err_msg=f"output {index}")
        for name, want in layers.items():
            if name not in numbers:
                assert name not in planned, f"{name} is not in the project"
                continue
            assert numbers[name] in result.trace, f"{name} is not in the trace"
            found = np.frombuffer(result.trace[numbers[name]], want.dtype)
            as_it_lies = want.transpose(axes[numbers[name]]) if numbers[name] in axes else want
            np.testing.assert_array_equal(found, as_it_lies.ravel(), err_msg=name)
        wanted.append(outputs)
    return wanted


class OriginalAndLayers:
    """A module and the layers of its partitioned form in one program of TVM's: what both have is compiled once."""

    def __init__(self, mod, params, partitioned):
        original = tvm.transform.Sequential(folding())(prepare(mod, params))["main"]
        shown, self.names = with_layers(partitioned)
        renamed = dict(zip(shown["main"].params, original.params, strict=True))
        values = output_values(relay.bind(shown["main"].body, renamed))
        layers = values[len(values) - len(self.names) :]
        main = relay.Function(original.params, OneOfEach().visit(relay.Tuple([original.body, *layers])))
        with tvm.transform.PassContext(opt_level=3):
            passes = [relay.transform.InferType(), relay.transform.EliminateCommonSubexpr()]
            both = tvm.transform.Sequential(passes)(tvm.IRModule.from_expr(main))
        self.reference = Reference(both)

    def run(self, arrays):
        """The original's outputs in model order, and the value of each layer by name."""
        values = self.reference.run(arrays)
        count = len(values) - len(self.names)
        return values[:count], dict(zip(self.names, values[count:], strict=True))


class OneOfEach(relay.ExprMutator):
    """Constants of the same value become one, so that TVM finds equal operators."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    def visit_constant(self, const):
        array = const.data.numpy()
        return self.kept.setdefault((array.dtype.str, array.shape, array.tobytes()), const)


def layer_numbers(project):
    """The number of each offloaded layer by region and name."""
    return {f"{layer['region']}:{layer['name']}": layer["id"] for layer in project.layers if layer["region"]}
