"""Descriptions of hardware in files: what is written is read as it was, and what is wrong is named."""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from chip_samples import CHIP
from hypothesis import given
from hypothesis import strategies as st

import byoc_hw
from byoc_hw.accelerator import (
    DIANA_DIGITAL,
    DSP,
    REFERENCE,
    REGISTERS,
    SMALL,
    Accelerator,
    HalInstructions,
    TuningSpace,
)
from byoc_hw.accelerator_file import field_documents, load_accelerator, save_accelerator, toml_of
from byoc_hw.errors import InvalidInput
from byoc_hw.frontend.accelerators import digest_of
from byoc_hw.graph import LAYER_KINDS
from byoc_hw.library_calls import Library, LibraryCall
from byoc_hw.limits import OF_KINDS, WEIGHT_BITS, Limits
from byoc_hw.soc import Soc


def arguments_of(layer, operands):
    return [*operands.inputs, operands.output]


CALL = LibraryCall("vendor_add", arguments_of)
VENDOR = replace(REFERENCE, library=Library(Path("v.h"), (Path("v.c"),), {"add": CALL}), limits={"add": Limits()})
SHARED = Soc((replace(SMALL, name="a"), replace(SMALL, name="b")), shared=(("a", "b"),), events=3, with_events=("a",))
HARDWARE = {
    "REFERENCE": REFERENCE,
    "SMALL": SMALL,
    "DIANA_DIGITAL": DIANA_DIGITAL,
    "DSP": DSP,
    "registers": replace(REFERENCE, hal_instructions=REGISTERS, host_cycles_per_instruction=0.1),
    "one kind": replace(REFERENCE, limits={"add": Limits(batches=None)}),
    "no kind": replace(REFERENCE, limits={}),
    "library": VENDOR,
    "a chip": CHIP,
    "a chip with a DSP": Soc((DIANA_DIGITAL, DSP), label='größe "1" \\ =\''),
    "a chip with events and a shared memory": SHARED,
}


def written_and_read(hardware, path):
    save_accelerator(hardware, path)
    return load_accelerator(path)


@pytest.mark.parametrize("suffix", [".toml", ".json"])
@pytest.mark.parametrize("hardware", HARDWARE.values(), ids=HARDWARE)
def test_what_is_written_is_read_as_it_was(hardware, suffix, tmp_path):
    found = written_and_read(hardware, tmp_path / f"chip{suffix}")
    assert found == hardware
    assert hash(found) == hash(hardware)
    assert digest_of(found) == digest_of(hardware)
    assert repr(found) == repr(hardware)
    assert list(found.limits) == list(hardware.limits)  # in which order they are reported
    save_accelerator(found, tmp_path / f"again{suffix}")
    assert (tmp_path / f"again{suffix}").read_bytes() == (tmp_path / f"chip{suffix}").read_bytes()


numbers = st.lists(st.integers(1, 31), min_size=1, max_size=4).map(tuple)


@st.composite
def limits(draw, kind):
    chosen = Limits(
        max_kernel=draw(st.none() | st.tuples(st.integers(1, 255), st.integers(1, 255))),
        strides=draw(st.none() | numbers),
        dilations=draw(st.none() | numbers),
        batches=draw(st.none() | numbers),
        activation_types=draw(st.lists(st.sampled_from(("int8", "uint8", "float32")), min_size=1).map(tuple)),
        weight_bits=draw(st.none() | st.lists(st.sampled_from(WEIGHT_BITS), min_size=1).map(tuple)),
        accumulator_bits=draw(st.none() | st.integers(1, 64)),
        groups=draw(st.booleans()),
        kernel_parts=draw(st.booleans()),
    )
    others = [what for what, (classes, _) in OF_KINDS.items() if not issubclass(LAYER_KINDS[kind], classes)]
    return replace(chosen, **{what: getattr(Limits(), what) for what in others})


TILED = sorted(LAYER_KINDS.keys() - DSP.whole_cycles.keys())


NAMES = st.from_regex(r"chip_[A-Za-z0-9_]{0,9}", fullmatch=True)


