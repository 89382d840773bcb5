"""The TVM Relay front end. Only this package and `patterns/` import tvm."""

# Before the modules here: when TVM has been imported, they are, to register with it.
import tvm  # noqa: F401
