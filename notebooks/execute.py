"""Run the notebooks of this folder, with warnings as errors; their outputs go to --output-dir."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
TIMEOUT = 300

# A cell of its own, in front: what TVM warns of when it is imported is not the notebook's.
WARNINGS_ARE_ERRORS = """
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"(tvm|tflite)(\\.|$)")
"""


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs; `nbclient.exceptions.CellExecutionError` where a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(WARNINGS_ARE_ERRORS))
    notebook.cells.append(nbformat.v4.new_code_cell("warnings.simplefilter('default')"))  # the kernel's own, at its end
    NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": HERE}}).execute()
    notebook.cells = notebook.cells[1:-1]
    return notebook


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, required=True)
    output_dir = parser.parse_args(arguments).output_dir
    output_dir.mkdir(parents=True, exist_ok=True)
    for path in sorted(HERE.glob("*.ipynb")):
        nbformat.write(execute(path), output_dir / path.name)
        print(f"{path.name}: ran, {output_dir / path.name} has the outputs")


if __name__ == "__main__":
    main()
