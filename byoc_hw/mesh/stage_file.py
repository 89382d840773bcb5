"""Stages as JSON, for a mapper of one's own.

[{"pe": [0, 0], "pieces": [{"node": 0}, {"node": 1, "rows": [0, 4]}]},
 {"pe": [1, 0], "pieces": [{"node": 1, "rows": [4, 8]}, {"node": 2, "channels": [0, 16]}, ...]}, ...]

Nodes have the numbers of `MeshNetwork.nodes`; a piece without a range is all of its node. `pe` may be left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byoc_hw.errors import InvalidInput
from byoc_hw.mesh.pieces import ALL, CutAxis, NodePiece, PieceBox
from byoc_hw.mesh.plan import Stage
from byoc_hw.schema import read_json

_LARGEST = 2**26


def stages_text(stages: Sequence[Stage]) -> str:
    """The text of a file of stages."""
    plain = []
    for stage in stages:
        pieces: list[dict[str, Any]] = []
        for piece in stage.pieces:
            box: dict[str, Any] = {piece.box.axis: [piece.box.start, piece.box.stop]}
            pieces.append({"node": piece.node, **({} if piece.box == ALL else box)})
        plain.append({**({} if stage.pe is None else {"pe": list(stage.pe)}), "pieces": pieces})
    return json.dumps(plain) + "\n"


def read_stages(path: Path) -> list[Stage]:
    """The stages of a file. `InvalidInput` says what is no stage."""
    plain = read_json(path, _LARGEST)
    if not isinstance(plain, list) or not plain:
        raise InvalidInput(f"{path} is a list of stages")
    return [_stage(f"{path}: stage {number}", one) for number, one in enumerate(plain)]


def _stage(where: str, plain: Any) -> Stage:
    if not isinstance(plain, dict) or not set(plain) <= {"pe", "pieces"} or not isinstance(plain.get("pieces"), list):
        raise InvalidInput(f"{where} has pieces, a list, and may have pe: got {plain!r}")
    pe = plain.get("pe")
    if pe is not None and not _is_pair(pe):
        raise InvalidInput(f"{where}: pe is a column and a row: got {pe!r}")
    return Stage(tuple(_piece(where, one) for one in plain["pieces"]), None if pe is None else (pe[0], pe[1]))


def _piece(where: str, plain: Any) -> NodePiece:
    rule = "a piece has a node, and may have rows or channels from a number to a later one"
    if not isinstance(plain, dict) or not _is_whole(plain.get("node")):
        raise InvalidInput(f"{where}: {rule}: got {plain!r}")
    ranges = {key: value for key, value in plain.items() if key != "node"}
    if not ranges:
        return NodePiece(plain["node"], ALL)
    axis: CutAxis
    for axis in ("rows", "channels"):
        span: Any = ranges.get(axis)
        if len(ranges) == 1 and _is_pair(span) and span[0] < span[1]:
            return NodePiece(plain["node"], PieceBox(axis, span[0], span[1]))
    raise InvalidInput(f"{where}: {rule}: got {plain!r}")


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_whole, value))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
