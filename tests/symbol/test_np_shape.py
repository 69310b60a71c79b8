"""Shapes inside `util.np_shape`: -1 is an unknown dimension, None an unknown shape, 0 an empty axis, () a scalar."""

import json

import pytest

import dpmodule as mx
from dpmodule.base import ShapeError

S = mx.sym


def x(**options):
    return S.Variable("x", **options)


def partial(symbol, **given):
    return symbol.infer_shape_partial(**given)


OUTPUT_SHAPES = [
    (lambda: S.dot(x(), S.Variable("y")), {"x": (-1, 3, 4), "y": (4, 5)}, (-1, 3, 5)),
    (lambda: S.Embedding(x(), input_dim=9, output_dim=2), {"x": (-1, 5)}, (-1, 5, 2)),
    (lambda: S.batch_dot(x(), S.Variable("y")), {"x": (-1, 3, 4), "y": (-1, -1, 5)}, None),
    (lambda: S.exp(x()), {"x": (0, 3)}, (0, 3)),
    (lambda: S.FullyConnected(x(), num_hidden=2), {"x": (0, 3)}, (0, 2)),
    (lambda: S.concat(x(), S.Variable("y"), dim=0), {"x": (0, 3), "y": (2, 3)}, (2, 3)),
    *((lambda: S.zeros((0, 3)), {}, (0, 3)), (lambda: S.exp(x()), {"x": ()}, ())),
]


@pytest.mark.parametrize(("make", "given", "found"), OUTPUT_SHAPES)
def test_output_shapes(make, given, found):
    with mx.util.np_shape():
        assert partial(make(), **given)[1] == [found]


def test_complete_shapes_may_have_empty_axes_but_no_unknown_ones():
    with mx.util.np_shape():
        assert S.exp(x()).infer_shape(x=(0, 3)) == ([(0, 3)], [(0, 3)], [])
        with pytest.warns(UserWarning, match="cannot infer every shape"):
            assert S.exp(x()).infer_shape(x=(-1, 3)) == (None, None, None)
        with pytest.raises(ShapeError, match="exp"):
            (S.exp(x()) + S.Variable("y")).infer_shape(x=(0, 3), y=(2, 3))


def test_graphs_with_empty_arrays_and_scalars_run():
    with mx.util.np_shape():
        assert S.exp(x()).simple_bind(mx.cpu(), x=(0, 3)).forward()[0].shape == (0, 3)
        assert (S.exp(x()) * 2).simple_bind(mx.cpu(), x=()).forward(x=0.0)[0].asscalar() == 2.0
        assert S.exp(x()).eval(x=mx.nd.zeros((0, 2)))[0].shape == (0, 2)


def test_executors_are_reshaped_to_empty_batches_and_back():
    with mx.util.np_shape():
        executor = S.FullyConnected(x(), num_hidden=2).simple_bind(mx.cpu(), x=(3, 4))
        empty, same = (executor.reshape(x=(rows, 4)) for rows in (0, -1))
        again = empty.reshape(x=(3, 4), allow_up_sizing=True)
        assert [each.forward()[0].shape for each in (empty, same, again)] == [(0, 2), (3, 2), (3, 2)]


def test_files_say_in_which_way_their_shapes_are_written():
    outside = S.exp(x(shape=(0, 4))).tojson()
    assert "is_np_shape" not in json.loads(outside)["attrs"]
    with mx.util.np_shape():
        inside = S.exp(x(shape=(-1, 0))).tojson()
        assert json.loads(inside)["attrs"]["is_np_shape"] == ["int", 1]
        assert (partial(S.load_json(inside))[1], partial(S.load_json(outside))[1]) == ([(-1, 0)], [(-1, 4)])
