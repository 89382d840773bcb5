"""What every function that calls TVM's compiler is decorated with: a lock, and errors of byoc_hw alone.

Planning, writing and running a project need no lock.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tvm.relay.backend import te_compiler

from byoc_hw.frontend.relay.failures import tvm_errors
from byoc_hw.frontend.turns import in_turns

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

# TVM asks how it was built for each dimension of what it lowers, which takes a fifth of the time of a build.
te_compiler.libinfo = functools.cache(te_compiler.libinfo)


def serial(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Makes threads take turns to call the function, and turns TVM's errors to ours."""
    return in_turns(function, tvm_errors)
