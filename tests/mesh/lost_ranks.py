"""Runs of a mesh of which a test ends or stops one process."""

import os
import threading
import time
from pathlib import Path

from byoc_hw import RunError


def rank_process(library, own):
    """The process of this test that has loaded a program."""
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if entry.name.isdigit() and parent == own and library in (entry / "maps").read_text():
                return int(entry.name)
        except (OSError, IndexError, ValueError):
            continue
    return None


def failing(mesh, frames, number, how):
    """The error of a run in which the rank of one PE gets a signal."""
    failure = []

    def run():
        try:
            mesh.run(frames, "processes", timeout=1.0)
        except RunError as error:
            failure.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    process, end = None, time.monotonic() + 20
    while process is None and thread.is_alive() and time.monotonic() < end:
        process = rank_process(f"pe{number}.so", os.getpid())
    assert process is not None
    time.sleep(0.2)
    os.kill(process, how)
    thread.join(60)
    assert not thread.is_alive()
    return failure
