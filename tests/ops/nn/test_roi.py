import numpy as np
import pytest

from dpmodule.ops.nn import roi
from helpers.arrays import f4
from helpers.op_case import gradients, rules_test, run

random = np.random.RandomState(4)
ONE = {"pooled_size": (1, 1), "spatial_scale": 1}


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


@pytest.mark.parametrize("masked", [0, 1 << 30], ids=["windows", "every pixel"])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (7, 7)])
def test_first_maximum_of_each_bin_and_its_gradient(kind, size, masked, monkeypatch):
    monkeypatch.setattr(roi, "_MAX_MASKED_PIXELS", masked)  # both ways of finding the maxima
    # few different values, so that most maxima tie, negative zero among them
    data = (random.randint(-1, 2, (2, 3, 9, 11)) * -1.0).astype(kind)
    corners = random.rand(8, 4) * [22, 18, 22, 18] * 1.3 - 2
    rois = np.concatenate([random.randint(0, 2, (8, 1)), corners], 1).astype(kind)
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
    lowest = np.full((1, 1, 4, 4), -np.inf, "f4")
    assert np.flatnonzero(gradients("ROIPooling", lowest, f4([[0, 2, 2, 3, 3]]), **ONE)[0]).tolist() == [10]
    assert run("ROIPooling", np.ones((1, 3, 4, 4)), np.zeros((0, 5)), **ONE).shape == (0, 3, 1, 1)


POOL = {"pooled_size": (2, 3), "spatial_scale": 1.0}
test_shapes = rules_test(
    ("ROIPooling", [(2, 0, 8, 8), None], POOL, None, [(0, 0, 2, 3)]),
    ("ROIPooling", [(2, 7, 0, 0), (4, 5)], POOL, None, [(4, 7, 2, 3)]),
)
