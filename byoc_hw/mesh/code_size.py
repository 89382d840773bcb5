"""The bytes of a PE's program: tables to the byte, and code as it was measured, rounded up.

The figures are for a core of 32 bits and a compiler that optimises for size, without the names of layers (`NAMES=0`);
a test compiles programs for riscv32 and holds them to be enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_hw.plan.planned import PlannedRegion, table_bytes
from byoc_hw.program import HostCall, Program

LIBRARY_CODE = 2560
"""HWlib and the main loop of a PE."""

CODE_OF_A_CALL = 768
"""What calls a region or a function of the host, and checks and passes on what it returns; and the stage around it."""

CODE_OF_A_PORT = 52
"""What a port moves, and its state: 36 and 16."""

CODE_OF_A_FUNCTION = 4096
"""A function of the host, with what it uses of the compiler's and the C library's functions for floats."""

STACK = 1536
"""The stack: a region decodes up to 16 tiles of 72 bytes on it."""


PE_CODE = LIBRARY_CODE + STACK
"""What each PE has, whatever it computes."""


def stage_code_owners(program: Program, tables: int) -> dict[str, int]:
    """The bytes of a stage's program by what they are for, but for its ports and for what each PE has: `tables` bytes
    of its regions' tables, calls, and functions of the host."""
    functions = {call.symbol for call in program.calls if isinstance(call, HostCall)}
    return {
        "tables": tables,
        "calls": CODE_OF_A_CALL * len(program.calls),
        "functions of the host": CODE_OF_A_FUNCTION * len(functions),
    }


def code_owners(stages: Sequence[tuple[Program, Mapping[str, PlannedRegion]]], ports: int) -> dict[str, int]:
    """The bytes of the code of a PE by what they are for: of the programs of its stages, with the plans of their
    regions, and of the ports of all of them. The stages share HWlib, the main loop and the stack."""
    found = {"HWlib and main loop": LIBRARY_CODE, "ports": CODE_OF_A_PORT * ports, "stack": STACK}
    for program, regions in stages:
        for owner, nbytes in stage_code_owners(program, sum(map(table_bytes, regions.values()))).items():
            found[owner] = found.get(owner, 0) + nbytes
    return found
