"""Copies and writing by position."""

import numpy as np

import dpmodule as mx

I = mx.nd._internal  # noqa: E741


def test_out_is_filled_and_returned():
    out = mx.nd.zeros((2,))
    assert I._copyto(mx.nd.array([1, 2]), out=out) is out
    assert out.asnumpy().tolist() == [1, 2]
    I._set_value(3, out=out)
    assert out.asnumpy().tolist() == [3, 3]


def test_multicast_goes_to_the_widest_or_narrowest_float():
    half, single, whole = mx.nd.ones((2,), dtype="float16"), mx.nd.ones((2,)), mx.nd.ones((1,), dtype="int32")
    for narrow, wanted in ((False, np.float32), (True, np.float16)):
        found = mx.nd.amp_multicast(half, single, whole, num_outputs=3, cast_narrow=narrow)
        assert [x.dtype for x in found] == [wanted, wanted, np.int32]
