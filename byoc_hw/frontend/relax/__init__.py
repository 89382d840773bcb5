"""The front end of current TVM, whose modules are of Relax. Only this package, `relay/` and `patterns/` import tvm."""
