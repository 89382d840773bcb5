"""Reads the structure of a TFLite file: its tensors and operators, with every offset and length checked.

Needs neither TVM nor TFLite. A damaged file is `InvalidInput`; of what is well formed, but cannot be compiled, each
tensor has the first rule that it `breaks`.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from byoc_hw.errors import InvalidInput
from byoc_hw.names import distinct
from byoc_hw.pattern import BrokenRule
from byoc_hw.tensor import Array, Quantization

MAX_TENSOR_BYTES = 1 << 30
"""No tensor of a model is larger: a shape beyond it is damage, and would be allocated."""

_IDENTIFIER = b"TFL3"
_VERSION = 3
# By number: the name in the schema, and the bytes of an element (0: not what arrays are made of here).
_TYPES = (
    *(("float32", 4), ("float16", 2), ("int32", 4), ("uint8", 1), ("int64", 8), ("string", 0), ("bool", 1)),
    *(("int16", 2), ("complex64", 0), ("int8", 1), ("float64", 0), ("complex128", 0), ("uint64", 0), ("resource", 0)),
    *(("variant", 0), ("uint32", 0), ("uint16", 0), ("int4", 0), ("bfloat16", 0)),
)
_INT8, _INT4 = 9, 17

_PARTS = {49, 88, 102}
"""SPLIT, UNPACK, SPLIT_V: the first of their options is the number of tensors that they make."""

_STATES = {27: (4,), 44: (18, 19)}
"""The inputs of an operator, by its code, that keep a value from one inference to the next.

SVDF's state; UNIDIRECTIONAL_SEQUENCE_LSTM's output and cell state.
"""


@dataclass(frozen=True)
class FileTensor:
    """A tensor of the file. `name` is unique; a tensor without a name has one by its place.

    `constant` says whether the file has its values; `values` are these as an array of `dtype`, None where they are not
    dense or not of a type that arrays are made of. Constants of 4 bits are int8 here. `quantization` is None without a
    scale. `breaks` is the rule that keeps an operator with this tensor from being compiled, and the value found.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool
    quantization: Quantization | None
    breaks: BrokenRule | None
    values: Array | None = field(default=None, compare=False, repr=False)

    @property
    def quantized(self) -> bool:
        """Whether it has a scale."""
        return self.quantization is not None


@dataclass(frozen=True)
class FileOperator:
    """An operator of the file: its builtin code, the name of a custom one, and the numbers of its tensors.

    `name` is made of those of its outputs, as TVM's importer does. An input of -1 is an optional one that is left
    out. `parts` is the number of tensors that a SPLIT or UNPACK makes by its options, None for others. `position`
    is that of its table in the file, `version` that of the operator.
    """

    name: str

    code: int
    custom: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    parts: int | None
    position: int
    version: int


