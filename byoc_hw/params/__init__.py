"""What depends on the weights and on the quantization, computed once at compile time.

`requantize` turns the model's scales into the fixed point of the hardware and folds zero points
into the bias; `pack` lays weights and parameters out as the array reads them.
"""
