import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError

S = mx.sym


def fc():
    return S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc")


def test_by_name_and_by_position():
    infer, want = fc().infer_shape, ([(2, 5), (3, 5), (3,)], [(2, 3)], [])
    assert infer(data=(2, 5)) == infer((2, 5)) == infer((2, 5), None, ()) == want
    assert infer(data=[np.int64(2), 5]) == want


def test_unknown_shapes_give_nones_and_a_warning_that_names_them():
    with pytest.warns(UserWarning, match=r"data: \(0, 5\), fc_output: \(0, 3\)"):
        assert fc().infer_shape(data=(0, 5)) == (None, None, None)
    with pytest.warns(UserWarning, match="data: unknown"):
        assert fc().infer_shape() == (None, None, None)
    many = S.add_n(*[S.Variable(f"v{i}") for i in range(30)])
    with pytest.warns(UserWarning, match="v9: unknown and 21 more"):
        many.infer_shape()


def test_unknown_types_give_nones_and_a_warning():
    net = S.Group([fc(), S.Variable("b")])
    with pytest.warns(UserWarning, match="types?.*: b"):
        assert net.infer_type(data="float16") == (None, None, None)
    assert net.infer_type_partial(data="float16")[0] == [np.float16, np.float16, np.float16, None]


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
    chosen = S.where(data, state, S.Variable("other"))
    assert chosen.infer_shape_partial(data=(0, 2), state=(0, 2), other=(0, 2))[1] == [()]
    assert chosen.infer_shape_partial(data=(0,), state=(2, 2), other=(2, 2))[1] == [()]
    assert chosen.infer_shape_partial(data=(2,), state=(2, 0), other=(0, 3))[1] == [(2, 3)]
    assert S.pick(data, state, axis=1).infer_shape(data=(2, 4)) == ([(2, 4), (2,)], [(2,)], [])


def scoped():
    with mx.AttrScope(__x__="1", ctx_group="dev"):
        d = S.Variable("d", lr_mult=2, attr={"wd_mult": "3"})
        return d, S.FullyConnected(d, num_hidden=2, name="q")


@pytest.mark.parametrize("given", [{"__x__": 3}, {"mood": "calm"}, {"num_hidden": "few"}])
def test_setting_refuses(given):
    _, q = scoped()
    with pytest.raises(ArgumentError, match=next(iter(given)) + "|expected a string"):
        q._set_attr(**given)
    assert q.attr("num_hidden") == "2"


def test_more_follows_than_in_mxnet():
    assert S.Flatten(S.Variable("x")).infer_shape_partial(x=(0, 3, 4))[1] == [(0, 12)]
    assert fc().infer_shape_partial(fc_weight=(3, 5))[0] == [(), (3, 5), (3,)]
