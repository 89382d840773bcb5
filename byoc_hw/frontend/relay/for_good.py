"""What TVM calls again and again: it is there until the program ends.

TVM never forgets a function of Python that it was given to call by a name. So what is given for a while is made once,
and never freed: while Python takes its modules apart at the end, TVM would call what is gone.
"""

from __future__ import annotations

from typing import TypeVar

import tvm

_Value = TypeVar("_Value")


def for_good(name: str, value: _Value) -> _Value:
    """A value that is never freed, by a name of its own."""
    tvm.register_func(f"byoc_hw.{name}", lambda: value, override=True)
    return value
