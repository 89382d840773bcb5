"""Compares a project with a reference layer by layer: the first layer that differs, where, and by how much."""

from __future__ import annotations

import csv
import io
import json
import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from byoc_hw.arguments import check_number, check_type
from byoc_hw.compiler import front_end
from byoc_hw.errors import InvalidInput, ToolchainMissing
from byoc_hw.frontend.seam import LayerReference
from byoc_hw.frontend.tflite_file import TfliteFile, read_tflite
from byoc_hw.html_tables import table_html
from byoc_hw.project import Project
from byoc_hw.report.cycles import short_name
from byoc_hw.report.explain import following_tvm
from byoc_hw.run.files import Inputs
from byoc_hw.run.result import Result
from byoc_hw.run.toolchain import Toolchain
from byoc_hw.tensor import Array

TFLITE_RUNTIME = "tflite-runtime==2.14.0"
"""The build of TFLite whose reference kernels numerics="tflite" equals; other builds give other results."""


@dataclass(frozen=True)
class Difference:
    """One layer or model output that differs from the reference.

    `inference` is the number of the first inference in which it differs, `index`, `found` and `expected`
    belong to the first element that differs there. `count` elements of `elements`, over all inferences,
    differ, and `largest` is the largest absolute difference. `id` is the layer's number in the generated
    code, None for an output.
    """

    name: str
    id: int | None
    kind: str
    inference: int
    index: tuple[int, ...]
    found: float
    expected: float
    count: int
    elements: int
    largest: float

    def __str__(self) -> str:
        what = self.name if self.id is None else f"layer {self.id} ({self.kind} {self.name})"
        place = ", ".join(map(str, self.index))
        return (
            f"{what} at [{place}] of inference {self.inference}: got {self.found:g}, expected {self.expected:g}; "
            f"{self.count} of {self.elements} elements differ, by up to {self.largest:g}"
        )


@dataclass(frozen=True)
class Comparison:
    """How near one layer or model output is to the reference, over all inferences.

    `differing` of `elements` elements are not equal, by more than the tolerance, `largest` is the largest absolute
    difference, `rms` the root of the mean of the squared differences. `cosine` is that of the angle between both as
    vectors: 1 for the same direction; None where one of them is all zeros and the other is not.
    """

    name: str
    id: int | None
    kind: str
    differing: int
    elements: int
    largest: float
    rms: float
    cosine: float | None

    @property
    def exact(self) -> bool:
        """Whether all elements are equal."""
        return self.largest == 0 and not self.differing


@dataclass(frozen=True)
class Validation:
    """The outcome of a comparison: true if nothing differs.

    `differences` are in the order of execution. Look at the first: the others may follow from it.
    `compared` has the names of what was compared, `unseen` those of the accelerator's layers that could
    not be compared, because the run or the reference does not show their output. `tvm_arithmetic` has the operators
    of a project with numerics "tflite" that follow TVM's arithmetic on the host: there, results may differ from
    TFLite's. `comparisons` has the figures of each layer and output that was compared; `table()` shows them.
    """

    inferences: int
    compared: tuple[str, ...]
    unseen: tuple[str, ...]
    differences: tuple[Difference, ...]
    tvm_arithmetic: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything that was compared is equal."""
        return not self.differences

    @property
    def first(self) -> Difference | None:
        """The first layer, in the order of execution, that differs."""
        return self.differences[0] if self.differences else None

    def __bool__(self) -> bool:
        return self.ok

    def headline(self) -> str:
        """Whether everything is equal, and how much was compared."""
        scope = f"{len(self.compared)} layers and outputs in {self.inferences} inferences"
        return f"equal: {scope}" if self.ok else f"{len(self.differences)} of {scope} differ"

    def __repr__(self) -> str:
        unseen = f", {len(self.unseen)} layers unseen" if self.unseen else ""
        return f"<Validation {self.headline()}{unseen}>"

    def __str__(self) -> str:
        return "\n".join([self.summary(), *(f"  then {difference}" for difference in self.differences[1:])])

    def summary(self) -> str:
        """The headline, and the first difference."""
        unseen = f" ({len(self.unseen)} layers could not be compared)" if self.unseen else ""
        first = [f"first {self.first}"] if self.first else []
        return "\n".join([*self._before(), f"{self.headline()}{unseen}", *first])

    def table(self) -> str:
        """A row for each layer and output: how near it is to the reference."""
        rows = [_HEADINGS, *map(_cells, self.comparisons)]
        return "\n".join(_ROW.format(*row).rstrip() for row in rows)

    def to_csv(self) -> str:
        """The comparisons as a table: a line of headings, and one for each layer and output."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(one.name for one in fields(Comparison))
        writer.writerows(vars(one).values() for one in self.comparisons)
        return text.getvalue()

    def to_json(self) -> str:
        """All of it as JSON, by the names of the fields."""
        return json.dumps(asdict(self), indent=2)

    def _repr_html_(self) -> str:
        return table_html(self.summary(), _HEADINGS, map(_cells, self.comparisons))

    def _before(self) -> Iterator[str]:
        """What is known before anything is compared."""
        if self.tvm_arithmetic:
            yield f"{following_tvm(len(self.tvm_arithmetic))}: {', '.join(self.tvm_arithmetic)}"


