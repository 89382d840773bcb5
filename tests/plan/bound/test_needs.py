"""What layers need of the tensors before them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from byoc_hw.plan.array.window import Axis
from byoc_hw.plan.bound.needs import Spans, _seen


@st.composite
def chains(draw):
    """Three windows along an axis, one behind the other; some may see padding only."""
    size, found = draw(st.integers(4, 24)), []
    for _ in range(3):
        kernel, stride = draw(st.integers(1, 4)), draw(st.integers(1, 5))
        before, after = (draw(st.integers(0, kernel)) for _ in range(2))
        outputs = (size + before + after - kernel) // stride + 1
        if outputs < 1:
            break
        found.append(Axis(size, outputs, kernel, stride, before))
        size = outputs
    return found


@given(chains())
def test_no_more_is_needed_than_windows_see(axes):
    last = axes[-1].ofm if axes else 1
    spans, seen = Spans(np.arange(last), np.arange(1, last + 1)), [{place} for place in range(last)]
    for axis in reversed(axes):
        spans = _seen(axis, spans)
        if spans is None:
            return
        starts = [at * axis.stride - axis.before for at in range(axis.ofm)]
        windows = [range(start, start + axis.kernel) for start in starts]
        seen = [{one for at in place for one in windows[at] if 0 <= one < axis.ifm} for place in seen]
        assert all(claimed <= len(place) for claimed, place in zip(spans.counts, seen, strict=True))
