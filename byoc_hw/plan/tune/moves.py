"""The moves of the tuner: each changes a region's choices a little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from byoc_hw.plan.choices import PIECES, Choices, Group
from byoc_hw.plan.tune.space import SearchSpace


def step(space: SearchSpace, choices: Choices, random: Random) -> Choices:
    """Choices after one random move; the same choices where the move is impossible."""
    moves, weights = (_MOVES_AND_PACK, _WEIGHTS_AND_PACK) if space.packable(choices.stored) else (_MOVES, _WEIGHTS)
    move = random.choices(moves, weights)[0]
    return space.canonical(move(space, choices, random) or choices)


Move = Callable[[SearchSpace, Choices, Random], "Choices | None"]


def _merge(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Merge two neighbouring groups."""
    if len(choices.groups) < 2:
        return None
    at = random.randrange(len(choices.groups) - 1)
    spans, (one, other) = choices.spans, choices.groups[at : at + 2]
    first, stop = spans[at][0], spans[at + 1][1]
    within = space.groups_of(choices)
    if not within.may_group(first, stop):
        return None
    held = random.choice((one.held | other.held, one.held & other.held, one.held, other.held))
    stripes = random.choice((one.stripes, other.stripes, *within.stripes(first, stop)))
    merged = Group(one.layers + other.layers, stripes, held, other.overlap, other.resident)
    return replace(choices, groups=(*choices.groups[:at], merged, *choices.groups[at + 2 :]))


