"""Instructions of an rv32imc core for each unit of work. Do not edit: benchmarks/host_costs.py --update writes it."""

from collections.abc import Mapping

INSTRUCTIONS: Mapping[str, Mapping[str, float]] = {
    "conv2d": {
        "channel scale": 19.82,
        "input": 14.63,
        "mac": 8.53,
        "tap": 3.17,
        "window row": 7.49,
    },
    "tflite_conv2d": {
        "call": 753.33,
        "channel scale": 1.44,
        "input": 1.31,
        "mac": 7.66,
        "output": 70.02,
        "row": 90.68,
        "tap": 4.37,
        "window row": 27.37,
    },
    "grouped_conv2d": {
        "channel scale": 12.05,
        "input": 15.87,
        "mac": 8.96,
        "output": 37.31,
        "padded": 11.81,
        "window row": 5.02,
    },
    "tflite_grouped_conv2d": {
        "call": 507.0,
        "channel scale": 3.19,
        "mac": 7.79,
        "output": 73.11,
        "padded": 1.25,
        "pixel": 115.94,
        "tap": 13.23,
        "window row": 15.43,
    },
    "depthwise_conv2d": {
        "call": 68.85,
        "channel scale": 26.17,
        "input": 13.99,
        "mac": 7.73,
        "output": 17.77,
        "padded": 5.58,
        "pixel": 83.35,
        "window row": 12.2,
    },
    "tflite_depthwise_conv2d": {
        "call": 756.68,
        "mac": 22.97,
        "output": 81.42,
        "padded": 2.06,
        "pixel": 91.08,
        "window row": 9.72,
    },
    "dense": {
        "guarded": 31.72,
        "mac": 8.91,
    },
    "tflite_dense": {
        "call": 640.96,
        "guarded": 101.07,
        "mac": 8.0,
        "row": 159.99,
    },
    "matmul": {
        "input": 3.2,
        "mac": 5.89,
        "output": 126.38,
        "row": 105.11,
    },
    "add": {
        "call": 589.05,
        "input": 41.58,
        "row": 7.72,
    },
    "tflite_add": {
        "call": 406.46,
        "guarded": 0.22,
        "input": 39.29,
    },
    "mul": {
        "input": 25.98,
        "row": 5.58,
    },
    "tflite_mul": {
        "call": 310.73,
        "input": 17.5,
        "row": 0.11,
    },
    "avg_pool2d": {
        "input": 6.22,
        "output": 19.82,
        "padded": 3.13,
        "tap": 9.44,
    },
    "tflite_avg_pool2d": {
        "call": 658.53,
        "input": 0.23,
        "output": 28.96,
        "pixel": 29.56,
        "tap": 10.18,
        "window row": 8.65,
    },
    "max_pool2d": {
        "guarded": 4.13,
        "padded": 4.27,
        "pixel": 51.96,
        "tap": 11.64,
    },
    "sum_pool2d": {
        "input": 5.38,
        "output": 36.29,
    },
    "lookup": {
        "guarded": 3.4,
        "input": 7.36,
    },
    "tflite_softmax": {
        "call": 1805.42,
        "exponent": 458.98,
    },
    "concat": {
        "call": 1.63,
        "input": 5.15,
    },
    "slice": {
        "guarded": 4.42,
        "output": 5.16,
    },
    "pad": {
        "guarded": 5.56,
        "input": 2.31,
        "output": 5.37,
        "row": 16.75,
    },
    "resize": {
        "call": 125.03,
        "fraction": 2.07,
        "guarded": 5.66,
        "input": 1.55,
        "output": 2.87,
        "row": 21.21,
    },
    "transpose": {
        "guarded": 5.33,
        "input": 5.08,
    },
}
"""Of layers on the host."""

REGIONS: Mapping[str, Mapping[str, float]] = {
    "accelerator": {
        "call": 400.0,
        "copy": 64.0,
        "job": 60.0,
        "wait": 20.0,
        "layer": 60.0,
        "alone": 520.0,
    },
    "chip": {
        "call": 2500.0,
        "copy": 200.0,
        "job": 200.0,
        "alone": 800.0,
    },
    "chip, one at work": {
        "call": 800.0,
        "copy": 80.0,
        "job": 80.0,
        "wait": 20.0,
        "alone": 800.0,
    },
}
"""Of the core that drives a region."""