_ROW = "  {:<36}  {:<16}  {:>10}  {:>10}  {:>10}  {:>10}  {:>9}"
_HEADINGS = ("layer", "kind", "elements", "differing", "largest", "RMS", "cosine")


def _cells(one: Comparison) -> tuple[str, ...]:
    numbers = (
        ("exact", "", "", "")
        if one.exact
        else (
            f"{one.differing:,}",
            f"{one.largest:g}",
            f"{one.rms:.4g}",
            "-" if one.cosine is None else f"{one.cosine:.6f}",
        )
    )
    return (short_name(one.name), one.kind, f"{one.elements:,}", *numbers)


class _Sums:
    """Sums over the elements of one layer, from which its figures follow."""

    def __init__(self, what: Difference) -> None:
        self.what, self.elements, self.largest = what, 0, 0.0
        self.squares = self.product = self.here = self.there = 0.0

    def add(self, here: Array, there: Array) -> None:
        found, expected = (values.astype(np.float64).ravel() for values in (here, there))
        apart = found - expected
        self.elements += apart.size
        self.largest = max(self.largest, float(np.abs(apart).max(initial=0)))
        self.squares += float(apart @ apart)
        self.product += float(found @ expected)
        self.here += float(found @ found)
        self.there += float(expected @ expected)

    def comparison(self, differing: int) -> Comparison:
        norms = math.sqrt(self.here) * math.sqrt(self.there)
        cosine = self.product / norms if norms else None
        if not self.squares:
            cosine = 1.0  # the quotient may be another by its rounding
        rms = math.sqrt(self.squares / self.elements) if self.elements else 0.0
        figures = (differing, self.elements, self.largest, rms, cosine)
        return Comparison(self.what.name, self.what.id, self.what.kind, *figures)


def validate(
    project: Project,
    inputs: Inputs | Sequence[Inputs],
    reference: object,
    *,
    on: str = "host",
    tolerance: float = 0,
    timeout: float = 120.0,
    toolchain: Toolchain = Toolchain(),
) -> Validation:
    """Run a project and a reference on the same inputs and compare every layer that both have.

    `inputs` are those of one inference by name or as one array, or a list of inferences, each as
    `Project.run` takes it. `reference` is the module that `partition_for_hwlib` returned (TVM's own
    answer), the path of a TFLite file (TFLite's, see `TfliteReference`), or an object with `run` and
    `layers`. `on`, `timeout` (seconds) and `toolchain` are those of `Project.run_batch`. On a HAL of
    your own each job is waited for and its output copied out of local memory, so that every layer is
    compared there too. Absolute differences up to `tolerance` do not count.

    Raises `InvalidInput` for a reference of another model, and what `Project.run_batch` raises.
    """
    check_type("project", project, Project, "a Project")
    check_number("tolerance", tolerance, positive=False)
    check_type("inputs", inputs, np.ndarray | Mapping | Sequence, "the inputs of one inference, or a list of those")
    check_type("toolchain", toolchain, Toolchain, "a Toolchain")
    inferences = [inputs] if isinstance(inputs, np.ndarray | Mapping) else list(inputs)
    if not inferences:
        raise InvalidInput("inputs are of at least one inference: got none")
    answers, called = _reference(reference, project)
    results = project.run_batch(inferences, on, trace=True, timeout=timeout, toolchain=toolchain)
    found: dict[str, Difference] = {}
    compared: dict[str, _Sums] = {}
    for number, (arrays, result) in enumerate(zip(inferences, results, strict=True)):
        outputs = answers.run([arrays] if isinstance(arrays, np.ndarray) else arrays)
        for what, here, there in _pairs(project, result, outputs, answers.layers(), called):
            compared.setdefault(what.name, _Sums(what)).add(here, there)
            _note(found, replace(what, inference=number), here, there, tolerance)
    layers = [layer["name"] for layer in project.layers if layer["region"]]
    unseen = tuple(name for name in layers if name not in compared)
    differing = tuple(found[name] for name in compared if name in found and found[name].count)
    marked = tuple(outcome.name for outcome in project.report.tvm_arithmetic)
    comparisons = tuple(sums.comparison(found[name].count) for name, sums in compared.items())
    return Validation(len(inferences), tuple(compared), unseen, differing, marked, comparisons)


