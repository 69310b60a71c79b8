import numpy as np
import pytest

import dpmodule as mx

R = mx.recordio


@pytest.mark.parametrize("label", [4, 2.5, np.float32(1.5), [1, 2, 3], np.arange(4.0), mx.nd.array([5, 6])])
def test_headers_come_back(label):
    assert R.pack((9, label, 2**40, 7), b"payload") == R.pack(R.IRHeader(9, label, 2**40, 7), b"payload")
    header, payload = R.unpack(R.pack(R.IRHeader(9, label, 2**40, 7), b"payload"))
    assert payload == b"payload"
    assert (header.id, header.id2) == (2**40, 7)
    want = label.asnumpy() if isinstance(label, mx.nd.NDArray) else label
    np.testing.assert_array_equal(header.label, np.asarray(want, np.float32))
    assert header.flag == (0 if np.ndim(want) == 0 else len(want))


def test_images_come_back_in_opencvs_order():
    pixels = np.random.RandomState(0).randint(0, 256, (5, 7, 3), np.uint8)
    header, found = R.unpack_img(R.pack_img((0, 3.0, 1, 0), pixels, quality=3, img_fmt=".png"))
    assert header.label == 3
    np.testing.assert_array_equal(found, pixels)
    assert R.unpack_img(R.pack_img((0, 3.0, 1, 0), pixels), 0)[1].shape == (5, 7)
    assert R.unpack_img(R.pack_img((0, 3.0, 1, 0), pixels[:, :, 0]))[1].shape == (5, 7)
    red = np.zeros((8, 8, 3), np.uint8)
    red[:, :, 2] = 250
    assert (np.abs(R.unpack_img(R.pack_img((0, 3.0, 1, 0), red))[1].astype(int) - red) < 6).all()
