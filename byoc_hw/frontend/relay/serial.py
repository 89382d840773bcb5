"""One thread at a time: TVM's function registry and its autotuning scope are shared by all threads of a process.

Everything that makes TVM work goes through `serial`. Planning, writing and running a project do not.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_TVM = threading.RLock()


def serial(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The function, called by one thread at a time. It may call others of this kind."""

    @functools.wraps(function)
    def alone(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with _TVM:
            return function(*args, **kwargs)

    return alone
