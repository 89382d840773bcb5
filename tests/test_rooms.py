"""The picture of the rooms stays true: who may import whom."""

import ast
import functools
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "byoc_hw"
PATTERNS = PACKAGE.parent / "patterns"

# From left to right. A room imports what every room may, and rooms to its left but for the front ends.
ROOMS = ["quantization", "frontend", "params", "plan", "hwlib", "emit", "run", "report", "mesh"]
FOR_ALL = {
    *("errors", "arguments", "schema", "whole_file", "integers", "names"),
    *("tensor", "limits", "library_calls", "numerics", "accelerator", "accelerator_file", "soc"),
    *("graph", "graph_digest", "graph_text", "ratios", "program", "version"),
    *("objective", "host_costs", "host_cost_table", "html_tables", "padding", "garbage", "remembered"),
}
WIRING = {
    *("__init__", "__main__", "authoring", "commands", "demo"),
    *("build_arena", "compiler", "project", "operator_check", "validation"),
    *("tuner", "tuning", "quantizer", "exploration"),
    *("mesh_builder", "mesh_pipeline"),
}
EXTRA = {
    "frontend": {"pattern"},
    "report": {"pattern"},
    "pattern": set(),
    "patterns": {"frontend", "pattern"},
}
# Inside the planner, from left to right: files that stand beside rooms, and the rooms between them.
PLAN = [
    *("layer_orders", "channel_orders"),
    *("region_memory", "choices", "steps", "library_layer", "chip_choices", "chip_plan", "compact"),
    "array",
    *("element_orders", "element_forms", "merged_transpositions", "moved_transpositions"),
    "border_transpositions",
    *("work", "place", "order"),
    *("library", "planned", "stages"),
    "core",
    "ahead",
    "bound",
    *("search", "tune", "lanes"),
    *("region", "fitting", "placement"),
]
USES_TVM = {"frontend", "patterns", "authoring", "demo"}
FRONT_ENDS = ("byoc_hw.frontend.relay", "byoc_hw.frontend.relax")


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path
    for path in sorted(PATTERNS.glob("*.py")):
        yield "patterns", path


@functools.cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path):
    return list(_imports(path))


def _imports(path):
    for node in ast.walk(tree(path)):
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


def names_of_others(path, parent, permitted):
    """Imports from files or rooms below a package that are not permitted."""
    below = [name.removeprefix(f"{parent}.") for name in imports(path) if name.startswith(f"{parent}.")]
    return [f"{path} imports {parent}.{name}" for name in below if name.split(".")[0] not in permitted]


def test_a_room_imports_only_what_lies_to_its_left():
    checked = [(path, allowed(room)) for room, path in modules() if allowed(room) is not None]
    assert [said for path, permitted in checked for said in names_of_others(path, "byoc_hw", permitted)] == []


def imported_at_the_top(path):
    """Without what a function imports at its first call, or a type checker alone."""
    for node in tree(path).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def names_of_tvm(path, names):
    """Those of TVM, and of a front end."""
    found = [name for name in names if name.split(".")[0] == "tvm" or name.startswith(FRONT_ENDS)]
    return [f"{path} imports {name}" for name in found]


def test_only_the_front_end_knows_tvm():
    others = [path for room, path in modules() if room not in USES_TVM]
    assert [said for path in others for said in names_of_tvm(path, imported_at_the_top(path))] == []


def test_front_ends_do_not_know_each_other():
    for own, other in (FRONT_ENDS, FRONT_ENDS[::-1]):
        for path in sorted((PACKAGE.parent / own.replace(".", "/")).rglob("*.py")):
            assert not [name for name in imports(path) if name.startswith(other)], path


def test_what_front_ends_share_knows_neither():
    shared = sorted((PACKAGE / "frontend").glob("*.py"))
    assert [said for path in shared for said in names_of_tvm(path, imports(path))] == []


def test_the_seam_knows_no_front_end():
    names = list(imports(PACKAGE / "frontend" / "seam.py"))
    assert not [name for name in names if name.startswith(("tvm", "byoc_hw.frontend"))]


def plan_modules():
    for path in sorted((PACKAGE / "plan").rglob("*.py")):
        if path.parent != PACKAGE / "plan" or path.stem != "__init__":
            yield path.relative_to(PACKAGE / "plan").parts[0].removesuffix(".py"), path


def test_a_room_of_the_planner_imports_only_what_lies_to_its_left():
    checked = [(path, {*PLAN[: PLAN.index(room)], room}) for room, path in plan_modules()]
    assert [said for path, permitted in checked for said in names_of_others(path, "byoc_hw.plan", permitted)] == []


SAID_TWICE = {"main"} | {"load", "load_tflite", "pattern_table", "to_integers"}
"""Programs; and what the compiler hands on from a front end under the same name."""


def test_no_public_name_has_two_meanings():
    places = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in tree(path).body:
            names = [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]
            names += [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            for name in names:
                if not name.startswith("_"):
                    places.setdefault(name, []).append(path.relative_to(PACKAGE).as_posix())
    twice = {name: found for name, found in places.items() if len(found) > 1 and name not in SAID_TWICE}
    assert not twice


def files_of(folder):
    return {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}


def test_no_two_rooms_have_a_file_of_one_name():
    folders = [PACKAGE, *(path for path in PACKAGE.rglob("*") if path.is_dir() and path.name != "__pycache__")]
    # `patterns/reshape.py` and the like are named after composites.
    seen = {}
    for folder in folders:
        for name in files_of(folder):
            seen.setdefault(name, []).append(folder.name)
    assert {name: places for name, places in seen.items() if len(places) > 2} == {}


def test_files_of_one_room_do_not_import_each_other_in_a_circle():
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    reached = {
        name: {other for other in imported_at_the_top(path) if other in names} - {name} for name, path in names.items()
    }

    def below(name, path):
        assert name not in path, f"in a circle: {' -> '.join([*path[path.index(name) :], name])}"
        if name not in done:
            for other in sorted(reached[name]):
                below(other, [*path, name])
            done.add(name)

    done = set()
    for name in sorted(set(names) - {"byoc_hw.__init__"}):
        below(name, [])


def test_every_room_of_the_package_is_in_the_picture():
    found = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert found - WIRING == set(ROOMS)
    assert {path.name.removesuffix(".py") for path in (PACKAGE / "plan").iterdir()} - {"__init__", "__pycache__"} == {
        *PLAN
    }
