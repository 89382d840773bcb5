"""The offload graph: its boxes, edges and colours, and names that hold anything."""

import shutil

import pytest

from byoc_hw.pattern import Outcome
from byoc_hw.report.explain import Report
from byoc_hw.report.offload_graph import graph_dot, write_graph

ODD = 'a "quoted" \\ name\nof <two> lines\x00'
REPORT = Report(
    "net",
    "SMALL",
    "relay",
    (
        Outcome("conv", ("qnn.conv2d",), "accelerator", ("qnn_conv2d",), ("r",), macs=1000),
        Outcome(ODD, ("nn.softmax",), "host", reads=("conv", "gone")),
    ),
)


def test_a_box_for_each_operator_and_an_edge_for_each_read():
    lines = [line.strip() for line in graph_dot(REPORT).splitlines()]
    assert 'n0 [label="conv\\nqnn_conv2d\\n1,000 MACs", fillcolor="#a5cfa1"];' in lines
    assert [line for line in lines if "->" in line] == ["n0 -> n1;"]
    assert 'key_accelerator [label="accelerator", fillcolor="#a5cfa1", shape=plaintext];' in lines
    assert not any("key_folded" in line for line in lines)


@pytest.mark.skipif(shutil.which("dot") is None, reason="install the package graphviz")
@pytest.mark.parametrize(("suffix", "start"), [(".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_graphviz_draws_it_whatever_the_names_hold(suffix, start, tmp_path):
    write_graph(REPORT, tmp_path / f"graph{suffix}")
    assert (tmp_path / f"graph{suffix}").read_bytes().startswith(start)
