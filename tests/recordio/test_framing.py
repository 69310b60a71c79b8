import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, FileFormatError

R = mx.recordio


@pytest.mark.parametrize("label", [4, 2.5, np.float32(1.5), [1, 2, 3], np.arange(4.0), mx.nd.array([5, 6])])
def test_headers_come_back(label):
    header, payload = R.unpack(R.pack(R.IRHeader(9, label, 2**40, 7), b"payload"))
    assert payload == b"payload"
    assert (header.id, header.id2) == (2**40, 7)
    want = label.asnumpy() if isinstance(label, mx.nd.NDArray) else label
    np.testing.assert_array_equal(header.label, np.asarray(want, np.float32))
    assert header.flag == (0 if np.ndim(want) == 0 else len(want))


def test_a_header_may_be_a_tuple():
    assert R.unpack(R.pack((0, 1.0, 2, 3), b""))[0] == R.IRHeader(0, 1.0, 2, 3)


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


def test_records_too_short_for_their_header_are_refused():
    with pytest.raises(FileFormatError, match="the record has 5 bytes"):
        R.unpack(b"12345")
    packed = R.pack((0, [1, 2, 3], 0, 0), b"")
    with pytest.raises(FileFormatError, match="declares 3 labels, 12 bytes, but 8 are left"):
        R.unpack(packed[:-4])
    with pytest.raises(FileFormatError, match="image 6 of 4 bytes"):
        R.unpack_img(R.pack((0, 1, 6, 0), b"junk"))


@pytest.mark.parametrize("header", [(0, 1.0, -1, 0), (0, "label", 0, 0), (0, 1.0, 2**64, 0), (0, 1.0), 5])
def test_headers_that_do_not_fit_are_refused(header):
    with pytest.raises(ArgumentError, match="pack: header is"):
        R.pack(header, b"")
