import itertools
import math

import numpy as np
import pytest

from dpmodule.base import ShapeError
from helpers.numeric import check_gradients, run, shapes

rng = np.random.RandomState(11)


def pool(data, kind, kernel, stride, pad, full):
    """Pool a padded image window by window; what lies beyond the padding does not exist."""
    data = np.pad(data, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    rounding = math.ceil if full else math.floor
    sizes = [1 + rounding((x - kernel) / stride) for x in data.shape[2:]]
    out = np.zeros((*data.shape[:2], *sizes))
    for i, j in np.ndindex(*sizes):
        top, left = i * stride, j * stride
        part = data[:, :, top : top + kernel, left : left + kernel].reshape(*data.shape[:2], -1)
        if kind == "max":
            out[:, :, i, j] = part.max(-1, initial=-np.inf)
        else:
            out[:, :, i, j] = part.sum(-1) / (kernel**2 if kind == "avg" else 1)
    return out


@pytest.mark.parametrize("kind", ["max", "avg", "sum"])
@pytest.mark.parametrize("full", [True, False])
def test_equals_the_formula(kind, full):
    for kernel, stride, size in itertools.product((1, 2, 3), (1, 2, 3), (4, 5)):
        pad = kernel - 1
        data = rng.randn(2, 3, size, size + 1)
        attrs = {
            "kernel": (kernel, kernel),
            "stride": (stride, stride),
            "pad": (pad, pad),
            "pool_type": kind,
            "pooling_convention": "full" if full else "valid",
        }
        want = pool(data, kind, kernel, stride, pad, full)
        np.testing.assert_allclose(run("Pooling_v1", data, **attrs), want, atol=1e-12)
        assert shapes("Pooling_v1", data.shape, **attrs)[1] == [want.shape]


def test_gradient_and_global():
    data = rng.randn(1, 2, 4, 4)
    check_gradients("Pooling_v1", data, kernel=(3, 3), pad=(1, 1), stride=(2, 2))
    np.testing.assert_allclose(run("Pooling_v1", data, global_pool=True)[..., 0, 0], data.max((2, 3)))


def test_mistakes_are_named():
    with pytest.raises(ShapeError, match="expected 4 or 5 axes"):
        shapes("Pooling_v1", (2, 3, 4), kernel=(2,))
    with pytest.raises(ShapeError, match="one per spatial axis"):
        shapes("Pooling_v1", (2, 3, 4, 4), kernel=(2,))
