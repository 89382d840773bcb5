"""Rewrites of Relay to the forms that patterns read, before partitioning. Each is exact, and keeps source names."""
