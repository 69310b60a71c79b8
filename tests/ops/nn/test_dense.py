import numpy as np
import pytest
import torch

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


LARGE = {"input_dim": 600, "output_dim": 1000}  # from 2 MiB, memory of gradients is used again


def lookup_in(table, data):
    return mx.sym.Embedding(data, table, **LARGE)


def random_rows(rng, count):
    return rng.integers(0, 600 if rng.random() < 0.5 else 30, (2, count))


def expected_gradient(steps):
    """Return the gradient of a table for lookups: pairs of indices and gradients."""
    table = torch.zeros(600, 1000, dtype=torch.float64)
    for rows, grad in steps:
        table.index_add_(
            0, torch.tensor(rows).flatten(), torch.tensor(grad, dtype=torch.float64).view(-1, 1000)
        )
    return table.numpy()


def nothing_done(grad):
    pass


def changed(grad):
    grad[:] += 1


def changed_through_numpy(grad):
    np.asarray(grad)[...] += 1


def replaced_by_nan(grad):
    grad[:] = np.nan


@pytest.mark.parametrize(
    "use", [nothing_done, changed, changed_through_numpy, replaced_by_nan], ids=lambda use: use.__name__
)
@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64"])
def test_every_gradient_of_a_large_table_has_only_the_rows_of_its_batch(kind, use):
    executor = lookup_in(mx.sym.Variable("weight"), mx.sym.Variable("data")).simple_bind(
        mx.cpu(), grad_req={"data": "null", "weight": "write"}, data=(2, 9), type_dict={"data": kind}
    )
    rng = np.random.default_rng(4)
    for _ in range(8):
        rows, grad = random_rows(rng, 9), rng.standard_normal((2, 9, 1000)).astype("f4")
        executor.forward(is_train=True, data=mx.nd.array(rows, dtype=kind))
        executor.backward([mx.nd.array(grad)])
        found = executor.grad_dict["weight"]
        np.testing.assert_allclose(found.asnumpy(), expected_gradient([(rows, grad)]), atol=1e-6)
        use(found)


@pytest.mark.parametrize("req", ["write", "add"])
@pytest.mark.parametrize("kind", ["float32", "int32", "int64"])
def test_gradients_of_many_indices(kind, req):
    symbol = mx.sym.Embedding(mx.sym.Variable("data"), mx.sym.Variable("weight"), input_dim=7, output_dim=5)
    executor = symbol.simple_bind(
        mx.cpu(), grad_req={"data": "null", "weight": req}, data=(40, 30), type_dict={"data": kind}
    )
    rng, expected = np.random.default_rng(9), np.zeros((7, 5))
    for low in (0, -3):  # out of range: clipped
        rows, grad = rng.integers(low, 7 - low, (40, 30)), rng.standard_normal((40, 30, 5))
        expected *= req == "add"
        np.add.at(expected, rows.clip(0, 6), grad)
        out = executor.forward(is_train=True, data=mx.nd.array(rows, dtype=kind))[0]
        np.testing.assert_array_equal(out.asnumpy(), executor.arg_dict["weight"].asnumpy()[rows.clip(0, 6)])
        executor.backward([mx.nd.array(grad)])
        np.testing.assert_allclose(executor.grad_dict["weight"].asnumpy(), expected, atol=1e-4)


def test_a_batch_that_is_overwritten_between_two_gradients():
    symbol = mx.sym.MakeLoss(lookup_in(mx.sym.Variable("weight"), mx.sym.Variable("data")))
    module = mx.mod.Module(symbol, ["data"], None)
    module.bind([mx.io.DataDesc("data", (2, 9), "int64")])
    module.init_params()
    batch, rng = mx.nd.zeros((2, 9), dtype="int64"), np.random.default_rng(5)
    for _ in range(4):
        batch[:] = rows = random_rows(rng, 9)
        module.forward_backward(mx.io.DataBatch([batch]))
        found = module._exec_group.execs[0].grad_dict["weight"]
        np.testing.assert_array_equal(found.asnumpy(), expected_gradient([(rows, np.ones((2, 9, 1000)))]))


@pytest.mark.parametrize("req", ["write", "add"])
def test_gradients_of_a_large_table_that_several_lookups_read(req):
    table, x, y = map(mx.sym.Variable, ("weight", "x", "y"))
    symbol = lookup_in(table, x) * 2 + lookup_in(table, y) + lookup_in(table, x)
    request = {"x": "null", "y": "null", "weight": req}
    executor = symbol.simple_bind(mx.cpu(), grad_req=request, x=(2, 9), y=(2, 9))
    rng, steps = np.random.default_rng(6), []
    for _ in range(5):
        x, y, grad = random_rows(rng, 9), random_rows(rng, 9), rng.standard_normal((2, 9, 1000))
        executor.forward(is_train=True, x=mx.nd.array(x), y=mx.nd.array(y))
        executor.backward([mx.nd.array(grad)])
        steps = steps if req == "add" else []
        steps += [(x, 3 * grad), (y, grad)]
        np.testing.assert_allclose(
            executor.grad_dict["weight"].asnumpy(), expected_gradient(steps), atol=1e-5
        )


def test_gradients_of_a_large_table_after_clipped_indices_and_after_an_error():
    executor = lookup_in(mx.sym.Variable("weight"), mx.sym.Variable("data")).simple_bind(
        mx.cpu(), grad_req={"data": "null", "weight": "write"}, data=(3,)
    )
    ones = np.ones((3, 1000), "f4")
    for rows in ([1, 2, 2], [-5, 700, 3], [4, 4, 4], [0, 599, 1]):
        executor.forward(is_train=True, data=mx.nd.array(rows))
        with pytest.raises(mx.base.ShapeError):
            executor.backward([mx.nd.ones((2, 1000))])
        executor.backward([mx.nd.array(ones)])
        expected = expected_gradient([(np.clip(rows, 0, 599), ones)])
        np.testing.assert_array_equal(executor.grad_dict["weight"].asnumpy(), expected)


def test_the_second_gradient_of_a_large_table_fills_only_rows():
    executor = lookup_in(mx.sym.Variable("weight"), mx.sym.Variable("data")).simple_bind(
        mx.cpu(), grad_req={"data": "null", "weight": "write"}, data=(3,)
    )
    for _ in range(2):
        executor.forward(is_train=True, data=mx.nd.array([1, 2, 3]))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            executor.backward([mx.nd.ones((3, 1000))])
    names = {event.key for event in profile.key_averages()}
    assert "aten::index_fill_" in names
    assert "aten::embedding_dense_backward" not in names
