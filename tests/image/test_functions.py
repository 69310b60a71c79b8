import random

import numpy as np
import pytest

import dpmodule as mx
from helpers import image_cases, pictures
from helpers.pictures import FOLDER, file_of, goldens

I = mx.image  # noqa: E741


@pytest.fixture
def wide():
    return I.imread(FOLDER / "wide.png")


def test_images_are_decoded_from_bytes_and_arrays(wide):
    data = file_of("wide")
    for buf in (data, bytearray(data), np.frombuffer(data, np.uint8), mx.nd.array(list(data), dtype="uint8")):
        np.testing.assert_array_equal(I.imdecode(buf).asnumpy(), wide.asnumpy())
    assert wide.dtype is np.uint8
    assert I.imdecode(data, 0).shape == I.imdecode(data, flag=0).shape == (24, 36, 1)
    np.testing.assert_array_equal(I.imdecode(data, to_rgb=0).asnumpy(), wide.asnumpy()[:, :, ::-1])
    out = mx.nd.zeros((24, 36, 3), dtype="uint8")
    I.imdecode(data, out=out)
    np.testing.assert_array_equal(out.asnumpy(), wide.asnumpy())


def test_resizing_takes_its_method_in_every_form(wide):
    want = goldens()["resize/wide/30/21/2/uint8"]
    np.testing.assert_array_equal(I.imresize(wide, 30, 21, 2).asnumpy(), want)
    np.testing.assert_array_equal(I.imresize(wide, 30, 21, interp=2).asnumpy(), want)
    want = goldens()["resize/wide/18/12/3/uint8"]
    np.testing.assert_array_equal(I.imresize(wide, w=18, h=12, interp=9).asnumpy(), want)
    assert I.imresize(wide, 5, 6, interp=10).shape == (6, 5, 3)
    assert I.resize_short(wide, 12).shape == (12, 18, 3)
    assert I.resize_short(wide.transpose((1, 0, 2)), 12).shape == (18, 12, 3)
    assert I.scale_down((640, 480), (720, 120)) == (640, 106)
    assert I.scale_down((360, 1000), (480, 500)) == (360, 375)
    assert I.scale_down((300, 400), (0, 0)) == (0, 0)


def test_random_sizes_stay_within_their_area(wide):
    random.seed(0)
    for _ in range(20):
        part, (x, y, w, h) = I.random_size_crop(wide, (10, 8), (0.2, 0.5), (0.75, 1.33))
        assert part.shape == (8, 10, 3)
        assert 0.1 < w * h / (24 * 36) < 0.6
        assert x + w <= 36
        assert y + h <= 24
    assert I.random_size_crop(wide, (10, 8), 5.0, (1, 1))[1] == (13, 8, 10, 8)  # no attempt fits
    with pytest.warns(DeprecationWarning, match="min_area"):
        I.random_size_crop(wide, (10, 8), 1.0, (1, 1), min_area=0.3)


def test_images_turn_as_in_mxnet():
    pictures.compare(image_cases.turned(mx), 1e-5)
    stack = goldens()["in/stack"]
    one = I.imrotate(mx.nd.array(stack[0]), 30, zoom_in=True).asnumpy()
    np.testing.assert_allclose(one, goldens()["turn/in"][0], atol=1e-5)
    for image in (stack, stack[0]):
        assert I.random_rotate(mx.nd.array(image), (-5, 5)).shape == image.shape


def test_the_old_decoder_gives_channels_first(wide):
    data, pixels = file_of("wide"), wide.asnumpy().transpose(2, 0, 1)
    np.testing.assert_array_equal(mx.nd.imdecode(data).asnumpy(), pixels)
    part = mx.nd.imdecode(data, clip_rect=(2, 3, 9, 8), mean=mx.nd.ones((3, 5, 7)))
    np.testing.assert_array_equal(part.asnumpy(), pixels[:, 3:8, 2:9] - 1.0)
    out = mx.nd.zeros((2, 3, 24, 36))
    assert mx.nd.imdecode(data, out=out, index=1) is out
    np.testing.assert_array_equal(out.asnumpy()[1], pixels)
    assert mx.nd.imdecode(data, channels=1).shape == (1, 24, 36)
