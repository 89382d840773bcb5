"""What every function that calls TVM is decorated with: a lock, as TVM's registries are global, and errors of ours."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import tvm

from byoc_hw.errors import Unsupported

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_TVM = threading.RLock()


def one_at_a_time(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Makes threads take turns to call the function, and says of TVM's own errors that they are."""

    @functools.wraps(function)
    def called(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with _TVM:
            try:
                return function(*args, **kwargs)
            except tvm.error.InternalError as error:
                lines = [line.strip() for line in str(error).splitlines() if line.strip()]
                raise Unsupported(f"TVM cannot compile the model: {lines[-1] if lines else error}") from error

    return called
