"""The TVM Relay front end. Only this package and `patterns/` import tvm."""
