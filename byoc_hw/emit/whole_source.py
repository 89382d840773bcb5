"""`hwlib_whole.c`: what layers without tiles compute, in portable C, for simulators, kits and HALs."""

from __future__ import annotations

from byoc_hw.emit.rendering import render
from byoc_hw.params.host_kernels import KERNELS
from byoc_hw.program import ORDERED_TYPES

WHOLE_SOURCE = "hwlib_whole.c"

_GATHER = ("size", "before", "extent", "after", "count")
_PARTS = ("order", "order_rows", "gather", "suppress", "suppress_boxes", "suppress_places")


def whole_source() -> str:
    """The text of the file."""
    suppress = KERNELS["host_suppress"].fields
    structs = {"host_order": KERNELS["host_order"].fields, "gather": _GATHER, "host_suppress": suppress}
    return render(
        "hwlib_whole.c.j2",
        mod_name="hwlib",
        structs=structs,
        needed=_PARTS,
        types=ORDERED_TYPES,
        suppress_numbers=len(suppress),
    )
