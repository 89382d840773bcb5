"""Instructions of an rv32imc core for each unit of work. Written by benchmarks/host_costs.py --update."""

from collections.abc import Mapping

INSTRUCTIONS: Mapping[str, Mapping[str, float]] = {
    "add": {
        "guarded": 10.59,
        "input": 36.14,
    },
    "avg_pool2d": {
        "input": 3.06,
        "output": 12.74,
        "padded": 9.75,
        "tap": 10.52,
    },
    "concat": {
        "guarded": 0.12,
        "input": 5.21,
    },
    "conv2d": {
        "channel scale": 10.28,
        "input": 8.37,
        "mac": 9.01,
        "output": 14.47,
        "padded": 9.24,
        "pixel": 29.39,
        "tap": 1.25,
    },
    "dense": {
        "input": 6.82,
        "mac": 10.34,
        "output": 13.89,
        "row": 30.03,
    },
    "depthwise_conv2d": {
        "channel scale": 21.57,
        "guarded": 19.11,
        "input": 11.06,
        "mac": 12.54,
        "output": 19.73,
        "padded": 2.29,
    },
    "gather": {
        "output": 8.57,
    },
    "grouped_conv2d": {
        "channel scale": 36.63,
        "guarded": 8.26,
        "input": 10.37,
        "mac": 9.49,
        "output": 15.86,
        "padded": 3.91,
        "pixel": 328.37,
    },
    "lookup": {
        "guarded": 4.66,
        "input": 7.23,
    },
    "matmul": {
        "call": 71.05,
        "guarded": 21.51,
        "input": 5.77,
        "mac": 5.45,
        "output": 114.38,
    },
    "max_pool2d": {
        "padded": 3.33,
        "pixel": 2.22,
        "tap": 12.77,
    },
    "mul": {
        "guarded": 8.91,
        "input": 21.28,
    },
    "order": {
        "call": 180.88,
        "compared": 67.05,
    },
    "pad": {
        "guarded": 3.74,
        "output": 6.74,
    },
    "resize": {
        "fraction": 22.95,
        "guarded": 3.81,
        "guarded fraction": 258.44,
        "input": 0.82,
        "output": 5.31,
    },
    "slice": {
        "guarded": 2.51,
        "output": 4.79,
    },
    "softmax": {
        "call": 81.13,
        "exponent": 37.17,
        "input": 189.6,
        "row": 70.05,
    },
    "sum_pool2d": {
        "guarded": 12.78,
        "input": 5.46,
        "output": 32.75,
        "window row": 0.14,
    },
    "suppression": {
        "call": 272.19,
        "compared": 63.94,
        "input": 35.19,
        "pair": 15.23,
    },
    "tflite_add": {
        "call": 445.57,
        "input": 39.4,
        "row": 1.43,
    },
    "tflite_avg_pool2d": {
        "call": 676.61,
        "input": 1.2,
        "output": 27.08,
        "pixel": 30.67,
        "tap": 9.86,
        "window row": 7.78,
    },
    "tflite_conv2d": {
        "call": 820.53,
        "channel scale": 4.84,
        "mac": 7.6,
        "output": 72.45,
        "pixel": 84.26,
        "tap": 5.04,
        "window row": 22.15,
    },
    "tflite_dense": {
        "call": 645.98,
        "channel scale": 0.01,
        "mac": 8.0,
        "output": 101.01,
        "row": 160.0,
    },
    "tflite_depthwise_conv2d": {
        "call": 471.76,
        "guarded": 5.11,
        "mac": 22.23,
        "output": 70.52,
        "pixel": 110.59,
        "window row": 18.71,
    },
    "tflite_grouped_conv2d": {
        "call": 687.36,
        "channel scale": 0.65,
        "guarded": 0.25,
        "input": 0.62,
        "mac": 7.34,
        "output": 70.23,
        "pixel": 112.66,
        "tap": 17.01,
        "window row": 14.92,
    },
    "tflite_mul": {
        "call": 283.67,
        "guarded": 0.11,
        "input": 17.49,
        "row": 0.17,
    },
    "tflite_softmax": {
        "exponent": 351.65,
        "guarded": 43.5,
        "row": 306.96,
    },
    "transpose": {
        "guarded": 5.21,
        "input": 5.49,
    },
}
"""Of layers on the host."""

REGIONS: Mapping[str, Mapping[str, float]] = {
    "accelerator": {
        "call": 96.97,
        "copy": 82.1,
        "job": 39.02,
        "layer": 29.28,
        "alone": 220.1,
        "shared": 0.21,
    },
    "chip": {
        "call": 946.69,
        "copy": 303.03,
        "layer": 85.63,
        "wait": 58.86,
        "alone": 2161.0,
        "shared": 0.26,
    },
    "chip with events": {
        "copy": 66.54,
        "event": 30.35,
        "job": 129.0,
        "turn": 106.52,
        "wait": 276.15,
        "alone": 234.3,
        "shared": 0.33,
    },
}
"""Of the core that drives a region."""
