"""Imports TFLite files as Relay modules; any invalid file is one clear error."""

from __future__ import annotations

from pathlib import Path

import tflite
import tvm
from tvm import relay

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.relay.serial import serial

_IDENTIFIER = slice(4, 8)  # file identifier of a flatbuffer, after the root offset


@serial
def load_tflite(path: str | Path) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """Read a .tflite file: a Relay module and its weights by name.

    Raises `InvalidInput` for a file that cannot be read, is no TFLite model, or holds an operator that
    TVM's importer does not support.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    if data[_IDENTIFIER] != b"TFL3":
        raise InvalidInput(f"{path}: is no TFLite model: bytes 4 to 8 are TFL3: got {data[_IDENTIFIER]!r}")
    try:
        mod, params = relay.frontend.from_tflite(tflite.Model.GetRootAsModel(data, 0))
    except Exception as error:  # a damaged flatbuffer can raise any error in the importer
        raise InvalidInput(f"{path}: cannot be imported: {type(error).__name__}: {error}") from error
    return mod, params
