"""The runner's tests run the programs that the emitter's tests are made of."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "emit"))
