import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, ShapeError

S = mx.sym


def fc():
    return S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc")


def test_by_name_and_by_position():
    want = ([(2, 5), (3, 5), (3,)], [(2, 3)], [])
    assert fc().infer_shape(data=(2, 5)) == want
    assert fc().infer_shape((2, 5)) == want
    assert fc().infer_shape(data=[np.int64(2), 5]) == want
    assert fc().infer_shape((2, 5), None, ()) == want


def test_states_are_reported_and_may_be_given():
    net = S.BatchNorm(fc(), name="bn")
    assert net.infer_shape(data=(2, 5))[2] == [(3,), (3,)]
    assert net.infer_shape(data=(2, 5), bn_moving_mean=(3,))[2] == [(3,), (3,)]


def test_unknown_shapes_give_nones_and_a_warning_that_names_them():
    with pytest.warns(UserWarning, match=r"data: \(0, 5\), fc_output: \(0, 3\)"):
        assert fc().infer_shape(data=(0, 5)) == (None, None, None)
    with pytest.warns(UserWarning, match="data: unknown"):
        assert fc().infer_shape() == (None, None, None)
    many = S.add_n(*[S.Variable(f"v{i}") for i in range(30)])
    with pytest.warns(UserWarning, match="v9: unknown and 21 more"):
        many.infer_shape()


def test_partial_inference_says_what_it_knows():
    assert fc().infer_shape_partial(data=(0, 5)) == ([(0, 5), (3, 5), (3,)], [(0, 3)], [])
    assert fc().infer_shape_partial()[1] == [()]


def test_more_follows_than_in_mxnet():
    flat = S.Flatten(S.Variable("x"))
    assert flat.infer_shape_partial(x=(0, 3, 4))[1] == [(0, 12)]
    assert fc().infer_shape_partial(fc_weight=(3, 5))[0] == [(), (3, 5), (3,)]


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "said"),
    [
        (((2, 5),), {"fc_weight": (3, 5)}, ArgumentError, "not both"),
        (((2, 5), (3, 5), (3,), (4,)), {}, ArgumentError, "4 values for 3 arguments"),
        ((), {"zz": (2,)}, ArgumentError, "'zz' is no argument; arguments: data"),
        ((), {"data": 5}, DTypeError, "given for data is 5"),
        ((), {"data": "wide"}, DTypeError, "given for data"),
        ((), {"data": (2.5, 5)}, DTypeError, "tuple of integers"),
        (
            (),
            {"data": (2, 5), "fc_weight": (3, 6)},
            ShapeError,
            "FullyConnected 'fc' made at .*test_inference.py",
        ),
    ],
)
def test_wrong_shapes(args, kwargs, error, said):
    with pytest.raises(error, match=said):
        fc().infer_shape(*args, **kwargs)


def test_types():
    half = [np.float16] * 3
    assert fc().infer_type(data="float16") == (half, [np.float16], [])
    assert fc().infer_type(np.float16) == (half, [np.float16], [])
    assert fc().infer_type(fc_bias=np.float16) == (half, [np.float16], [])
    net = S.BatchNorm(fc(), name="bn")
    assert net.infer_type(data="float16")[2] == [np.float32, np.float32]


def test_types_of_declared_variables():
    assert (S.Variable("v", dtype="float16") + S.Variable("w")).infer_type()[0] == [np.float16, np.float16]


def test_unknown_types_give_nones_and_a_warning():
    net = S.Group([fc(), S.Variable("b")])
    with pytest.warns(UserWarning, match="types?.*: b"):
        assert net.infer_type(data="float16") == (None, None, None)
    assert net.infer_type_partial(data="float16")[0] == [np.float16, np.float16, np.float16, None]


@pytest.mark.parametrize(
    ("kwargs", "error", "said"),
    [
        ({"zz": "float16"}, ArgumentError, "'zz' is no argument"),
        ({"data": "float7"}, DTypeError, "float7"),
        ({"data": "int32", "fc_weight": "float32"}, DTypeError, "FullyConnected 'fc' made at"),
    ],
)
def test_wrong_types(kwargs, error, said):
    with pytest.raises(error, match=said):
        fc().infer_type(**kwargs)


def test_partial_rules_to_the_letter():
    data, state = S.Variable("data"), S.Variable("state")
    left = S.FullyConnected(data, num_hidden=4, name="left")
    both = left + S.FullyConnected(state, num_hidden=4, name="right")
    found = dict(zip(both.list_arguments(), both.infer_shape_partial(data=(2, 3))[0]))
    assert found["left_weight"] == (4, 3)
    assert found["right_weight"] == ()  # nothing is said before the data's shape is known
    product = S.batch_dot(data, state)
    assert product.infer_shape_partial(data=(0, 3, 4), state=(0, 4, 5))[1] == [(0, 3, 5)]
    assert product.infer_shape_partial(data=(0, 3, 4), state=(0, 0, 5))[1] == [()]
    picked = S.pick(data, state, axis=1)
    assert picked.infer_shape(data=(2, 4)) == ([(2, 4), (2,)], [(2,)], [])


def test_the_condition_of_where_has_a_type_of_its_own():
    chosen = S.where(S.Variable("c"), S.Variable("a"), S.Variable("b"))
    assert chosen.infer_type_partial(a="float16") == ([None, np.float16, np.float16], [np.float16], [])
    executor = chosen.simple_bind(mx.cpu(), grad_req="null", type_dict={"a": "float16"}, c=(2,), a=(2,))
    assert [v.dtype for v in executor.arg_arrays] == [np.float32, np.float16, np.float16]