@st.composite
def accelerators(draw, name=NAMES):
    kinds = draw(st.lists(st.sampled_from(TILED), unique=True))
    size = st.integers(1, 2**31 - 1)
    return Accelerator(
        name=draw(name),
        label=draw(st.text(min_size=1, max_size=9).filter(str.isprintable)),
        limits={kind: draw(limits(kind)) for kind in kinds},
        **{what: draw(size) for what in ("job_overhead", "dma_width", "ram")},
        activation_memory=draw(st.integers(64, 1 << 28)),
        dma_alignment=2 ** draw(st.integers(0, 6)),
        packed_rows=draw(st.booleans()),
        host_cycles_per_instruction=draw(st.floats(1e-300, 1e6)),
        hal_instructions=HalInstructions(draw(st.integers(0, 99))),
        roundings=tuple(draw(st.lists(st.sampled_from(("upward", "tflite")), min_size=1, unique=True))),
        tuning=TuningSpace(stripes=(1, draw(st.integers(2, 99))), swap=draw(st.booleans())),
    )


chips = st.tuples(accelerators(st.just("first")), accelerators(st.just("second"))).map(Soc)


@pytest.mark.slow
@given(hardware=accelerators() | chips)
@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_any_description_is_read_as_it_was(hardware, suffix, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / f"chip{suffix}"
    found = written_and_read(hardware, path)
    assert found == hardware
    assert digest_of(found) == digest_of(hardware)


def test_what_is_not_there_has_its_default(tmp_path):
    file = tmp_path / "chip.toml"
    file.write_text('label = "MINE"\nhost_cycles_per_instruction = 2\n[limits.add]\naccumulator_bits = 32\n')
    limits = {"add": Limits(accumulator_bits=32)}
    assert load_accelerator(file) == Accelerator(label="MINE", host_cycles_per_instruction=2.0, limits=limits)


def test_numbers_of_numpy_are_written(tmp_path):
    hardware = replace(REFERENCE, dma_width=np.int64(8))
    assert written_and_read(hardware, tmp_path / "chip.json") == hardware


def test_a_python_file_has_a_value(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import replace\nfrom byoc_hw import DSP\n"
        'def cycles(layer): return 7\nACCELERATOR = replace(DSP, label="MINE", whole_cycles={"order": cycles, '
        '"gather": cycles, "suppression": cycles})\n'
    )
    found = load_accelerator(file)
    assert found.label == "MINE"
    assert found.whole_cycles["gather"](None) == 7
    save_accelerator(found, tmp_path / "mine.toml")
    assert load_accelerator(tmp_path / "mine.toml") == found  # its functions have a name in this process


REFUSED = {
    "misspelt": ("dma_wdith = 4", "dma_wdith is no field of Accelerator: it is dma_width, perhaps"),
    "unknown": ("zzz = 4", "zzz is no field of Accelerator: it is one of name, label, limits"),
    "misspelt limit": ("[limits.add]\nbatch = [1]", "limits.add.batch is no field of Limits: it is batches, perhaps"),
    "unknown kind": ("[limits.conv3d]", "accelerator hwlib: limits are of layer kinds, conv2d, .*: got 'conv3d'"),
    "text for a number": ('dma_width = "4"', "dma_width is a whole number: got '4'"),
    "a half": ("dma_width = 4.5", "dma_width is a whole number: got 4.5"),
    "true for a number": ("dma_width = true", "dma_width is a whole number: got True"),
    "a number for true": ("packed_rows = 1", "packed_rows is true or false: got 1"),
    "out of range": ("dma_width = 0", "accelerator hwlib: dma_width is at least 1: got 0"),
    "not finite": (
        "host_cycles_per_instruction = inf",
        "host_cycles_per_instruction is a finite number above 0: got inf",
    ),
    "no list": ("[limits.add]\nbatches = 1", "limits.add.batches is a list: got 1"),
    "in a list": ('[limits.add]\nbatches = [1, "2"]', r"limits.add.batches\[1\] is a whole number: got '2'"),
    "three extents": ("[limits.conv2d]\nmax_kernel = [1, 2, 3]", "max_kernel is rows and columns: got"),
    "rounding": ('roundings = ["down"]', r"roundings\[0\] is one of upward, tflite: got 'down'"),
    "a table": ("tuning = 3", "tuning is a table of fields: got 3"),
    "within a table": ("[tuning]\nlongest_group = 0", "tuning: tuning space: longest_group is at least 1: got 0"),
    "function": ("[whole_cycles]\norder = 5", "whole_cycles.order is a text: got 5"),
    "no function": ('[whole_cycles]\norder = "order"', "whole_cycles.order is a function as module:name: got 'order'"),
    "missing module": (
        '[whole_cycles]\norder = "no_such:f"',
        "order is a function that can be imported: got 'no_such:f'",
    ),
    "missing name": ('[whole_cycles]\norder = "json:f"', "order is a function that can be imported: got 'json:f'"),
    "missing field": ('[library]\nheader = "v.h"', "library.sources is missing"),
    "no TOML": ("dma_width 4", "chip.toml is TOML in UTF-8: "),
    "a date": ("name = 2020-01-01", "name is a text: got datetime.date"),
    "accelerators": ("accelerators = 1", "accelerators is a list: got 1"),
    "of a chip": ('[[accelerators]]\nname = "a"\ndma_width = 0', r"accelerators\[0\]: accelerator a: dma_width is at"),
    "for a chip": ("dma_width = 4\n[[accelerators]]", "dma_width is no field of Soc"),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_the_file_the_key_the_rule_and_the_value(content, message, tmp_path):
    file = tmp_path / "chip.toml"
    file.write_text(content)
    with pytest.raises(InvalidInput, match=message) as refused:
        load_accelerator(file)
    assert str(refused.value).startswith(str(file))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "it is a table of fields: got"),
        ('{"ram": null}', "ram is a whole number: got None"),
        ('{"ram": NaN}', "a number is finite"),
        ("{", "chip.json is JSON in UTF-8"),
    ],
)
def test_refuses_json_that_is_none(content, message, tmp_path):
    file = tmp_path / "chip.json"
    file.write_text(content)
    with pytest.raises(InvalidInput, match=message):
        load_accelerator(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it has ACCELERATOR, an Accelerator or a Soc: got None"),
        ("ACCELERATOR = 5", "it has ACCELERATOR, an Accelerator or a Soc: got 5"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def", "SyntaxError: "),
    ],
)
def test_refuses_python_without_the_value(content, message, tmp_path):
    file = tmp_path / "chip.py"
    file.write_text(content)
    with pytest.raises(InvalidInput, match=f"chip.py: {message}"):
        load_accelerator(file)