@dataclass(frozen=True)
class TfliteFile:
    """The main sub-graph of a TFLite file.

    `data` is the file, in which constants of 4 bits are int8: neither TVM's importer nor TFLite's interpreter takes
    them for all operators.

    `inputs` and `outputs` are numbers of tensors, in the file's order; behind these come the states and next states of
    operators that keep a value from one inference to the next, as pairs also in `states`. A next state is a tensor
    that the file does not have; its number is behind those of the file. `position` is that of the sub-graph's table,
    `outputs_field` that of the offset which leads to its outputs, `subgraphs` the number of sub-graphs in the file.
    """

    data: bytes
    tensors: tuple[FileTensor, ...]
    operators: tuple[FileOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    position: int
    outputs_field: int
    subgraphs: int
    states: tuple[tuple[int, int], ...] = ()


def read_tflite(path: str | Path) -> TfliteFile:
    """Read a .tflite file. `InvalidInput` names the file and the rule if it cannot be read or is damaged."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL in the path
        raise InvalidInput(f"{path!r}: cannot be read: {error}") from error
    try:
        return _read(data)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


# ---------------------------------------------------------------- model


def _read(data: bytes) -> TfliteFile:
    if data[4:8] != _IDENTIFIER:
        raise InvalidInput(f"is no TFLite model: bytes 4 to 8 are {_IDENTIFIER.decode()}: got {data[4:8]!r}")
    model = _Bytes(data).root()
    version = model.scalar(0, "I")
    if version != _VERSION:
        raise InvalidInput(f"version of the schema is {_VERSION}: got {version}")
    subgraphs = model.tables(2, "sub-graphs")
    if not subgraphs:
        raise InvalidInput("a model has a sub-graph: got none")
    graph = subgraphs[0]
    buffers = [_stored(buffer) for buffer in model.tables(4, "buffers")]
    tables = graph.tables(0, "tensors")
    inputs = _numbers(graph, 1, "inputs", len(tables))
    outputs = _numbers(graph, 2, "outputs", len(tables))
    if not inputs or not outputs:
        raise InvalidInput(f"a model has inputs and outputs: got {len(inputs)} inputs and {len(outputs)} outputs")
    if len(set(inputs)) < len(inputs):
        raise InvalidInput(f"the inputs of a model are different tensors: got numbers {', '.join(map(str, inputs))}")
    names = _names([table.string(3, "name of a tensor") for table in tables], inputs, outputs)
    operators = _operators(model, graph, names)
    computed = {*inputs, *(index for operator in operators for index in operator.outputs)}
    tensors = tuple(
        _tensor(table, name, buffers, index in computed)
        for index, (table, name) in enumerate(zip(tables, names, strict=True))
    )
    outputs_field = graph.position(2)
    assert outputs_field is not None, "there are outputs"
    file = TfliteFile(
        _widened(model, tables, tensors), tensors, operators, inputs, outputs, graph.at, outputs_field, len(subgraphs)
    )
    return _with_states(file, computed)


def _with_states(file: TfliteFile, computed: set[int]) -> TfliteFile:
    """The file with the states of its int8 operators as inputs, and what follows them as outputs of the operators."""
    tensors, operators, states = list(file.tensors), list(file.operators), dict[int, int]()
    for number, operator in enumerate(file.operators):
        places = [place for place in _STATES.get(operator.code, ()) if place < len(operator.inputs)]
        if not operator.inputs or operator.inputs[0] < 0 or tensors[operator.inputs[0]].dtype != "int8":
            continue
        for index in (operator.inputs[place] for place in places):
            if index < 0 or index in computed or index in states or tensors[index].constant:
                continue
            taken = [tensor.name for tensor in tensors]
            states[index] = len(tensors)
            tensors.append(replace(tensors[index], name=distinct([f"{tensors[index].name}_next"], taken)[0]))
            operators[number] = replace(operators[number], outputs=(*operators[number].outputs, states[index]))
    return replace(
        file,
        tensors=tuple(tensors),
        operators=tuple(operators),
        inputs=(*file.inputs, *states),
        outputs=(*file.outputs, *states.values()),
        states=tuple(states.items()),
    )


def _operators(model: _Table, graph: _Table, names: Sequence[str]) -> tuple[FileOperator, ...]:
    codes = [
        (
            max(entry.scalar(0, "b"), entry.scalar(3, "i")),
            entry.string(1, "name of a custom operator"),
            max(entry.scalar(2, "i"), 1),
        )
        for entry in model.tables(1, "operator codes")
    ]
    operators = []
    for number, table in enumerate(graph.tables(3, "operators")):
        code = table.scalar(0, "I")
        if code >= len(codes):
            raise InvalidInput(f"opcode_index of operator {number} is below {len(codes)}: got {code}")
        options = table.table(4, f"options of operator {number}")
        table.table(12, f"options of operator {number}")
        table.vector(5, "u1", f"options of operator {number}")
        inputs = _numbers(table, 1, f"inputs of operator {number}", len(names), first=-1)
        outputs = _numbers(table, 2, f"outputs of operator {number}", len(names))
        name = ", ".join(names[index] for index in outputs) or f"operator {number}"
        parts = options.scalar(0, "i") if options is not None and codes[code][0] in _PARTS else None
        builtin, custom, version = codes[code]
        operators.append(FileOperator(name, builtin, custom, inputs, outputs, parts, table.at, version))
    return tuple(operators)


def _numbers(table: _Table, slot: int, what: str, count: int, first: int = 0) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in table.vector(slot, "<i4", what))
    for number in numbers:
        if not first <= number < count:
            raise InvalidInput(f"{what} are numbers of tensors, {first} to {count - 1}: got {number}")
    return numbers


def _names(given: list[str], inputs: Sequence[int], outputs: Sequence[int]) -> list[str]:
    """A name for each tensor, each once: TVM's importer looks tensors up by name, and the first of a name wins.

    `_param_1` and the like are the importer's own names, for constants.
    """
    by_place = {index: f"tensor_{index}" for index in range(len(given))}
    by_place |= {index: f"output_{place}" for place, index in enumerate(outputs)}
    by_place |= {index: f"input_{place}" for place, index in enumerate(inputs)}
    count = Counter(given)
    taken: set[str] = set()
    names = list(given)
    for index in dict.fromkeys([*inputs, *outputs, *range(len(given))]):  # who calls the model sees these first
        name = given[index]
        if not name or name.startswith("_param_"):
            name = by_place[index]
        stem, number = name, 2
        while name in taken or (name != given[index] and count[name]):
            name, number = f"{stem}_{number}", number + 1
        taken.add(name)
        names[index] = name
    return names


# ---------------------------------------------------------------- tensors

_Rule = tuple[str, str]
"""A rule that is broken, and the value found."""


def _stored(table: _Table) -> Array:
    """The bytes of a buffer: in its place, or behind the model, as in larger files."""
    what = "data of a buffer"
    offset, size = table.scalar(1, "Q"), table.scalar(2, "Q")
    if offset <= 1:
        return table.vector(0, "u1", what)
    table.source.check(offset, size, what)
    return np.frombuffer(table.source.data, np.uint8, size, offset)


def _tensor(table: _Table, name: str, buffers: Sequence[Array], computed: bool) -> FileTensor:
    number = table.scalar(2, "I")
    if number >= len(buffers):
        raise InvalidInput(f"buffer of tensor {name} is below {len(buffers)}: got {number}")
    buffer = buffers[number]
    shape = tuple(int(extent) for extent in table.vector(0, "<i4", f"shape of tensor {name}"))
    kind = table.scalar(1, "b")
    dtype, size = _TYPES[kind] if 0 <= kind < len(_TYPES) else (f"number {kind}", 0)
    quantization, broken_scales = _quantization(table, name, shape)
    sparse = table.table(6, f"sparsity of tensor {name}") is not None
    constant = not computed and len(buffer) > 0
    nibbles = kind == _INT4 and constant and not sparse
    expected = (math.prod(shape) + 1) // 2 if nibbles else math.prod(shape) * size
    dtype, size = ("int8", 1) if nibbles else (dtype, size)
    rules = [
        *_type_rules(dtype, size),
        *_shape_rules(shape, size, computed),
        *_data_rules(len(buffer), None if computed or sparse or not size else expected),
        *broken_scales,
    ]
    if rules:
        broken = BrokenRule(f"tensor {name}: {rules[0][0]}", rules[0][1])
        return FileTensor(name, shape, dtype, constant, quantization, broken)
    dense = _unpacked(buffer, math.prod(shape)) if nibbles else buffer
    values = dense.view(dtype).reshape(shape) if constant and not sparse else None
    return FileTensor(name, shape, dtype, constant, quantization, None, values)


def _unpacked(stored: Array, count: int) -> Array:
    """Values of 4 bits as int8: two in a byte, the first in its low half."""
    halves = np.stack([stored << 4, stored & 0xF0], axis=-1).reshape(-1)[:count]
    return np.asarray(halves.view(np.int8) >> 4)


def _widened(model: _Table, tables: Sequence[_Table], tensors: Sequence[FileTensor]) -> bytes:
    """The file with its constants of 4 bits as int8: their buffers are behind it, and the model leads there."""
    changed = bytearray(model.source.data)
    entries = model.entries(4, "buffers")
    for table, tensor in zip(tables, tensors, strict=True):
        kind = table.position(1)
        if kind is None or changed[kind] != _INT4 or tensor.values is None:
            continue
        changed[kind] = _INT8
        # A list of one field, a table, and what the field leads to, which begins at a multiple of 16 as TFLite's do.
        changed += bytes(-(len(changed) + 20) % 16)
        entry = entries + 4 * table.scalar(2, "I")
        struct.pack_into("<I", changed, entry, len(changed) + 8 - entry)
        changed += struct.pack("<4HiII", 6, 8, 4, 0, 8, 4, tensor.values.size) + tensor.values.tobytes()
    return bytes(changed)


def _type_rules(dtype: str, size: int) -> Iterator[_Rule]:
    if dtype == "int4":
        yield "values of 4 bits are dense constants", "a tensor without values, or a sparse one"
    elif not size:
        yield f"type is one of {', '.join(sorted(name for name, nbytes in _TYPES if nbytes))}", dtype


def _shape_rules(shape: tuple[int, ...], size: int, computed: bool) -> Iterator[_Rule]:
    # The signature of a shape is not looked at: where it leaves an extent open, TFLite takes that of the shape too.
    if any(extent < 0 for extent in shape):
        yield "shape is static", f"{shape}"
    elif computed and 0 in shape:
        yield "extents are at least 1", f"{shape}"
    elif math.prod(shape) * size > MAX_TENSOR_BYTES:
        yield f"bytes are at most {MAX_TENSOR_BYTES}", f"{math.prod(shape) * size}, of shape {shape}"


def _data_rules(stored: int, expected: int | None) -> Iterator[_Rule]:
    if stored and expected is not None and stored != expected:
        yield f"values of its type and shape have {expected} bytes", f"{stored}"


def _quantization(table: _Table, name: str, shape: tuple[int, ...]) -> tuple[Quantization | None, list[_Rule]]:
    """The scales if there are any, and what TFLite's interpreter refuses in them, or TVM's importer."""
    quantization = table.table(4, f"quantization of tensor {name}")
    if quantization is None:
        return None, []
    values = quantization.vector(2, "<f4", f"scales of tensor {name}")
    scales = len(values)
    zero_points = quantization.vector(3, "<i8", f"zero points of tensor {name}")
    axis = quantization.scalar(6, "i")
    rules = []
    if quantization.scalar(4, "B"):
        rules = [("scales are of a tensor, or along a dimension of it", "those of blocks or of another scheme")]
    elif scales != len(zero_points):
        rules = [("there are as many zero points as scales", f"{len(zero_points)} for {scales}")]
    elif scales > 1 and not 0 <= axis < len(shape):
        rules = [(f"quantized_dimension is a dimension of {shape}", f"{axis}")]
    elif scales > 1 and scales != shape[axis]:
        rules = [(f"scales are one, or one for each of {shape[axis]} along dimension {axis}", f"{scales}")]
    elif scales > 1 and zero_points.any():
        rules = [("zero points by channel are 0", f"{zero_points[zero_points.nonzero()][0]}")]
    if not scales:
        return None, rules
    return Quantization(tuple(map(float, values)), tuple(map(int, zero_points)), axis if scales > 1 else None), rules


# ---------------------------------------------------------------- flatbuffer


class _Bytes:
    """The bytes of a flatbuffer. Every read says whose it is, and lies inside the file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        # A file may share what is equal, but tables that overlap without end would take for ever to read.
        self._left = 16 * len(data) + 4096

    def root(self) -> _Table:
        """The table that the first four bytes lead to."""
        return _Table(self, self.unpack("I", 0, "model"), "model")

    def unpack(self, form: str, at: int, what: str) -> Any:
        """One number."""
        self.check(at, struct.calcsize(f"<{form}"), what)
        return struct.unpack_from(f"<{form}", self.data, at)[0]

    def check(self, at: int, nbytes: int, what: str) -> None:
        """`InvalidInput` unless the bytes lie inside the file."""
        if at < 0 or at + nbytes > len(self.data):
            raise InvalidInput(
                f"is damaged: the bytes of {what} are inside the file: got {at} to {at + nbytes} of {len(self.data)}"
            )
        self._left -= nbytes
        if self._left < 0:
            raise InvalidInput(f"is damaged: tables do not overlap: {what} is one too many for {len(self.data)} bytes")


class _Table:
    """A table of a flatbuffer; fields are numbered as in the schema of TFLite."""

    def __init__(self, source: _Bytes, at: int, what: str) -> None:
        self.source, self.at, self.what = source, at, what
        fields = at - source.unpack("i", at, what)
        length = source.unpack("H", fields, what)
        self._inline = source.unpack("H", fields + 2, what)
        if length < 4 or length % 2:
            raise InvalidInput(f"is damaged: {what}: its list of fields has an even length of 4 or more: got {length}")
        source.check(fields, length, what)
        source.check(at, max(self._inline, 4), what)
        self._offsets = struct.unpack_from(f"<{length // 2 - 2}H", source.data, fields + 4)

    def scalar(self, slot: int, form: str) -> Any:
        """A number, 0 where it is left out."""
        at = self._field(slot, struct.calcsize(f"<{form}"))
        return 0 if at is None else self.source.unpack(form, at, self.what)

    def vector(self, slot: int, dtype: str, what: str) -> Array:
        """Numbers of one type, none where they are left out."""
        at = self._target(slot, what)
        if at is None:
            return np.zeros(0, dtype)
        count, size = self.source.unpack("I", at, what), np.dtype(dtype).itemsize
        self.source.check(at + 4, count * size, what)
        return np.frombuffer(self.source.data, dtype, count, at + 4)

    def string(self, slot: int, what: str) -> str:
        """A text, empty where it is left out."""
        text = self.vector(slot, "u1", what).tobytes()
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"is damaged: {what} is UTF-8: got {text[:40]!r}") from error

    def table(self, slot: int, what: str) -> _Table | None:
        """A table, or None where it is left out."""
        at = self._target(slot, what)
        return None if at is None else _Table(self.source, at, what)

    def tables(self, slot: int, what: str) -> list[_Table]:
        """Tables, in order."""
        start = self._target(slot, what)
        if start is None:
            return []
        offsets = self.vector(slot, "<u4", what)
        return [_Table(self.source, start + 4 * (i + 1) + int(offset), what) for i, offset in enumerate(offsets)]

    def entries(self, slot: int, what: str) -> int:
        """Where the first number of a list stands in the file; the list is there."""
        at = self._target(slot, what)
        assert at is not None, f"there are {what}"
        return at + 4

    def position(self, slot: int) -> int | None:
        """Where a field stands in the file, or None where the field is left out."""
        return self._field(slot, 1)

    def _target(self, slot: int, what: str) -> int | None:
        at = self._field(slot, 4)
        return None if at is None else at + int(self.source.unpack("I", at, what))

    def _field(self, slot: int, size: int) -> int | None:
        offset = self._offsets[slot] if slot < len(self._offsets) else 0
        if not offset:
            return None
        if offset < 4 or offset + size > self._inline:
            raise InvalidInput(
                f"is damaged: {self.what}: field {slot} lies inside its table of {self._inline} bytes: "
                f"got bytes {offset} to {offset + size}"
            )
        return self.at + offset
