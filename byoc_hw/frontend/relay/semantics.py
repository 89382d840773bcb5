"""The rounding of TVM's integer operators, wherever TVM compiles one."""

from __future__ import annotations

from typing import Any

from tvm import relay


def golden_semantics() -> Any:
    """The requantize configuration of every TVM build: it defines the golden semantics."""
    return relay.qnn.op.requantize_config(rounding="UPWARD", compute_dtype="int64")
