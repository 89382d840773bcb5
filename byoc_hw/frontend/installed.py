"""The TVM of this environment: the one with Relay, the current one with Relax, or none.

Both are imported as `tvm`, so that an environment has one of them. Nothing is imported to find out.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NoReturn

from byoc_hw.errors import Unsupported


def _has(*folders: str) -> bool:
    found = importlib.util.find_spec("tvm")
    places = [] if found is None else found.submodule_search_locations or []
    return any(Path(place, *folders).is_dir() for place in places)


HAS_RELAY = _has("relay")
"""Whether TVM has Relay."""

HAS_RELAX = not HAS_RELAY and _has("relax", "frontend", "tflite")
"""Whether TVM is one of those with Relax alone; older ones have a Relax without an importer of TFLite files."""


def needs_relay(what: str) -> NoReturn:
    """Raise `Unsupported`: only the TVM with Relay has it."""
    raise Unsupported(
        f"{what} needs the front end of Relay: CPython 3.10 on x86-64 Linux, pip install 'byoc-hw[relay]'"
    )
