"""A plan in, C files out."""