def _reference(reference: object, project: Project) -> tuple[LayerReference, str]:
    """What gives the values to compare with, and what the project's model is called there."""
    if isinstance(reference, str | Path):
        return TfliteReference(reference), project.mod_name
    if hasattr(reference, "run") and hasattr(reference, "layers"):
        return reference, project.mod_name
    known = front_end().partitioned(reference)
    if known is None:
        raise InvalidInput("reference is a module that partition_for_hwlib made, a .tflite file or an object with run")
    return front_end().reference(reference), known.mod_name


def _pairs(
    project: Project, result: Result, expected: Sequence[Array], layers: Mapping[str, Array], called: str
) -> Iterator[tuple[Difference, Array, Array]]:
    """Values of the project and of the reference: the layers in order, then the outputs. `called` is the name of the
    reference's model, of which layers may be in other regions: `build` places layers, also on the host.

    Values that the project does not compute, as nobody reads them, are those of the reference.
    """
    own, theirs = (f"tvmgen_{name}_" for name in (project.mod_name, called))
    found = {**_by_name(layers, theirs), **layers}
    trace, outputs = result.trace or {}, result.outputs
    owners = {name: layer["id"] for layer in project.layers for name in _names(layer)}  # of several, the last
    for layer in project.layers:
        name = layer["name"]
        region = theirs + str(layer["region"]).removeprefix(own)
        keys = [f"{region}:{name}", *(key for key in _names(layer) if owners[key] == layer["id"])]
        there = next((found[key] for key in keys if key in found), None)
        if layer["region"] is None or there is None or layer["id"] not in trace:
            continue
        data = trace[layer["id"]]
        if len(data) != there.nbytes:
            raise InvalidInput(f"layer {name}: the reference has {there.nbytes} bytes: the project {len(data)}")
        if there.dtype == np.uint8 and layer["kind"] != "lookup":  # a region computes it as int8, 128 less
            there = (there.astype(np.int16) - 128).astype(np.int8)
        axes = layer.get("axes") or range(there.ndim)
        if len(axes) != there.ndim:
            continue  # a reference that gives another number of dimensions: which is which is not known
        lies, back = [there.shape[axis] for axis in axes], np.argsort(axes)  # perhaps in another order than the model's
        here = np.frombuffer(data, there.dtype).reshape(lies).transpose(back)
        if layer["id"] in result.computed:
            computed = result.computed[layer["id"]].reshape(*lies, there.itemsize).all(-1).transpose(back)
            here = np.where(computed, here, there)
        yield _nothing(name, layer["id"], layer["kind"]), here, there
    if len(outputs) != len(expected):
        raise InvalidInput(f"the reference has {len(expected)} outputs: the project {len(outputs)}")
    for index, (here, there) in enumerate(zip(outputs, expected, strict=True)):
        if here.shape != there.shape:
            raise InvalidInput(f"output {index}: the reference has shape {there.shape}: the project {here.shape}")
        yield _nothing(f"output {index}", None, "output"), here, there


