"""Modules in QDQ form, whose float operators stand between `qnn.dequantize` and `qnn.quantize`, brought to integers."""
