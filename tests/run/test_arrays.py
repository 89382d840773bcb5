"""Arrays from .npy files: type, shape and size are checked before anything is read."""

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from byoc_hw.errors import InvalidInput
from byoc_hw.run.files import check_inputs, read_array
from byoc_hw.run.real_values import Interface

IMAGE = Interface("image:0", "int16", (1, 3, 4), 24)
ARRAY = np.arange(12, dtype=np.int16).reshape(1, 3, 4)


def saved(array: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.save(data, array, allow_pickle=True)
    return data.getvalue()


def with_header(text: str) -> bytes:
    header = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize("order", ["C", "F"])
def test_reads_what_numpy_saves(tmp_path: Path, order: str) -> None:
    np.save(tmp_path / "x.npy", np.asarray(ARRAY, order=order))  # type: ignore[call-overload]
    assert np.array_equal(read_array(tmp_path / "x.npy", IMAGE), ARRAY)


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (b"", "is a .npy file with an array"),
        (b"hello, world", "is a .npy file with an array: the magic string is not correct"),
        (saved(ARRAY)[:20], "is a .npy file with an array: EOF"),
        (saved(ARRAY)[:-1], "holds 24 bytes of data: got 23"),
        (saved(ARRAY) + b"x", "holds 24 bytes of data: got 25"),
        (saved(ARRAY.astype("float64")), "dtype is int16: got float64"),
        (saved(ARRAY.astype(">i2")), "dtype is int16: got >i2"),
        (saved(np.array([{}])), "dtype is int16: got object"),
        (saved(ARRAY[0]), r"shape is \(1, 3, 4\): got \(3, 4\)"),
        (with_header(f"{{'descr': '<i2', 'fortran_order': False, 'shape': ({10**12},)}}"), r"got \(1000000000000,\)"),
        (with_header("{'descr': '<i2', 'fortran_order': False, 'shape': (1, 3, 4)}"), "holds 24 bytes of data: got 0"),
        (with_header("{'descr': '<i2', 'fortran_order': False, 'shape': (-1, -3, 4)}"), "shape is"),
        (with_header("{'descr': 'nothing', 'fortran_order': False, 'shape': (1,)}"), "is a .npy file with an array"),
        (with_header("(((("), "is a .npy file with an array"),
        (with_header("__import__('os')"), "is a .npy file with an array"),
        (b"\x93NUMPY\2\0\xff\xff\xff\xff{}", "version of the format is 1.0: got 2.0"),
        (b"\x93NUMPY\x09\0", "version of the format is 1.0: got 9.0"),
    ],
)
def test_says_what_is_wrong_with_a_file(tmp_path: Path, contents: bytes, said: str) -> None:
    (tmp_path / "x.npy").write_bytes(contents)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match=rf"input image:0: .*x\.npy:? ?.*{said}"):
            read_array(tmp_path / "x.npy", IMAGE)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_an_archive_a_directory_and_nothing_are_no_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npy", "w") as archive:
        archive.writestr("x.npy", saved(ARRAY))
    with pytest.raises(InvalidInput, match=r"x\.npy is a \.npy file with an array: the magic string is not correct"):
        read_array(tmp_path / "x.npy", IMAGE)
    with pytest.raises(InvalidInput, match=r"is a \.npy file: it is something else"):
        read_array(tmp_path, IMAGE)
    with pytest.raises(InvalidInput, match=r"is a \.npy file: no such file"):
        read_array(tmp_path / "none.npy", IMAGE)


@pytest.mark.parametrize("inputs", [None, 5, [[[1], [2, 3]]]])
def test_inputs_that_are_no_arrays(inputs: object) -> None:
    with pytest.raises(InvalidInput, match=r"inputs are an array|input image:0 is an array"):
        check_inputs([IMAGE], inputs)  # type: ignore[arg-type]
