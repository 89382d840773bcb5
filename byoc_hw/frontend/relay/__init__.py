"""TVM Relay. With `patterns/`, the only room that imports tvm."""
