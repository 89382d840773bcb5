"""Programs that TVM compiles for this machine: an object that is linked and loaded. What TVM compiles in memory it
optimizes, which takes several times as long."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LINKER = "gcc"


def can_link() -> bool:
    """Whether there is a linker."""
    return shutil.which(_LINKER) is not None


def linked(save: Callable[[str], object], create_shared: Callable[..., object], load: Callable[[str], Any]) -> Any:
    """What `load` makes of the library of an object that `save` writes. `create_shared` is TVM's."""
    with tempfile.TemporaryDirectory(prefix="byoc_hw_") as directory:
        compiled, library = (str(Path(directory) / name) for name in ("compiled.o", "compiled.so"))
        save(compiled)
        create_shared(library, [compiled], cc=_LINKER)
        return load(library)
