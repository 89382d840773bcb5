"""What a TFLite file becomes, as text: the same for both front ends. `python tests/graph_descriptions.py` stores it."""

import dataclasses
import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np

import byoc_hw
from byoc_hw.compiler import region_graphs
from byoc_hw.demo import heldout, model_path

STORED = Path(__file__).parent / "frontend" / "descriptions"
NUMERICS = ("relay", "tflite")
IMAGES = 20


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
            yield f"%{number} {_digest(_plain(layer))}"
    for name in ("m_hwlib.c", "m_hwlib.h", "m_weights.h"):
        yield f"{name} {_digest((directory / 'src' / name).read_bytes())}"
    for outcome in project.report.outcomes:
        yield f"{outcome.placement} {outcome.name.split(';')[0]}"
        composites = [name for name in outcome.composites if name != "reshape"]  # Relay's importer puts them anywhere
        yield f"  {', '.join(composites)} {outcome.macs} MACs {outcome.nbytes} bytes {_digest(_plain(outcome.reads))}"
        yield from (f"  {rejection}" for rejection in outcome.rejections)
    yield ""


def _plain(value):
    """Every field of a dataclass, with arrays by type, shape and bytes."""
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, _digest(np.ascontiguousarray(value).tobytes())]
    if dataclasses.is_dataclass(value):
        return [
            type(value).__name__,
            *((one.name, _plain(getattr(value, one.name))) for one in dataclasses.fields(value)),
        ]
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else repr(value)


def _digest(value):
    data = value if isinstance(value, bytes) else repr(value).encode()
    return hashlib.sha256(data).hexdigest()[:16]


def outputs(numerics, directory):
    """What the C of the digits model computes of held-out digits, one line each."""
    mod, params = byoc_hw.load_tflite(model_path())
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, "m", numerics=numerics), output_dir=directory)
    results = project.run_batch([image[np.newaxis] for image in heldout().images[:IMAGES]])
    return "".join(f"{' '.join(map(str, result.outputs[0].ravel().tolist()))}\n" for result in results)


def store(models):
    """Write the descriptions of the digits model and of others."""
    with tempfile.TemporaryDirectory() as folder:
        texts = {path.stem: description(path, Path(folder) / path.stem) for path in (model_path(), *models)}
        texts |= {f"digits_outputs_{numerics}": outputs(numerics, Path(folder) / numerics) for numerics in NUMERICS}
    for name, text in texts.items():
        (STORED / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    store(map(Path, sys.argv[1:]))
