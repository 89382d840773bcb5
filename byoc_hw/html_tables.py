"""Small tables in HTML, as a notebook shows objects."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table_html(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table below a line of text. Numbers are on the right, with commas; None is a dash. All text is escaped."""
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    shown = "<br>".join(map(html.escape, title.splitlines()))
    return f"<p>{shown}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    text = "-" if value is None else f"{value:,}" if number else str(value)
    side = "right" if number or value is None or text[:1].isdigit() else "left"
    return f'<td style="text-align:{side}">{html.escape(text)}</td>'
