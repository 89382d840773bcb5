"""Train and quantize the shapes detector: a small int8 network that finds rectangles, discs and triangles.

    OMP_NUM_THREADS=1 python -m byoc_hw.demo.train_shapes

makes `shapes_int8.tflite` beside this script (or in ``--output-dir``), from pictures that `shapes.py` draws, with numpy
alone and in some minutes on one core. Seeds are fixed: a second run on the same machine writes the same bytes, but
another kind of processor may round differently and so train other weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from byoc_hw.demo.shapes import KINDS, SIDE, Scene, drawn_scenes, mean_average_precision, overlaps
from byoc_hw.demo.shapes_file import quantized_file
from byoc_hw.demo.shapes_network import (
    ANCHORS,
    HEADS,
    VARIANCES,
    Parameters,
    anchor_corners,
    backward,
    forward,
    untrained,
)
from byoc_hw.tensor import Array

TRAINING_SEED = 7
SCENES = 8000
TRAINING_STEPS = 3000
SCENES_A_STEP = 24
HIGHEST_RATE = 3e-3

_SMALL, _LARGE = 17, 15
"""Shapes are of the fine anchors up to this size in pixels, and of the coarse ones from this size on."""


def main() -> None:
    """Train, quantize, write the file, and print how good the float network is."""
    parser = argparse.ArgumentParser(description="Make the demo's int8 shapes detector.")
    parser.add_argument("--output-dir", type=Path, default=Path(__file__).parent)
    parser.add_argument("--steps", type=int, default=TRAINING_STEPS)
    options = parser.parse_args()
    scenes = drawn_scenes(SCENES, TRAINING_SEED)
    parameters = trained(scenes, options.steps)
    file = quantized_file(parameters, _real(scenes[:200]))
    options.output_dir.mkdir(parents=True, exist_ok=True)
    (options.output_dir / "shapes_int8.tflite").write_bytes(file)
    held = drawn_scenes(300, TRAINING_SEED + 1)
    found = [_detections(parameters, scene) for scene in held]
    print(f"{len(file)} bytes, mAP of the float network {mean_average_precision(held, found):.3f}")


def trained(scenes: Sequence[Scene], steps: int) -> Parameters:
    """Parameters after so many steps of Adam, with a rate that rises for a while and then falls to zero."""
    rng, parameters = np.random.default_rng(TRAINING_SEED), untrained(TRAINING_SEED)
    targets = [np.stack(each) for each in zip(*map(_targets, scenes), strict=True)]
    real = _real(scenes)
    moments = {name: [(np.zeros_like(one), np.zeros_like(one)) for one in pair] for name, pair in parameters.items()}
    for step in range(1, steps + 1):
        chosen = rng.integers(0, len(scenes), SCENES_A_STEP)
        values = forward(parameters, real[chosen])
        loss, of_heads = _loss(values, *(target[chosen] for target in targets))
        rate = HIGHEST_RATE * min(step / 100, 1) * (1 + np.cos(np.pi * step / steps)) / 2
        for name, gradients in backward(parameters, values, of_heads).items():
            for value, gradient, (mean, square) in zip(parameters[name], gradients, moments[name], strict=True):
                mean += (gradient - mean) * 0.1
                square += (gradient**2 - square) * 0.001
                unbiased = mean / (1 - 0.9**step), square / (1 - 0.999**step)
                value -= (rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-7)).astype(np.float32)
        if step % 200 == 0:
            print(f"step {step}: loss {loss:.3f}", flush=True)
    return parameters


def _real(scenes: Sequence[Scene]) -> Array:
    return np.stack([scene.pixels for scene in scenes])[..., None] / np.float32(255)


# ---------------------------------------------------------------- what the heads are to say


def _targets(scene: Scene) -> tuple[Array, Array, Array]:
    """For each anchor: the kinds that it shows (0 or 1), its weight in that (0: either is right), and its box."""
    corners = anchor_corners() * SIDE
    middles, side = (corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2] - corners[:, 0]
    stride = np.repeat([SIDE / across for across, _ in ANCHORS], [across**2 for across, _ in ANCHORS])
    fine = stride == stride[0]
    kinds = np.zeros((len(corners), len(KINDS)), np.float32)
    weight, boxes = np.ones((len(corners), 1), np.float32), np.zeros((len(corners), 4), np.float32)
    for kind, box in zip(scene.kinds, scene.boxes * SIDE, strict=True):
        middle, extent = (box[:2] + box[2:]) / 2, box[2:] - box[:2]
        size = np.sqrt(extent.prod())
        level = (fine & (size <= _SMALL)) | (~fine & (size >= _LARGE))
        away = np.abs(middles - middle).max(axis=1)
        near = away <= 0.65 * stride
        weight[(away <= 1.2 * stride) & ~(near & level)] = 0
        own = near & level
        kinds[own], weight[own] = np.eye(len(KINDS), dtype=np.float32)[kind], 1
        boxes[own, :2] = (middle - middles[own]) / side[own, None] / VARIANCES[:2]
        boxes[own, 2:] = np.log(extent / side[own, None]) / VARIANCES[2:]
    return kinds, weight, boxes


def _loss(values: dict[str, Array], kinds: Array, weight: Array, boxes: Array) -> tuple[float, dict[str, Array]]:
    """The loss, and its gradients by head: focal for the scores, for the boxes their distance where it is large."""
    scores, found = (_flat([values[name] for name in HEADS[head]]) for head in HEADS)
    shown = kinds.max(axis=2, keepdims=True)
    count = max(float(shown.sum()), 1)
    sign = 2 * kinds - 1
    right = np.clip(1 / (1 + np.exp(-sign * scores)), 1e-6, 1 - 1e-6)
    focus = weight * (1 - right) ** 2
    of_scores = focus * sign * (2 * right * np.log(right) + right - 1) / count
    away = (found - boxes) * shown
    of_boxes = np.clip(away, -1, 1) / count / 4
    distance = np.where(np.abs(away) < 1, away**2 / 2, np.abs(away) - 0.5).sum() / 4
    loss = (float((-focus * np.log(right)).sum()) + float(distance)) / count
    gradients = {"scores": of_scores, "boxes": of_boxes}
    return loss, {
        name: each
        for head, names in HEADS.items()
        for name, each in zip(names, _split(gradients[head], [values[name].shape for name in names]), strict=True)
    }


def _flat(levels: Sequence[Array]) -> Array:
    return np.concatenate([level.reshape(len(level), -1, level.shape[3]) for level in levels], axis=1)


def _split(gradient: Array, shapes: Sequence[tuple[int, ...]]) -> Iterator[Array]:
    first = 0
    for shape in shapes:
        count = shape[1] * shape[2]
        yield gradient[:, first : first + count].reshape(shape).astype(np.float32)
        first += count


# ---------------------------------------------------------------- what it finds


def _detections(parameters: Parameters, scene: Scene) -> Array:
    """Kind, score and box of the shapes that the float network finds: (N, 6)."""
    values = forward(parameters, _real([scene]))
    logits, offsets = (_flat([values[name] for name in HEADS[head]])[0] for head in HEADS)
    scores, corners = 1 / (1 + np.exp(-logits)), anchor_corners()
    sizes = corners[:, 2:] - corners[:, :2]
    middles = (corners[:, :2] + corners[:, 2:]) / 2 + offsets[:, :2] * VARIANCES[:2] * sizes
    half = np.exp(offsets[:, 2:] * VARIANCES[2:]) * sizes / 2
    rows = np.concatenate([scores.argmax(1)[:, None], scores.max(1)[:, None], middles - half, middles + half], axis=1)
    kept: list[Array] = []
    for row in rows[np.argsort(-rows[:, 1])]:
        same = np.array([other[2:] for other in kept if other[0] == row[0]]).reshape(-1, 4)
        if row[1] > 0.05 and not (overlaps(row[2:], same) >= 0.45).any():
            kept.append(row)
    return np.array(kept).reshape(-1, 6)


if __name__ == "__main__":
    main()