def _by_name(layers: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The values of the layers of regions by their names alone, but for names that several have."""
    names = {key: key.partition(":")[2] for key in layers if key.startswith(prefix)}
    count = Counter(names.values())
    return {name: layers[key] for key, name in names.items() if count[name] == 1}


def _names(layer: Mapping[str, Any]) -> tuple[str, ...]:
    """What a layer may be called: its name, and its operators of the model file, whose value their last layer has."""
    return (layer["name"], *reversed(layer["source"]))


def _nothing(name: str, number: int | None, kind: str) -> Difference:
    return Difference(name, number, kind, 0, (), 0, 0, 0, 0, 0)


def _note(found: dict[str, Difference], what: Difference, here: Array, there: Array, tolerance: float) -> None:
    """Count the elements that differ; the index is of the first inference that differs."""
    apart = np.abs(here.astype(np.float64) - there.astype(np.float64))
    wrong = ~(apart <= tolerance)  # a NaN differs too
    known = found.get(what.name, what)
    if wrong.any() and not known.count:
        index = tuple(int(at) for at in np.argwhere(wrong)[0])
        known = replace(what, index=index, found=here[index].item(), expected=there[index].item())
        known = replace(known, elements=found[what.name].elements if what.name in found else 0)
    largest = float(apart[wrong].max(initial=0))
    found[what.name] = replace(
        known,
        count=known.count + int(wrong.sum()),
        elements=known.elements + here.size,
        largest=max(known.largest, largest),
    )


# ---------------------------------------------------------------- TFLite


class TfliteReference:
    """Runs a TFLite file with TFLite's own reference kernels. Layers have the names of their tensors.

    So that every layer can be read, a copy of the model in memory has every operator's output among its
    outputs. TFLite's `experimental_preserve_all_tensors` is not enough: an addition still overwrites its
    first input. Raises `ToolchainMissing` without tflite-runtime, `InvalidInput` if the file cannot be read or
    TFLite's interpreter refuses it.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            from tflite_runtime.interpreter import Interpreter, OpResolverType
        except ImportError as error:
            raise ToolchainMissing(f"tflite_runtime is not installed: install the package {TFLITE_RUNTIME}") from error
        self._path, self._file = path, read_tflite(path)
        written = [*self._file.outputs, *(index for one in self._file.operators for index in one.outputs)]
        following = {index for _, index in self._file.states}
        shown = [index for index in dict.fromkeys(written) if index not in following]
        self._names = {index: self._file.tensors[index].name for index in shown}
        content = _with_outputs(self._file, shown)
        try:
            self._interpreter = Interpreter(
                model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
            )
            self._interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise self._refused(error) from error

    def run(self, inputs: Inputs) -> list[Array]:
        """Outputs in the file's order. Inputs are given by name, as a list in the file's order, or as one array."""
        read = {*self._file.outputs, *(index for one in self._file.operators for index in one.inputs)}
        expected = {self._file.tensors[index].name: index for index in self._file.inputs if index in read}
        if not isinstance(inputs, Mapping):
            given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(given) != len(expected):
                raise InvalidInput(f"{self._path}: the model takes {len(expected)} inputs: got {len(given)}")
            inputs = dict(zip(expected, given, strict=True))
        for name in expected:
            if name not in inputs:
                raise InvalidInput(f"{self._path}: input {name} is given: got {', '.join(inputs) or 'nothing'}")
        try:
            for name, index in expected.items():
                self._interpreter.set_tensor(index, inputs[name])
            self._interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            raise self._refused(error) from error
        states = {following: state for state, following in self._file.states}
        return [self._interpreter.get_tensor(states.get(index, index)) for index in self._file.outputs]

    def layers(self) -> dict[str, Array]:
        """Output of every operator of the last run, by the name of its tensor."""
        return {name: self._interpreter.get_tensor(index) for index, name in self._names.items()}

    def _refused(self, error: Exception) -> InvalidInput:
        return InvalidInput(f"{self._path}: TFLite's interpreter refuses it: {' '.join(str(error).split())}")


def _with_outputs(file: TfliteFile, outputs: Sequence[int]) -> bytes:
    """The file with other outputs: they are written at its end, and the model's offset of its outputs leads there."""
    changed = bytearray(file.data)
    changed += bytes(-len(changed) % 4)
    struct.pack_into("<I", changed, file.outputs_field, len(changed) - file.outputs_field)
    changed += struct.pack(f"<I{len(outputs)}i", len(outputs), *outputs)
    return bytes(changed)
