"""The demo: compiles the digits network, runs it, and compares it with TVM bit for bit."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import byoc_hw
from byoc_hw.demo import Heldout, expected_outputs, heldout, model_path
from byoc_hw.frontend.installed import HAS_RELAY
from byoc_hw.frontend.seam import LayerReference
from byoc_hw.report.cycles import cycle_table
from byoc_hw.tensor import Array

TRACED = 10
"""How many digits are compared layer by layer."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit code is 0 if the generated C gives what TVM gives."""
    parser = argparse.ArgumentParser(
        prog="python -m byoc_hw.demo",
        description="Compile the digits network that ships with byoc_hw to a C project, run it and check it.",
        epilog="example: python -m byoc_hw.demo --output-dir out/digits --images 50",
    )
    parser.add_argument("--output-dir", type=Path, default=Path("out/digits"), help="the C project (%(default)s)")
    parser.add_argument("--images", type=int, help="how many held-out digits to run (all)")
    options = parser.parse_args(arguments)
    if options.images is not None and options.images < 1:
        parser.error(f"--images is at least 1: got {options.images}")
    try:
        return _demo(options.output_dir, heldout(), options.images)
    except (byoc_hw.ByocHwError, OSError) as error:
        print(f"byoc_hw.demo: error: {error}", file=sys.stderr)
        return 3 if isinstance(error, byoc_hw.ToolchainMissing) else 2


def _demo(output_dir: Path, digits: Heldout, count: int | None) -> int:
    mod, params = byoc_hw.load_tflite(model_path())
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="digits")
    project = byoc_hw.build(partitioned, output_dir=output_dir)
    _section("What runs where", project.report)
    _section("Memory, in bytes", project.memory)

    inputs = [image[np.newaxis] for image in digits.images[:count]]
    results = project.run_batch(inputs)
    cycles = results[0].cycles
    assert cycles is not None  # this model has a region, so the accelerator is simulated
    _section("Accelerator cycles of one inference", cycle_table(cycles))

    labels = digits.labels[: len(inputs)]
    correct = sum(int(result.outputs[0].argmax() == label) for result, label in zip(results, labels, strict=True))
    _section(
        f"Accuracy on {len(inputs)} held-out digits",
        f"  generated C   {correct / len(inputs):.1%}\n"
        f"  int8 TFLite   {digits.int8_accuracy:.1%}  (all {len(digits.labels)})\n"
        f"  float model   {digits.float_accuracy:.1%}  (all {len(digits.labels)})",
    )

    outputs = [result.outputs[0] for result in results]
    title, comparison, agrees = _against_tvm(project, mod, params, partitioned, inputs, outputs)
    _section(title, comparison)
    _section("Next", _next(project.directory))
    return 0 if agrees else 1


def _against_tvm(
    project: byoc_hw.Project, mod: Any, params: Any, partitioned: Any, inputs: Sequence[Array], outputs: Sequence[Array]
) -> tuple[str, str, bool]:
    """How many outputs, and outputs of layers, equal TVM's. Without Relay its outputs are those that are stored."""
    if not HAS_RELAY:
        equal = sum(map(np.array_equal, outputs, expected_outputs()[: len(inputs), np.newaxis]))
        text = f"  {equal} of {len(inputs)} outputs equal those of the TVM that has Relay, bit for bit"
        return "Against Relay", text, equal == len(inputs)
    from byoc_hw.frontend.relay.reference import Reference

    whole = Reference(mod, params)
    equal = sum(np.array_equal(output, whole.run([image])[0]) for image, output in zip(inputs, outputs, strict=True))
    layers, layers_equal = _compare_layers(project, Reference(partitioned, layers=True), inputs[:TRACED])
    text = (
        f"  {equal} of {len(inputs)} outputs equal TVM's, bit for bit\n"
        f"  {layers_equal} of {layers} outputs of offloaded layers equal TVM's, bit for bit "
        f"({len(inputs[:TRACED])} digits)"
    )
    return "Against TVM", text, (equal, layers_equal) == (len(inputs), layers)


def _compare_layers(project: byoc_hw.Project, reference: LayerReference, inputs: Sequence[Array]) -> tuple[int, int]:
    """How many outputs of offloaded layers were compared, and how many were equal."""
    names = {
        layer["id"]: f"{layer['region']}:{layer['name']}" for layer in project.layers if layer["region"] is not None
    }
    equal = []
    for image, result in zip(inputs, project.run_batch(inputs, trace=True), strict=True):
        reference.run([image])
        expected = reference.layers()
        assert result.trace is not None
        equal += [result.trace[number] == expected[name].tobytes() for number, name in names.items()]
    return len(equal), sum(equal)


def _next(directory: Path) -> str:
    return (
        f"  The C project is in {directory}: src/digits_main.c calls the regions of src/digits_hwlib.c.\n"
        f"  make -C {directory}                                         builds it, with no Python and no TVM\n"
        f"  python -m byoc_hw run {directory} --random 0 --profile       runs it once\n"
        f"  python -m byoc_hw explain model.tflite                      what of your model would be offloaded"
    )


def _section(title: str, body: object) -> None:
    print(f"{title}\n{'-' * len(title)}\n{body}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
