"""Torch modules and functions as cells: against plain torch, in every way of batching."""

import pickle
import re

import numpy as np
import pytest
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.base import ArgumentError

every_way = pytest.mark.parametrize("rows", [None, True, False])


def rows_of(count, size=5):
    return np.random.RandomState(1).randn(count, size).astype("f")


def close(found, wanted, rtol=1e-4, atol=1e-5):
    np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=rtol, atol=atol)


@every_way
def test_values_and_gradients_are_those_of_torch(setting, rows):
    net = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    given = torch.from_numpy(rows_of(4)).requires_grad_()
    wanted = net(given)
    (wanted**2).sum().backward()
    grads = [each.grad.clone() for each in net.parameters()]
    net.zero_grad()
    wrapped = dy.wrap(net, rows)
    for times in (1, 2):  # gradients add up
        dy.renew_cg()
        inputs = [dy.inputTensor(x) for x in rows_of(4)]
        outs = [wrapped(x) for x in inputs]
        dy.esum([dy.squared_norm(out) for out in outs]).backward(full=True)
        close(np.stack(dy.npvalues(outs)), wanted, 1e-5, 1e-6)
        close([x.gradient() for x in inputs], given.grad)
        for each, want in zip(net.parameters(), grads):
            close(each.grad, times * want)


def test_functions_with_parameters_around_them_and_types_of_inputs(setting):
    w, factor = torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor(1.0, requires_grad=True)
    function = dy.wrap(lambda x, y: ((x * w).sum() * factor, x - y), params=[w, factor])
    total, difference = function([1.0, 2.0], [0.5, 0.5])
    (total + dy.sum_elems(difference)).backward()
    assert (total.dim(), total.scalar_value(), factor.grad.item()) == (((1,), 1), 8.0, 8.0)
    np.testing.assert_allclose(difference.npvalue(), [0.5, 1.5])
    np.testing.assert_allclose(w.grad, [1.0, 2.0])
    table = torch.nn.Embedding(5, 3)
    row_of = dy.wrap(table, rows=True, dtypes=["int64"])
    close(row_of(2).npvalue()[0], table.weight[2])
    rows = torch.tensor([1, 2])
    for given in ([1, 2], (1, 2), rows, rows.numpy(), mx.nd.array(rows.numpy()), list(rows)):
        close(torch.from_numpy(row_of(given).npvalue()), table.weight[1:3].detach())
    for given in (1.5, 2**24 + 1, torch.tensor(2**24 + 1), mx.nd.array([0.5])):
        with pytest.raises(
            ArgumentError, match="input 0 has numbers that a graph of float32 cannot pass on as int64"
        ):
            row_of(given)


def test_a_call_in_inference_mode_and_one_with_gradients(setting):
    net = torch.nn.Linear(2, 1)
    function = dy.wrap(net)
    with torch.inference_mode():
        value = function([1.0, 2.0]).scalar_value()
    dy.renew_cg()
    result = function([1.0, 2.0])
    assert result.scalar_value() == value
    result.backward()
    close(net.weight.grad[0], torch.tensor([1.0, 2.0]))


@every_way
def test_dropout_draws_anew_and_from_the_graphs_generator(setting, rows):
    layer, x, values = dy.wrap(torch.nn.Dropout(0.5), rows), np.ones(40, "f"), []
    for _ in range(2):
        mx.random.seed(11)
        before = torch.get_rng_state()
        dy.renew_cg()
        shared = dy.inputTensor(x)
        first, second = layer(shared), layer(shared)
        dy.sum_elems(first + second).backward(full=True)
        values.append((first.npvalue(), second.npvalue()))
        assert (values[-1][0] != values[-1][1]).any()
        np.testing.assert_array_equal(shared.gradient(), values[-1][0] + values[-1][1])
        assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(values[0], values[1])
    layer.function.eval()
    assert (layer(x).npvalue() == x).all()


@every_way
def test_functions_that_work_in_place_leave_their_inputs_alone(setting, rows):
    relu = dy.wrap(torch.nn.ReLU(inplace=True), rows)
    for _ in range(2):  # the second time, history is kept
        dy.renew_cg()
        xs = [dy.inputTensor(x) * 1.0 for x in rows_of(3)]
        ys = [relu(x) for x in xs]
        dy.esum([dy.sum_elems(y) for y in ys]).backward(full=True)
        for x, y, given in zip(xs, ys, rows_of(3)):
            np.testing.assert_array_equal(x.npvalue(), given)
            np.testing.assert_array_equal(y.npvalue(), np.maximum(given, 0))
            np.testing.assert_array_equal(x.gradient(), given > 0)


def test_parameters_are_frozen_thawed_and_replaced_later(setting):
    net = torch.nn.Linear(2, 2)
    net.weight.requires_grad_(False)
    wrapped, trainer, found = dy.wrap(net), None, []
    for step in range(3):
        if step == 1:
            net.weight.requires_grad_(True)
            trainer = dy.SimpleSGDTrainer(wrapped.collection, 0.5)
        if step == 2:
            net.weight = torch.nn.Parameter(torch.ones(2, 2))
            net.bias.requires_grad_(False)
        dy.renew_cg()
        net.zero_grad()
        out = wrapped([1.0, 2.0])
        close(out.npvalue(), net(torch.tensor([1.0, 2.0])), 1e-6)
        dy.sum_elems(out).backward()
        found.append([each.grad is not None for each in (net.weight, net.bias)])
    assert found == [[False, True], [True, True], [True, False]]
    trainer.update()
    np.testing.assert_allclose(net.weight.detach(), [[0.5, 0.0], [0.5, 0.0]])


class Mine(Exception):
    """An error of a user's function."""

    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


def fails(error, is_first):
    def function(x):
        if is_first or bool((x != 0).any()):
            raise error
        return x

    return function


@every_way
def test_errors_of_the_function_keep_their_type(batched, rows):
    for error in (Mine(3, "own"), KeyError("key"), FileNotFoundError(2, "no", "file"), TypeError("type")):
        with pytest.raises(type(error)) as caught:
            dy.wrap(fails(error, True), rows=rows)([1.0, 2.0])
        found = caught.value
        assert isinstance(found, dy.ShapeError)
        assert (found.args, found.__cause__, getattr(found, "code", 3)) == (error.args, error, 3)
        assert re.search(r"function fails on inputs of shapes \(2,\).*test_from_torch\.py:", str(found))
        assert isinstance(pickle.loads(pickle.dumps(found)), type(error))
        if rows is not None:
            y = dy.wrap(fails(error, False), rows=rows)([1.0, 2.0])
            with pytest.raises(type(error)) as caught:
                y.value()
            assert caught.value is error
