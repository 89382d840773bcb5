"""What every function that calls TVM's compiler is decorated with: a lock, and errors of byoc_hw alone.

TVM's function registry and autotuning scope are global to the process. Planning, writing and running a project need
no lock.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from byoc_hw.frontend.relay.failures import tvm_errors

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_TVM = threading.RLock()


def serial(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Makes threads take turns to call the function, and turns TVM's errors to ours. The lock is reentrant."""

    @functools.wraps(function)
    def alone(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with _TVM, tvm_errors():
            return function(*args, **kwargs)

    return alone
