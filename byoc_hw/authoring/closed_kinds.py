"""The layer kinds that no new pattern is written for, and why."""

from __future__ import annotations

from collections.abc import Mapping

_WHOLE = "it runs as a whole, on a chip of several accelerators, and its operators have a pattern"

CLOSED_KINDS: Mapping[str, str] = {
    "Softmax": "TVM computes every softmax in floating point, so that no operators have its bits: see qnn_softmax",
    "Ordering": f"{_WHOLE}: see argsort and topk",
    "Gather": f"{_WHOLE}: see gather",
    "Suppression": f"{_WHOLE}: see non_max_suppression",
}
"""The reasons by the name of the class, each with the patterns that there are."""
