"""Pictures of a few shapes, drawn with whole numbers by a seed, and how well a detector finds the shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from byoc_hw.tensor import Array

KINDS = ("rectangle", "disc", "triangle")
SIDE = 48
"""Rows and columns of a picture."""

_MOST = 3
_SIZES = 9, 28
_LEAST_CONTRAST = 50
_NOISE = 8


@dataclass(frozen=True)
class Scene:
    """A picture, `pixels` (SIDE, SIDE) uint8, and what is in it: `kinds` (N,), and `boxes` (N, 4).

    Boxes are left, top, right and bottom, from 0 to 1.
    """

    pixels: Array
    kinds: Array
    boxes: Array


def drawn_scenes(count: int, seed: int) -> list[Scene]:
    """Pictures of one to three shapes; the same seed draws the same ones."""
    rng = np.random.default_rng(seed)
    return [_scene(rng) for _ in range(count)]


def _scene(rng: np.random.Generator) -> Scene:
    slope, start = rng.integers(-30, 31, 2), int(rng.integers(60, 196))
    across = np.arange(SIDE)
    pixels = start + (across[:, None] * slope[0] + across[None, :] * slope[1]) // SIDE
    kinds, boxes = [], []
    for box in _apart(rng, int(rng.integers(1, _MOST + 1))):
        kind = int(rng.integers(len(KINDS)))
        inside = _inside(kind, box, bool(rng.integers(2)))
        level = pixels[inside].mean()
        bright = level < _LEAST_CONTRAST or (level < 255 - _LEAST_CONTRAST and bool(rng.integers(2)))
        reach = (255 - level if bright else level) - _LEAST_CONTRAST
        change = _LEAST_CONTRAST + int(rng.integers(0, max(1, int(reach))))
        pixels[inside] = int(level) + (change if bright else -change)
        kinds.append(kind)
        boxes.append(box)
    noisy = np.clip(pixels + rng.integers(-_NOISE, _NOISE + 1, pixels.shape), 0, 255)
    return Scene(noisy.astype(np.uint8), np.array(kinds), np.array(boxes, np.float32) / SIDE)


def _apart(rng: np.random.Generator, count: int) -> Iterator[tuple[int, int, int, int]]:
    """Boxes in pixels that overlap little: fewer than asked for where there is no room."""
    taken: list[tuple[int, int, int, int]] = []
    for _ in range(4 * count):
        width = int(rng.integers(_SIZES[0], _SIZES[1] + 1))
        height = int(np.clip(width * rng.integers(70, 144) // 100, *_SIZES))
        left, top = int(rng.integers(0, SIDE - width + 1)), int(rng.integers(0, SIDE - height + 1))
        box = left, top, left + width, top + height
        if len(taken) < count and all(_shared(box, other) == 0 for other in taken):
            taken.append(box)
            yield box


def _shared(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> int:
    """Pixels that are in both boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0) * max(height, 0)


def _inside(kind: int, box: tuple[int, int, int, int], upright: bool) -> Array:
    """The pixels (SIDE, SIDE) bool of a shape that fills its box."""
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    in_box: Array = (x >= left) & (x < right) & (y >= top) & (y < bottom)
    from_middle, down = 2 * x + 1 - left - right, 2 * y + 1 - top - bottom
    if KINDS[kind] == "disc":
        in_box &= (from_middle * height) ** 2 + (down * width) ** 2 <= (width * height) ** 2
    elif KINDS[kind] == "triangle":
        from_apex = y - top + 1 if upright else bottom - y
        in_box &= abs(from_middle) * height <= from_apex * width
    return in_box


# ---------------------------------------------------------------- how well they are found


def mean_average_precision(scenes: Sequence[Scene], detections: Sequence[Array], overlap: float = 0.5) -> float:
    """The mean over the kinds that there are of the area under precision over recall, from 0 to 1.

    `detections` has an array (N, 6) for each scene: kind, score, left, top, right, bottom; rows of a negative kind
    are none. A detection is right if its `overlap`, intersection over union, with a shape of its kind is large enough,
    and no detection with a higher score has that shape.
    """
    kinds = sorted({int(kind) for scene in scenes for kind in scene.kinds})
    return float(np.mean([_average_precision(scenes, detections, kind, overlap) for kind in kinds]))


def _average_precision(scenes: Sequence[Scene], detections: Sequence[Array], kind: int, overlap: float) -> float:
    found = [
        (float(row[1]), number, row[2:6])
        for number, rows in enumerate(detections)
        for row in rows
        if row[0] == kind  # not the padding, whose kind is -1
    ]
    wanted = [scene.boxes[scene.kinds == kind] for scene in scenes]
    total = sum(map(len, wanted))
    free = [np.ones(len(boxes), bool) for boxes in wanted]
    right = np.zeros(len(found))
    for place, (_, number, box) in enumerate(sorted(found, key=lambda one: -one[0])):
        shared = overlaps(box, wanted[number])
        if len(shared) and shared.max() >= overlap and free[number][shared.argmax()]:
            free[number][shared.argmax()] = False
            right[place] = 1
    recall, precision = right.cumsum() / total, right.cumsum() / np.arange(1, len(right) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]  # at this recall or a higher one
    return float(np.sum(np.diff(recall, prepend=0) * best))


def overlaps(box: Array, boxes: Array) -> Array:
    """Intersection over union of one box with each of several (N, 4)."""
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    both = np.clip(high - low, 0, None).prod(axis=1)
    either = np.prod(box[2:] - box[:2]) + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - both
    return np.asarray(both / np.maximum(either, 1e-9))
