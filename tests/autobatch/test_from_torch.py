"""Torch modules and functions as cells: against plain torch, in every way of batching."""

from __future__ import annotations

import pickle
import re
import warnings

import numpy as np
import pytest
import torch

import dpmodule as mx
import dpmodule.autobatch as dy


def perceptron():
    generator = torch.Generator().manual_seed(4)
    net = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    with torch.no_grad():
        for each in net.parameters():
            each.normal_(generator=generator)
    return net


def rows_of(count, size=5, seed=1):
    return np.random.RandomState(seed).randn(count, size).astype("f")


@pytest.mark.parametrize("rows", [None, True, False])
def test_values_and_gradients_are_those_of_torch(setting, rows):
    net, xs = perceptron(), rows_of(4)
    wrapped = dy.wrap(net, rows)
    for _ in range(2):
        given = torch.from_numpy(xs).requires_grad_()
        wanted = net(given)
        (wanted**2).sum().backward()
        grads = [each.grad.clone() for each in net.parameters()]
        net.zero_grad()
        dy.renew_cg()
        inputs = [dy.inputTensor(x) for x in xs]
        outs = [wrapped(x) for x in inputs]
        dy.esum([dy.squared_norm(out) for out in outs]).backward(full=True)
        np.testing.assert_allclose(np.stack(dy.npvalues(outs)), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
        for each, want in zip(net.parameters(), grads):
            np.testing.assert_allclose(each.grad.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
        for x, want in zip(inputs, given.grad):
            np.testing.assert_allclose(x.gradient(), want.numpy(), rtol=1e-4, atol=1e-5)
        net.zero_grad()


def test_gradients_add_up_and_torch_optimizers_step(setting):
    net = torch.nn.Linear(3, 1)
    wrapped, optimizer = dy.wrap(net, rows=True), torch.optim.SGD(net.parameters(), lr=0.1)
    for times in (1, 2):
        dy.renew_cg()
        wrapped([1.0, 2.0, 3.0]).backward()
        np.testing.assert_allclose(net.weight.grad.numpy(), [[times, 2 * times, 3 * times]])
    before = net.weight.detach().clone()
    optimizer.step()
    np.testing.assert_allclose(
        net.weight.detach().numpy(), (before - 0.1 * net.weight.grad).numpy(), rtol=1e-6
    )
    dy.renew_cg()
    want = net(torch.tensor([1.0, 2.0, 3.0])).item()
    assert wrapped([1.0, 2.0, 3.0]).scalar_value() == pytest.approx(want, rel=1e-6)


def test_trainers_of_dynet_step_as_well(setting):
    net = torch.nn.Linear(2, 1)
    wrapped = dy.wrap(net)
    trainer = dy.SimpleSGDTrainer(wrapped.collection, 0.5)
    before = net.weight.detach().clone()
    dy.renew_cg()
    wrapped([1.0, 2.0]).backward()
    trainer.update()
    np.testing.assert_allclose((before - net.weight.detach()).numpy(), [[0.5, 1.0]], rtol=1e-6)
    assert net.weight.grad is None or not net.weight.grad.any()


def test_beside_other_operations(setting):
    net, m = torch.nn.GRUCell(3, 4), dy.ParameterCollection()
    E = m.add_lookup_parameters((9, 3))
    step = dy.wrap(net, rows=True)
    sentences = [(1, 4, 5), (2,), (8, 3)]

    def loss():
        dy.renew_cg()
        ends = []
        for words in sentences:
            h = dy.zeros(4)
            for word in words:
                h = step(E[word], h)
            ends.append(dy.squared_norm(h))
        return dy.esum(ends)

    found = loss()
    found.backward()
    table = E.tensor.clone().requires_grad_()
    total = torch.zeros(())
    grads = [each.grad.clone() for each in net.parameters()]
    net.zero_grad()
    for words in sentences:
        h = torch.zeros(1, 4)
        for word in words:
            h = net(table[word][None], h)
        total = total + (h**2).sum()
    total.backward()
    assert found.scalar_value() == pytest.approx(total.item(), rel=1e-5)
    np.testing.assert_allclose(E.grad_as_array(), table.grad.numpy(), rtol=1e-4, atol=1e-6)
    for each, want in zip(net.parameters(), grads):
        np.testing.assert_allclose(want.numpy(), each.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_functions_with_parameters_around_them(setting):
    w = torch.tensor([2.0, 3.0], requires_grad=True)

    def both(x, y):
        return (x * w).sum(), x - y

    function = dy.wrap(both, params=[w])
    dy.renew_cg()
    total, difference = function([1.0, 2.0], [0.5, 0.5])
    (total + dy.sum_elems(difference)).backward()
    assert total.dim() == ((1,), 1)
    assert total.scalar_value() == 8.0
    np.testing.assert_allclose(difference.npvalue(), [0.5, 1.5])
    np.testing.assert_allclose(w.grad.numpy(), [1.0, 2.0])


@pytest.mark.parametrize("rows", [None, True, False])
def test_dropout_draws_anew_and_from_the_graphs_generator(setting, rows):
    layer = dy.wrap(torch.nn.Dropout(0.5), rows)
    x = np.ones(40, "f")
    values = []
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
    with dy.training():
        assert (layer(x).npvalue() != x).any()
    assert not layer.function.training


def test_batch_normalization_row_wise(batched):
    norm = torch.nn.BatchNorm1d(3)
    plain = torch.nn.BatchNorm1d(3)
    layer, xs = dy.wrap(norm, rows=True), rows_of(8, 3)
    outs = [layer(x) for x in xs]
    wanted = plain(torch.from_numpy(xs))
    np.testing.assert_allclose(np.stack(dy.npvalues(outs)), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    dy.esum(
        [dy.squared_norm(out) for out in outs]
    ).backward()  # computes again, without moving the averages again
    np.testing.assert_allclose(norm.running_mean.numpy(), plain.running_mean.numpy(), rtol=1e-5)
    assert norm.num_batches_tracked == 1


def test_types_of_inputs(batched):
    table = torch.nn.Embedding(5, 3)
    look_up = dy.wrap(table, rows=True, dtypes=["int64"])
    np.testing.assert_allclose(look_up(2).npvalue()[0], table.weight[2].detach().numpy())


def test_frozen_parameters_get_no_gradient(batched):
    net = torch.nn.Linear(2, 2)
    net.bias.requires_grad_(False)
    dy.sum_elems(dy.wrap(net)([1.0, 1.0])).backward()
    assert net.bias.grad is None
    assert net.weight.grad is not None


def test_parameters_of_one_number(setting):
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = torch.nn.Parameter(torch.tensor(3.0))

        def forward(self, x):
            return x * self.factor

    net = Scale()
    wrapped = dy.wrap(net)
    dy.renew_cg()
    out = wrapped([1.0, 4.0])
    dy.sum_elems(out).backward()
    np.testing.assert_allclose(out.npvalue(), [3.0, 12.0])
    assert net.factor.grad.item() == 5.0
    dy.SimpleSGDTrainer(wrapped.collection, 0.1).update()
    assert net.factor.item() == pytest.approx(2.5)


@pytest.mark.parametrize("rows", [None, True, False])
def test_what_works_in_place_leaves_its_inputs_alone(setting, rows):
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
    wrapped, trainer = dy.wrap(net), None
    found = []
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
        np.testing.assert_allclose(out.npvalue(), net(torch.tensor([1.0, 2.0])).detach().numpy(), rtol=1e-6)
        dy.sum_elems(out).backward()
        found.append([each.grad is not None for each in (net.weight, net.bias)])
    assert found == [[False, True], [True, True], [True, False]]
    trainer.update()
    np.testing.assert_allclose(net.weight.detach().numpy(), [[0.5, 0.0], [0.5, 0.0]])


def test_compiled_modules(batched):
    net = torch.compile(torch.nn.Linear(3, 2), backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.compile looks at what it warns of
        dy.sum_elems(dy.wrap(net, rows=True)([1.0, 2.0, 3.0])).backward()
    np.testing.assert_allclose(net.weight.grad.numpy(), [[1, 2, 3]] * 2)


def test_outputs_of_integers_have_no_gradient(setting):
    places = dy.wrap(lambda x: (x.argmax(), x * 2))
    dy.renew_cg()
    x = dy.inputTensor([1.0, 5.0, 2.0])
    place, double = places(x)
    (dy.sum_elems(double) + place).backward(full=True)
    assert place.scalar_value() == 1
    np.testing.assert_array_equal(x.gradient(), [2, 2, 2])


class Mine(Exception):
    """An error of a user's function."""

    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


class TestBadInput:
    def test_the_number_of_outputs_changes(self, setting):
        twice = dy.wrap(lambda x: (x, x * 2) if len(x) > 2 else x)
        dy.renew_cg()
        twice([1.0, 2.0])
        with pytest.raises(dy.ArgumentError, match="returns 2 tensors here but returned 1 before"):
            twice([1.0, 2.0, 3.0])

    def test_the_shape_depends_on_values(self, setting):
        def positive(x):
            return torch.cat([x, x]) if x.sum() > 0 else x

        function = dy.wrap(positive, rows=False)
        dy.renew_cg()
        with pytest.raises(dy.ShapeError, match=r"positive returned \(4,\) for an example, but \(2,\)"):
            dy.npvalues([function([1.0, 2.0]), function([3.0, 4.0])])

    @pytest.mark.parametrize("rows", [None, True, False])
    def test_what_is_no_tensor(self, batched, rows):
        with pytest.raises(dy.ArgumentError, match="returned NoneType, expected a tensor"):
            dy.wrap(lambda x: None, rows)([1.0])
        with pytest.raises(dy.ArgumentError, match="returned dict, expected a tensor"):
            dy.wrap(lambda x: {"a": x}, rows)([1.0])

    def test_lazy_modules(self):
        with pytest.raises(dy.ArgumentError, match="parameter weight of LazyLinear has no shape yet"):
            dy.wrap(torch.nn.LazyLinear(2))

    def test_what_vmap_refuses_says_what_to_declare(self, batched):
        def branches(x):
            return x * 2 if float(x.sum()) > 0 else x

        with pytest.raises(
            dy.NotBatchableError, match=r"torch.vmap does not support branches.*rows=True.*rows=False"
        ):
            dy.wrap(branches)([1.0, 2.0])
        function = dy.wrap(branches, rows=False)
        np.testing.assert_allclose(function([1.0, 2.0]).npvalue(), [2.0, 4.0])
        np.testing.assert_allclose(function([-1.0, -2.0]).npvalue(), [-1.0, -2.0])

    def test_batch_statistics_under_vmap(self, batched):
        norm = torch.nn.BatchNorm1d(3)
        with pytest.raises((dy.NotBatchableError, dy.ShapeError)):
            dy.wrap(norm)([1.0, 2.0, 3.0])
        assert norm.num_batches_tracked == 0

    def test_not_row_wise_although_declared(self, batched):
        with pytest.raises(
            dy.NotBatchableError, match=r"was declared rows=True, but returns \(3,\) for 2 rows"
        ):
            dy.wrap(lambda x: x.sum(0), rows=True)([1.0, 2.0, 3.0])

    def test_wrong_shape_names_the_line(self, batched):
        with pytest.raises(
            dy.ShapeError, match=r"Linear fails on inputs of shapes \(3,\).*test_from_torch\.py:"
        ):
            dy.wrap(torch.nn.Linear(2, 2))([1.0, 2.0, 3.0])

    @pytest.mark.parametrize("rows", [True, False, None])
    def test_errors_of_the_function_keep_their_type(self, batched, rows):
        def fails(error, is_first):
            def function(x):
                if is_first or bool((x != 0).any()):
                    raise error
                return x

            return function

        for error in (Mine(3, "own"), KeyError("key"), FileNotFoundError(2, "no", "file"), TypeError("type")):
            with pytest.raises(type(error)) as caught:
                dy.wrap(fails(error, True), rows=rows)([1.0, 2.0])
            assert isinstance(caught.value, dy.ShapeError)
            assert caught.value.args == error.args
            assert caught.value.__cause__ is error
            assert re.search(
                r"function fails on inputs of shapes \(2,\).*test_from_torch\.py:", str(caught.value)
            )
            assert isinstance(pickle.loads(pickle.dumps(caught.value)), type(error))
            if rows is not None:
                y = dy.wrap(fails(error, False), rows=rows)([1.0, 2.0])
                with pytest.raises(type(error)) as caught:
                    y.value()
                assert caught.value is error
        with pytest.raises(Mine) as caught:
            dy.wrap(fails(Mine(3, "own"), True), rows=rows)([1.0])
        assert caught.value.code == 3

    def test_arguments(self, batched):
        with pytest.raises(dy.ArgumentError, match="not a torch module or a function"):
            dy.wrap(3)
        with pytest.raises(dy.ArgumentError, match="not a torch module or a function"):
            dy.wrap(torch.nn.Linear)
        with pytest.raises(dy.ArgumentError, match="not a leaf tensor"):
            dy.wrap(torch.tanh, params=[torch.ones(2)])
        with pytest.raises(dy.ArgumentError, match="0 inputs"):
            dy.wrap(torch.tanh)()
        with pytest.raises(dy.ArgumentError, match="returned str"):
            dy.wrap(lambda x: "tensor", rows=True)([1.0])

    def test_output_used_after_renew(self, batched):
        out = dy.wrap(torch.tanh)([1.0])
        dy.renew_cg()
        with pytest.raises(dy.StaleExpressionError):
            out.value()


def test_memory_replaced_while_the_graph_is_under_construction(setting):
    linear = torch.nn.Linear(4, 2)
    (weight, _) = dy.wrap(linear, rows=True).collection.parameters_list()
    before, after = linear.weight.data, torch.full((2, 4), 3.0)
    doubled = weight * 2.0
    assert np.allclose(doubled.npvalue(), 2 * before.numpy())
    linear.weight.data = after
    assert np.allclose(weight.npvalue(), after)
    assert np.allclose((weight + 1.0).npvalue(), after + 1.0)
    assert np.allclose((weight * dy.inputVector([1.0] * 4)).npvalue(), after.sum(1))
    assert np.allclose(doubled.npvalue(), 2 * before.numpy())
