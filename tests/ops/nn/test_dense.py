import numpy as np
import pytest

import dpmodule as mx
from helpers.arrays import f8, randn
from helpers.op_case import rules_test, shapes, types, values_test

TABLE, EMBEDDING, FC = randn(4, 3), {"input_dim": 4, "output_dim": 3}, "FullyConnected"
test_values = values_test(
    *[
        ("Embedding", (np.array([[0, 3, 1], [2, 2, 0]], kind), TABLE), EMBEDDING, TABLE[[[0, 3, 1], [2, 2, 0]]])
        for kind in ("f4", "f8", "i4")
    ],
    ("Embedding", (f8([-5, 1.9, 99]), TABLE), EMBEDDING, TABLE[[0, 1, 3]]),  # cut off; ends repeat
)  # fmt: skip
test_shapes = rules_test(
    (FC, [(4, 3, 2), None, None], {"num_hidden": 5}, [(4, 3, 2), (5, 6), (5,)], [(4, 5)]),
    # the begin state of an unrolled RNN is (0, H); its rows follow from what it is added to
    (FC, [(0, 3), None, None], {"num_hidden": 5}, [(7, 3), (5, 3), (5,)], [(7, 5)], [(7, 5)]),
    (FC, [(7, 0), (5, 3)], {"num_hidden": 5, "no_bias": True}, [(7, 3), (5, 3)], [(7, 5)]),
    (FC, [(0, 3), None], {"num_hidden": 2, "no_bias": True}, [(0, 3), (2, 3)], [(0, 2)]),
    (FC, [None, None, None], {"num_hidden": 2}, [None, None, (2,)], [None]),
    ("Embedding", [(2, 5), None], EMBEDDING, [(2, 5), (4, 3)], [(2, 5, 3)]),
    ("Embedding", [None, None], EMBEDDING, [(2, 5), (4, 3)], None, [(2, 5, 3)]),
)
test_types = rules_test(
    ("Embedding", ["int32", None], EMBEDDING, ["int32", "float32"], ["float32"]),
    ("Embedding", ["int32", None], {**EMBEDDING, "dtype": "float16"}, ["int32", "float16"], ["float16"]),
    ("Embedding", ["float64", "float64"], EMBEDDING, ["float64", "float64"], ["float64"]),
    rule=types,
)


@pytest.mark.parametrize("flatten", [True, False])
def test_a_bias_may_be_one_column(flatten):
    """MXNet's language model uses an embedding of width 1 as the bias of its decoder."""
    assert shapes(FC, [(7, 3), None, (5, 1)], num_hidden=5, flatten=flatten)[0] == [(7, 3), (5, 3), (5, 1)]
    net = mx.sym.FullyConnected(*map(mx.sym.Variable, "xwb"), num_hidden=2, flatten=flatten)
    executor = net.simple_bind(mx.cpu(), x=(3, 4), b=(2, 1))
    executor.arg_dict["b"][:] = np.array([[1], [2]])
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [[1, 2]] * 3
    executor.backward([mx.nd.array([[1, 10]] * 3)])
    assert executor.grad_dict["b"].asnumpy().tolist() == [[3], [30]]
