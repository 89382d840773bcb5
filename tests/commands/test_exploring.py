"""`python -m byoc_hw explore`: the front, and what cannot be varied."""

import json

import pytest
from command_samples import MODEL

from byoc_hw import __main__ as cli


@pytest.mark.slow
def test_explore_prints_and_draws_the_front(tmp_path, capfd):
    pytest.importorskip("matplotlib", reason="pip install byoc-hw[notebooks]")
    vary = ["--vary", "activation_memory=16K", "--vary", "array=8x8,16x16", "--vary", "packed_rows=true"]
    options = ["--accelerator", "SMALL", "--jobs", "2", "--picture", str(tmp_path / "front.svg")]
    assert cli.main(["explore", MODEL, *vary, *options]) == 0
    out, error = capfd.readouterr()
    assert out.startswith("3 variations of SMALL, ")
    assert "digits_int8" in out.splitlines()[1]
    assert error.splitlines()[1].startswith("2 of 3: activation_memory 16K, array 8x8, packed_rows True: digits_int8 ")
    assert "<svg" in (tmp_path / "front.svg").read_text()
    assert cli.main(["explore", MODEL, "--vary", "host_cycles_per_instruction=0.5", "--json"]) == 0
    plain = json.loads(capfd.readouterr().out)
    assert [entry["changes"] for entry in plain["variations"]] == [{}, {"host_cycles_per_instruction": 0.5}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vary", "dma_width"], "--vary is FIELD=VALUE,..., as in dma_width=4,8: got 'dma_width'"),
        (["--vary", "dma_width=4,x"], "--vary dma_width has values that the field can have: got '4,x'"),
        (["--vary", "array=16"], "--vary array has values that the field can have: got '16'"),
        (["--vary", "packed_rows=yes"], "--vary packed_rows has values that the field can have: got 'yes'"),
        (["--vary", "limits=1"], "limits is no number"),
        (["--vary", "speed=1"], "variations are of fields of"),
        (["--vary", "dma_width=1", "--vary", "dma_width=2"], "--vary has each field once: got dma_width twice"),
        (["--vary", "dma_width=1", "--jobs", "0"], "--jobs is at least 1: got 0"),
        (["--vary", "dma_width=1", "--objective", "joy"], "objective is some of cycles, memory"),
    ],
)
def test_explore_refuses_what_it_cannot_vary(options, message, ended):
    code, error = ended("explore", MODEL, *options)
    assert (code, message in error) == (2, True), error
