"""Float modules: read as a network that numpy computes, and written again with quantized values and weights."""
