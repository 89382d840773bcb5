"""Names, texts and numbers of a model in C: legal, readable, exact."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from byoc_hw.emit import c
from byoc_hw.errors import InvalidInput


@pytest.mark.parametrize(
    ("name", "spelt"),
    [
        ("input_1", "input_1"),
        ("serving_default_x:0", "serving_default_x_0"),
        ("1x1", "n1x1"),
        ("_hidden", "n_hidden"),
        ("int", "int_"),
        ("class", "class_"),
        ("", "n"),
        ("größe", "gr__e"),
    ],
)
def test_spells_names_as_identifiers(name: str, spelt: str) -> None:
    assert c.identifier(name) == spelt


@pytest.mark.slow
@given(st.lists(st.text(max_size=300), max_size=12))
def test_identifiers_are_legal_and_distinct_even_in_upper_case(names: list[str]) -> None:
    spelt = c.unique(names, taken=["status"])
    assert all(re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) and len(name) <= c.MAX_IDENTIFIER for name in spelt)
    assert len({name.upper() for name in [*spelt, "status"]}) == len(names) + 1


def test_the_first_of_colliding_names_keeps_its_spelling() -> None:
    assert c.unique(["a:0", "a/0", "A_O", "b", "a_O_"]) == ["a_0", "a_0_2", "A_O_", "b", "a_O__2"]


HOSTILE = [
    "*/",
    "/*",
    "//",
    "??/",
    "???/",
    "a\\",
    "\n#error",
    "é\u202e",
    "x" * 258,
    "**//",
    "/*/",
    "%s",
    '"',
    "a b" * 90,
]


def compiles(tmp_path: Path, text: str) -> None:
    source = tmp_path / "text.c"
    source.write_text(text)
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-pedantic", "-c", str(source)]
    subprocess.run([*command, "-o", str(tmp_path / "text.o")], check=True)


def test_no_text_ends_a_comment_or_a_string_early(tmp_path: Path) -> None:
    lines = ["#include <stdint.h>"]
    for index, text in enumerate([*HOSTILE, *(one + other for one in HOSTILE for other in HOSTILE)]):
        lines += [c.comment([text]), c.comment(["name", text], indent=2)]
        lines += [f"extern const char text_{index}[];", f"const char text_{index}[] =", *c.string(text), ";"]
    compiles(tmp_path, "\n".join(lines) + "\n")
    assert max(map(len, lines[1].split("\n"))) <= c.WIDTH


@given(st.text(max_size=400), st.integers(0, 8))
def test_comments_stay_within_the_width_and_lose_nothing(text: str, indent: int) -> None:
    spelt = c.comment([text], indent)
    assert all(len(line) <= c.WIDTH for line in spelt.split("\n"))
    assert spelt.isascii()
    assert spelt.count("*/") == 1
    assert spelt.endswith("*/")
    body = re.sub(r"\n *\*(?!/)", "", spelt.strip()[2:-2])
    assert re.sub(r"\s", "", body) == re.sub(r"\s", "", c.plain(text))


def test_a_long_name_appears_whole_in_its_string() -> None:
    name = "model/" + "block;" * 42
    pieces = c.string(name)
    assert len(pieces) > 1
    assert "".join(piece.strip('"') for piece in pieces) == name


@given(
    st.sampled_from(["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float32", "float64"]).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            st.integers(1, 40),
            elements={"allow_nan": False, "allow_infinity": False} if dtype.startswith("float") else None,
        )
    )
)
def test_arrays_hold_exactly_their_values(values: np.ndarray) -> None:
    text = c.array("values", values)
    assert max(map(len, text.splitlines()[1:-1])) <= c.WIDTH
    body = text[text.index("= {") + 3 : text.rindex("}")]
    for lowest, spelt in ((-(2**63), "(-9223372036854775807LL - 1)"), (-(2**31), "(-2147483647 - 1)")):
        body = body.replace(spelt, str(lowest))
    read = [re.sub(r"(u|U?LL|f)$", "", item.strip()) for item in body.split(",")[:-1]]
    kind = float if values.dtype.kind == "f" else int
    assert np.array_equal(np.array([kind(item) for item in read], values.dtype), values)


def test_arrays_of_every_type_compile_at_their_extremes(tmp_path: Path) -> None:
    integers = ("int8", "uint8", "int16", "int32", "int64", "uint32", "uint64")
    arrays = [np.array([0, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype) for dtype in integers]
    arrays += [np.array([0, -0.0, 1, 1e-45, 3.4e38], "float32"), np.array([True, False])]
    text = "".join(c.array(f"array_{index}", values) for index, values in enumerate(arrays))
    uses = " + ".join(f"(int)array_{index}[0]" for index in range(len(arrays)))
    includes = "#include <stdbool.h>\n#include <stdint.h>\n"
    compiles(tmp_path, f"{includes}{text}int use(void);\nint use(void) {{ return {uses}; }}\n")


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_refuses_a_constant_that_c_cannot_spell(value: float) -> None:
    with pytest.raises(InvalidInput, match="finite"):
        c.array("values", np.array([value], np.float32))


def test_refuses_an_empty_array() -> None:
    with pytest.raises(InvalidInput, match="at least one element: nothing has none"):
        c.array("nothing", np.zeros(0, np.int8))
