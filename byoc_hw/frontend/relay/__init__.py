"""The TVM Relay front end. Only this package and `patterns/` import tvm."""

from byoc_hw.frontend.on_import import load_late

load_late("scipy.stats")  # which TVM imports for its own quantizer: half a second

# Before the modules here: when TVM has been imported, they are, to register with it.
import tvm  # noqa: E402, F401
