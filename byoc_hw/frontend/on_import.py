"""Waits for the import of another package: to register with TVM, who does not use TVM need not import it. And lets one
wait that may never be used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType


def when_imported(name: str, act: Callable[[], None]) -> None:
    """Call `act` once the package has been imported: now, if it has been, else at the end of its import."""
    if name in sys.modules:
        act()
    else:
        sys.meta_path.insert(0, _Watch(name, act))


def load_late(name: str) -> None:
    """Have a module of a package that is installed loaded at the first look at what it holds."""
    package, _, last = name.rpartition(".")
    spec = find_spec(name) if find_spec(package) and name not in sys.modules else None
    if spec is not None and spec.loader is not None:
        spec.loader = LazyLoader(spec.loader)
        module = module_from_spec(spec)
        sys.modules[name] = module
        setattr(sys.modules[package], last, module)
        spec.loader.exec_module(module)


class _Watch(MetaPathFinder):
    """Finds the package as the others do, and acts behind what its loader runs."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name, self._act = name, act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in others if spec is not None), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_act(module: ModuleType) -> None:
                run(module)
                sys.meta_path.remove(self)
                self._act()

            vars(spec.loader)["exec_module"] = run_and_act  # of this one loader
        return spec
