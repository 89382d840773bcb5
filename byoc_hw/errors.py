"""The errors of the public API. Each message names the object, the rule and the value."""

from __future__ import annotations


class ByocHwError(Exception):
    """Base of every error that byoc_hw raises on purpose."""


class InvalidInput(ByocHwError, ValueError):
    """An argument of a public function breaks its contract; nothing was written."""


class Unsupported(ByocHwError):
    """A construct inside a region, or around it, that cannot be lowered; a host operator that C alone cannot compute.

    Never raised for an operator that only the accelerator does not support: it runs on the host, and the
    report says why.
    """


class GraphError(ByocHwError):
    """A `Graph` breaks one of its own rules; the message names the layer and the rule."""


class PlanError(ByocHwError):
    """No plan fits the memories of the accelerator; the message lists what uses the most bytes."""


class PatternError(ByocHwError):
    """Invalid pattern registration: a duplicate name, an ambiguous order, a bad file."""


class ToolchainMissing(ByocHwError):
    """A compiler or tool is not installed; the message names the package to install."""


class RunError(ByocHwError):
    """The generated program could not be built or failed; the message holds its output."""
