"""What every function that calls TVM is decorated with: a lock, and errors of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import tvm

from byoc_hw.errors import Unsupported
from byoc_hw.frontend.turns import in_turns

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def one_at_a_time(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Makes threads take turns to call the function, and says of TVM's own errors that they are."""
    return in_turns(function, _tvm_errors)


@contextmanager
def _tvm_errors() -> Iterator[None]:
    try:
        yield
    except tvm.error.InternalError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise Unsupported(f"TVM cannot compile the model: {lines[-1] if lines else error}") from error
