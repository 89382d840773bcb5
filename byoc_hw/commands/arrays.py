"""Arrays in files: the inputs that a command is given, random ones, and the outputs that it writes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar
from zipfile import BadZipFile

import numpy as np

from byoc_hw.arguments import check_whole
from byoc_hw.errors import InvalidInput
from byoc_hw.names import distinct
from byoc_hw.run.files import read_array
from byoc_hw.run.real_values import Interface
from byoc_hw.run.result import Result
from byoc_hw.tensor import Array
from byoc_hw.whole_file import write_whole

_Value = TypeVar("_Value")


class TensorLike(Protocol):
    """What the values of a tensor are like."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


_LONGEST_NAME = 200
"""Characters of an output's name that are used for its file: file systems take 255 bytes."""


def given_inputs(
    expected: Sequence[Interface], given: Sequence[str], seed: int | None, quantize: bool
) -> dict[str, Array]:
    """The arrays of `--input`, and random ones for the rest if there is a seed; real values with `quantize`."""
    read = [_read(text, [one.real if quantize else one for one in expected]) for text in given]
    arrays = given_once("--input", "input", read)
    if seed is not None:
        rng = _generator(seed)
        # Draw every input, used or not: the random values then do not depend on which inputs were given.
        random = {interface: _random(interface, rng) for interface in expected}
        if quantize:
            random = {one: values if one.scale is None else one.dequantize(values) for one, values in random.items()}
        arrays = {interface.name: values for interface, values in random.items()} | arrays
    return arrays


def given_once(option: str, what: str, pairs: Iterable[tuple[str, _Value]]) -> dict[str, _Value]:
    """The values of an option that may be given again, by name. `InvalidInput` for a name that comes twice."""
    found: dict[str, _Value] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidInput(f"{option} has each {what} once: got {name} twice")
        found[name] = value
    return found


def _generator(seed: int) -> np.random.Generator:
    check_whole("--random", seed, 0)
    return np.random.default_rng(seed)


def given_samples(expected: Sequence[Interface], path: Path) -> list[dict[str, Array]]:
    """The inferences in a file: an .npy file for the only input, or an .npz file with an array for each by name.

    Each array is of one inference, as the input is, or of several one after the other, along a further first axis or
    along the input's own if that has an extent of 1.
    """
    what = "--samples is an .npy file of the only input, or an .npz file with an array for each"
    arrays = loaded_arrays(path, what)
    if isinstance(arrays, np.ndarray):
        if len(expected) != 1:
            raise InvalidInput(f"{what}: the model has {len(expected)} inputs: got one array")
        arrays = {expected[0].name: arrays}
    samples: dict[str, list[Array]] = {}
    for interface in expected:
        if interface.name not in arrays:
            raise InvalidInput(f"{what}: none for {interface.name}: got {', '.join(arrays) or 'nothing'}")
        samples[interface.name] = list(_inferences(arrays[interface.name], interface))
    counts = {name: len(several) for name, several in samples.items()}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InvalidInput(f"--samples has as many inferences for each input: got {text}")
    return [dict(zip(samples, one, strict=True)) for one in zip(*samples.values(), strict=True)]


def loaded_arrays(path: Path, what: str) -> Array | dict[str, Array]:
    """The array of an .npy file, or those of an .npz file by name. Raises `InvalidInput`: `what` is the rule."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InvalidInput(f"{what}: {path}: {error}") from error


def random_samples(expected: Sequence[TensorLike], seed: int, count: int) -> list[dict[str, Array]]:
    """Random inputs of several inferences."""
    rng = _generator(seed)
    return [{interface.name: _random(interface, rng) for interface in expected} for _ in range(count)]


def _inferences(array: Array, interface: Interface) -> Array:
    """An array with a further first axis, of inferences."""
    place, shape = f"--samples: input {interface.name}", interface.shape
    if array.dtype != np.dtype(interface.dtype):
        raise InvalidInput(f"{place}: dtype is {interface.dtype}: got {array.dtype}")
    if array.shape == shape:
        return array[np.newaxis]
    if array.shape[1:] == shape and len(array):
        return array
    if shape[:1] == (1,) and array.shape[1:] == shape[1:] and len(array):
        return array[:, np.newaxis]
    raise InvalidInput(f"{place}: shape is {shape}, or that of several: got {array.shape}")


def save_outputs(interfaces: Sequence[Interface], result: Result, directory: Path) -> None:
    """Write each output to a file `<name>.npy`."""
    directory.mkdir(parents=True, exist_ok=True)
    plain = (re.sub(r"[^A-Za-z0-9_.-]", "_", interface.name)[:_LONGEST_NAME] for interface in interfaces)
    for name, output in zip(distinct(plain, same=str.lower, longest=_LONGEST_NAME), result.outputs, strict=True):
        data = io.BytesIO()
        np.save(data, output)
        write_whole(directory / f"{name}.npy", data.getvalue())


def _read(text: str, expected: Sequence[Interface]) -> tuple[str, Array]:
    # Names come from models and may hold anything, an equals sign too: the longest that fits is meant.
    known = [interface for interface in expected if text.startswith(f"{interface.name}=")]
    if not known:
        names = ", ".join(interface.name for interface in expected)
        raise InvalidInput(f"--input is NAME=FILE.npy with one of the names {names or '(none)'}: got {text!r}")
    interface = max(known, key=lambda interface: len(interface.name))
    return interface.name, read_array(Path(text[len(interface.name) + 1 :]), interface)


def _random(interface: TensorLike, rng: np.random.Generator) -> Array:
    dtype = np.dtype(interface.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(interface.shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, interface.shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, interface.shape, dtype, endpoint=True)
