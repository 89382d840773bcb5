"""The templates of generated files."""

from __future__ import annotations

import jinja2

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("byoc_hw.emit"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # C, not HTML: c.py escapes the texts of a model
)


def render(template: str, **context: object) -> str:
    """The text of a template."""
    return _TEMPLATES.get_template(template).render(context)
