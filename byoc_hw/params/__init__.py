"""Weights and quantization parameters, converted for the hardware at compile time.

`requantize` converts the model's scales to the fixed point of the hardware and folds zero points into
the bias; `pack` writes weights and parameters in the layout that the array reads.
"""
