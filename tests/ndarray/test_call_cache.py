"""Calls whose plan is found by the way they are written."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import ops
from dpmodule.base import OpError
from dpmodule.ndarray import call_cache, op_functions

nd = mx.nd


def forms_of(face):
    """Return what a face keeps."""
    names = face.__code__.co_freevars
    return face.__closure__[names.index("forms")].cell_contents


def test_a_form_leads_to_the_plan_of_its_values():
    face = op_functions.make_face(ops.get("sum"), "sum")
    x = nd.array([[1, 2], [3, 4]])
    for _ in range(2):
        assert face(x, axis=0).asnumpy().tolist() == [4, 6]
        assert face(x, axis=1).asnumpy().tolist() == [3, 7]
        assert face(x, 1).asnumpy().tolist() == [3, 7]
        assert face(x).asnumpy().tolist() == [10]
    assert {key: len(form.plans) for key, form in forms_of(face).items()} == {
        (1, "axis"): 2,
        (2,): 1,
        (1,): 1,
    }


def test_named_inputs_in_another_order():
    face = op_functions.make_face(ops.get("FullyConnected"), "FullyConnected")
    x, w, b = nd.array([[1, 2]]), nd.array([[1, 1], [2, 2]]), nd.array([10, 20])
    for _ in range(2):
        assert face(bias=b, weight=w, data=x, num_hidden=2).asnumpy().tolist() == [[13, 26]]
        assert face(x, bias=b, num_hidden=2, weight=w).asnumpy().tolist() == [[13, 26]]
        assert face(x, w, num_hidden=2, no_bias=True).asnumpy().tolist() == [[3, 6]]
        assert face(x, w, None, 2, True).asnumpy().tolist() == [[3, 6]]
        assert face(x, w, bias=None, num_hidden=2, no_bias=True).asnumpy().tolist() == [[3, 6]]
        with pytest.raises(OpError, match="'bias' is missing"):
            face(x, w, num_hidden=2)


def test_one_form_with_other_kinds_of_arguments():
    face = op_functions.make_face(ops.get("Concat"), "Concat")
    x = nd.ones((2, 1))
    assert face(x, dim=1).shape == (2, 1)
    assert face([x, x], dim=1).shape == (2, 2)
    with pytest.raises(OpError, match="int 3"):
        face(3, dim=1)
    plus = op_functions.make_face(ops.get("_plus_scalar"), "_plus_scalar")
    assert plus(x, scalar=1).asnumpy().tolist() == [[2], [2]]
    with pytest.raises(OpError, match="ndarray"):
        plus(np.ones(2), scalar=1)


def test_equal_values_of_other_types_are_told_apart():
    face = op_functions.make_face(ops.get("_div_scalar"), "_div_scalar")
    x = nd.array([1, -1])
    for zero, want in ((0.0, np.inf), (-0.0, -np.inf), (0, np.inf)):
        assert face(x, scalar=zero).asnumpy().tolist() == [want, -want]


def test_out_and_name_are_no_attributes():
    x, out = nd.array([-1, 2]), nd.zeros(2)
    for _ in range(2):
        assert nd.relu(x, out=out, name="r") is out
    assert out.asnumpy().tolist() == [0, 2]
    assert nd.relu(x, out=None).asnumpy().tolist() == [0, 2]


def test_kept_plans_stay_few():
    face = op_functions.make_face(ops.get("_plus_scalar"), "_plus_scalar")
    x = nd.zeros(1)
    for i in range(call_cache._MOST_PLANS * 3 // 2):
        assert face(x, scalar=i).asscalar() == i
    assert len(forms_of(face)[(1, "scalar")].plans) <= call_cache._MOST_PLANS