def test_refuses_other_files(tmp_path):
    with pytest.raises(InvalidInput, match=r"ends in one of .toml, .json, .py: got chip.yaml"):
        load_accelerator(tmp_path / "chip.yaml")
    with pytest.raises(InvalidInput, match=r"chip\.toml: .*No such file"):
        load_accelerator(tmp_path / "chip.toml")
    with pytest.raises(InvalidInput, match=r"a file that ends in .toml or .json: got chip.py"):
        save_accelerator(REFERENCE, tmp_path / "chip.py")
    with pytest.raises(InvalidInput, match="accelerator is an Accelerator or a Soc"):
        save_accelerator({}, tmp_path / "chip.toml")


def test_a_function_without_a_name_cannot_be_written(tmp_path):
    hardware = replace(DSP, whole_cycles={**DSP.whole_cycles, "order": lambda layer: 1})
    with pytest.raises(InvalidInput, match=r"whole_cycles\.order is a function that can be imported by its name"):
        save_accelerator(hardware, tmp_path / "chip.toml")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("cls", [Accelerator, Soc, Limits, TuningSpace, HalInstructions, Library, LibraryCall])
def test_every_field_is_documented(cls):
    assert list(field_documents(cls)) == [one.name for one in fields(cls)]
    assert all(text.endswith(".") for text in field_documents(cls).values())


def test_the_file_says_what_its_fields_are():
    lines = toml_of(SMALL).splitlines()
    assert "dma_width = 4                           # Bytes per cycle, each row rounded up." in lines
    assert lines[0] == f"# {SMALL!r}"
    assert 'batches = "any"' in lines


def test_descriptions_are_short_and_comparable():
    assert replace(SMALL) == SMALL
    assert {SMALL: 1}[replace(SMALL)] == 1
    assert replace(SMALL, dma_width=5) != SMALL
    assert all(len(repr(one)) <= 120 for one in HARDWARE.values())


def test_both_kinds_of_file_say_the_same(tmp_path):
    save_accelerator(CHIP, tmp_path / "chip.toml")
    save_accelerator(CHIP, tmp_path / "chip.json")
    assert json.loads((tmp_path / "chip.json").read_text())["accelerators"][1]["name"] == "dsp"
    assert load_accelerator(tmp_path / "chip.toml") == load_accelerator(tmp_path / "chip.json")
    assert byoc_hw.load_accelerator is load_accelerator
