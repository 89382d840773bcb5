import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_hw.errors import InvalidInput
from byoc_hw.params.pack import PARAMS_BYTES, pack, pack_params, packed_channel_bytes
from byoc_hw.params.requantize import DEAD, Scale


@given(st.sampled_from([8, 4, 2]), st.integers(1, 5), st.integers(1, 40), st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_every_weight_comes_back_from_its_bits(bits, channels, elements, seed):
    high = 1 << (bits - 1)
    weights = np.random.default_rng(seed).integers(-high, high, (channels, 1, 1, elements))
    packed = pack(weights, bits)
    stride = packed_channel_bytes(elements, bits)
    assert len(packed) == channels * stride
    for channel in range(channels):
        whole = int.from_bytes(packed[channel * stride : (channel + 1) * stride], "little")
        fields = [whole >> (index * bits) & ((1 << bits) - 1) for index in range(elements)]
        assert [field - (1 << bits) if field >= high else field for field in fields] == weights[channel, 0, 0].tolist()
        assert whole >> (elements * bits) == 0


def test_first_weight_is_in_the_lowest_bits_and_a_channel_starts_on_a_byte():
    assert pack(np.array([[1, -1, 2], [3, 0, 0]]), 4) == bytes([0xF1, 0x02, 0x03, 0x00])
    assert pack(np.array([[1, -2, -1, 0, 1]]), 2) == bytes([0b00111001, 0b01])


def test_order_is_kernel_rows_then_columns_then_channels():
    weights = np.arange(2 * 3 * 4).reshape(1, 2, 3, 4)
    assert pack(weights, 8) == bytes(range(24))


@pytest.mark.parametrize(("value", "bits"), [(8, 4), (-9, 4), (2, 2), (128, 8)])
def test_refuses_a_weight_that_does_not_fit(value, bits):
    with pytest.raises(InvalidInput, match=f"weights of {bits} bits are .*: got"):
        pack(np.array([[0, value]]), bits)


def test_refuses_a_width_that_the_array_does_not_have():
    with pytest.raises(InvalidInput, match="8, 4 or 2 bits: got 3"):
        pack(np.zeros((1, 1), int), 3)


def test_parameters_are_twelve_little_endian_bytes_a_channel():
    packed = pack_params(np.array([-2, 0x01020304]), [Scale(2**30, 1, 31), DEAD])
    assert packed.hex() == "feffffff00000040011f00000403020100000000001f0000"
    assert len(packed) == 2 * PARAMS_BYTES


def test_refuses_parameters_that_have_no_field():
    with pytest.raises(InvalidInput, match="one scale for each bias: 1 for 2"):
        pack_params(np.zeros(2, int), [DEAD])
    with pytest.raises(InvalidInput, match="left shift is at most 31: got 40"):
        pack_params(np.zeros(1, int), [Scale(2**30, 40, 31)])