def _split(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Split a group in two; the storages between them are held, or not."""
    at = random.randrange(len(choices.groups))
    group, (first, stop) = choices.groups[at], choices.spans[at]
    if group.layers < 2:
        return None
    middle = random.randrange(first + 1, stop)
    within = space.groups_of(choices)
    passing = within.touched(first, middle) & within.live(middle, stop)
    held = group.held | passing if space.limits.hold and random.random() < 0.7 else group.held - passing
    one = Group(middle - first, _other(within.stripes(first, middle), group.stripes, random), held)
    other = Group(stop - middle, group.stripes, held, group.overlap, group.resident)
    return choices.with_group(at, one, other)


def _shift(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Move a layer from a group to its neighbour."""
    if len(choices.groups) < 2:
        return None
    at = random.randrange(len(choices.groups) - 1)
    by = random.choice((-1, 1))
    one, other = choices.groups[at : at + 2]
    moved = replace(one, layers=one.layers + by, tiling=None), replace(other, layers=other.layers - by, tiling=None)
    first, middle, stop = choices.spans[at][0], choices.spans[at][1] + by, choices.spans[at + 1][1]
    within = space.groups_of(choices)
    if first == middle or middle == stop or not (within.may_group(first, middle) and within.may_group(middle, stop)):
        return None
    return replace(choices, groups=(*choices.groups[:at], *moved, *choices.groups[at + 2 :]))


def _restripe(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Give a group more or fewer stripes."""
    at = random.randrange(len(choices.groups))
    options = space.groups_of(choices).stripes(*choices.spans[at])
    stripes = _other(options, choices.groups[at].stripes, random)
    return choices.with_group(at, replace(choices.groups[at], stripes=stripes, tiling=None))


def _recut_patches(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Give a group more or fewer columns, or slices of channels, which are summed, or outer, or neither."""
    at = random.randrange(len(choices.groups))
    within, span, group = space.groups_of(choices), choices.spans[at], choices.groups[at]
    columns, slices = within.columns(*span), within.slices(*span)
    if random.random() < 0.5:
        return choices.with_group(at, replace(group, columns=_other(columns, group.columns, random)))
    summed, outer = random.choice(((False, False), (True, False), (False, True)))
    group = replace(group, slices=_other(slices, group.slices, random), summed=summed, slices_outer=outer)
    return choices.with_group(at, group)


def _hold(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Toggle whether a group holds a storage."""
    at = random.randrange(len(choices.groups))
    live = sorted(space.groups_of(choices).live(*choices.spans[at]))
    if not live:
        return None
    group = choices.groups[at]
    return choices.with_group(at, replace(group, held=group.held ^ {random.choice(live)}))


def _hold_long(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Hold a storage in every group in which it is live, or in none."""
    within = space.groups_of(choices)
    storage = random.choice(within.storages.all).index
    everywhere = random.random() < 0.6
    groups = []
    for group, span in zip(choices.groups, choices.spans, strict=True):
        held = everywhere and storage in within.live(*span)
        groups.append(replace(group, held=group.held | {storage} if held else group.held - {storage}))
    return replace(choices, groups=tuple(groups))


def _keep(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Toggle whether a group keeps rows that its stripes share: of all that it can, or of one storage."""
    at = random.randrange(len(choices.groups))
    group = choices.groups[at]
    options = sorted(space.groups_of(choices).keepable(*choices.spans[at], group.held))
    if not options:
        return None
    toggled = frozenset(options) if random.random() < 0.5 else frozenset({random.choice(options)})
    return choices.with_group(at, replace(group, kept=group.kept ^ toggled))


def _flag(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Toggle a group's overlap, or whether its weights stay, or come in alternating order; or cut it in pieces."""
    at = random.randrange(len(choices.groups))
    group = choices.groups[at]
    options = [replace(group, overlap=not group.overlap), replace(group, resident=not group.resident)]
    if not group.resident:
        options.append(replace(group, alternating=not group.alternating))
    options.append(replace(group, pieces=random.choice(PIECES)))
    return choices.with_group(at, random.choice(options))


def _recut(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Cut a layer's weights into other blocks."""
    index = random.randrange(len(choices.blocks))
    options = space.blocks(space.groups_of(choices).layers[index])
    blocks = (*choices.blocks[:index], random.choice(options), *choices.blocks[index + 1 :])
    return replace(choices, blocks=blocks)


def _retile(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Give a single layer another tiling."""
    at = random.randrange(len(choices.groups))
    options = space.groups_of(choices).tilings(*choices.spans[at])
    return choices.with_group(at, replace(choices.groups[at], tiling=random.choice(options))) if options else None


def _swap(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Toggle a component's swap, or whether copies do the transpositions at the border, or jobs as they read inputs."""
    if space.has_borders and random.random() < 0.5:
        return replace(choices, copies_transpose=not choices.copies_transpose)
    if space.turns(choices) and random.random() < 0.5:
        return replace(choices, jobs_transpose=not choices.jobs_transpose)
    if not space.swappable:
        return None
    number = random.choice(space.swappable)
    swapped = tuple(value != (other == number) for other, value in enumerate(choices.swapped))
    groups = tuple(replace(group, tiling=None) for group in choices.groups)
    return replace(choices, swapped=swapped, groups=groups)


def _pack(space: SearchSpace, choices: Choices, random: Random) -> Choices | None:
    """Toggle whether the rows of a band are packed."""
    packable = space.packable(choices.stored)
    if not packable:
        return None
    packed = choices.packed ^ {random.choice(packable)}
    return replace(choices, packed=packed, groups=tuple(replace(group, tiling=None) for group in choices.groups))


def _other(options: Sequence[int], value: int, random: Random) -> int:
    """Usually a neighbour of a value among the options, else any of them."""
    if random.random() < 0.3:
        return random.choice(options)
    at = min(range(len(options)), key=lambda index: abs(options[index] - value))
    return options[min(max(at + random.choice((-1, 1)), 0), len(options) - 1)]


_MOVES: tuple[Move, ...] = (
    _merge,
    _split,
    _shift,
    _restripe,
    _recut_patches,
    _hold,
    _hold_long,
    _keep,
    _flag,
    _recut,
    _retile,
    _swap,
)
_WEIGHTS: tuple[int, ...] = (3, 3, 3, 4, 2, 4, 2, 2, 2, 4, 1, 1)
_MOVES_AND_PACK, _WEIGHTS_AND_PACK = (*_MOVES, _pack), (*_WEIGHTS, 1)
