"""A part of an int8 tensor -> Slice.

%0 = strided_slice(%x)               every dimension with its own begin and stride

In Relax the same, also for each part of a split.
"""

from collections.abc import Iterable

from byoc_hw.frontend.installed import HAS_RELAX, HAS_RELAY
from byoc_hw.graph import Slice
from byoc_hw.pattern import Form, NotALayer, register_pattern

DOCUMENT = "int8 slice, with steps of 1 and more"


def begin_and_steps(
    given: Iterable[tuple[int, int, int]], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first index and the step of each dimension, of those that are given as axis, begin and step."""
    first, strides = [0] * len(shape), [1] * len(shape)
    for axis, begin, step in given:
        if step < 1:
            raise NotALayer("steps of a slice are at least 1", step)
        first[axis] = min(max(begin + shape[axis] if begin < 0 else begin, 0), shape[axis])
        strides[axis] = step
    return tuple(first), tuple(strides)


if HAS_RELAY:
    from tvm import relay
    from tvm.relay.dataflow_pattern import is_op, wildcard

    from byoc_hw.frontend.relay import read
    from byoc_hw.frontend.relay.match import Match

    def to_slice(match: Match) -> Slice:
        """The layer of a matched slice."""
        call, name = match["strided_slice"], read.layer_name(match.root)
        ifm, ofm = read.activation(match.inputs[0], f"{name}_ifm"), read.activation(match.root, name)
        begin, steps = begin_and_steps(_given(call), ifm.shape)
        return Slice(name, match.sources, ifm, ofm, begin=begin, steps=steps)

    def _given(call: relay.Call) -> Iterable[tuple[int, int, int]]:
        """Axis, begin and step of each dimension that is cut, as TVM reads the attributes."""
        axes = range(len(call.attrs.begin)) if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes]
        given = [] if str(call.attrs.slice_mode) == "size" else [int(step) for step in call.attrs.strides]
        for place, (axis, begin) in enumerate(zip(axes, map(int, call.attrs.begin), strict=True)):
            yield axis, begin, given[place] if place < len(given) else given[0] if len(given) == 1 else 1

    register_pattern(
        "strided_slice",
        Form(is_op("strided_slice")(wildcard())),
        parse=to_slice,
        document=DOCUMENT,
    )

if HAS_RELAX:
    from byoc_hw.frontend.relax.qdq_forms import any_value, operator
    from byoc_hw.frontend.relax.qdq_match import QdqMatch
    from byoc_hw.frontend.relax.versions import numbers_of

    def slice_of(match: QdqMatch) -> Slice | None:
        """The layer of a matched slice; None for one of real values."""
        if match.is_real:
            return None
        name, (axes, begins, _, *strides) = match.name, map(numbers_of, match.root.args[1:])
        ifm, ofm = match.activation(match.inputs[0], f"{name}_ifm"), match.activation(match.root, name)
        steps = strides[0] if strides else [1] * len(axes)
        axes = [axis % len(ifm.shape) for axis in axes]
        begin, by = begin_and_steps(zip(axes, begins, steps, strict=True), ifm.shape)
        return Slice(name, match.sources, ifm, ofm, begin=begin, steps=by)

    register_pattern(
        "strided_slice",
        [Form(operator("strided_slice", *(any_value() for _ in range(count))), "strided_slice") for count in (5, 4)],
        parse=slice_of,
        document=DOCUMENT,
    )
