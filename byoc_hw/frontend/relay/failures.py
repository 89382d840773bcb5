"""TVM's errors as errors of byoc_hw: the safety net under every call of TVM's compiler.

What can be checked before TVM runs is checked in `checks.py`, in words about the model. Whatever fails inside TVM all
the same becomes a `TvmFailed` here, with the operator where TVM says it, and TVM's own error as its cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import tvm
from tvm.ir import diagnostics

from byoc_hw.errors import ByocHwError, Unsupported
from byoc_hw.frontend.relay.for_good import for_good
from byoc_hw.frontend.relay.sources import source_names


class TvmFailed(Unsupported):
    """TVM could not do with a model what it was asked to; `said` is its reason, in one line."""

    def __init__(self, said: str, operator: str = "") -> None:
        where = f"{operator}: " if operator else ""
        super().__init__(f"{where}TVM cannot compile it: {said}" if where else f"TVM cannot compile the model: {said}")
        self.said, self.operator = said, operator


@contextmanager
def tvm_errors() -> Iterator[None]:
    """Turns each error from inside TVM to a `TvmFailed`; errors of byoc_hw, raised in its callbacks, pass unchanged.

    TVM writes diagnostics of a model to the terminal. Here they become part of the message.
    """
    with _collected() as found:
        try:
            yield
        except ByocHwError:
            raise
        except Exception as error:  # TVM raises errors of every class: its own, and Python's from C++
            operator, said = found[0] if found else ("", _reason(error))
            raise TvmFailed(said, operator) from error


@contextmanager
def _collected() -> Iterator[list[tuple[str, str]]]:
    """The diagnostics of errors that TVM emits meanwhile, in order: operator, or "", and message."""
    former = tvm.get_global_func(_RENDERER, allow_missing=True)
    tvm.register_func(_RENDERER, _GIVES_RENDERER, override=True)
    _collecting.append([])
    try:
        yield _collecting[-1]
    finally:
        _collecting.pop()
        if former is None:
            diagnostics.override_renderer(None)
        else:
            tvm.register_func(_RENDERER, former, override=True)


_collecting: list[list[tuple[str, str]]] = []
"""What each call of TVM's compiler that is under way has collected: the last one is the one that TVM is at."""


def _render(context: diagnostics.DiagnosticContext) -> None:
    for diagnostic in context.diagnostics:
        if int(diagnostic.level) <= diagnostics.DiagnosticLevel.ERROR:
            names = source_names(diagnostic.span)
            _collecting[-1].append((", ".join(names), _one_line(str(diagnostic.message))))


_RENDERER = "diagnostics.OverrideRenderer"
_OUR_RENDERER = for_good("renderer", diagnostics.DiagnosticRenderer(_render))
_GIVES_RENDERER = for_good("gives_renderer", tvm.runtime.convert(lambda: _OUR_RENDERER))


def _reason(error: Exception) -> str:
    """The reason in one line, without TVM's C++ traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = next((line for line in lines if _NAMED.match(line)), lines[-1] if lines else "")
    said = _one_line(_CHECK.sub("", _NAMED.sub("", first)))
    name = type(error).__name__
    return said if said and isinstance(error, tvm.TVMError) else f"{name}: {said}" if said else name


_NAMED = re.compile(r"^\w*Error: +")
_CHECK = re.compile(r"^Check failed: .*?(?: is false: |\) : ?)(?=\S)")
_LONGEST = 300


def _one_line(text: str) -> str:
    text = " ".join(text.split()).removesuffix(":")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
