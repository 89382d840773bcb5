"""Turns of threads at TVM: its function registry and autotuning scope are global to the process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_TVM = threading.RLock()


def in_turns(
    function: Callable[_Parameters, _Result], errors: Callable[[], AbstractContextManager[None]]
) -> Callable[_Parameters, _Result]:
    """The function, which threads take turns to call, inside of what turns TVM's errors to ours. The lock is
    reentrant."""

    @functools.wraps(function)
    def alone(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with _TVM, errors():
            return function(*args, **kwargs)

    return alone
