"""The picture of the rooms stays true: who may import whom."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "byoc_hw"
PATTERNS = PACKAGE.parent / "patterns"

# From left to right. A room imports what every room may, and rooms to its left but for the front end.
ROOMS = ["frontend", "params", "plan", "hwlib", "emit", "run", "report"]
FOR_ALL = {"errors", "accelerator", "graph", "program", "version"}
WIRING = {"build", "project", "__init__", "__main__", "demo", "check", "validation", "tune", "tuning"}
EXTRA = {
    "frontend": {"pattern"},
    "report": {"pattern"},
    "pattern": set(),
    "patterns": {"frontend", "pattern"},
}
USES_TVM = {"frontend", "patterns", "build", "check", "tune"} | {"demo"}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path
    for path in sorted(PATTERNS.glob("*.py")):
        yield "patterns", path


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def allowed(room):
    if room in WIRING:
        return None
    left = set(ROOMS[: ROOMS.index(room)]) - {"frontend"} if room in ROOMS else set()
    return FOR_ALL | left | EXTRA.get(room, set()) | {room}


@pytest.mark.parametrize(("room", "path"), list(modules()), ids=lambda value: getattr(value, "stem", value))
def test_a_room_imports_only_what_lies_to_its_left(room, path):
    permitted = allowed(room)
    for name in imports(path):
        if permitted is not None and name.startswith("byoc_hw."):
            assert name.split(".")[1] in permitted, f"{path.name} of {room} imports {name}"


@pytest.mark.parametrize(("room", "path"), list(modules()), ids=lambda value: getattr(value, "stem", value))
def test_only_the_front_end_knows_tvm(room, path):
    if room not in USES_TVM:
        assert not [name for name in imports(path) if name.split(".")[0] == "tvm"]


def test_every_room_of_the_package_is_in_the_picture():
    found = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert found - WIRING == set(ROOMS)
