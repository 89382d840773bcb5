"""Post-processing of TVM's C: a stable order, no main, and constants once, in the narrowest type."""

from __future__ import annotations

import re
from collections.abc import Mapping

_FUNCTION = re.compile(
    r"^TVM_DLL (?P<type>\w+) (?P<name>\w+)\((?P<arguments>[^)]*)\) \{\n(?P<body>.*?)^\}\n", re.S | re.M
)
# The headers that TVM's code needs, in place of those that it includes.
HOST_INCLUDES = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n"
_CONSTANT = re.compile(
    r"^static const (?P<type>\w+) (?P<attributes>[^=]*?)\b(?P<name>\w+)\[(?P<extent>\d+)\] = \{\n"
    r"(?P<elements>.*?)^\};\n",
    re.S | re.M,
)
_LET = re.compile(r"^ *void\* \w+_let = \(&\(\w+\[\d+\]\)\);\n", re.M)
_BITS = {f"{sign}int{bits}_t": bits for sign in ("", "u") for bits in (8, 16, 32, 64)} | {"float": 32, "double": 64}


def host_source(text: str, mod_name: str) -> tuple[str, int]:
    """The functions in a reproducible order, and the bytes of their constants."""
    constants = {found["name"]: found for found in _CONSTANT.finditer(text)}
    functions = _functions(text, mod_name)
    if not functions:
        return "", 0
    code = "\n".join(_function(functions[name]) for name in sorted(functions))
    constants, code = _each_once(constants, code)
    narrow = _Narrow(constants, code)
    parts = [HOST_INCLUDES, *(narrow.definition(name) for name in sorted(constants)), narrow.code()]
    return "\n".join(parts), sum(map(narrow.nbytes, constants))


def bodies(text: str, mod_name: str) -> dict[str, str]:
    """The body of each function of TVM's C but main, by symbol."""
    return {name: found["body"] for name, found in _functions(text, mod_name).items()}


def _functions(text: str, mod_name: str) -> dict[str, re.Match[str]]:
    functions = {found["name"]: found for found in _FUNCTION.finditer(text)}
    functions.pop(f"tvmgen_{mod_name}___tvm_main__", None)
    return functions


def _each_once(constants: dict[str, re.Match[str]], code: str) -> tuple[dict[str, re.Match[str]], str]:
    """The constants without those that are equal to another one, which the code then reads."""
    first: dict[tuple[str, ...], str] = {}
    instead = {}
    for name in sorted(constants):
        found = constants[name]
        parts = tuple(found[part] for part in ("type", "attributes", "extent", "elements"))
        instead[name] = first.setdefault(parts, name)
    kept = {name: constants[name] for name in first.values()}
    return kept, re.sub(r"\w+", lambda word: instead.get(word[0], word[0]), code)


class _Narrow:
    """Constants in the narrowest type that holds their values.

    TVM computes with wide types and folds the casts, so that int8 weights arrive as int16. Here each
    read of a narrowed constant is cast back to the type that TVM gave it:

        ((int16_t*)weights)[i]  ->  (int16_t)((const int8_t*)weights)[i]

    so that every expression keeps its value and its type. A constant that is used in any other way,
    for example by address, keeps its type.
    """

    def __init__(self, constants: Mapping[str, re.Match[str]], code: str) -> None:
        self._constants, self._code = constants, code
        uses: dict[str, int] = {}
        for word in re.findall(r"\w+", code):
            if word in constants:
                uses[word] = uses.get(word, 0) + 1
        reads: dict[str, int] = {}
        for declared, name in _READ.findall(code):
            if name in constants and declared == constants[name]["type"]:
                reads[name] = reads.get(name, 0) + 1
        self._stored = {
            name: _narrowest(found) if uses.get(name) == reads.get(name) else found["type"]
            for name, found in constants.items()
        }

    def nbytes(self, name: str) -> int:
        """Bytes of one constant."""
        return int(self._constants[name]["extent"]) * _BITS[self._stored[name]] // 8

    def definition(self, name: str) -> str:
        """The C of one constant."""
        found, stored = self._constants[name], self._stored[name]
        if stored == found["type"]:
            return _respelt(found)
        rows = "".join(f"    {', '.join(map(_literal, row))},\n" for row in _rows(_values(found)))
        return f"static const {stored} {found['attributes']}{name}[{found['extent']}] = {{\n{rows}}};\n"

    def code(self) -> str:
        """The functions, with the casts at each read of a narrowed constant."""

        def read(found: re.Match[str]) -> str:
            name = found["name"]
            if name not in self._constants or self._stored[name] == self._constants[name]["type"]:
                return found[0]
            return f"({found['type']})((const {self._stored[name]}*){name})["

        return _READ.sub(read, self._code)


# A read of one element: not after an &, and not at the start of a statement, which would be a store.
_READ = re.compile(r"(?<!&)(?<!&\()(?<!\n)(?<!  )\(\((?P<type>\w+)\*\)(?P<name>\w+)\)\[")


def _rows(values: list[int], width: int = 16) -> list[list[int]]:
    return [values[start : start + width] for start in range(0, len(values), width)]


_LOWEST_INT32 = -(2**31)


def _literal(value: int) -> str:
    return f"({value + 1} - 1)" if value == _LOWEST_INT32 else str(value)


def _respelt(constant: re.Match[str]) -> str:
    """The definition with the numbers that TVM writes as C of another type: the lowest integer, subnormal floats."""
    head, end = constant[0][: constant.start("elements") - constant.start()], "};\n"
    elements = re.sub(
        r"-0x8(0{7}|0{15}LL)\b", lambda found: f"(-0x7{found[1].replace('0', 'f')} - 1)", constant["elements"]
    )
    if constant["type"] == "float":
        elements = re.sub(r"(0x[0-9a-f.]+p[-+]?\d+)(?![\df])", r"\1f", elements)
    return f"{head}{elements}{end}"


def _narrowest(constant: re.Match[str]) -> str:
    declared = constant["type"]
    values = _values(constant)
    if not re.fullmatch(r"int\d+_t", declared) or not values or len(values) != int(constant["extent"]):
        return declared
    for stored in ("int8_t", "int16_t", "int32_t"):
        limit = 1 << _BITS[stored] - 1
        if _BITS[stored] < _BITS[declared] and -limit <= min(values) and max(values) < limit:
            return stored
    return declared


def _values(constant: re.Match[str]) -> list[int]:
    """The elements; empty unless they have the form in which TVM writes integers."""
    words = constant["elements"].replace(",", " ").split()
    if not all(re.fullmatch(r"[-+]?0x[0-9a-fA-F]+(?:LL)?", word) for word in words):
        return []
    return [int(word.removesuffix("LL"), 16) for word in words]


def _function(found: re.Match[str]) -> str:
    arguments = re.sub(r"\barena_\d+_var\b", "arena", found["arguments"])
    body = re.sub(r"\barena_\d+_var\b", "arena", found["body"])
    return f"{found['type']} {found['name']}({arguments}) {{\n{_sorted_lets(body)}}}\n"


def _sorted_lets(body: str) -> str:
    """Sorts consecutive workspace pointers: TVM writes them in hash table order."""
    lines, run, ordered = body.splitlines(keepends=True), [], []
    for line in [*lines, ""]:
        if _LET.match(line):
            run.append(line)
            continue
        ordered += sorted(run)
        run = []
        ordered.append(line)
    return "".join(ordered)
