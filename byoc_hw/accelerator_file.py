"""Descriptions of hardware as files: TOML and JSON are read and written, a Python file is read.

A file has the fields of `Accelerator`, or of `Soc` where it has `accelerators`; a field that is not there has its
default. A limit that does not apply, although its default does, is the text "any". Functions (`whole_cycles`,
those of a `Library`) are named where they can be imported: "my_chip.costs:order_cycles". Paths are relative to
where the compiler runs.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tomli

from byoc_hw.accelerator import Accelerator
from byoc_hw.arguments import check_type
from byoc_hw.errors import InvalidInput
from byoc_hw.library_calls import Library, LibraryCall
from byoc_hw.limits import Limits
from byoc_hw.schema import boolean, integer, list_of, number_from, parsed_file, read_json, refuse, text
from byoc_hw.soc import Hardware, Soc
from byoc_hw.whole_file import write_whole

PYTHON_VALUE = "ACCELERATOR"
"""The name of the value that a Python file has."""

FILES = (".toml", ".json", ".py")
"""The suffixes of files that are read; the last one is not written."""

_LARGEST = 1 << 20
"""Bytes of a file."""

_ANY = "any"

_TERSE = (Limits, Library, LibraryCall)
"""What is written without the fields that have their defaults."""

_COMMENTS = 40
"""The column of comments in TOML."""


def load_accelerator(path: str | Path) -> Hardware:
    """Read an `Accelerator` or a `Soc` from a .toml, .json or .py file.

    A .py file is executed, and has the value `ACCELERATOR`. Raises `InvalidInput` with the file, the key, the rule and
    the value.
    """
    check_type("path", path, str | Path, "a path")
    path = Path(path)
    read = {".toml": _read_toml, ".json": lambda path: read_json(path, _LARGEST), ".py": _executed}.get(path.suffix)
    if read is None:
        raise InvalidInput(f"an accelerator's file ends in one of {', '.join(FILES)}: got {path.name}")
    found = read(path)
    try:
        if isinstance(found, Hardware):
            return found
        if not isinstance(found, dict):
            refuse("", "a table of fields", found)
        cls = Soc if "accelerators" in found else Accelerator
        made: Hardware = _record(found, cls, "")
        return made
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


def save_accelerator(accelerator: Hardware, path: str | Path) -> None:
    """Write an `Accelerator` or a `Soc` to a .toml or .json file, from which `load_accelerator` makes an equal one.

    Raises `InvalidInput` for another suffix, for a function that cannot be imported by its name, and where the file
    cannot be written.
    """
    check_type("accelerator", accelerator, Hardware, "an Accelerator or a Soc")
    check_type("path", path, str | Path, "a path")
    path = Path(path)
    if path.suffix not in FILES[:-1]:
        raise InvalidInput(f"an accelerator is written to a file that ends in .toml or .json: got {path.name}")
    plain = _plain(accelerator, "")
    shown = json.dumps(plain, indent=2) + "\n" if path.suffix == ".json" else toml_of(accelerator)
    write_whole(path, shown.encode())


# ---------------------------------------------------------------- from files


def _read_toml(path: Path) -> Any:
    return parsed_file(path, _LARGEST, "TOML", tomli.loads)


def _executed(path: Path) -> Any:
    """What a Python file has as `ACCELERATOR`. The file is a module, so that its functions have a place."""
    spec = importlib.util.spec_from_file_location(f"byoc_hw_accelerator_{path.stem}", path)
    assert spec is not None, "the suffix is that of Python"
    assert spec.loader is not None, "the suffix is that of Python"
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise InvalidInput(f"{path}: {type(error).__name__}: {error}") from error
    found = getattr(module, PYTHON_VALUE, None)
    if not isinstance(found, Hardware):
        raise InvalidInput(f"{path}: it has {PYTHON_VALUE}, an Accelerator or a Soc: got {found!r}")
    return found


def _record(plain: Any, cls: Any, where: str) -> Any:
    """A dataclass of the values by field."""
    if not isinstance(plain, dict):
        refuse(where, "a table of fields", plain)
    known, hints = {one.name: one for one in fields(cls)}, get_type_hints(cls)
    within = f"{where}." if where else ""
    for name in plain:
        if name not in known:
            nearest = get_close_matches(name, known, 1)
            meant = f"{nearest[0]}, perhaps" if nearest else f"one of {', '.join(known)}"
            raise InvalidInput(f"{within}{name} is no field of {cls.__name__}: it is {meant}")
    for name, one in known.items():
        if name not in plain and not _has_default(one):
            raise InvalidInput(f"{within}{name} is missing")
    values = {name: _value(value, hints[name], f"{within}{name}") for name, value in plain.items()}
    try:
        return cls(**values)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}" if where else str(error)) from error


def _value(plain: Any, hint: Any, where: str) -> Any:
    """The value of a field, by its type."""
    hint = _without_none(hint)
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    if is_dataclass(kind):
        return _record(plain, kind, where)
    if kind is tuple:
        return _tuple(plain, arguments, where)
    if kind is Mapping:
        if not isinstance(plain, dict):
            refuse(where, "a table", plain)
        return {name: _value(one, arguments[1], f"{where}.{name}") for name, one in plain.items()}
    if kind is Callable:
        return _function(plain, where)
    if kind is Literal:
        if plain not in arguments:
            refuse(where, f"one of {', '.join(arguments)}", plain)
        return plain
    check, made = _SIMPLE[kind]
    check(plain, where)
    return made(plain)


_SIMPLE: Mapping[Any, tuple[Callable[[Any, str], None], Callable[[Any], Any]]] = {
    bool: (boolean, bool),
    int: (integer(-(2**63), 2**63), int),
    float: (number_from(float("-inf"), float("inf")), float),
    str: (text, str),
    Path: (text, Path),
}


def _tuple(plain: Any, arguments: tuple[Any, ...], where: str) -> tuple[Any, ...] | None:
    if plain == _ANY or plain is None:
        return None
    list_of(lambda value, field: None)(plain, where)
    return tuple(_value(one, arguments[0], f"{where}[{index}]") for index, one in enumerate(plain))


def _function(plain: Any, where: str) -> Callable[..., Any]:
    text(plain, where)
    module, colon, name = plain.partition(":")
    if not colon:
        refuse(where, "a function as module:name", plain)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"{where} is a function that can be imported: got {plain!r}: {error}") from error
    if not callable(found):
        refuse(where, "a function", plain)
    return found  # type: ignore[no-any-return]


def _without_none(hint: Any) -> Any:
    if not isinstance(hint, UnionType):
        return hint
    return next(one for one in get_args(hint) if one is not type(None))


def _has_default(one: Field[Any]) -> bool:
    return one.default is not MISSING or one.default_factory is not MISSING


# ---------------------------------------------------------------- to files


def _plain(value: Any, where: str) -> Any:
    """A value as TOML and JSON have it."""
    if is_dataclass(value):
        within = f"{where}." if where else ""
        written = {one.name: getattr(value, one.name) for one in fields(value) if _is_written(value, one)}
        return {name: _plain(one, f"{within}{name}") for name, one in written.items()}
    if isinstance(value, Mapping):
        return {name: _plain(one, f"{where}.{name}") for name, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one, where) for one in value]
    if isinstance(value, Path):
        return str(value)
    if callable(value):
        return _name_of(value, where)
    if value is None:
        return _ANY
    return value.item() if hasattr(value, "item") else value  # numpy's numbers


def _is_written(value: Any, one: Field[Any]) -> bool:
    """Whether a field is in the file: not if it is None, empty or terse and has its default."""
    found = getattr(value, one.name)
    default = one.default if one.default_factory is MISSING else one.default_factory()
    has_text = found is not None and found != {}
    return found != default or (has_text and not isinstance(value, _TERSE))


def _name_of(function: Any, where: str) -> str:
    name = f"{getattr(function, '__module__', None)}:{getattr(function, '__qualname__', '')}"
    try:
        found = None if name.startswith("__main__:") else _function(name, where)
    except InvalidInput:
        found = None
    if found is not function:
        raise InvalidInput(f"{where} is a function that can be imported by its name, for a file: got {name}")
    return name


def toml_of(accelerator: Hardware) -> str:
    """The text of a TOML file, with a comment for each field."""
    plain = _plain(accelerator, "")
    return "\n".join([f"# {accelerator!r}", "", *_table(plain, type(accelerator), "")]) + "\n"


def _table(plain: Mapping[str, Any], cls: Any, name: str) -> Iterator[str]:
    """The lines of a table: its values, then the tables in it."""
    documents, hints = field_documents(cls), get_type_hints(cls)
    tables = {key: one for key, one in plain.items() if isinstance(one, dict) or _is_tables(one)}
    for key, one in plain.items():
        if key not in tables:
            line = f"{key} = {_text(one)}  "
            yield line.rstrip() if cls in _TERSE else f"{line:<{_COMMENTS}}# {documents[key]}"
    for key, one in tables.items():
        path = f"{name}.{key}" if name else key
        hint = _without_none(hints[key])
        yield ""
        yield f"# {documents[key]}"
        if isinstance(one, list):
            for entry in one:
                yield from ("", f"[[{path}]]", *_table(entry, get_args(hint)[0], path))
        elif get_origin(hint) is Mapping:
            yield from _tables_by_name(one, get_args(hint)[1], path)
        else:
            yield from (f"[{path}]", *_table(one, hint, path))


def _tables_by_name(plain: Mapping[str, Any], cls: Any, path: str) -> Iterator[str]:
    if not is_dataclass(cls):
        yield f"[{path}]"
        yield from (f"{_key(name)} = {_text(one)}" for name, one in plain.items())
        return
    if cls is Limits:
        yield f'# Each has these; what is not there has its default, and "{_ANY}" is for one that does not apply:'
        yield from (f"#   {name:<20}{text}" for name, text in field_documents(cls).items())
    if not plain:
        yield f"[{path}]"
    for name, one in plain.items():
        yield from ("", f"[{path}.{_key(name)}]", *_table(one, cls, f"{path}.{_key(name)}"))


def _is_tables(plain: Any) -> bool:
    return isinstance(plain, list) and bool(plain) and isinstance(plain[0], dict)


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else _text(name)


def _text(plain: Any) -> str:
    """A value as TOML and JSON both write it."""
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")


@lru_cache
def field_documents(cls: type) -> Mapping[str, str]:
    """The documentation of each field of a dataclass: the text below it in its source."""
    (body,) = (node for node in ast.parse(inspect.getsource(cls)).body if isinstance(node, ast.ClassDef))
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found
