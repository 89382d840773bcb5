"""The offload graph: the operators of a model file and what they read, coloured by where they run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from byoc_hw.errors import RunError, ToolchainMissing
from byoc_hw.pattern import Outcome
from byoc_hw.report.explain import Report
from byoc_hw.whole_file import write_whole

_COLOURS = {
    "accelerator": "#a5cfa1",
    "host": "#f4b37c",
    "split": "#f1dc8f",
    "folded": "#dddddd",
    "stops": "#e99596",
}
_NAME = 34


def graph_dot(report: Report) -> str:
    """The graph in the language of Graphviz: a box for each operator, an edge to each that reads it."""
    numbers = {outcome.name: number for number, outcome in enumerate(report.outcomes)}
    places = [place for place in _COLOURS if any(outcome.placement == place for outcome in report.outcomes)]
    lines = [
        "digraph offload {",
        '  graph [fontname="Helvetica", fontsize=11, labelloc=t, ranksep=0.25, nodesep=0.2];',
        '  node [shape=box, style=filled, color="#606060", fontname="Helvetica", fontsize=10];',
        '  edge [color="#606060", arrowsize=0.6];',
        f"  label={_quoted(report.title)};",
    ]
    lines += [f'  key_{place} [label="{place}", fillcolor="{_COLOURS[place]}", shape=plaintext];' for place in places]
    for outcome in report.outcomes:
        colour = _COLOURS[outcome.placement]
        lines.append(f'  n{numbers[outcome.name]} [label={_label(outcome)}, fillcolor="{colour}"];')
    for outcome in report.outcomes:
        lines += [f"  n{numbers[name]} -> n{numbers[outcome.name]};" for name in outcome.reads if name in numbers]
    return "\n".join([*lines, "}", ""])


def write_graph(report: Report, path: Path) -> None:
    """Write the graph as .dot, or have Graphviz draw it as .svg, .png or .pdf.

    Raises `ToolchainMissing` without Graphviz, `RunError` where it fails, `InvalidInput` for a file that cannot be
    written.
    """
    text = graph_dot(report).encode()
    if path.suffix == ".dot":
        write_whole(path, text)
        return
    dot = shutil.which("dot")
    if dot is None:
        raise ToolchainMissing("dot is not installed: install the package graphviz, or write a .dot file")
    done = subprocess.run([dot, f"-T{path.suffix[1:]}"], input=text, capture_output=True, check=False)
    if done.returncode:
        raise RunError(f"dot fails: {done.stderr.decode(errors='replace').strip()}")
    write_whole(path, done.stdout)


def _label(outcome: Outcome) -> str:
    first = outcome.name.split(";")[0]
    name = first if len(first) <= _NAME else f"...{first[3 - _NAME :]}"
    what = ", ".join(outcome.composites) or ", ".join(outcome.relay[:2])
    amount = f"\n{outcome.macs:,} MACs" if outcome.macs else ""
    return _quoted(f"{name}\n{what}{amount}")


def _quoted(text: str) -> str:
    """A string of Graphviz, in which a name may hold anything."""
    plain = "".join(one if one.isprintable() or one == "\n" else "?" for one in text)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
