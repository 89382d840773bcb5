"""Addresses by lifetime: local memory, a region's scratch, and the arena of a whole model."""
