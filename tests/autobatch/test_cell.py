"""Symbols as cells: values, gradients, states and errors, against executors, modules and formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.autobatch.cell_symbol import why_not_row_wise
from helpers.walk import walks


def step_symbol():
    x, h = mx.sym.Variable("x"), mx.sym.Variable("h")
    both = mx.sym.FullyConnected(x, num_hidden=4, name="i") + mx.sym.FullyConnected(h, num_hidden=4, name="r")
    return mx.sym.tanh(both, name="step")


def head_symbol(**options):
    scores = mx.sym.FullyConnected(mx.sym.Variable("d"), num_hidden=3, name="out")
    return mx.sym.SoftmaxOutput(scores, name="softmax", **options)


def arrays_of(symbol, seed=0, **shapes):
    draw = np.random.RandomState(seed)
    found, _, _ = symbol.infer_shape(**{name: (1, *shape) for name, shape in shapes.items()})
    named = dict(zip(symbol.list_arguments(), found))
    return {n: mx.nd.array(draw.randn(*s)) for n, s in named.items() if n not in shapes}


def by_executors(symbol, params, examples, head_grads):
    """Run every example by itself; return outputs, gradients of parameters (summed) and of inputs."""
    outputs, of_inputs = [], []
    total = {name: np.zeros(a.shape, "f") for name, a in params.items()}
    for example, grads in zip(examples, head_grads):
        given = {name: mx.nd.array(value[None]) for name, value in example.items()}
        args = {**params, **given}
        ex = symbol.bind(mx.cpu(), args, {n: mx.nd.zeros(a.shape) for n, a in args.items()})
        found = [out.asnumpy() for out in ex.forward(is_train=True)]
        outputs.append([out[0] for out in found])
        ex.backward([mx.nd.array(g.reshape(out.shape)) for g, out in zip(grads, found)])
        for name in total:
            total[name] += ex.grad_dict[name].asnumpy()
        of_inputs.append({n: ex.grad_dict[n].asnumpy()[0] for n in given})
    return outputs, total, of_inputs


def examples_of(count, seed=3, **shapes):
    draw = np.random.RandomState(seed)
    return [{n: draw.randn(*s).astype("f") for n, s in shapes.items()} for _ in range(count)]


def check_against_executors(symbol, shapes, count=5, states=None, **options):
    params = arrays_of(symbol, **shapes)
    examples = examples_of(count, **shapes)
    cell = dy.cell(symbol, params, **options)
    dy.renew_cg()
    inputs = [{n: dy.inputTensor(v) for n, v in e.items()} for e in examples]
    results = [cell(**each) for each in inputs]
    results = [r if isinstance(r, tuple) else (r,) for r in results]
    draw = np.random.RandomState(9)
    weights = [[draw.randn(*r.dim()[0]).astype("f") for r in row] for row in results]
    loss = dy.esum(
        [
            dy.sum_elems(dy.cmult(r, dy.inputTensor(w)))
            for row, ws in zip(results, weights)
            for r, w in zip(row, ws)
        ]
    )
    loss.backward(full=True)
    outputs, total, of_inputs = by_executors(symbol, params, examples, weights)
    for row, wanted in zip(results, outputs):
        for r, want in zip(row, wanted):
            np.testing.assert_allclose(r.npvalue(), want, rtol=1e-5, atol=1e-6)
    for name, want in total.items():
        np.testing.assert_allclose(params[name].grad.asnumpy(), want, rtol=1e-4, atol=1e-5, err_msg=name)
    for each, wanted in zip(inputs, of_inputs):
        for name, want in wanted.items():
            np.testing.assert_allclose(each[name].gradient(), want, rtol=1e-4, atol=1e-5, err_msg=name)
    return cell


def test_is_what_executors_compute_one_by_one(setting):
    check_against_executors(step_symbol(), {"x": (5,), "h": (4,)})


def test_second_run_keeps_what_backward_needs(setting):
    """The first backward runs the symbol again, later ones use what forward has kept; both agree."""
    symbol = step_symbol()
    params = arrays_of(symbol, x=(5,), h=(4,))
    cell, found = dy.cell(symbol, params), []
    examples = examples_of(3, x=(5,), h=(4,))
    for _ in range(3):
        dy.renew_cg()
        ends = []
        for length, example in enumerate(examples):
            h = dy.inputTensor(example["h"])
            for _ in range(length + 1):
                h = cell(example["x"], h) * 1.5
            ends.append(dy.squared_norm(h))
        dy.esum(ends).backward()
        found.append(params["i_weight"].grad.asnumpy().copy())
        params["i_weight"].grad[:] = 0
    assert cell.keeps_history
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6)


def test_several_outputs_and_dimensions(setting):
    x = mx.sym.Variable("x")
    conv = mx.sym.Convolution(x, kernel=(2, 2), num_filter=3, name="conv")
    symbol = mx.sym.Group([mx.sym.Flatten(conv), mx.sym.Pooling(conv, kernel=(2, 2), pool_type="avg")])
    check_against_executors(symbol, {"x": (2, 4, 4)})


# operators whose first axis is not the examples', and how they are run instead
APART = {
    "softmax over the examples": (lambda x: mx.sym.softmax(mx.sym.exp(x), axis=0), "vmap"),
    "mean of everything": (lambda x: mx.sym.mean(x * x), "vmap"),
    "product with its transpose": (lambda x: mx.sym.dot(x, x, transpose_b=True), "vmap"),
    "sorted along examples": (lambda x: mx.sym.sort(x, axis=0), "vmap"),
    "recurrent layer": (
        lambda x: mx.sym.Flatten(
            mx.sym.SwapAxis(
                mx.sym.RNN(
                    mx.sym.SwapAxis(mx.sym.expand_dims(x, axis=1), dim1=0, dim2=1),
                    state_size=2,
                    num_layers=1,
                    mode="rnn_tanh",
                    name="rnn",
                ),
                dim1=0,
                dim2=1,
            )
        ),
        "one by one",
    ),
}


@walks(APART)
def test_what_mixes_examples_is_kept_apart(case, setting):
    make, way = APART[case]
    inputs = ["x"] if case != "recurrent layer" else None
    symbol = make(mx.sym.Variable("x"))
    if case == "recurrent layer":
        return check_recurrent(symbol)
    cell = check_against_executors(symbol, {"x": (4,)}, inputs=inputs)
    assert way in cell.execution(False, [(4,)])
    return None


def check_recurrent(symbol):
    draw = np.random.RandomState(2)
    names = symbol.list_arguments()
    shapes, _, _ = symbol.infer_shape(x=(1, 4))
    params = {n: mx.nd.array(draw.randn(*s)) for n, s in zip(names, shapes) if n != "x"}
    cell = dy.cell(symbol, params, inputs=["x"])
    xs = draw.randn(3, 4).astype("f")
    dy.renew_cg()
    values = dy.npvalues([cell(x) for x in xs])
    ex = symbol.simple_bind(mx.cpu(), grad_req="null", x=(1, 4))
    for x, value in zip(xs, values):
        ex.copy_params_from(params)
        ex.arg_dict["x"][:] = x[None]
        np.testing.assert_allclose(value, ex.forward()[0].asnumpy()[0], rtol=1e-5, atol=1e-6)
    assert "one by one" in cell.execution(False, [(4,)])


def x_of(shape=(3,)):
    return {"x": shape}


ROW_WISE = {
    "fully connected": (
        lambda x: mx.sym.FullyConnected(x, num_hidden=2, name="f"),
        {"f_weight": (2, 3), "f_bias": (2,)},
    ),
    "slice of gates": (lambda x: mx.sym.SliceChannel(x, num_outputs=3, axis=1), {}),
    "concat along features": (lambda x: mx.sym.Concat(x, x, dim=1), {}),
    "reshape of features": (lambda x: mx.sym.Reshape(x, shape=(0, 1, -1)), {}),
    "mean of features": (lambda x: mx.sym.mean(x, axis=1), {}),
    "softmax": (lambda x: mx.sym.softmax(x), {}),
    "negative axis": (lambda x: mx.sym.softmax(x, axis=-1), {}),
    "batch normalization": (
        lambda x: mx.sym.BatchNorm(x, name="b"),
        {f"b_{n}": (3,) for n in ("gamma", "beta", "moving_mean", "moving_var")},
    ),
}
NOT_ROW_WISE = {
    "softmax over rows": lambda x: mx.sym.softmax(x, axis=0),
    "negative axis to the rows": lambda x: mx.sym.softmax(x, axis=-2),
    "transpose": lambda x: mx.sym.transpose(mx.sym.transpose(x)),
    "reverse": lambda x: mx.sym.reverse(x, axis=0),
    "slice with step": lambda x: mx.sym.slice(x, begin=(None,), end=(None,), step=(-1,)),
    "sum of all": lambda x: mx.sym.sum(x),
    "concat along rows": lambda x: mx.sym.Concat(x, x, dim=0),
    "normalized loss": lambda x: mx.sym.MakeLoss(x, normalization="batch"),
    "sequence": lambda x: mx.sym.SequenceReverse(mx.sym.expand_dims(x, axis=2)),
    "rows as vocabulary": lambda x: mx.sym.take(x, mx.sym.zeros((1,))),
}


@pytest.mark.parametrize("case", ROW_WISE)
def test_row_wise(case):
    make, others = ROW_WISE[case]
    assert why_not_row_wise(make(mx.sym.Variable("x")).graph, x_of(), others) == ""


@pytest.mark.parametrize("case", NOT_ROW_WISE)
def test_not_row_wise(case):
    assert why_not_row_wise(NOT_ROW_WISE[case](mx.sym.Variable("x")).graph, x_of(), {}) != ""


def module_gradients(symbol, params, data, labels):
    mod = mx.mod.Module(symbol, ["d"], ["softmax_label"])
    mod.bind([("d", data.shape)], [("softmax_label", labels.shape)])
    mod.init_params(arg_params=params)
    mod.forward_backward(mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(labels)]))
    grads = {n: mod.group.store.grad(n, 0).asnumpy() for n in params}
    return mod.get_outputs()[0].asnumpy(), grads


def test_loss_heads_as_module(setting):
    symbol, params = head_symbol(), arrays_of(head_symbol(), d=(4,), softmax_label=())
    draw = np.random.RandomState(5)
    data, labels = draw.randn(6, 4).astype("f"), draw.randint(0, 3, 6)
    cell = dy.cell(symbol, params)
    assert cell.input_names == ["d", "softmax_label"]
    dy.renew_cg()
    outs = [cell(x, int(y)) for x, y in zip(data, labels)]
    dy.esum([dy.sum_elems(out) for out in outs]).backward()
    wanted, grads = module_gradients(symbol, params, data, labels)
    np.testing.assert_allclose(np.stack(dy.npvalues(outs)), wanted, rtol=1e-5)
    for name, want in grads.items():
        np.testing.assert_allclose(params[name].grad.asnumpy(), want, rtol=1e-4, atol=1e-6)


def test_only_losses_that_count_have_gradients(setting):
    """A loss head ignores gradients from above, but one that nothing is asked of must add none."""
    symbol, params = head_symbol(), arrays_of(head_symbol(), d=(4,), softmax_label=())
    draw = np.random.RandomState(5)
    data, labels = draw.randn(6, 4).astype("f"), draw.randint(0, 3, 6)
    cell = dy.cell(symbol, params)
    dy.renew_cg()
    xs = [dy.inputTensor(x) for x in data]
    outs = [cell(x, int(y)) for x, y in zip(xs, labels)]
    dy.esum([dy.sum_elems(outs[i]) for i in (1, 4)]).backward(full=True)
    _, grads = module_gradients(symbol, params, data[[1, 4]], labels[[1, 4]])
    for name, want in grads.items():
        np.testing.assert_allclose(params[name].grad.asnumpy(), want, rtol=1e-4, atol=1e-6)
    assert not xs[0].gradient().any()
    assert xs[4].gradient().any()


def regression(data, **options):
    return mx.sym.LinearRegressionOutput(data, mx.sym.Variable("label"), name="out", **options)


def test_losses_that_count_use_the_numbers_that_were_drawn(setting):
    """Of four examples one counts: its gradient goes through the mask that its forward pass drew."""
    dropped = mx.sym.Dropout(mx.sym.Variable("x"), p=0.5)
    cell = dy.cell(
        mx.sym.Group([mx.sym.BlockGrad(dropped), regression(dropped)]), None, inputs=["x", "label"]
    )
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


@pytest.mark.parametrize("setting", [("python", True), ("auto", True)], indirect=True)
def test_losses_that_count_know_the_statistics_of_all(setting):
    norm = mx.sym.BatchNorm(mx.sym.Variable("x"), fix_gamma=False, name="bn")
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


@pytest.mark.parametrize("inside", ["other operators above", "one by one", "custom"])
def test_losses_inside_count_where_gradients_arrive(setting, inside):
    scores = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=3, name="fc")
    options = {}
    if inside == "custom":
        symbol = mx.sym.Custom(scores, op_type="test_cell_own_loss", name="own")
    else:
        symbol = regression(scores) * 2.0
        options["rows"] = inside != "one by one"
    params = {"fc_weight": mx.nd.array(np.arange(12).reshape(3, 4) / 10), "fc_bias": mx.nd.zeros((3,))}
    cell = dy.cell(
        symbol, params, inputs=[n for n in ("x", "label") if n in symbol.list_arguments()], **options
    )
    draw, found = np.random.RandomState(0), []
    values = draw.randn(4, 4).astype("f")
    for chosen in ([0, 1, 2, 3], [1]):
        dy.renew_cg()
        outs = {i: cell(*[values[i], np.zeros(3)][: len(cell.input_names)]) for i in chosen}
        dy.forward(list(outs.values()))
        dy.sum_elems(outs[1]).backward()
        found.append(params["fc_weight"].grad.asnumpy().copy())
        params["fc_weight"].grad[:] = 0
    assert found[1].any()
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


@mx.operator.register("test_cell_own_loss")
class OwnLossProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=False)

    def create_operator(self, ctx, shapes, dtypes):
        return OwnLoss()


class OwnLoss(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_data[0])


def test_tables_are_parameters_of_cells(setting):
    m = dy.ParameterCollection()
    table = m.add_lookup_parameters((5, 3), name="e_weight")
    symbol = mx.sym.Embedding(mx.sym.Variable("x"), input_dim=5, output_dim=3, name="e")
    trainer = dy.SimpleSGDTrainer(m, 1.0)
    for cell in (dy.cell(symbol, m), dy.cell(symbol, {"e_weight": table})):
        assert cell.input_names == ["x"]
        assert not m.parameters_list()
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
    symbol, m = mx.sym.BatchNorm(mx.sym.Variable("x"), name="bn"), dy.ParameterCollection()
    dy.cell(symbol, m, shapes={"x": (3,)})
    m.save(str(tmp_path / "model"))
    again = dy.ParameterCollection()
    for name in ("bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var"):
        again.add_parameters(3, name=name)
    again.populate(str(tmp_path / "model"))
    dy.cell(symbol, again)
    assert [p.is_updated() for p in again.parameters_list()] == [True, True, False, False]
    states = mx.mod.AutobatchModule(lambda x: x, again, label_names=None)
    states.bind([("data", (1, 3))])
    states.init_params()
    assert sorted(states.get_params()[1]) == ["bn_moving_mean", "bn_moving_var"]


def test_grad_req_is_looked_at_in_every_graph(setting):
    weight = mx.nd.ones((2, 3))
    weight.attach_grad("null")
    symbol = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, no_bias=True, name="f")
    cell = dy.cell(symbol, {"f_weight": weight})
    for request in ("null", "write"):
        weight.attach_grad(request)
        dy.renew_cg()
        dy.sum_elems(cell([1.0, 2.0, 3.0])).backward()
    np.testing.assert_array_equal(weight.grad.asnumpy(), [[1, 2, 3]] * 2)


def test_the_same_example_twice_counts_twice(setting):
    symbol, params = head_symbol(), arrays_of(head_symbol(), d=(4,), softmax_label=())
    cell = dy.cell(symbol, params)
    x = np.ones(4, "f")
    _, grads = module_gradients(symbol, params, np.stack([x, x]), np.array([1, 1]))
    dy.renew_cg()
    d, y = dy.inputTensor(x), dy.scalarInput(1)
    (dy.sum_elems(cell(d, y)) + dy.sum_elems(cell(d, y))).backward()
    for name, want in grads.items():
        np.testing.assert_allclose(params[name].grad.asnumpy(), want, rtol=1e-4, atol=1e-6)


def test_batch_normalization_moves_its_averages_once(setting):
    symbol = mx.sym.BatchNorm(mx.sym.Variable("x"), name="bn", momentum=0.9, fix_gamma=False, eps=1e-3)
    m = dy.ParameterCollection()
    cell = dy.cell(symbol, m, shapes={"x": (3,)})
    assert {p.name() for p in m.parameters_list()} == {
        "/bn_gamma",
        "/bn_beta",
        "/bn_moving_mean",
        "/bn_moving_var",
    }
    draw = np.random.RandomState(1)
    xs = draw.randn(8, 3).astype("f")
    with dy.training():
        dy.renew_cg(autobatching=True)
        outs = [cell(x) for x in xs]
        dy.esum([dy.squared_norm(out) for out in outs]).backward()
    normal = (xs - xs.mean(0)) / np.sqrt(xs.var(0) + 1e-3)
    np.testing.assert_allclose(np.stack(dy.npvalues(outs)), normal, rtol=1e-4, atol=1e-5)
    named = {p.name(): p.as_array() for p in m.parameters_list()}
    np.testing.assert_allclose(named["/bn_moving_mean"], 0.1 * xs.mean(0), rtol=1e-4, atol=1e-6)
    dy.renew_cg()
    mean, var = named["/bn_moving_mean"], named["/bn_moving_var"]
    np.testing.assert_allclose(cell(xs[0]).npvalue(), (xs[0] - mean) / np.sqrt(var + 1e-3), rtol=1e-4)


def test_dropout_draws_for_every_example_and_backward_uses_the_same(setting):
    cell = dy.cell(mx.sym.Dropout(mx.sym.Variable("x"), p=0.5), None)
    x = np.ones(40, "f")
    for _ in range(2):  # the first backward computes again, the second time forward has kept it
        with dy.training():
            dy.renew_cg()
            shared = dy.inputTensor(x)
            first, second = cell(shared), cell(shared)
            own = dy.inputTensor(x)
            dy.sum_elems(cell(own) + first + second).backward(full=True)
        a, b = first.npvalue(), second.npvalue()
        assert set(np.unique(a)) == {0.0, 2.0}
        assert (a != b).any()
        np.testing.assert_array_equal(shared.gradient(), a + b)
    assert (cell(x).npvalue() == x).all()


def test_modes_follow_autograd_and_the_attribute(batched):
    cell = dy.cell(mx.sym.Dropout(mx.sym.Variable("x"), p=0.5), None)
    x = np.ones(50, "f")
    with mx.autograd.train_mode():
        assert (cell(x).npvalue() == 0).any()
        cell.is_train = False
        assert (cell(x).npvalue() == x).all()
    cell.is_train = True
    assert (cell(x).npvalue() == 0).any()


def test_parameters_are_the_same_memory(setting):
    w, b = mx.nd.array([[1.0, 2.0]]), mx.nd.zeros((1,))
    cell = dy.cell(
        mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=1, name="f"), {"f_weight": w, "f_bias": b}
    )
    dy.renew_cg()
    assert cell([1.0, 1.0]).scalar_value() == 3.0
    w[:] = 5
    dy.renew_cg()
    cell([1.0, 1.0]).backward()
    np.testing.assert_array_equal(w.grad.asnumpy(), [[1.0, 1.0]])
    dy.SimpleSGDTrainer(cell.collection, 0.5).update()
    np.testing.assert_allclose(w.asnumpy(), [[4.5, 4.5]])
    np.testing.assert_array_equal(w.grad.asnumpy(), [[0.0, 0.0]])


def test_arrays_without_gradient_stay_as_they_are(setting):
    w, b = mx.nd.array([[1.0, 2.0]]), mx.nd.zeros((1,))
    w.attach_grad("null")
    cell = dy.cell(
        mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=1, name="f"), {"f_weight": w, "f_bias": b}
    )
    dy.renew_cg()
    cell([1.0, 1.0]).backward()
    assert w.grad is None
    assert b.grad.asnumpy() == [1.0]
    dy.SimpleSGDTrainer(cell.collection, 0.5).update()
    np.testing.assert_array_equal(w.asnumpy(), [[1.0, 2.0]])


def test_cells_share_parameters_by_name(batched):
    m = dy.ParameterCollection()
    symbol = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, name="f")
    first, second = dy.cell(symbol, m), dy.cell(symbol, m, shapes={"x": (3,)})
    assert [p.name() for p in m.parameters_list()] == ["/f_weight", "/f_bias"]
    third = dy.cell(symbol, m)
    x = [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(third(x).npvalue(), second(x).npvalue())
    assert first.input_names == ["x"]


def test_parameters_are_made_at_the_first_call(setting):
    m = dy.ParameterCollection()
    symbol = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, name="f")
    cell = dy.cell(symbol, m, initializer=mx.init.One())
    assert m.parameter_count() == 0
    dy.renew_cg()
    value = cell([1.0, 2.0, 3.0]).npvalue()
    assert m.parameter_count() == 8
    np.testing.assert_array_equal(value, [6.0, 6.0])


def test_with_other_operations_and_minibatches(setting):
    symbol, params = step_symbol(), arrays_of(step_symbol(), x=(5,), h=(4,))
    cell = dy.cell(symbol, params)
    draw = np.random.RandomState(4)
    xs, h = draw.randn(5, 3).astype("f"), draw.randn(4).astype("f")
    dy.renew_cg()
    together = dy.tanh(cell(dy.inputTensor(xs, batched=True), h) * 2.0)
    dy.sum_batches(dy.sum_elems(together)).backward()
    values, grad = together.npvalue(), params["r_weight"].grad.asnumpy().copy()
    params["r_weight"].grad[:] = 0
    dy.renew_cg()
    alone = [dy.tanh(cell(x, h) * 2.0) for x in xs.T]
    dy.esum([dy.sum_elems(each) for each in alone]).backward()
    np.testing.assert_allclose(values, np.stack(dy.npvalues(alone), -1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad, params["r_weight"].grad.asnumpy(), rtol=1e-4, atol=1e-5)


def test_finite_differences():
    dy.configure(dtype="float64", autobatch=True)
    try:
        m = dy.ParameterCollection()
        cell = dy.cell(step_symbol(), m, shapes={"x": (2,), "h": (4,)})
        draw = np.random.RandomState(0)
        for p in m.parameters_list():
            p.set_value(draw.randn(*p.shape()))
        data = [draw.randn(n, 2) for n in (3, 1, 2)]

        def loss():
            dy.renew_cg()
            ends = []
            for xs in data:
                h = dy.zeros(4)
                for x in xs:
                    h = cell(x, h)
                ends.append(dy.squared_norm(h))
            return dy.esum(ends)

        loss().backward()
        for p in m.parameters_list():
            gradient, values = p.grad_as_array(), p.as_array()
            for at in (0, values.size - 1):
                ends = []
                for sign in (1, -1):
                    moved = values.copy()
                    moved.flat[at] += sign * 1e-6
                    p.set_value(moved)
                    ends.append(loss().scalar_value())
                p.set_value(values)
                assert gradient.flat[at] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)
    finally:
        dy.configure(dtype="float32", autobatch=False)


def test_is_forgotten_with_its_last_reference(batched):
    import gc
    import weakref

    cell = dy.cell(step_symbol(), None, shapes={"x": (5,), "h": (4,)})
    dy.squared_norm(cell(np.ones(5), np.ones(4))).backward()
    gone = weakref.ref(cell)
    del cell
    dy.renew_cg()
    dy.renew_cg()
    gc.collect()
    assert gone() is None


class TestBadInput:
    def test_wrong_shape_names_cell_shapes_and_line(self, batched):
        cell = dy.cell(step_symbol(), None, shapes={"x": (5,), "h": (4,)})
        with pytest.raises(dy.ShapeError, match=r"step: inputs of shapes x \(3,\), h \(4,\).*test_cell\.py:"):
            cell(np.ones(3), np.ones(4))

    def test_unknown_parameter(self):
        symbol = step_symbol()
        params = arrays_of(symbol, x=(5,), h=(4,))
        params["i_wieght"] = params.pop("i_weight")
        with pytest.raises(dy.ArgumentError, match="'i_wieght' in params is not a parameter"):
            dy.cell(symbol, params, inputs=["x", "h"])
        params["i_weight"] = params["i_wieght"]
        assert dy.cell(symbol, params, allow_extra=True).input_names == ["x", "h"]

    def test_foreign_parameter(self):
        with pytest.raises(dy.ArgumentError, match="i_weight is list"):
            dy.cell(step_symbol(), {"i_weight": [1.0]}, inputs=["x", "h"])
        with pytest.raises(dy.ArgumentError, match="params is list"):
            dy.cell(step_symbol(), [1.0])

    def test_inputs(self, batched):
        cell = dy.cell(step_symbol(), None, shapes={"x": (5,), "h": (4,)})
        x, h = np.ones(5), np.ones(4)
        with pytest.raises(dy.ArgumentError, match="input h is missing"):
            cell(x)
        with pytest.raises(dy.ArgumentError, match="3 inputs, expected x, h"):
            cell(x, h, h)
        with pytest.raises(dy.ArgumentError, match="'y' is not an input"):
            cell(x, h, y=1)
        with pytest.raises(dy.ArgumentError, match="'x' is given twice"):
            cell(x, x=x)
        with pytest.raises(dy.ForeignValueError, match="is not an Expression, number or array"):
            cell(x, object())
        with pytest.raises(dy.ArgumentError, match="inputs names 'z'"):
            dy.cell(step_symbol(), None, inputs=["z"])

    def test_expression_of_an_earlier_graph(self, batched):
        cell = dy.cell(step_symbol(), None, shapes={"x": (5,), "h": (4,)})
        h = cell(np.ones(5), np.ones(4))
        dy.renew_cg()
        with pytest.raises(dy.StaleExpressionError):
            cell(np.ones(5), h)
        with pytest.raises(dy.StaleExpressionError):
            h.npvalue()

    def test_other_type(self):
        cell = dy.cell(step_symbol(), None, shapes={"x": (5,), "h": (4,)})
        dy.configure(dtype="float64")
        try:
            with pytest.raises(mx.base.DTypeError, match="float32, the graph computes in torch.float64"):
                cell(np.ones(5), np.ones(4))
        finally:
            dy.configure(dtype="float32")


@pytest.mark.gpu
def test_on_a_gpu():
    symbol = step_symbol()
    params = arrays_of(symbol, x=(5,), h=(4,))
    examples = examples_of(4, x=(5,), h=(4,))
    found = []
    for device in ("CPU", "GPU:0"):
        dy.configure(device=device, autobatch=True)
        try:
            there = {
                n: a.as_in_context(mx.gpu(0) if device != "CPU" else mx.cpu()).copy()
                for n, a in params.items()
            }
            cell = dy.cell(symbol, there)
            loss = dy.esum([dy.squared_norm(cell(**each)) for each in examples])
            loss.backward()
            found.append((loss.scalar_value(), there["i_weight"].grad.asnumpy()))
        finally:
            dy.configure(device="CPU", autobatch=False)
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-3, atol=1e-4)
