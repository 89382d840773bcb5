"""The shapes detector: an int8 network on the accelerator, its boxes decoded on the host. The DSP of a chip
suppresses them, and else the host does.

    python -m byoc_hw.demo.detector

compiles it for a chip of two accelerators, for one of them and for the host alone, and prints how well it finds shapes
in pictures that it was not trained on. `train_shapes.py` made the network.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tvm

import byoc_hw
from byoc_hw.accelerator import DIANA_DIGITAL, DSP
from byoc_hw.demo.shapes import Scene, drawn_scenes, mean_average_precision
from byoc_hw.demo.shapes_network import VARIANCES, anchor_corners
from byoc_hw.frontend.installed import HAS_RELAY, needs_relay
from byoc_hw.frontend.tflite_file import FileTensor, read_tflite
from byoc_hw.soc import Hardware, Soc
from byoc_hw.tensor import Array

if TYPE_CHECKING or HAS_RELAY:  # the network itself, `detector_path`, needs no Relay
    from tvm import relay

DLA = replace(DIANA_DIGITAL, name="dla", label="DLA")
CHIP = Soc((DLA, DSP), label="DLA + DSP")
"""An accelerator whose depthwise convolutions are slow, and a DSP beside it."""

HELDOUT_SEED = 1000
"""Draws pictures that the network was not trained on."""

DETECTIONS = 12
"""Rows of the output: kind, score, left, top, right, bottom; -1 behind the shapes that were found."""

_LEAST_SCORE, _OVERLAP, _CANDIDATES = 0.05, 0.45, 60


def detector_path() -> Path:
    """The network: a TFLite file, int8 throughout, input (1, 48, 48, 1), outputs (1, 180, 3) scores and (1, 180, 4)."""
    return Path(__file__).parent / "shapes_int8.tflite"


def detector() -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """The network with what stands behind it, and its weights by name: input int8, output (1, 12, 6) float32 rows.

    Raises `Unsupported` without Relay, whose operators find the boxes.
    """
    if not HAS_RELAY:
        needs_relay("the detector with its boxes")
    mod, params = byoc_hw.load_tflite(detector_path())
    file, main = read_tflite(detector_path()), mod["main"]
    scores, boxes = (
        _real(value, file.tensors[output]) for value, output in zip(main.body.fields, file.outputs, strict=True)
    )
    return tvm.IRModule.from_expr(relay.Function(main.params, _detections(scores, boxes))), params


def _real(value: relay.Expr, tensor: FileTensor) -> relay.Expr:
    assert tensor.quantization is not None, "the network is int8 throughout"
    (scale,), (zero_point,) = tensor.quantization.scale, tensor.quantization.zero_point
    return relay.qnn.op.dequantize(value, relay.const(scale, "float32"), relay.const(zero_point, "int32"))


def _detections(scores: relay.Expr, boxes: relay.Expr) -> relay.Expr:
    """Rows of the shapes by falling score, of scores (1, 180, 3) and boxes (1, 180, 4)."""
    vision = relay.vision
    rows, _ = vision.multibox_transform_loc(
        relay.transpose(scores, (0, 2, 1)),
        relay.reshape(boxes, (1, -1)),
        relay.const(anchor_corners()[np.newaxis]),
        threshold=0.0,
        variances=VARIANCES,
        keep_background=True,  # no kind is background: each anchor has a row, of its best kind
    )
    count, rows, places = vision.get_valid_counts(rows, _LEAST_SCORE)
    kept = vision.non_max_suppression(
        rows,
        count,
        places,
        max_output_size=DETECTIONS,
        iou_threshold=_OVERLAP,
        top_k=_CANDIDATES,
        return_indices=False,
        invalid_to_bottom=True,
    )
    return relay.strided_slice(kept, (0, 0, 0), (1, DETECTIONS, 6))


def detector_project(accelerator: Hardware | None) -> byoc_hw.Project:
    """The compiled detector, for an accelerator or a chip or, without one, for the host alone."""
    mod, params = detector()
    if accelerator is None:
        return byoc_hw.build(mod, params, mod_name="shapes")
    partitioned = byoc_hw.partition_for_hwlib(mod, params, mod_name="shapes", accelerator=accelerator)
    return byoc_hw.build(partitioned)


def suppressed_on(project: byoc_hw.Project) -> str:
    """What suppresses the boxes of a compiled detector: an accelerator of a chip by its name, or the host."""
    engines = project.report.engines.items()
    said = next((text for name, text in engines if name.startswith("vision.non_max_suppression")), "on host")
    return said.split(";")[0].removeprefix("on ")


def results_of(project: byoc_hw.Project, scenes: Sequence[Scene], on: str = "host") -> list[byoc_hw.Result]:
    """What a compiled detector gives for each scene."""
    stored = [(scene.pixels.astype(np.int16) - 128).astype(np.int8) for scene in scenes]
    return project.run_batch([[pixels[np.newaxis, :, :, np.newaxis]] for pixels in stored], on=on)


def found_shapes(project: byoc_hw.Project, scenes: Sequence[Scene], on: str = "host") -> list[Array]:
    """What a compiled detector finds in each scene: (12, 6) float32 rows, -1 behind the shapes."""
    return [result.outputs[0][0] for result in results_of(project, scenes, on)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, run and measure; the exit code is 0 if all projects find the same, bit for bit."""
    parser = argparse.ArgumentParser(
        prog="python -m byoc_hw.demo.detector",
        description="Compile the shapes detector for a chip, one accelerator and the host, and measure how good it is.",
        epilog="example: python -m byoc_hw.demo.detector --pictures 300 --on riscv32",
    )
    parser.add_argument("--pictures", type=int, default=100, help="how many pictures to draw (%(default)s)")
    parser.add_argument("--on", choices=("host", "riscv32"), default="host", help="what runs the C (%(default)s)")
    options = parser.parse_args(arguments)
    if options.pictures < 1:
        parser.error(f"--pictures is at least 1: got {options.pictures}")
    try:
        return _demo(options.pictures, options.on)
    except byoc_hw.ByocHwError as error:
        print(f"byoc_hw.demo.detector: error: {error}", file=sys.stderr)
        return 3 if isinstance(error, byoc_hw.ToolchainMissing) else 2


def _demo(count: int, on: str) -> int:
    scenes = drawn_scenes(count, HELDOUT_SEED)
    every = []
    print(f"{count} pictures with {sum(len(scene.kinds) for scene in scenes)} shapes, on {on}")
    for accelerator in (CHIP, DLA, None):
        project = detector_project(accelerator)
        results = results_of(project, scenes, on)
        found = [result.outputs[0][0] for result in results]
        every.append(b"".join(rows.tobytes() for rows in found))
        label = accelerator.label if accelerator else "host alone"
        print(
            f"  {label:<12} mAP {mean_average_precision(scenes, found):.3f}"
            f"  {project.schedule.cycles:>8} accelerator cycles  {project.memory.arena:>7} bytes of RAM"
            f"  suppression on {suppressed_on(project)}{_from_call_to_return(results)}",
            flush=True,
        )
    equal = len(set(every)) == 1
    print("all three find the same, bit for bit" if equal else "they do not find the same")
    return 0 if equal else 1


def _from_call_to_return(results: Sequence[byoc_hw.Result]) -> str:
    """The mean cycles of an inference, with the core's, where the runner counts them."""
    totals = [result.end_to_end.total for result in results if result.end_to_end is not None]
    return f"  {round(sum(totals) / len(totals)):>9} cycles from call to return" if totals else ""


if __name__ == "__main__":
    sys.exit(main())
