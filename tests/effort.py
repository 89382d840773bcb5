"""How many examples a property is tried on: what pays in CI, in proportion more with another hypothesis profile."""

from hypothesis import settings


def examples(count):
    """`count` by default."""
    return max(1, count * settings.default.max_examples // 100)
