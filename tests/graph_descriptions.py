"""What a TFLite file becomes, as text: the same for both front ends. `python tests/graph_descriptions.py` stores it."""

import dataclasses
import functools
import hashlib
import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np
from tflite_element_wise_samples import OPERATORS, operator_file
from tflite_int4_samples import NETWORKS as FOUR_BITS
from tflite_int4_samples import narrow_file
from tflite_networks import inception, mobilenet

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.demo import heldout, model_path

STORED = Path(__file__).parent / "frontend" / "descriptions"
NUMERICS = ("relay", "tflite")
DETECTOR = Path(byoc_hw.__file__).parent / "demo" / "shapes_int8.tflite"


def description(path, directory):
    """Graphs, digests of all their fields and of the C of the regions, and the report, for both numerics."""
    return "\n".join(line for numerics in NUMERICS for line in _lines(path, numerics, directory / numerics))


def _lines(path, numerics, directory):
    mod, params = byoc_hw.load_tflite(path)
    partitioned = byoc_hw.partition_for_hwlib(mod, params, "m", numerics=numerics)
    project = byoc_hw.build(partitioned, output_dir=directory)
    yield f"numerics {numerics}"
    for graph in region_graphs(partitioned).values():
        yield str(graph)
        for number, layer in enumerate(graph.layers):
            yield f"%{number} {_digest(plain_fields(layer))}"
    for name in ("m_hwlib.c", "m_hwlib.h", "m_weights.h"):
        yield f"{name} {_digest((directory / 'src' / name).read_bytes())}"
    for outcome in project.report.outcomes:
        yield f"{outcome.placement} {outcome.name.split(';')[0]}"
        composites = [name for name in outcome.composites if name != "reshape"]  # Relay's importer puts them anywhere
        reads = _digest(plain_fields(outcome.reads))
        yield f"  {', '.join(composites)} {outcome.macs} MACs {outcome.nbytes} bytes {reads}"
        yield from (f"  {rejection}" for rejection in outcome.rejections)
    yield ""


def plain_fields(value):
    """Every field of a dataclass, with arrays by type, shape and bytes."""
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, _digest(np.ascontiguousarray(value).tobytes())]
    if dataclasses.is_dataclass(value):
        return [
            type(value).__name__,
            *(
                (one.name, plain_fields(getattr(value, one.name)))
                for one in dataclasses.fields(value)
                if one.name != "axes_of_model" or value.axes_of_model
            ),
        ]
    return [plain_fields(one) for one in value] if isinstance(value, tuple | list) else repr(value)


def _digest(value):
    data = value if isinstance(value, bytes) else repr(value).encode()
    return hashlib.sha256(data).hexdigest()[:16]


def outputs(name, numerics, directory, deny=()):
    """What the C of a shipped model computes of some inputs, one line each."""
    path, inputs = SHIPPED[name]
    mod, params = byoc_hw.load_tflite(path())
    partitioned = byoc_hw.partition_for_hwlib(mod, params, "m", numerics=numerics, deny=deny)
    results = byoc_hw.build(partitioned, output_dir=directory).run_batch(inputs())
    return "".join(f"{' '.join(_written(one) for one in result.outputs)}\n" for result in results)


def _written(values):
    return " ".join(map(str, values.ravel().tolist())) if values.size <= 16 else _digest(values.tobytes())


def _digits():
    return [image[np.newaxis] for image in heldout().images[:20]]


def _pictures():
    random = np.random.default_rng(0)
    return [random.integers(-128, 128, (1, 48, 48, 1)).astype(np.int8) for _ in range(5)]


SHIPPED = {"digits_int8": (model_path, _digits), "shapes_int8": (lambda: DETECTOR, _pictures)}
"""The models of the package, and inputs for them."""


NETWORKS = {
    "inception": lambda: inception("int8"),
    "mobilenet": lambda: mobilenet("int8"),
    **{f"operator_{name}": functools.partial(operator_file, name) for name in OPERATORS},
    **{f"int4_{number}": functools.partial(narrow_file, case) for number, case in enumerate(FOUR_BITS)},
}
"""Networks that are made in memory."""


def store(models):
    """Write the descriptions and outputs of the shipped models, and the descriptions of others."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [*(path() for path, _ in SHIPPED.values()), *models]
        for name, network in NETWORKS.items():
            paths.append(Path(folder) / f"{name}.tflite")
            paths[-1].write_bytes(network())
        texts = {path.stem: description(path, Path(folder) / path.stem) for path in paths}
        for name, numerics in itertools.product(SHIPPED, NUMERICS):
            texts[f"{name}_outputs_{numerics}"] = outputs(name, numerics, Path(folder) / f"{name}_{numerics}")
    for name, text in texts.items():
        (STORED / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    store(map(Path, sys.argv[1:]))
