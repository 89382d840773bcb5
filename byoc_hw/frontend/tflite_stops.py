"""The operators of a TFLite file that no importer of TVM takes, by the description of the file alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tflite

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.tflite_file import FileOperator, TfliteFile
from byoc_hw.pattern import BrokenRule, Outcome, Rejection

_OPERATORS: dict[int, str] = {
    code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)
}
_DETECTION = "TFLite_Detection_PostProcess"
"""The one custom operator that TVM's importer knows."""
_OPTIONAL = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), 2),
    **{"TRANSPOSE_CONV": 3, "UNIDIRECTIONAL_SEQUENCE_LSTM": 1, "SVDF": 3},
}
"""The first input that may be left out."""


@dataclass(frozen=True)
class TfliteStop:
    """An operator that cannot be imported, the rule and the value, and the importer's own error if it raised one."""

    kind: str
    name: str
    broken: BrokenRule
    cause: Exception | None = None

    def __str__(self) -> str:
        return f"{self.kind} ({self.name}): {self.broken}"

    @property
    def outcome(self) -> Outcome:
        """The operator in a report."""
        return Outcome(self.name, (), "stops", rejections=(Rejection(self.kind, (self.broken,)),))


def check_model_file(path: str | Path, file: TfliteFile) -> None:
    """`InvalidInput` for what no operator stands for."""
    control = {"WHILE", "IF", "CALL", "CALL_ONCE"}
    if file.subgraphs > 1 and not any(operator_kind(operator) in control for operator in file.operators):
        raise InvalidInput(f"{path}: cannot be imported: a model has one sub-graph: got {file.subgraphs}")
    computed = {*file.inputs, *(index for operator in file.operators for index in operator.outputs)}
    for index in file.outputs:
        if index not in computed:
            raise InvalidInput(f"{path}: cannot be imported: output {file.tensors[index].name} is computed: it is not")
    used = {index for operator in file.operators for index in (*operator.inputs, *operator.outputs)}
    for index in (*file.inputs, *file.outputs):
        broken = file.tensors[index].breaks
        if broken is not None and index not in used:
            raise InvalidInput(f"{path}: cannot be imported: {broken}")


def operator_kind(operator: FileOperator) -> str:
    """The name of a builtin operator in the schema."""
    return _OPERATORS.get(operator.code) or f"operator {operator.code}"


def broken_operators(file: TfliteFile, supported: set[str]) -> Iterator[tuple[int, TfliteStop]]:
    """The operators that break a rule, by number, with the first rule. `supported` are those of the importer."""
    computed = set(file.inputs)
    for number, operator in enumerate(file.operators):
        rules = (*_operator_rules(operator, supported), *_tensor_rules(file, operator, computed))
        if rules:
            yield number, TfliteStop(operator_kind(operator), operator.name, rules[0])
        computed.update(operator.outputs)


def _operator_rules(operator: FileOperator, supported: set[str]) -> Iterator[BrokenRule]:
    """The rules that an operator breaks by itself."""
    kind = operator_kind(operator)
    if operator.code not in _OPERATORS:
        yield BrokenRule(f"operator is one of the schema, 0 to {max(_OPERATORS)}", f"{operator.code}, of a newer one")
    elif kind == "CUSTOM" and operator.custom != _DETECTION:
        yield BrokenRule(f"custom operator is {_DETECTION}", repr(operator.custom))
    elif kind not in supported and kind != "CUSTOM":
        yield BrokenRule("operator is one that TVM's TFLite importer has", f"code {operator.code}")
    if not operator.outputs:
        yield BrokenRule("operator has an output", "none")
    if operator.parts is not None and operator.parts != len(operator.outputs):
        yield BrokenRule(f"operator makes {len(operator.outputs)} tensors, its outputs", f"{operator.parts}")
    left_out = [number for number, index in enumerate(operator.inputs) if index < 0]
    if left_out and left_out[0] < _OPTIONAL.get(kind, len(operator.inputs)):
        yield BrokenRule(f"input {left_out[0]} is given", "none")


def _tensor_rules(file: TfliteFile, operator: FileOperator, computed: set[int]) -> Iterator[BrokenRule]:
    """The rules that an operator breaks with its tensors. `computed` are the numbers of those computed before."""
    inputs = [index for index in operator.inputs if index >= 0]
    for index in (*inputs, *operator.outputs):
        broken = file.tensors[index].breaks
        if broken is not None:
            yield broken
    for index in inputs:
        if index not in computed and not file.tensors[index].constant:
            # Variables that keep a value between inferences are such tensors too.
            yield BrokenRule(
                "operator reads inputs, constants and results of operators before it", file.tensors[index].name
            )
    for place, index in enumerate(operator.outputs):
        if index in computed or index in operator.outputs[:place]:
            yield BrokenRule("a tensor is computed once", f"{file.tensors[index].name} again")
    # The activations of such an operator are quantized at run time.
    quantized = [index for index in (*inputs, *operator.outputs) if file.tensors[index].quantized]
    if quantized and not {*inputs[:1], *operator.outputs}.intersection(quantized):
        weights = ", ".join(file.tensors[index].name for index in quantized)
        yield BrokenRule("activations are quantized if weights are", f"quantized {weights} alone")


def importer_said(error: Exception) -> str:
    """The last line with text of an error: TVM's begin with a trace of its C++."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
