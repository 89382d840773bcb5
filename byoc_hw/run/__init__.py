"""Builds a project, runs its program, and reads the results."""
