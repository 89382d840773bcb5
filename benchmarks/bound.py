"""How far the bound and the best plan are apart: small regions of which all plans of a kind are tried.

Each row is a random region of two to five layers on an accelerator of random sizes. `best` has the fewest cycles of all
plans with consecutive layers in groups of any size, each in 1, 2 or 4 stripes, with all tensors in local memory that
it can hold or none, and with weights in the fewest blocks or in blocks of half that size, and of the plan of `build`. A
region with more than --most plans is left out. With --check the exit code is 1 if a plan is below its bound.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from itertools import islice, product
from statistics import median

from schedule import random_accelerator
from soc_graphs import small_graphs
from tables import options, show

from byoc_hw.errors import PlanError
from byoc_hw.plan.array.mapped import map_graph
from byoc_hw.plan.array.weight_blocks import cut
from byoc_hw.plan.bound.prices import cycles_bound
from byoc_hw.plan.choices import Choices, Group
from byoc_hw.plan.region import lay_out_region, why_no_plan
from byoc_hw.plan.stages import lay_out
from byoc_hw.plan.tune.space import GroupSpace, SearchSpace

COLUMNS = ("region", "layers", "plans", "bound", "best", "plan", "best / bound", "plan / best")

STRIPES = (1, 2, 4)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--count", type=int, default=40, help="random regions that are drawn (%(default)s)")
    parser.add_argument("--most", type=int, default=5000, help="the most plans of a region (%(default)s)")
    parser.add_argument("--check", action="store_true", help="exit 1 if a plan is below its bound")
    given = parser.parse_args()
    found = list(compared(given.count, given.most))
    show("bound", COLUMNS, rows(found), into_document=given.update)
    below = [number for number, _, _, bound, best, plan in found if best < bound]
    if below:
        print(f"below the bound: regions {', '.join(map(str, below))}", file=sys.stderr)
    return 1 if given.check and below else 0


Compared = tuple[int, int, int, int, int, int]
"""The number of a region, its layers, how many plans there are, and the cycles: bound, best plan, plan by default."""


def rows(found: list[Compared]) -> Iterator[tuple[object, ...]]:
    for number, layers, plans, bound, best, plan in found:
        yield number, layers, plans, bound, best, plan, f"{best / bound:.3f}", f"{plan / best:.3f}"
    for what, one in (("median", median), ("worst", max)):
        ratios = (one(best / bound for *_, bound, best, _ in found), one(plan / best for *_, best, plan in found))
        yield what, "", "", "", "", "", *(f"{ratio:.3f}" for ratio in ratios)


def compared(count: int, most: int) -> Iterator[Compared]:
    for number, graph in enumerate(small_graphs(count, most=5)):
        hardware = random_accelerator(random.Random(number))
        if any(why_no_plan(layer, hardware) for layer in graph.layers):
            continue
        space = SearchSpace(graph, hardware)
        tried = dict.fromkeys(islice(every_plan(space), most + 1))
        if len(tried) <= most:
            plan = lay_out_region(graph, hardware).cycles
            best = min(plan, *cycles(space, tried))
            yield number, len(graph.layers), len(tried), cycles_bound(graph, hardware), best, plan


def every_plan(space: SearchSpace) -> Iterator[Choices]:
    """All plans of the kind; some of them come several times."""
    for swapped in product((False, True), repeat=len(space.swappable)):
        turned = dict(zip(space.swappable, swapped, strict=True))
        flags = tuple(turned.get(number, False) for number in range(len(space.unswapped)))
        mapped = map_graph(space.graph, space.accelerator, flags)
        within = GroupSpace(mapped)
        cuts = [tuple(cut(layer, space.accelerator, share) for layer in within.layers) for share in (1, 2)]
        for blocks, groups in product(cuts, groupings(within, 0)):
            yield space.canonical(Choices(flags, groups, blocks, True))


def groupings(within: GroupSpace, first: int) -> Iterator[tuple[Group, ...]]:
    if first == len(within.layers):
        yield ()
    for stop in range(first + 1, len(within.layers) + 1):
        if within.may_group(first, stop):
            stripes = sorted({min(count, within.stripes(first, stop)[-1]) for count in STRIPES})
            for count, held, rest in product(stripes, (within.live(first, stop), frozenset()), groupings(within, stop)):
                yield Group(stop - first, count, held), *rest


def cycles(space: SearchSpace, tried: Iterable[Choices]) -> Iterator[int]:
    for choices in tried:
        try:
            yield lay_out(space.groups_of(choices).mapped, choices).cycles
        except PlanError:
            continue  # it does not fit


if __name__ == "__main__":
    sys.exit(main())
