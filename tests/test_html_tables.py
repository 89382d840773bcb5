"""What a notebook shows: a small table for each object that people see, and a short text."""

import html.parser

import numpy as np
import pytest
from chip_samples import CHIP

import byoc_hw
from byoc_hw.demo import heldout, model_path
from byoc_hw.html_tables import table_html


class Tables(html.parser.HTMLParser):
    """The cells of a table by row; fails for tags that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def objects():
    mod, params = byoc_hw.load(model_path())
    mod = byoc_hw.partition_for_hwlib(mod, params, "digits")
    project = byoc_hw.build(mod)
    result = project.run(heldout().images[:1])
    return {
        "Result": result,
        "Cycles": result.cycles,
        "Memory": project.memory,
        "Validation": byoc_hw.validate(project, heldout().images[:1], mod),
        "Accelerator": byoc_hw.SMALL,
        "Soc": CHIP,
        "Project": project,
        "Summary": project.summary(),
    }


SHOWN = {
    "Result": ("output 0", "int8", "1 x 10"),
    "Cycles": ("depthwise_conv2d",),
    "Memory": ("RAM", "flash"),
    "Validation": ("exact", "output 0"),
    "Accelerator": ("dma_width", "4", "32,768"),
    "Soc": ("npu", "16 x 16"),
    "Project": ("serving_default_image:0", "13 of 14 (93%)"),
    "Summary": ("array",),
}


@pytest.mark.parametrize("name", SHOWN)
def test_each_object_has_a_table_and_a_short_text(name, objects):
    rows = Tables(objects[name]._repr_html_()).rows
    assert len({len(row) for row in rows}) == 1
    cells = {cell for row in rows for cell in row}
    assert set(SHOWN[name]) <= cells
    assert len(repr(objects[name])) <= 160
    assert "\n" not in repr(objects[name])


def test_cycles_in_the_table_add_up(objects):
    _, *rows = Tables(objects["Cycles"]._repr_html_()).rows
    assert sum(int(row[2].replace(",", "")) for row in rows) == objects["Cycles"].total


def test_long_outputs_are_cut():
    result = byoc_hw.Result([np.arange(10000)])
    assert len(result._repr_html_()) < 500


def test_text_is_escaped_and_numbers_are_on_the_right():
    text = table_html("a<b\nc", ["<x>"], [["<script>"], [1234], [None], [True]])
    assert text.startswith("<p>a&lt;b<br>c</p>")
    assert Tables(text).rows == [["<x>"], ["<script>"], ["1,234"], ["-"], ["True"]]
    assert text.count('"text-align:right"') == 2
