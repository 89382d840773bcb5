"""What is known to have ended when an operation starts, whatever the engines' speed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from byoc_hw.plan.lanes.joint import JointWork
from byoc_hw.plan.order.copies import Order
from byoc_hw.plan.steps import Copy


class Reach:
    """For each operation the last one of each engine that has ended before it starts.

    It follows from the waits and events alone, and from engines that work in order: it holds on any hardware.
    """

    def __init__(self, work: JointWork, order: Order) -> None:
        engines = {
            key: at for at, key in enumerate(dict.fromkeys(self._engine(work, op) for op in range(len(work.ops))))
        }
        self._engine_of = [engines[self._engine(work, op)] for op in range(len(work.ops))]
        self._place = [0] * len(work.ops)
        known = np.full((len(work.ops), len(engines)), -1, np.int64)
        latest: dict[int, int] = {}
        counts = [0] * len(engines)
        for op in sorted(range(len(work.ops)), key=lambda one: (order.start[one], order.end[one], one)):
            engine = self._engine_of[op]
            self._place[op] = counts[engine]
            counts[engine] += 1
            for other in (*work.before[op], *([latest[engine]] if engine in latest else [])):
                np.maximum(known[op], known[other], out=known[op])
                known[op, self._engine_of[other]] = max(known[op, self._engine_of[other]], self._place[other])
            latest[engine] = op
        self._known = known

    @staticmethod
    def _engine(work: JointWork, op: int) -> tuple[int, bool]:
        return work.lanes[op], isinstance(work.ops[op].step, Copy)

    def ended(self, ops: Iterable[int], before: int) -> bool:
        """Whether all these operations have ended when the operation `before` starts; it is none of them."""
        return all(op != before and self._known[before, self._engine_of[op]] >= self._place[op] for op in ops)
