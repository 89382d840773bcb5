"""Quantization after training: a float network to integers, with weights of 8, 4 or 2 bits, on numpy alone."""
