"""Writes a generated table between two marks of a document, such as a README."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from byoc_hw.errors import InvalidInput

END = "<!-- end -->"


def begin(command: str) -> str:
    """The mark before a table: a comment that holds the command that makes it."""
    return f"<!-- {command} -->"


def replaced(text: str, command: str, table: str) -> str:
    """The text with a new table between the mark of its command and the next end mark; `InvalidInput` without marks."""
    before, mark, rest = text.partition(begin(command))
    _, end, after = rest.partition(END)
    if not end:
        raise InvalidInput(f"the file has the marks {begin(command)} and {END}")
    return f"{before}{mark}\n{table}\n{end}{after}"


def update(file: Path, command: str, table: str) -> None:
    """Replace a table in a file."""
    file.write_text(replaced(file.read_text(encoding="utf-8"), command, table), encoding="utf-8")


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; numbers are aligned to the right."""
    body = [[str(cell) for cell in row] for row in rows]
    numeric = [all(_is_number(row[at]) for row in body) for at in range(len(columns))]
    lines = [columns, ["---:" if right else "---" for right in numeric], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).replace(",", "").removesuffix(" x").isdigit()
