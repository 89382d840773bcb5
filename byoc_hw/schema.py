"""Reads JSON and TOML files that a person or a damaged disk may have changed: every value is checked before it is used.

A schema is a function that checks a value, made from those below. `accepted` names the file, the field, the
rule and the value. Members of a record that its schema does not have are ignored.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from byoc_hw.errors import InvalidInput

Schema = Callable[[Any, str], None]
"""Checks a value, given the name of its field. Raises `InvalidInput`."""

LARGEST_COUNT = 2**48
"""More bytes, cycles or elements than any accelerator has."""


def read_json(path: Path, most: int) -> Any:
    """The value in a JSON file of at most `most` bytes. `InvalidInput` for any other file, with what is wrong."""
    return parsed_file(path, most, "JSON", lambda text: json.loads(text, parse_constant=_no_number))


def parsed_file(path: Path, most: int, language: str, parse: Callable[[str], Any]) -> Any:
    """What `parse` makes of a file in UTF-8 of at most `most` bytes. `InvalidInput` for any other file."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput(f"{path} is a file: got something else")
        if status.st_size > most:
            raise InvalidInput(f"{path} has at most {most} bytes: got {status.st_size}")
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a byte of 0
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        return parse(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is {language} in UTF-8: {error}") from error


def accepted(path: Path, value: Any, schema: Schema, field: str = "") -> Any:
    """The value itself, once it fits the schema; else `InvalidInput`, which names the file."""
    try:
        schema(value, field)
    except InvalidInput as error:
        raise InvalidInput(f"{path} is damaged: {error}") from error
    return value


def refuse(field: str, rule: str, value: object) -> NoReturn:
    """Raise the error of a value that breaks a rule."""
    shown = repr(value)
    raise InvalidInput(f"{field or 'it'} is {rule}: got {shown if len(shown) <= 80 else shown[:77] + '...'}")


def anything(value: Any, field: str) -> None:
    """Any value: for what is not read here."""


def boolean(value: Any, field: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        refuse(field, "true or false", value)


def integer(low: int = 0, high: int = LARGEST_COUNT) -> Schema:
    """A whole number from `low` to `high`."""

    def check(value: Any, field: str) -> None:
        if type(value) is not int:
            refuse(field, "a whole number", value)
        if not low <= value <= high:
            refuse(field, f"a whole number from {low} to {high}", value)

    return check


def text(value: Any, field: str) -> None:
    """A text that can be written as UTF-8."""
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        refuse(field, "a text", value)


def number_from(low: float, high: float) -> Schema:
    """A number from `low` to `high`."""

    def check(value: Any, field: str) -> None:
        if type(value) not in (int, float) or not low <= value <= high:
            refuse(field, f"a number from {low:g} to {high:g}", value)

    return check


def text_or_integer(value: Any, field: str) -> None:
    """A text or a whole number."""
    (text if isinstance(value, str) else integer(-LARGEST_COUNT))(value, field)


def matching(pattern: str, rule: str) -> Schema:
    """A text that a regular expression matches as a whole."""

    def check(value: Any, field: str) -> None:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            refuse(field, rule, value)

    return check


def one_of(*values: str) -> Schema:
    """One of some texts."""

    def check(value: Any, field: str) -> None:
        if not isinstance(value, str) or value not in values:
            refuse(field, f"one of {', '.join(values)}", value)

    return check


def nullable(schema: Schema) -> Schema:
    """None, or what fits the schema."""
    return lambda value, field: None if value is None else schema(value, field)


def list_of(schema: Schema) -> Schema:
    """A list, each value of which fits the schema."""

    def check(value: Any, field: str) -> None:
        if not isinstance(value, list):
            refuse(field, "a list", value)
        for index, one in enumerate(value):
            schema(one, f"{field}[{index}]")

    return check


def row(*schemas: Schema) -> Schema:
    """A list with one value for each schema."""

    def check(value: Any, field: str) -> None:
        if not isinstance(value, list) or len(value) != len(schemas):
            refuse(field, f"a list of {len(schemas)} values", value)
        for index, (one, schema) in enumerate(zip(value, schemas, strict=True)):
            schema(one, f"{field}[{index}]")

    return check


def table_of(schema: Schema, names: Schema = text) -> Schema:
    """Values by name."""

    def check(value: Any, field: str) -> None:
        if not isinstance(value, dict):
            refuse(field, "a record", value)
        for name, one in value.items():
            names(name, f"a name in {field}")
            schema(one, f"{field}.{name}")

    return check


def structure(fields: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """The named fields, and perhaps the optional ones."""

    def check(value: Any, field: str) -> None:
        if not isinstance(value, dict):
            refuse(field, "a record", value)
        within = f"{field}." if field else ""
        for name, schema in fields.items():
            if name not in value:
                raise InvalidInput(f"{within}{name} is missing")
            schema(value[name], f"{within}{name}")
        for name, schema in (optional or {}).items():
            if name in value:
                schema(value[name], f"{within}{name}")

    return check


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"a number is finite: got {constant}")
