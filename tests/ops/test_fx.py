"""Operators as functions of torch tensors, found by name."""

import inspect
import pickle
import re

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import ops
from dpmodule.ops import fx
from helpers.walk import family_of, walks

NAMES = sorted({ops.get(name).name for name in ops.names()})


@walks(NAMES, family=family_of)
def test_every_operator_is_a_function_of_its_name(name):
    function = getattr(fx, name)
    assert function is fx.function_of(ops.get(name))
    assert function.__name__ == name
    assert pickle.loads(pickle.dumps(function)) is function


@walks(NAMES, family=family_of)
def test_no_operator_has_an_attribute_of_a_keyword_that_all_take(name):
    assert not set(ops.get(name).attrs) & fx.RESERVED


@walks(NAMES, family=family_of)
def test_operators_that_know_their_mode_are_told_it(name):
    """The writer of modules tells the mode to these; another that reads it would always predict."""
    op = ops.get(name)
    reads = "is_train" in inspect.getsource(op.loss.forward if op.loss else op.run)
    if reads and op.inputs:
        assert op.random or op.mutates or op.stateful or op.loss


def test_functions_compute_what_operators_do():
    data = torch.tensor([[1.0, -2.0]])
    assert fx.Activation(data, act_type="relu").tolist() == [[1, 0]]
    assert fx.FullyConnected(data, torch.ones(3, 2), num_hidden=3, no_bias=True).tolist() == [[-1, -1, -1]]
    assert [t.tolist() for t in fx.SliceChannel(data, num_outputs=2)] == [[[1]], [[-2]]]
    assert fx._zeros(shape=(2,), like=data.double()).dtype == torch.float64
    assert fx._zeros(shape=(0, 2), out_shapes=((3, 2),), like=data).shape == (3, 2)
    assert fx._zeros(shape=(2,)).device.type == "cpu"


def test_a_dense_layer_takes_data_of_any_rank_and_a_column_as_bias():
    weight, bias = torch.ones(3, 4), torch.ones(3, 1)
    assert fx.FullyConnected(torch.ones(2, 2, 2), weight, bias, num_hidden=3).tolist() == [[5] * 3] * 2
    assert fx.FullyConnected(torch.ones(4, 1)[:, 0], torch.ones(3, 1), num_hidden=3, no_bias=True).shape == (
        4,
        3,
    )
    assert fx.FullyConnected(torch.ones(2, 5, 4), weight, bias, num_hidden=3, flatten=False).shape == (
        2,
        5,
        3,
    )


@walks(
    [
        ((2, 3, 4), {"shape": (0, -1)}),
        ((2, 3, 4), {"shape": (-3, 0)}),
        ((2, 3, 4), {"shape": (-2,)}),
        ((2, 3, 4), {"shape": (0, -4, -1, 3, 0)}),
        ((2, 3, 4), {"shape": (0, 0, -1), "reverse": True}),
        ((2, 3, 4), {"target_shape": (0, 12)}),
        ((2, 3, 4), {"target_shape": (2, 0), "keep_highest": True}),
    ]
)
def test_reshape_understands_the_codes(shape, attributes):
    data = mx.nd.arange(24).reshape(shape)
    wanted = mx.nd.Reshape(data, **attributes)
    np.testing.assert_array_equal(fx.Reshape(data.torch(), **attributes).numpy(), wanted.asnumpy())


def test_what_is_no_operator_is_no_function():
    with pytest.raises(AttributeError, match="Convolutoin.*no such operator"):
        fx.Convolutoin(torch.ones(1))
    assert not hasattr(fx, "__path__")


def test_what_users_operators_keep_is_not_copied():
    memory = fx.OperatorState()
    memory.kept["x"] = object()
    assert pickle.loads(pickle.dumps(memory)).kept == {}


@walks(["_contrib_box_nms", "CTCLoss"])
def test_operators_that_look_at_their_data_are_exported_as_single_calls(name):
    if name == "CTCLoss":
        given, attributes = (torch.rand(6, 2, 5), torch.tensor([[1.0, 2.0], [3.0, 0.0]])), {}
    else:
        boxes = torch.tensor([[0, 0.9, 0, 0, 1, 1], [0, 0.8, 0, 0, 1, 0.9], [1, 0.7, 0.5, 0.5, 1, 1]])
        given, attributes = (
            (boxes,),
            {"overlap_thresh": 0.5, "coord_start": 2, "score_index": 1, "id_index": 0},
        )
    names = [mx.sym.Variable(f"x{i}") for i in range(len(given))]
    symbol = mx.sym.contrib.box_nms(*names, **attributes) if attributes else mx.sym.CTCLoss(*names)
    net = symbol.to_torch().eval()
    made = torch.export.export(net, given, strict=False)  # torch 2.6 has another default
    assert re.search(r"dpmodule.opaque", made.graph_module.code)
    found, wanted = made.module()(*given), net(*given)
    for one, two in zip(*((t if isinstance(t, tuple) else (t,)) for t in (found, wanted))):
        assert torch.equal(one, two)
