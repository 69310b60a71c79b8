"""Operators as functions of torch tensors, found by name."""

import inspect
import pickle

import numpy as np
import torch

import dpmodule as mx
from dpmodule import ops
from dpmodule.ops import fx
from helpers.walk import family_of, walks


@walks(sorted({ops.get(name).name for name in ops.names()}), family=family_of)
def test_every_operator_is_a_function_of_its_name(name):
    op, function = ops.get(name), getattr(fx, name)
    assert function is fx.function_of(op)
    assert function.__name__ == name
    assert pickle.loads(pickle.dumps(function)) is function
    assert not set(op.attrs) & fx.RESERVED
    # the writer of modules tells the mode to these; another that reads it would always predict
    reads = "is_train" in inspect.getsource(op.loss.forward if op.loss else op.run)
    assert op.random or op.mutates or op.stateful or op.loss or not (reads and op.inputs)


CODES = [{"shape": codes} for codes in ((0, -1), (-3, 0), (-2,), (0, -4, -1, 3, 0))]
OLD = [{"target_shape": (0, 12)}, {"target_shape": (2, 0), "keep_highest": True}]


@walks([*CODES, {"shape": (0, 0, -1), "reverse": True}, *OLD])
def test_reshape_understands_the_codes(attributes):
    data = mx.nd.arange(24).reshape((2, 3, 4))
    found = fx.Reshape(data.torch(), **attributes)
    np.testing.assert_array_equal(found.numpy(), mx.nd.Reshape(data, **attributes).asnumpy())


BOXES = torch.tensor([[0, 0.9, 0, 0, 1, 1], [0, 0.8, 0, 0, 1, 0.9], [1, 0.7, 0.5, 0.5, 1, 1]])
LABELS = torch.tensor([[1.0, 2], [3, 0]])
NMS = {"overlap_thresh": 0.5, "coord_start": 2, "score_index": 1, "id_index": 0}


@walks(
    (mx.sym.contrib.box_nms(mx.sym.Variable("x"), **NMS), (BOXES,)),
    (mx.sym.CTCLoss(mx.sym.Variable("x"), mx.sym.Variable("y")), (torch.rand(6, 2, 5), LABELS)),
)
def test_operators_that_look_at_their_data_are_exported_as_single_calls(symbol, given):
    net = symbol.to_torch().eval()
    made = torch.export.export(net, given, strict=False)  # torch 2.6 has another default
    assert "dpmodule.opaque" in made.graph_module.code
    found, wanted = ([*t] if isinstance(t, tuple) else [t] for t in (made.module()(*given), net(*given)))
    assert all(map(torch.equal, found, wanted))


def test_what_users_operators_keep_is_not_copied():
    memory = fx.OperatorState()
    memory.kept["x"] = object()
    assert pickle.loads(pickle.dumps(memory)).kept == {}
