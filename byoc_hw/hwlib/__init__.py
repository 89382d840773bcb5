"""HWlib, its simulator and the HAL test kit in C, and the generators of their configuration headers."""
