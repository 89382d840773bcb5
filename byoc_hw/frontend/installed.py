"""The TVM of this environment: the one with Relay, the current one with Relax, or none.

Both are imported as `tvm`, so that an environment has one of them. Nothing is imported to find out.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path


def _has(*folders: str) -> bool:
    found = importlib.util.find_spec("tvm")
    places = [] if found is None else found.submodule_search_locations or []
    return any(Path(place, *folders).is_dir() for place in places)


HAS_RELAY = _has("relay")
"""Whether TVM has Relay."""

HAS_RELAX = not HAS_RELAY and _has("relax", "frontend", "tflite")
"""Whether TVM is one of those with Relax alone; older ones have a Relax without an importer of TFLite files."""
