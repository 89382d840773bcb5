"""Python's garbage collector runs seldom while a model is compiled.

A graph and its plans are hundreds of thousands of small objects, hardly any of them garbage in a circle, and the
collector visits all of them again and again: that is a fifth of the compile time, and frees nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS = 1_000_000
"""New objects after which the collector runs; Python's own number is 700."""

_lock = threading.Lock()
_running: list[tuple[int, int, int]] = []
"""For each compilation that runs, the thresholds as they were when none did."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Let the collector run seldom; then as before, once no compilation of another thread runs either."""
    with _lock:
        usual = _running[0] if _running else gc.get_threshold()
        _running.append(usual)
        if 0 < usual[0] < _OBJECTS:  # 0: it is off
            gc.set_threshold(_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        with _lock:
            _running.pop()
            if not _running:
                gc.set_threshold(*usual)
