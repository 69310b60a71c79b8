"""Softmax of few classes by the native extension against NumPy's in double precision."""

import numpy as np
import pytest
import torch

from dpmodule import native
from dpmodule.ops.nn.softmax import _is_small, row_softmax

pytestmark = pytest.mark.skipif(
    not hasattr(native.core, "softmax"), reason="there is no extension, or its compiler has no vector types"
)


class Wide:
    """The extension on a processor for which all rows of the kernel's are short."""

    vector_width = 17
    softmax = staticmethod(getattr(native.core, "softmax", None))


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr("dpmodule.ops.nn.linear._native", Wide)


def exact(scores):
    scores = scores.double().numpy()
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def scores_of(rows, classes, scale):
    return torch.from_numpy(np.random.RandomState(rows).uniform(-scale, scale, (rows, classes))).float()


@pytest.mark.parametrize("scale", [1, 40, 1e30])
def test_every_number_of_classes_and_rows_around_the_vectors(scale):
    for rows in (4, 7, 16, 17, 33):
        for classes in range(1, 17):
            scores = scores_of(rows, classes, scale)
            assert _is_small(scores)
            np.testing.assert_allclose(row_softmax(scores), exact(scores), rtol=1e-5, atol=2e-38)


def test_a_row_depends_on_no_other():
    scores = scores_of(33, 10, 5)
    whole = row_softmax(scores)
    for first in (0, 3, 20):
        assert torch.equal(row_softmax(scores[first : first + 9]), whole[first : first + 9])


def test_nan_and_infinity_are_torchs():
    nan, inf = float("nan"), float("inf")
    rows = [[1, inf, 2], [nan, 1, 2], [1, 2, nan], [-inf, -inf, -inf], [-inf, 0, 1], [-200, 0, 1]]
    scores = torch.tensor(rows)
    found = row_softmax(scores)
    np.testing.assert_allclose(found, torch.softmax(scores, 1), rtol=1e-6)
    assert (found[4:, 0] == 0).all()


def test_what_is_left_to_torch():
    scores = scores_of(8, 10, 1)
    assert _is_small(scores)
    others = [scores[:3], scores.t(), scores.double(), scores.view(2, 4, 10), scores.to("meta")]
    others += [scores[:, :0], scores_of(8, 17, 1), scores.clone().requires_grad_()]
    assert not any(map(_is_small, others))
    seen = []
    torch.vmap(lambda x: seen.append(_is_small(x)) or x)(torch.zeros(2, 8, 10))
    assert seen == [False]


def test_without_the_extension_torch_computes(monkeypatch):
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr("dpmodule.ops.nn.linear._native", None)
    scores = scores_of(8, 10, 1)
    assert torch.equal(row_softmax(scores), torch.softmax(scores, 1))
