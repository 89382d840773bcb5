"""The version of byoc_hw, read by the build and written into every project."""

__version__ = "0.1.0"
