"""Hashes of all generated files, to verify that a change of the compiler does not change its output.

    python benchmarks/generated_files.py --save before.json
    ... change the compiler ...
    python benchmarks/generated_files.py --compare before.json

Covers the projects of the shipped model and of the MLPerf Tiny models, on two accelerators with both
numerics and on the host alone. `--compare` lists each file that differs, is new or is missing, and exits 1
if there is one. Files that are copied unchanged, HWlib and its simulator, are listed once, not per project.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tables import models

import byoc_hw

ACCELERATORS = (byoc_hw.REFERENCE, byoc_hw.SMALL)
NUMERICS = ("relay", "tflite")
COPIED = re.compile(r"hwlib/(?!sim/hwlib_sim_config\.h|include/hwlib_accelerator\.h)")
LISTED = re.compile(rb'\n *"' + COPIED.pattern.encode() + rb'[^"]*",?')
"""Matches the copied files in the file list of a project's metadata."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="the digits model, and those in $BYOC_HW_MODELS")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the hashes there")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="name what differs from the hashes of that file")
    options = parser.parse_args()
    found = dict(hashes(options.models))
    total = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
    print(f"{len(found)} files: {total}")
    if options.save is not None:
        options.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.compare is None:
        return 0
    before = json.loads(options.compare.read_text(encoding="utf-8"))
    differing = [name for name in sorted({*before, *found}) if before.get(name) != found.get(name)]
    for name in differing:
        print(f"  {'new' if name not in before else 'gone' if name not in found else 'differs'}  {name}")
    print(f"{len(differing)} files differ from {options.compare}")
    return 1 if differing else 0


def hashes(given: list[Path]) -> Iterator[tuple[str, str]]:
    """The hash of each file, by project and path."""
    for project, directory in projects(given):
        for file in sorted(path for path in directory.rglob("*") if path.is_file()):
            name, data = file.relative_to(directory).as_posix(), file.read_bytes()
            if name == "metadata.json":
                data = LISTED.sub(b"", data)
            owner = "copied" if COPIED.match(name) else project
            yield f"{owner}: {name}", hashlib.sha256(data).hexdigest()[:16]


def projects(given: list[Path]) -> Iterator[tuple[str, Path]]:
    """Each project by name: model, accelerator and numerics, or the host."""
    for path in models(given):
        mod, params = byoc_hw.load_tflite(path)
        for accelerator in ACCELERATORS:
            for numerics in NUMERICS:
                chosen: dict[str, Any] = {"accelerator": accelerator, "numerics": numerics}
                project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params, **chosen))
                yield f"{path.stem} {accelerator.label} {numerics}", project.directory
        project = byoc_hw.build(mod, params)
        yield f"{path.stem} host", project.directory


if __name__ == "__main__":
    sys.exit(main())
