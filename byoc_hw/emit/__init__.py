"""Generates the C project from a plan."""
