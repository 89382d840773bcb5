"""Vendors' libraries: what cannot be one is refused when it is made."""

from dataclasses import replace
from pathlib import Path

import pytest

from byoc_hw.errors import InvalidInput
from byoc_hw.graph import Add
from byoc_hw.library_calls import Library, LibraryCall
from byoc_hw.tensor import Tensor


def test_refuses_what_no_library_is():
    with pytest.raises(InvalidInput, match="library: header is a Path: got 'v"):
        Library("v.h", (), {})
    with pytest.raises(InvalidInput, match="library: call of add is a LibraryCall: got 'vadd'"):
        Library(Path("v.h"), (), {"add": "vadd"})
    with pytest.raises(InvalidInput, match="library: cycles of add is a function of the layer, or None: got 5"):
        Library(Path("v.h"), (), {"add": LibraryCall("vadd", lambda layer, operands: [], cycles=5)})
    for change, message in (
        ({"function": "v add"}, "function of add is the name of a C function: got 'v add'"),
        ({"arguments": None}, "arguments of add is a function of the layer: got None"),
        ({"pack": 5}, "pack of add is a function of the layer, or None: got 5"),
    ):
        call = replace(LibraryCall("vadd", lambda layer, operands: []), **change)
        with pytest.raises(InvalidInput, match=message):
            Library(Path("v.h"), (), {"add": call})
    with pytest.raises(InvalidInput, match=r"calls are of layer kinds, conv2d, .*: got 'plus'"):
        Library(Path("v.h"), (), {"plus": LibraryCall("vadd", lambda layer, operands: [])})
    with pytest.raises(InvalidInput, match="library: wait is the name of a C function, or None: got 'v wait'"):
        Library(Path("v.h"), (), {}, wait="v wait")
    with pytest.raises(InvalidInput, match="library: done is of calls that are waited for: wait is None, done 'vdone'"):
        Library(Path("v.h"), (), {}, done="vdone")


def test_refuses_a_cost_that_is_none():
    call = LibraryCall("vadd", lambda layer, operands: [], cycles=lambda layer: -1)
    layer = Add("sum", (), *[Tensor("x", (1, 1, 1, 1))] * 3)
    with pytest.raises(InvalidInput, match="library: cycles of add sum"):
        Library(Path("v.h"), (), {"add": call}).cycles(layer)
