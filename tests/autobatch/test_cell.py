"""Symbols as cells: values, gradients and states, against executors, modules and formulas."""

import gc
import weakref

import numpy as np
import pytest
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.autobatch.cell_symbol import why_not_row_wise
from helpers.walk import walks

S, X = mx.sym, mx.sym.Variable("x")
DENSE = S.FullyConnected(X, num_hidden=2, name="f")


def step_symbol():
    return S.tanh(S.FullyConnected(X, num_hidden=4, name="i") + S.Variable("h"), name="step")


# operators whose first axis is not the examples'
APART = [lambda x: S.softmax(S.exp(x), axis=0), lambda x: S.dot(x, x, transpose_b=True)]


@walks(APART)
def test_what_mixes_examples_is_kept_apart(make, setting):
    """An executor runs each of them by itself."""
    cell, examples = dy.cell(make(X), None, inputs=["x"]), np.random.RandomState(3).randn(5, 4).astype("f")
    xs = [dy.inputTensor(each) for each in examples]
    outs = [cell(x) for x in xs]
    dy.esum([dy.squared_norm(y) for y in outs]).backward(full=True)
    for example, x, out in zip(examples, xs, outs):
        ex = make(X).simple_bind(mx.cpu(), x=(1, 4))
        (wanted,) = ex.forward(is_train=True, x=mx.nd.array(example[None]))
        ex.backward([wanted * 2])
        np.testing.assert_allclose(out.npvalue(), wanted.asnumpy()[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(x.gradient(), ex.grad_dict["x"].asnumpy()[0], rtol=1e-4, atol=1e-5)
    assert "vmap" in cell.execution(False, [(4,)])


STATES = {f"b_{n}": (3,) for n in ("gamma", "beta", "moving_mean", "moving_var")}


FLIPPED = S.slice(X, begin=(None,), end=(None,), step=(-1,))
ROW_WISE = [
    *(DENSE, S.SliceChannel(X, num_outputs=3, axis=1), S.Concat(X, X, dim=1), S.Reshape(X, shape=(0, 1, -1))),
    *(S.mean(X, axis=1), S.softmax(X), S.BatchNorm(X, name="b")),
]
NOT_ROW_WISE = [
    *(S.softmax(X, axis=-2), S.transpose(S.transpose(X)), S.reverse(X, axis=0), S.sum(X), FLIPPED),
    *(S.Concat(X, X, dim=0), S.take(X, S.zeros((1,))), S.MakeLoss(X, normalization="batch")),
    *(S.SequenceReverse(S.expand_dims(X, axis=2)), S.IdentityAttachKLSparseReg(X, name="k")),
]


def test_row_wise():
    others = {**STATES, "k_moving_avg": (3,), "f_weight": (2, 3), "f_bias": (2,)}
    for place, symbol in enumerate([*ROW_WISE, *NOT_ROW_WISE]):
        known = {n: others[n] for n in others if n in symbol.list_inputs()}
        assert bool(why_not_row_wise(symbol.graph, {"x": (3,)}, known)) == (place >= len(ROW_WISE)), place


@pytest.mark.parametrize("counted", [(0, 1, 2, 3, 4, 5), (1, 4), (2, 2)])
def test_loss_heads(setting, counted):
    """A loss head ignores gradients from above, but one that nothing is asked of must add none."""
    draw = np.random.RandomState(5)
    symbol = S.SoftmaxOutput(S.FullyConnected(X, num_hidden=3, name="out"), name="softmax")
    params = {"out_weight": mx.nd.array(draw.randn(3, 4)), "out_bias": mx.nd.array(draw.randn(3))}
    data, labels = draw.randn(6, 4).astype("f"), draw.randint(0, 3, 6)
    cell, xs = dy.cell(symbol, params), [dy.inputTensor(x) for x in data]
    outs = [cell(x, int(y)) for x, y in zip(xs, labels)]
    extra = [dy.sum_elems(cell(xs[2], int(labels[2])))] if counted == (2, 2) else []
    dy.esum([*[dy.sum_elems(outs[i]) for i in {*counted}], *extra]).backward(full=True)
    scores = torch.tensor(data @ params["out_weight"].asnumpy().T + params["out_bias"].asnumpy())
    np.testing.assert_allclose(dy.npvalues(outs), scores.softmax(1), rtol=1e-5)
    slopes = (scores.softmax(1) - torch.nn.functional.one_hot(torch.tensor(labels), 3)).numpy()[[*counted]]
    for name, wanted in (("out_weight", slopes.T @ data[[*counted]]), ("out_bias", slopes.sum(0))):
        np.testing.assert_allclose(params[name].grad.asnumpy(), wanted, rtol=1e-4, atol=1e-6)
    assert [x.gradient().any() for x in xs] == [i in counted for i in range(6)]


def regression(data):
    return S.LinearRegressionOutput(data, S.Variable("label"), name="out")


def test_losses_that_count_use_the_numbers_that_were_drawn(setting):
    """Of four examples one counts: its gradient goes through the mask that its forward pass drew."""
    dropped = S.Dropout(X, p=0.5)
    cell = dy.cell(S.Group([S.BlockGrad(dropped), regression(dropped)]), None, inputs=["x", "label"])
    cell.is_train = True
    for place in (3, 2):
        dy.renew_cg()
        xs = [dy.inputTensor(np.ones(32)) for _ in range(4)]
        outs = [cell(x, np.zeros(32)) for x in xs]
        dy.forward([out for _, out in outs])
        dy.sum_elems(outs[place][1]).backward(full=True)
        mask = outs[place][0].npvalue()
        np.testing.assert_allclose(xs[place].gradient(), mask * mask / 32, rtol=1e-6)
        assert not any(xs[i].gradient().any() for i in range(4) if i != place)


def test_losses_that_count_know_the_statistics_of_all(engine):
    norm = S.BatchNorm(X, fix_gamma=False, name="bn")
    states = {f"bn_moving_{name}": mx.nd.ones(3) for name in ("mean", "var")}
    params = {"bn_gamma": mx.nd.ones(3), "bn_beta": mx.nd.zeros(3), **states}
    cell = dy.cell(regression(norm), params, inputs=["x", "label"])
    cell.is_train = True
    values = np.random.RandomState(0).randn(4, 3).astype("f")
    xs = [dy.inputTensor(each) for each in values]
    outs = [cell(x, np.zeros(3)) for x in xs]
    dy.forward(outs)
    dy.sum_elems(outs[2]).backward(full=True)
    rows = torch.from_numpy(values).requires_grad_()
    wanted = torch.nn.functional.batch_norm(rows, None, None, training=True, eps=1e-3)
    (wanted[2] ** 2).sum().div(6).backward()
    np.testing.assert_allclose(xs[2].gradient(), rows.grad[2].numpy(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(states["bn_moving_mean"].asnumpy(), 0.9 + 0.1 * values.mean(0), rtol=1e-4)
    normal = wanted[2].detach().numpy()
    np.testing.assert_allclose(params["bn_gamma"].grad.asnumpy(), normal**2 / 3, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("rows", [True, False])
def test_losses_inside_count_where_gradients_arrive(setting, rows):
    symbol = regression(S.FullyConnected(X, num_hidden=3, name="fc")) * 2.0
    params = {"fc_weight": mx.nd.array(np.arange(12).reshape(3, 4) / 10), "fc_bias": mx.nd.zeros((3,))}
    cell, found = dy.cell(symbol, params, inputs=["x", "label"], rows=rows), []
    values = np.random.RandomState(0).randn(4, 4).astype("f")
    for chosen in ([0, 1, 2, 3], [1]):
        dy.renew_cg()
        outs = {i: cell(values[i], np.zeros(3)) for i in chosen}
        dy.forward([*outs.values()])
        dy.sum_elems(outs[1]).backward()
        found.append(params["fc_weight"].grad.asnumpy().copy())
        params["fc_weight"].grad[:] = 0
    assert found[1].any()
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_tables_are_parameters_of_cells(setting):
    m = dy.ParameterCollection()
    table = m.add_lookup_parameters((5, 3), name="e_weight")
    symbol, trainer = S.Embedding(X, input_dim=5, output_dim=3, name="e"), dy.SimpleSGDTrainer(m, 1.0)
    for cell in (dy.cell(symbol, m), dy.cell(symbol, {"e_weight": table})):
        assert (cell.input_names, m.parameters_list()) == (["x"], [])
        before = table.as_array()
        dy.renew_cg()
        out = cell(2)
        np.testing.assert_array_equal(out.npvalue().ravel(), before[2])
        (dy.sum_elems(out) + dy.sum_elems(table[4])).backward()
        trainer.update()
        wanted = np.zeros((5, 3))
        wanted[[2, 4]] = 1
        np.testing.assert_allclose(before - table.as_array(), wanted, atol=1e-6)


def test_states_that_were_read_from_a_file_stay_states(setting, tmp_path):
    symbol, m = S.BatchNorm(X, name="b"), dy.ParameterCollection()
    dy.cell(symbol, m, shapes={"x": (3,)})
    m.save(str(tmp_path / "model"))
    again = dy.ParameterCollection()
    for name in STATES:
        again.add_parameters(3, name=name)
    again.populate(str(tmp_path / "model"))
    dy.cell(symbol, again)
    assert [p.is_updated() for p in again.parameters_list()] == [True, True, False, False]
    states = mx.mod.AutobatchModule(lambda x: x, again, label_names=None)
    states.bind([("data", (1, 3))])
    states.init_params()
    assert sorted(states.get_params()[1]) == ["b_moving_mean", "b_moving_var"]


def test_dropout_draws_for_every_example_and_backward_uses_the_same(setting):
    cell, x = dy.cell(S.Dropout(X, p=0.5), None), np.ones(40, "f")
    for _ in range(2):  # the first backward computes again, the second time forward has kept it
        with dy.training():
            dy.renew_cg()
            shared = dy.inputTensor(x)
            first, second = cell(shared), cell(shared)
            dy.sum_elems(first + second).backward(full=True)
        a, b = first.npvalue(), second.npvalue()
        assert (a != b).any()
        np.testing.assert_array_equal(shared.gradient(), a + b)
    found = [(cell(x).npvalue() == 0).any()]
    with mx.autograd.train_mode():
        found.append((cell(x).npvalue() == 0).any())
    for mode in (False, True):
        cell.is_train = mode
        found.append((cell(x).npvalue() == 0).any())
    assert found == [False, True, False, True]


def test_parameters_are_the_same_memory_and_may_be_fixed(setting):
    w, b = mx.nd.array([[1.0, 2.0]]), mx.nd.zeros((1,))
    w.attach_grad("null")
    cell = dy.cell(S.FullyConnected(X, num_hidden=1, name="f"), {"f_weight": w, "f_bias": b})
    for request, wanted in (("null", 5.0), ("write", 4.5)):
        w.attach_grad(request)
        w[:] = 5
        dy.renew_cg()
        y, before = cell([1.0, 1.0]), b.asscalar()
        assert y.scalar_value() == 10.0 + before
        y.backward()
        dy.SimpleSGDTrainer(cell.collection, 0.5).update()
        assert (w.asnumpy().tolist(), b.asscalar()) == ([[wanted] * 2], before - 0.5)


def test_arrays_whose_elements_lie_apart_are_read_and_trained(engine):
    turned = torch.arange(6.0).reshape(3, 2).t().clone(memory_format=torch.preserve_format)
    weight = mx.nd.from_dlpack(torch.utils.dlpack.to_dlpack(turned))
    cell = dy.cell(S.FullyConnected(X, num_hidden=2, no_bias=True, name="f"), {"f_weight": weight})
    for start in (0.0, 1.0):
        wanted = [[0 - 2 * start, 2 - start, 4], [1 - 2 * start, 3 - start, 5]]
        np.testing.assert_array_equal(weight.asnumpy(), wanted)
        dy.renew_cg()
        y = cell([2.0, 1.0, 0.0])
        np.testing.assert_allclose(y.npvalue(), weight.asnumpy() @ [2, 1, 0])
        dy.sum_elems(y).backward()
        np.testing.assert_array_equal(weight.grad.asnumpy(), [[2, 1, 0], [2, 1, 0]])
        dy.SimpleSGDTrainer(cell.collection, 1.0).update()


def test_parameters_are_made_at_the_first_call_and_shared_by_name(setting):
    m, x = dy.ParameterCollection(), [1.0, 2.0, 3.0]
    first = dy.cell(DENSE, m, initializer=mx.init.One())
    assert (m.parameter_count(), first.input_names) == (0, ["x"])
    np.testing.assert_array_equal(first(x).npvalue(), [6.0, 6.0])
    second, third = dy.cell(DENSE, m, shapes={"x": (3,)}), dy.cell(DENSE, m)
    assert [p.name() for p in m.parameters_list()] == ["/f_weight", "/f_bias"]
    np.testing.assert_array_equal(third(x).npvalue(), second(x).npvalue())
    params = {"f_weight": mx.nd.ones((2, 3)), "f_bias": mx.nd.ones(2), "other": mx.nd.ones(1)}
    assert dy.cell(DENSE, params, inputs=["x"], allow_extra=True)(x).vec_value() == [7.0, 7.0]


def test_is_forgotten_with_its_last_reference(batched):
    cell = dy.cell(step_symbol(), None, shapes={"x": (5,), "h": (4,)})
    dy.squared_norm(cell(np.ones(5), np.ones(4))).backward()
    gone = weakref.ref(cell)
    del cell
    dy.renew_cg()
    dy.renew_cg()
    gc.collect()
    assert gone() is None


def test_a_graph_of_another_type_is_refused():
    cell = dy.cell(step_symbol(), None, shapes={"x": (5,), "h": (4,)})
    dy.configure(dtype="float64")
    with pytest.raises(mx.base.DTypeError, match="float32, the graph computes in torch.float64"):
        cell(np.ones(5), np.ones(4))


@pytest.mark.gpu
def test_on_a_gpu():
    params, found, draw = params_of(step_symbol(), x=(5,), h=(4,)), [], np.random.RandomState(3)
    xs, hs = draw.randn(4, 5), draw.randn(4, 4)
    for device, context in (("CPU", mx.cpu()), ("GPU:0", mx.gpu(0))):
        dy.configure(device=device, autobatch=True)
        there = {n: a.as_in_context(context).copy() for n, a in params.items()}
        cell = dy.cell(step_symbol(), there)
        loss = dy.esum([dy.squared_norm(cell(x, h)) for x, h in zip(xs, hs)])
        loss.backward()
        found.append((loss.scalar_value(), there["i_weight"].grad.asnumpy()))
        dy.configure(device="CPU")
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-3, atol=1e-4)


def params_of(symbol, **shapes):
    draw = np.random.RandomState(0)
    found, _, _ = symbol.infer_shape(**{name: (1, *shape) for name, shape in shapes.items()})
    named = dict(zip(symbol.list_arguments(), found))
    return {n: mx.nd.array(draw.randn(*s)) for n, s in named.items() if n not in shapes}
