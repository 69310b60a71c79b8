import numpy as np
import pytest

from dpmodule.base import BoundsError, OpError, ShapeError
from dpmodule.ops.nn import roi
from helpers.op_case import gradients, run, shapes

random = np.random.RandomState(4)


def slow(data, rois, high, wide, scale):
    """Return maxima and where they are, pixel by pixel."""
    out = np.zeros((len(rois), data.shape[1], high, wide), data.dtype)
    place = np.full(out.shape, -1)
    for r, c, i, j in np.ndindex(*out.shape):
        left, top, right, bottom = (int(np.floor(v * scale + 0.5)) for v in rois[r, 1:])
        tall, broad = max(bottom - top + 1, 1) / high, max(right - left + 1, 1) / wide
        best = None
        for y in range(int(np.floor(i * tall)) + top, int(np.ceil((i + 1) * tall)) + top):
            for x in range(int(np.floor(j * broad)) + left, int(np.ceil((j + 1) * broad)) + left):
                if 0 <= y < data.shape[2] and 0 <= x < data.shape[3]:
                    value = data[int(rois[r, 0]), c, y, x]
                    if best is None or value > best:
                        best, place[r, c, i, j] = value, y * data.shape[3] + x
        out[r, c, i, j] = 0 if best is None else best
    return out, place


def regions(count, images, width, height):
    corners = random.rand(count, 4) * [width, height, width, height] * 1.3 - 2
    return np.concatenate([random.randint(0, images, (count, 1)), corners], 1)


@pytest.fixture(params=[0, 1 << 30], ids=["windows", "every pixel"])
def way(request, monkeypatch):
    """Both ways of finding the maxima."""
    monkeypatch.setattr(roi, "_MAX_MASKED_PIXELS", request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (7, 7)])
def test_first_maximum_of_each_bin_and_its_gradient(kind, size):
    # few different values, so that most maxima tie, negative zero among them
    data = (random.randint(-1, 2, (2, 3, 9, 11)) * -1.0).astype(kind)
    rois = regions(8, 2, 22, 18).astype(kind)
    attrs = {"pooled_size": size, "spatial_scale": 0.5}
    expected, place = slow(data, rois.astype("f8"), *size, 0.5)
    np.testing.assert_array_equal(run("ROIPooling", data, rois, **attrs), expected)
    head = random.randint(1, 4, expected.shape).astype(kind)
    wanted = np.zeros((2, 3, 99), kind)
    for r, c, i, j in np.ndindex(*place.shape):
        if place[r, c, i, j] >= 0:
            wanted[int(rois[r, 0]), c, place[r, c, i, j]] += head[r, c, i, j]
    to_data, to_rois = gradients("ROIPooling", data, rois, head=head, **attrs)
    np.testing.assert_array_equal(to_data.reshape(wanted.shape), wanted)
    assert not to_rois.any()


@pytest.mark.usefixtures("way")
def test_minus_infinity_is_a_maximum_too():
    data = np.full((1, 1, 4, 4), -np.inf, "f4")
    rois = np.array([[0, 2, 2, 3, 3]], "f4")
    to_data, _ = gradients(
        "ROIPooling", data, rois, head=np.ones((1, 1, 1, 1), "f4"), pooled_size=(1, 1), spatial_scale=1
    )
    assert np.flatnonzero(to_data).tolist() == [10]


@pytest.mark.usefixtures("way")
def test_no_regions_give_an_empty_result():
    attrs = {"pooled_size": (2, 2), "spatial_scale": 1.0}
    assert run("ROIPooling", np.ones((1, 3, 4, 4)), np.zeros((0, 5)), **attrs).shape == (0, 3, 2, 2)


@pytest.mark.parametrize("image", [-1, 2])
def test_a_region_of_no_image_is_told(image):
    rois = np.array([[image, 0, 0, 2, 2.0]])
    with pytest.raises(BoundsError, match=rf"has image {image} .* expected 0 to 1 as data has 2 images"):
        run("ROIPooling", np.ones((2, 1, 4, 4)), rois, pooled_size=(2, 2), spatial_scale=1.0)


def test_shapes_with_unknown_sizes_and_wrong_ones():
    attrs = {"pooled_size": (2, 3), "spatial_scale": 1.0}
    assert shapes("ROIPooling", [(2, 0, 8, 8), None], **attrs)[1] == [(0, 0, 2, 3)]
    assert shapes("ROIPooling", [(2, 7, 0, 0), (4, 5)], **attrs)[1] == [(4, 7, 2, 3)]
    with pytest.raises(ShapeError, match=r"rois has shape \(4, 6\)"):
        shapes("ROIPooling", [(2, 7, 8, 8), (4, 6)], **attrs)
    with pytest.raises(ShapeError, match="expected 4 axes"):
        shapes("ROIPooling", [(2, 7, 8), (4, 5)], **attrs)
    with pytest.raises(OpError, match="two positive integers"):
        shapes("ROIPooling", [(2, 7, 8, 8), (4, 5)], pooled_size=(2,), spatial_scale=1.0)
