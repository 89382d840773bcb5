"""The import of a TFLite file by a TVM: whole, or without the operators that stop it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.tflite_file import TfliteFile
from byoc_hw.frontend.tflite_stops import TfliteStop, broken_operators, check_model_file
from byoc_hw.pattern import Outcome

_Imported = TypeVar("_Imported")


@dataclass(frozen=True)
class FoundImport(Generic[_Imported]):
    """What an importer made of a file, None if nothing, and the operators that stop it, by number."""

    imported: _Imported | None
    stops: dict[int, TfliteStop]


@dataclass(frozen=True)
class TfliteImport(Generic[_Imported]):
    """A file to import. `supported` are the kinds of operators that the importer has; `run` imports the file without
    some operators, and finds more at which it fails."""

    path: str | Path
    file: TfliteFile
    supported: Collection[str]
    run: Callable[[Mapping[int, TfliteStop]], FoundImport[_Imported]]

    def whole(self) -> _Imported:
        """The import of the whole file; `InvalidInput` names all operators that stop it."""
        found = self._found()
        if found.stops:
            operators = "; ".join(str(stop) for stop in found.stops.values())
            raise InvalidInput(
                f"{self.path}: cannot be imported (explain says what of the rest would be offloaded): {operators}"
            ) from next((stop.cause for stop in found.stops.values() if stop.cause), None)
        assert found.imported is not None, "nothing stops the import"
        return found.imported

    def parts(self) -> tuple[_Imported | None, tuple[str, ...], tuple[Outcome, ...]]:
        """What can be imported: see `byoc_hw.frontend.seam.FrontEnd.importable_tflite`.

        Where an operator is left out, its inputs are outputs of the module, and its outputs are inputs.
        """
        found = self._found()
        # Once more without those at which the importer failed: they left variables behind, and nothing that reads them.
        imported = self.run(found.stops).imported if found.stops else found.imported
        names = tuple(operator.name for operator in self.file.operators)
        return imported, names, tuple(stop.outcome for stop in found.stops.values())

    def _found(self) -> FoundImport[_Imported]:
        """The import, with every operator that stops it: by its description, or because the importer fails."""
        check_model_file(self.path, self.file)
        known = dict(broken_operators(self.file, set(self.supported)))
        found = self.run(known)
        return FoundImport(found.imported, dict(sorted((found.stops | known).items())))
