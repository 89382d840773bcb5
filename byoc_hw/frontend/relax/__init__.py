"""The front end of current TVM, whose modules are of Relax. Only this package, `relay/` and `patterns/` import tvm."""

# Before the modules here: when TVM has been imported, they are, to register with it.
import tvm  # noqa: F401
