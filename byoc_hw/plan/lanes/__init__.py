"""Regions that run on several accelerators at the same time."""
