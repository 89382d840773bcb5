"""What the DMA of an accelerator copies at least where local memory is small: what is loaded again counts.

A plan computes a region group by group (`choices.py`): consecutive layers, portion by portion. A portion is a stripe, a
patch, a tile, or one of these in a slice of channels. Any groups may be chosen, so the cheapest ones from the first
layer to the last are a bound, a shortest path. This takes for granted that plans are made of such groups, in the order
of the layers and of no more than `_LONGEST`, and that partial sums stay in local memory until they are complete; the
rest holds for any choices.

A tensor that is larger than local memory is in no group in full. A group that does not make it loads what it reads of
it, and stores what others read. Of smaller ones a group hands over no more than have room (`handed_over.py`).

Each portion of a group uses all weights of the layers that it computes something of, and finds no more of them than
weight memory holds. So with n portions of which each computes something of all layers, beyond all weights once, the
weights less weight memory are loaded n - 1 times again; or, whatever the other layers do, those of each layer less
weight memory as often as the layer has portions but one. How many portions there are, local memory says:

- In stripes a layer has what it reads of a stripe, and what it makes if the group reads that, at a time. Rows that it
  computes in all stripes are all rows, so one stripe has at least the average, and reads no fewer rows than as many at
  a border. A layer computes something in each stripe in which the only layer does that reads it; rows that are needed
  grow from stripe to stripe until all are there, so of several layers the stripes with the fewest are those of all.
  Where it is known what all readers need, the stripes of each layer count by themselves (`in_stripes.py`).
- In patches (`in_patches.py`) that is so for rows and columns at once, and each patch computes something of all layers.
  With slices of channels, a layer that sums over channels has all of those that it reads of a patch, or partial sums of
  all that it makes. Other tensors between layers are there in slices only, as is the input of a first layer that works
  channel by channel, and what element-wise layers read.
- With slices outside of patches, what comes from main memory is loaded once for each slice, and layers before the
  slices work again. The slices begin with the last layer that sums over channels, or behind it. What element-wise
  layers behind that read is loaded once.

A layer by itself may be in tiles as well (`by_itself.py`). Rows and columns that neighbouring portions share are loaded
again, or computed again, or kept (`halos.py`). This counts for tensors beyond local memory, as smaller ones may be
there in full.

- In stripes the outputs on both sides of a border see some inputs in common. A layer has as many borders as stripes but
  one; of those of a group there are no more than its last output has rows or columns.
- In patches each layer computes all that is needed of it, and what lies between layers is read by them alone. The
  pieces are all of one size but for the last, along rows and along columns, so what all of them need is counted.

What the array computes again is in no relation to what the DMA copies: large patches share less, and need more room.
So for some shares the least sum of that part of the array's cycles and the rest of the DMA's is found. No plan takes
fewer cycles than such a sum of its own, as it takes no fewer than either engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from byoc_hw.accelerator import Accelerator
from byoc_hw.graph import Graph
from byoc_hw.plan.array.kinds import Window, geometry
from byoc_hw.plan.bound.by_itself import loading_rates
from byoc_hw.plan.bound.halos import shared, stored_of_shared
from byoc_hw.plan.bound.handed_over import HandedOver
from byoc_hw.plan.bound.in_patches import InPatches
from byoc_hw.plan.bound.in_stripes import InStripes
from byoc_hw.plan.bound.known_layers import KnownLayer, known_layers
from byoc_hw.plan.bound.ways import Floats
from byoc_hw.tensor import Tensor

_LONGEST = 16
"""The most layers with jobs of a group, or those that the tuning space allows if these are more."""

ENGINE_SHARES = np.linspace(0.0, 1.0, 9)
"""The parts of the array's cycles that are added to the rest of the DMA's."""


def both_engines(graph: Graph, one: Accelerator, array: Sequence[float]) -> Floats:
    """For each of `ENGINE_SHARES`, the least sum of that part of the array's cycles and the rest of the DMA's, of any
    plan; `array` are the least cycles of the array for each layer. The copies are those that no plan does without,
    beside those of all weights once, and of inputs and outputs that local memory has room for. 0 where all tensors fit
    local memory, and of a region with a layer that no plan has room for."""
    nothing = np.zeros(len(ENGINE_SHARES))
    if one.library is not None or any(one.runs_whole(layer) for layer in graph.layers):
        return nothing
    layers, handed_over = known_layers(graph, one, array), HandedOver(graph, one.activation_memory)
    if not handed_over and not any(layer.reads or layer.stored for layer in layers):
        return nothing
    least = [nothing]  # up to each layer
    for stop in range(1, len(layers) + 1):
        groups, found = _Groups(layers, handed_over, stop, one), np.full(len(nothing), inf)
        for before, once in zip(reversed(least), groups.once(), strict=False):
            if (before + once < found).any():
                found = np.minimum(found, before + once + groups.again())
        least.append(found)
    return least[-1] if np.isfinite(least[-1]).all() else nothing


class _Groups:
    """The groups that end before layer `stop`: each one begins a layer before the one that was looked at last. Of each
    the cost is a part of the array's cycles, for all of `ENGINE_SHARES`, and the rest of the DMA's."""

    def __init__(self, layers: Sequence[KnownLayer], handed_over: HandedOver, stop: int, one: Accelerator) -> None:
        self._layers, self._handed_over, self._stop, self._one = layers, handed_over, stop, one
        self._copy, self._load = loading_rates(one)
        self._loaded: dict[Tensor, list[int]] = {}  # with the layers that read it
        self._stored = 0
        self._weights = self._array = 0.0
        self._work: list[int] = []  # from the last one to the first
        self._stripes: dict[int, float] = {}
        self._patches = InPatches(layers, stop, one)
        self._ends, self._grows, self._inside = 0, True, True
        self._in_lines: tuple[InStripes, ...] | None = InStripes(0), InStripes(1)

    def once(self) -> Iterator[Floats]:
        """What each group costs at least; what it costs `again` is on top."""
        longest = max(_LONGEST, self._one.tuning.longest_group)
        for at in reversed(range(self._stop)):
            self._add(at)
            if len(self._work) > longest:
                return
            copied = self._stored + sum(tensor.nbytes for tensor in self._loaded)
            copied += self._handed_over.copied(at, self._stop)
            yield self._mixed(self._array, copied * self._copy)

    def _mixed(self, array: float, copied: float) -> Floats:
        return ENGINE_SHARES * array + (1 - ENGINE_SHARES) * copied

    def _best(self, array: Floats, copied: Floats) -> Floats:
        """The least of several ways."""
        mixed = np.outer(ENGINE_SHARES, array) + np.outer(1 - ENGINE_SHARES, copied)
        return np.asarray(mixed.min(axis=1, initial=inf))

    def _within(self, at: int) -> list[int]:
        """The layers of the group that read what a layer makes."""
        return [reader for reader in self._layers[at].readers if reader < self._stop]

    def _add(self, at: int) -> None:
        layer, within = self._layers[at], self._within(at)
        self._loaded.pop(layer.layer.ofm, None)
        for tensor in layer.reads:
            self._loaded.setdefault(tensor, []).append(at)
        elsewhere = layer.output or len(within) < len(layer.readers)
        if elsewhere:
            self._stored += layer.stored
        if not layer.jobs:
            return
        self._inside &= not self._work or not elsewhere
        self._weights += layer.weights
        self._array += layer.array
        self._ends += not within
        self._grows &= layer.grows
        self._work.append(at)
        self._stripes[at] = layer.stripes[bool(within)]
        while len(within) == 1 and not self._layers[at].elsewhere and self._stripes[within[0]] < self._stripes[at]:
            self._stripes[within[0]] = self._stripes[at]
            at = within[0]
            within = self._within(at)

    def again(self) -> Floats:
        """What the group that is looked at costs beside all of its work once."""
        room, nothing = self._one.weight_memory, np.zeros(len(ENGINE_SHARES))
        if not self._work:
            return nothing
        if len(self._work) == 1:
            return self._best(*self._layers[self._work[0]].alone)
        large = self._loaded or any(self._layers[at].stored and self._within(at) for at in self._work)
        if self._weights <= room and not large:
            return nothing
        stripes = self._in_stripes(room)
        return np.minimum(stripes, self._in_patches(room)) if stripes.any() else stripes

    def _in_stripes(self, room: int) -> Floats:
        if max(self._stripes.values()) > max(self._layers[self._work[0]].lines):
            return np.full(len(ENGINE_SHARES), inf)
        weighted = [(self._stripes[at], self._layers[at].weights) for at in self._work if self._layers[at].weights]
        found = sum((many - 1) * (size - room) for many, size in weighted if size > room)
        if self._ends == 1 and self._grows and self._weights > room:
            found = max(found, (min(many for many, _ in weighted) - 1) * (self._weights - room))
            found = max(found, self._of_all_stripes(room))
        if found == inf:
            return np.full(len(ENGINE_SHARES), inf)
        cost = self._mixed(0.0, found * self._load)
        for tensor, readers in self._loaded.items():
            cost += np.maximum.reduce([self._halo(reader, tensor, None) for reader in readers])
        for at in self._work:
            within = self._within(at)
            if self._layers[at].stored and within:
                cost += np.maximum.reduce([self._halo(reader, self._layers[at].layer.ofm, at) for reader in within])
        return cost

    def _of_all_stripes(self, room: int) -> float:
        """The weights that layers load again stripe by stripe; 0 if it is not known what they need."""
        for at in self._work[self._in_lines[0].layers :] if self._in_lines else ():
            layer, readers = self._layers[at], self._layers[at].all_readers
            behind = [(one, self._layers[one].layer) for one in readers if one < self._stop]
            most = layer.most[any(one < self._stop for one in layer.readers)]
            for one, lines in zip(self._in_lines or (), most, strict=True):
                if not one.add(at, layer.layer, layer.weights, lines, behind):
                    self._in_lines = None
                    return 0.0
        return min((one.loaded_again(room) for one in self._in_lines or ()), default=0.0)

    def _halo(self, reader: int, tensor: Tensor, maker: int | None) -> Floats:
        """What the stripes of a layer share of a tensor: it is loaded again, or layer `maker` computes it again, or it
        is kept."""
        form, borders = geometry(self._layers[reader].layer), int(self._stripes[reader]) - 1
        costs = [np.full(len(ENGINE_SHARES), inf)]
        if not isinstance(form, Window) or not borders:
            return np.zeros(len(ENGINE_SHARES))
        for axis, other in ((form.rows, form.columns), (form.columns, form.rows)):
            lines = shared(axis, borders)
            if lines is None:
                continue
            pixels = lines * other.ifm
            copied = tensor.bytes_of(pixels * form.ifm_channels) * self._copy
            if maker is None:
                costs.append(self._mixed(0.0, copied))
                continue
            one = self._layers[maker]
            computed = max(one.pixel * (axis.ifm * other.ifm + pixels) - one.array, 0.0)
            kept = self._mixed(0.0, copied * (1 + stored_of_shared(axis)))
            costs.append(np.minimum(self._mixed(computed, 0.0), kept))
        return np.asarray(np.minimum.reduce(costs))

    def _in_patches(self, room: int) -> Floats:
        """The best patches: of each number of them the cycles of the array, and bytes that are loaded again."""
        if self._ends > 1 or not self._inside:
            return np.full(len(ENGINE_SHARES), inf)
        many, lines = self._patches.fitting(self._work)
        since = next((place for place, at in enumerate(self._work) if self._layers[at].sums), len(self._work) - 1)
        array, before = self._patches.array(self._work, since + 1, lines)
        first = self._layers[self._work[-1]]
        inputs = [self._patches.loaded(tensor, readers)[lines] for tensor, readers in self._loaded.items()]
        loaded = sum(inputs, np.zeros(len(many)))
        again = loaded - sum(tensor.nbytes for tensor in self._loaded)
        for tensor, nbytes in zip(self._loaded, inputs, strict=True):
            behind = all(self._layers[at].elements and at in self._work[:since] for at in self._loaded[tensor])
            loaded -= nbytes * (behind or (first.by_channels and tensor in first.reads))
        weights = (many - 1) * max(self._weights - room, 0.0)
        options = [(array, again * self._copy + weights * self._load)]
        # With slices outside, what comes from main memory is loaded for each, and layers before them work again.
        sliced = sum(self._layers[at].weights for at in self._work[: since + 1])
        rest = self._weights - sliced
        # With more slices, fewer weights are loaded again, down to none.
        none = (1 + (many - 1) * sliced / (room - rest)) / many if rest < room else np.full(len(many), 2.0)
        for slices in (np.full(len(many), 2.0), *(np.maximum(np.floor(none) + more, 2.0) for more in (0, 1))):
            weights = np.maximum((slices * many - 1) * (rest - room) + (many - 1) * sliced, 0.0)
            nbytes = (again + (slices - 1) * loaded) * self._copy + weights * self._load
            options.append((array + (slices - 1) * before, nbytes))
        return np.asarray(np.minimum.reduce([self._best(*one) for one in options]))
