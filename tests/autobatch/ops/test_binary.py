"""Functions of two arrays: numbers that are not finite."""

import numpy as np
import pytest

import dpmodule.autobatch as dy


@pytest.mark.parametrize(("function", "theirs"), [(dy.bmax, np.maximum), (dy.bmin, np.minimum)])
def test_extremes_of_nan(engine, function, theirs):
    a, b = np.array([np.nan, 1.0, 2.0, np.inf, -np.inf] * 3), np.array([1.0, np.nan, 3.0, np.nan, 0.0] * 3)
    np.testing.assert_array_equal(function(dy.inputTensor(a), dy.inputTensor(b)).npvalue(), theirs(a, b))
