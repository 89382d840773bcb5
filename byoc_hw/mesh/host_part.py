"""The functions of the host that one PE calls, out of the C of all of them."""

from __future__ import annotations

import re
from collections.abc import Collection

_PIECE = re.compile(
    r"^(?P<constant>static const (?P<type>\w+) [^=;{]*?\b(?P<table>\w+)\[(?P<extent>\d+)\] = \{\n.*?^\};\n)"
    r"|^(?P<function>[\w][\w *]*?\b(?P<symbol>\w+)\([^)]*\) \{\n.*?^\}\n)",
    re.S | re.M,
)
_BYTES = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int64_t": 8, "uint64_t": 8, "double": 8}


def host_part(source: str, symbols: Collection[str]) -> tuple[str, int]:
    """The source with the functions of these names and the constants that they read, and the bytes of the constants.

    Anything else in the source stays. Without names there is nothing to keep: the result is empty.
    """
    if not symbols:
        return "", 0
    pieces = list(_PIECE.finditer(source))
    kept = [piece for piece in pieces if piece["function"] and piece["symbol"] in symbols]
    words = {word for piece in kept for word in re.findall(r"\w+", piece["function"])}
    nbytes = 0
    for piece in pieces:
        if piece["constant"] and piece["table"] in words:
            kept.append(piece)
            nbytes += int(piece["extent"]) * _BYTES.get(piece["type"], 4)
    places = {piece.span() for piece in kept}
    dropped = [piece.span() for piece in pieces if piece.span() not in places]
    text, at = "", 0
    for start, stop in dropped:
        text += source[at:start]
        at = stop
    return re.sub(r"\n{3,}", "\n\n", text + source[at:]), nbytes
