"""Chains against MXNet's recorded ones, against one Module of the joined symbol, and bad input."""

import collections
import logging
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, NonFiniteError, ShapeError, StateError
from helpers import chain_cases as cases
from helpers.nets import blobs

GOLDENS = np.load(Path(__file__).parents[1] / "data" / "goldens" / "chain" / "chains.npz")
CONTEXTS = {"one": [mx.cpu(0)], "two": [mx.cpu(0), mx.cpu(1)]}
WIRED, LABELLED = {"auto_wiring": True}, {"auto_wiring": True, "take_labels": True}
both_contexts = pytest.mark.parametrize("where", CONTEXTS)


def var(name):
    return mx.sym.Variable(name)


def low(data, width=5, name="low"):
    return mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=width, name=name), act_type="tanh")


def top(data, classes=4, name="top"):
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=classes, name=name), name="softmax")


def two(contexts=None, width=5, **kwargs):
    first = mx.mod.Module(low(var("data"), width), label_names=None, context=contexts)
    return (
        mx.mod.SequentialModule(**kwargs)
        .add(first)
        .add(mx.mod.Module(top(var("data")), context=contexts), **LABELLED)
    )


def bound(chain=None, rows=8, **bind):
    chain = chain or two()
    chain.bind([("data", (rows, 6))], [("softmax_label", (rows,))], **bind)
    return chain


def ready(chain=None, rows=8, **bind):
    chain = bound(chain, rows, **bind)
    chain.init_params(mx.init.Xavier())
    return chain


def batch(rows=8, seed=0):
    data, label = blobs(rows, seed=seed)
    return mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)])


def numbers(mod):
    return {k: v.asnumpy() for part in mod.get_params() for k, v in part.items()}


def assert_same(found, wanted, **tolerance):
    assert set(found) == set(wanted)
    for key in wanted:
        np.testing.assert_allclose(found[key], wanted[key], err_msg=key, **tolerance)


# against others


@both_contexts
@pytest.mark.parametrize("case", cases.CHAINS)
@pytest.mark.filterwarnings("ignore:the optimizer was made outside Module")
def test_chain_computes_what_mxnet_recorded(case, where):
    found = cases.train_chain(mx, case, CONTEXTS[where])
    start = f"{case}/{where}/"
    wanted = {key[len(start) :]: GOLDENS[key] for key in GOLDENS.files if key.startswith(start)}
    assert_same(found, wanted, rtol=2e-5, atol=4e-6)


def parts():
    """A network in four pieces, and the same in one."""
    pieces = [
        lambda x: low(x),
        lambda x: mx.sym.BatchNorm(x, fix_gamma=False, name="bn"),
        lambda x: low(x, 7, "mid"),
        lambda x: top(x),
    ]
    joined = var("data")
    for piece in pieces:
        joined = piece(joined)
    return [piece(var("data")) for piece in pieces], joined


def chain_of(symbols, contexts=None):
    chain = mx.mod.SequentialModule()
    for symbol in symbols[:-1]:
        chain.add(mx.mod.Module(symbol, label_names=None, context=contexts), **WIRED)
    return chain.add(mx.mod.Module(symbols[-1], context=contexts), **LABELLED)


@both_contexts
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_chain_of_pieces_equals_the_joined_network(where, optimizer):
    pieces, joined = parts()
    results = []
    for mod in (chain_of(pieces, CONTEXTS[where]), mx.mod.Module(joined, context=CONTEXTS[where])):
        bound(mod, inputs_need_grad=True)
        mod.init_params(cases_fill)
        mod.init_optimizer(optimizer=optimizer, optimizer_params={"learning_rate": 0.05, "wd": 0.01})
        found = {}
        for step in range(4):
            mod.forward_backward(batch(seed=step))
            found[f"grad{step}"] = mod.get_input_grads()[0].asnumpy().copy()
            found[f"output{step}"] = mod.get_outputs()[0].asnumpy().copy()
            mod.update()
        results.append({**found, **numbers(mod)})
    assert_same(*results, rtol=1e-5, atol=1e-6)


def cases_fill(desc, array):
    array[:] = cases.values(desc, array.shape) + (1.0 if desc.endswith("_var") else 0.0)


@both_contexts
def test_gradients_that_add_up_equal_those_of_the_joined_network(where):
    pieces, joined = parts()
    results = []
    for mod in (chain_of(pieces, CONTEXTS[where]), mx.mod.Module(joined, context=CONTEXTS[where])):
        bound(mod, inputs_need_grad=True, grad_req="add")
        mod.init_params(cases_fill)
        mod.init_optimizer(optimizer_params={"learning_rate": 1.0})
        for step in range(3):
            mod.forward(batch(seed=step), is_train=True)
            mod.backward()
        grads = mod.get_input_grads()[0].asnumpy()
        mod.update()
        results.append({"grads": grads, **numbers(mod)})
    assert_same(*results, rtol=1e-5, atol=1e-6)


# training


def test_fit_score_and_predict():
    data, label = blobs(60)
    train = mx.io.NDArrayIter(data, label, 8)
    chain = two()
    chain.fit(train, optimizer_params={"learning_rate": 0.5}, initializer=mx.init.Xavier(), num_epoch=8)
    assert dict(chain.score(train, "acc"))["accuracy"] > 0.9
    assert chain.predict(train).shape == (60, 4)
    assert chain.predict(data[:5]).shape == (5, 4)


def test_padding_is_not_counted_and_labels_come_by_any_name():
    data, label = blobs(10)
    out = mx.sym.SoftmaxOutput(mx.sym.Variable("data"), mx.sym.Variable("kind"), name="softmax")
    chain = mx.mod.SequentialModule().add(mx.mod.Module(out, label_names=["kind"]), take_labels=True)
    assert chain.label_names == ["kind"]
    rows = np.eye(4, dtype="f4")[label.astype(int)]
    rows[-1] = np.roll(rows[-1], 1)
    found = []
    chain.bind([("data", (8, 4))], [("kind", (8,))], for_training=False)
    chain.init_params()
    for count_padding in (False, True):
        metric = mx.metric.create("acc")
        chain.score(mx.io.NDArrayIter(rows, label, 8, label_name="kind"), metric, count_padding=count_padding)
        found.append((metric.num_inst, metric.sum_metric))
    assert found == [(10, 9.0), (16, 15.0)]


def test_batches_of_another_size_bind_again():
    chain = ready()
    chain.forward(batch(5), is_train=False)
    assert chain.get_outputs()[0].shape == (5, 4)
    assert chain.output_shapes == [("softmax_output", (5, 4))]
    chain.forward_backward(batch(11))
    assert chain.get_outputs()[0].shape == (11, 4)
    Plain = collections.namedtuple("Plain", ["data", "label"])
    chain.forward(Plain([mx.nd.ones((3, 6))], None), is_train=False)
    assert chain.get_outputs()[0].shape == (3, 4)


def test_the_users_batch_stays_as_it_is():
    chain, one = ready(), batch()
    before = one.data[0], one.data[0].asnumpy().copy(), one.label[0]
    chain.forward_backward(one)
    assert one.data[0] is before[0]
    assert one.label[0] is before[2]
    np.testing.assert_array_equal(one.data[0].asnumpy(), before[1])
    assert one.provide_data is None


def test_types_and_layouts_of_the_inputs_pass_auto_wiring():
    first = mx.mod.Module(mx.sym.Activation(var("x"), act_type="relu"), ["x"], None, context=CONTEXTS["two"])
    chain = mx.mod.SequentialModule().add(first, **WIRED)
    chain.bind([mx.io.DataDesc("anything", (3, 8, 7), "float64", "TNC")])
    chain.init_params()
    chain.forward(mx.io.DataBatch([mx.nd.ones((3, 8, 7), dtype="float64")]))
    parts = chain.get_outputs(merge_multi_context=False)[0]
    assert [p.shape for p in parts] == [(3, 4, 7)] * 2
    assert parts[0].dtype == np.float64


def test_members_of_other_kinds():
    body = mx.mod.SequentialModule().add(mx.mod.Module(low(var("data")), label_names=None))
    head = mx.mod.PythonLossModule(grad_func=lambda scores, labels: scores * 0 + 1)
    chain = ready(mx.mod.SequentialModule().add(body).add(head, **LABELLED), inputs_need_grad=True)
    chain.init_optimizer()
    chain.forward_backward(batch())
    chain.update()
    assert chain.get_input_grads()[0].shape == (8, 6)
    assert chain.output_names == ["pyloss_output"]
    assert [type(m).__name__ for m in chain.modules] == ["SequentialModule", "PythonLossModule"]


def test_bucketing_module_as_a_member():
    def of_length(length):
        steps = mx.sym.SliceChannel(var("data"), num_outputs=length, axis=1, squeeze_axis=True)
        shared = {"weight": var("low_weight"), "bias": var("low_bias")}
        total = sum(mx.sym.FullyConnected(steps[t], num_hidden=5, **shared) for t in range(1, length)) + (
            mx.sym.FullyConnected(steps[0], num_hidden=5, **shared)
        )
        return total, ["data"], None

    body = mx.mod.BucketingModule(of_length, 4)
    chain = mx.mod.SequentialModule().add(body).add(mx.mod.Module(top(var("x")), ["x"]), **LABELLED)
    chain.bind([("data", (8, 4, 6))], [("softmax_label", (8,))])
    chain.init_params(mx.init.Xavier())
    chain.init_optimizer()
    before = chain.get_params()[0]["low_weight"].asnumpy()
    for length in (4, 2, 3):
        shape = [("data", (8, length, 6))]
        one = mx.io.DataBatch(
            [mx.nd.ones((8, length, 6))],
            [mx.nd.zeros((8,))],
            bucket_key=length,
            provide_data=shape,
            provide_label=None,
        )
        chain.forward_backward(one)
        chain.update()
        assert chain.get_outputs()[0].shape == (8, 4)
    assert not np.array_equal(before, chain.get_params()[0]["low_weight"].asnumpy())


def test_monitor_sees_every_module():
    chain, seen = bound(), []
    monitor = mx.mon.Monitor(1, stat_func=lambda x: seen.append(x.shape) or x, pattern=".*output")
    chain.install_monitor(monitor)
    chain.init_params()
    monitor.tic()
    chain.forward(batch(), is_train=True)
    names = {name for _, name, _ in monitor.toc()}
    assert {"low_output", "top_output", "softmax_output"} <= names


def test_nonfinite_outputs_stop_fit_and_a_metric_without_takers_warns():
    data, label = blobs(8)
    data[0, 0] = np.nan
    with pytest.raises(NonFiniteError, match="softmax_output"):
        two().fit(mx.io.NDArrayIter(data, label, 8), num_epoch=1)
    chain = mx.mod.SequentialModule().add(mx.mod.Module(low(var("data")), label_names=None))
    chain.bind([("data", (8, 6))])
    chain.init_params()
    chain.forward(batch(), is_train=False)
    assert chain.label_shapes is None
    with pytest.warns(UserWarning, match="take_labels=True"):
        chain.update_metric(mx.metric.create("acc"), batch().label)


# parameters


def test_params_go_round(tmp_path):
    chain, other = ready(), bound()
    chain.save_params(str(tmp_path / "chain.params"))
    other.load_params(str(tmp_path / "chain.params"))
    assert_same(numbers(other), numbers(chain))
    changed = {name: value * 2 for name, value in chain.get_params()[0].items()}
    chain.set_params(changed, {})
    assert_same(numbers(chain), {k: v.asnumpy() for k, v in changed.items()})


def test_missing_values_are_refused_and_unknown_ones_passed_over():
    args = {name: mx.nd.ones(value.shape) for name, value in ready().get_params()[0].items()}
    chain = bound()
    chain.init_params(arg_params={**args, "other": mx.nd.ones((1,))})
    assert_same(numbers(chain), {k: v.asnumpy() for k, v in args.items()})
    del args["top_bias"]
    with pytest.raises(ArgumentError, match="no value is given for top_bias"):
        bound().init_params(arg_params=args)


def test_one_name_in_two_modules_is_refused():
    chain = mx.mod.SequentialModule()
    chain.add(mx.mod.Module(low(var("data")), label_names=None))
    chain.add(mx.mod.Module(low(var("data"), 6), label_names=None), **WIRED)
    chain.bind([("data", (8, 6))])
    message = r"low_(bias|weight) is a parameter of module 0 \(Module .*\) and of module 1"
    with pytest.raises(ArgumentError, match=message):
        chain.init_params()
    assert not chain.params_initialized


# life cycle and bad input


def test_stages():
    chain = two()
    with pytest.raises(StateError, match=r"SequentialModule\.forward: call bind"):
        chain.forward(batch())
    with pytest.raises(StateError, match="call bind"):
        chain.output_shapes  # noqa: B018 (a property)
    bound(chain)
    with pytest.raises(StateError, match=r"call init_params\(\) first"):
        chain.get_params()
    ready(chain, force_rebind=True)
    with pytest.raises(StateError, match=r"call init_optimizer\(\) first"):
        chain.update()
    chain.init_optimizer()
    assert (chain.binded, chain.params_initialized, chain.optimizer_initialized) == (True, True, True)
    chain.add(mx.mod.Module(low(var("data"), 3, "more"), label_names=None))
    assert (chain.binded, chain.params_initialized, chain.optimizer_initialized) == (False, False, False)


def test_binding_and_installing_twice_is_logged(caplog):
    chain = ready()
    chain.init_optimizer()
    with caplog.at_level(logging.WARNING):
        bound(chain, rows=3)
        chain.init_optimizer()
    assert len(caplog.records) == 2
    assert chain.data_shapes[0].shape == (8, 6)
    bound(chain, rows=3, force_rebind=True)
    assert chain.output_shapes == [("softmax_output", (3, 4))]


def test_shapes_that_do_not_fit_name_both_modules():
    weight = mx.sym.Variable("w_weight", shape=(4, 9))
    second = mx.mod.Module(
        mx.sym.SoftmaxOutput(
            mx.sym.FullyConnected(var("data"), weight, num_hidden=4, name="x"), name="softmax"
        )
    )
    chain = (
        mx.mod.SequentialModule()
        .add(mx.mod.Module(low(var("data")), label_names=None))
        .add(second, **LABELLED)
    )
    message = (
        r"module 1 \(Module softmax_output\) does not take what module 0 \(Module activation\d+_output\) gives, "
        r"data \(8, 5\)"
    )
    with pytest.raises(ShapeError, match=message):
        bound(chain)
    assert not chain.binded


def test_names_and_numbers_that_do_not_fit_name_both_modules():
    first = mx.mod.Module(low(var("data")), label_names=None)
    chain = mx.mod.SequentialModule().add(first).add(mx.mod.Module(top(var("data"))), take_labels=True)
    with pytest.raises(
        ArgumentError, match=r"module 1 .*does not take what module 0 .*data_names are \['data'\]"
    ):
        bound(chain)
    both = mx.mod.Module(top(var("a") + var("b")), ["a", "b"])
    chain = (
        mx.mod.SequentialModule().add(mx.mod.Module(low(var("data")), label_names=None)).add(both, **LABELLED)
    )
    with pytest.raises(ArgumentError, match=r"module 1 .*module 0 .*it has 2 inputs, a, b"):
        bound(chain)


def test_a_batch_that_does_not_fit_names_both_modules():
    first = mx.mod.Module(mx.sym.Flatten(var("data")), label_names=None)
    chain = ready(mx.mod.SequentialModule().add(first).add(mx.mod.Module(top(var("data"))), **LABELLED))
    wide = mx.io.DataBatch([mx.nd.ones((8, 9))], [mx.nd.ones((8,))])
    with pytest.raises(ShapeError, match=r"module 1 .*does not take what module 0 .*gives, data \(8, 9\)"):
        chain.forward(wide)
    with pytest.raises(ShapeError) as caught:
        ready().forward(wide)
    assert "module 1" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: two().add(two().modules[0], wiring=True),
            ArgumentError,
            "unknown option 'wiring', expected take_labels",
        ),
        (lambda: two().add(3), ArgumentError, "expected a module"),
        (lambda: bound(mx.mod.SequentialModule()), StateError, r"call add\(module\) first"),
        (lambda: bound(shared_module=ready()), ArgumentError, "shared_module"),
        (lambda: bound(for_training=False, inputs_need_grad=True), ArgumentError, "for_training=False"),
        (lambda: two().bind([[("data", (4, 6))], [("data", (4, 6))]]), ArgumentError, "whole batches"),
        (lambda: ready().forward([batch(4), batch(4)]), ArgumentError, "whole batches"),
        (lambda: ready().get_input_grads(), StateError, "inputs_need_grad=True"),
    ],
)
def test_bad_calls(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_a_module_twice_or_bound_before_is_refused():
    chain = two()
    with pytest.raises(ArgumentError, match="in the chain already"):
        chain.add(chain.modules[1])
    chain.modules[1].bind([("data", (8, 9))], [("softmax_label", (8,))])
    with pytest.raises(
        StateError, match=r"module 1 .*module 0 .*bound before, to data \(8, 9\).*force_rebind=True"
    ):
        bound(chain)
    bound(chain, force_rebind=True)
    chain = two()
    chain.modules[1].bind([("data", (8, 5))], [("softmax_label", (8,))])
    with pytest.raises(StateError, match="without inputs_need_grad=True"):
        bound(chain)


class Wrapped(mx.mod.BaseModule):
    """A module around another, as the stochastic depth example has it: it sets no booleans of its own."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    data_names = property(lambda self: self.inner.data_names)
    data_shapes = property(lambda self: self.inner.data_shapes)
    output_shapes = property(lambda self: self.inner.output_shapes)

    def bind(self, *args, **kwargs):
        self.inner.bind(*args, **kwargs)


def test_a_wrapper_that_does_not_say_how_it_is_bound_is_taken_at_its_word():
    first, second = two().modules
    chain = mx.mod.SequentialModule()
    chain.add(first).add(Wrapped(second), take_labels=True, auto_wiring=True)
    bound(chain)
    assert second.inputs_need_grad
    assert chain.binded


class Halves(mx.mod.BaseModule):
    """A module as programs for MXNet write them: it sets the three booleans and knows nothing of `pad`."""

    data_names, output_names = ["data"], ["halves_output"]

    def bind(self, data_shapes, label_shapes=None, for_training=True, inputs_need_grad=False, force_rebind=False,
             shared_module=None, grad_req="write"):  # fmt: skip
        self._shapes, self.labels = data_shapes, label_shapes
        self.inputs_need_grad = inputs_need_grad
        self.binded = True

    data_shapes = property(lambda self: self._shapes)
    label_shapes = property(lambda self: self.labels)
    output_shapes = property(lambda self: [("halves_output", self._shapes[0][1])])

    def init_params(self, *args, **kwargs):
        self.params_initialized = True

    def get_params(self):
        return {}, {}

    def init_optimizer(self, *args, **kwargs):
        self.optimizer_initialized = True

    def forward(self, data_batch, is_train=None):
        self.out = data_batch.data[0] * 0.5

    def backward(self, out_grads=None):
        self.grad = self.out * 0

    def get_outputs(self, merge_multi_context=True):
        if merge_multi_context is not True:
            raise AssertionError
        return [self.out]

    def get_input_grads(self, merge_multi_context=True):
        return [self.grad]

    def update(self):
        pass

    def update_metric(self, eval_metric, labels, pre_sliced=False):
        eval_metric.update(labels, self.get_outputs())

    def install_monitor(self, mon):
        pass


def test_modules_written_for_mxnet_work():
    own = Halves()
    assert (own.binded, own.params_initialized, own.optimizer_initialized) == (False, False, False)
    first = mx.mod.Module(low(var("data"), 4), label_names=None)
    chain = mx.mod.SequentialModule().add(first).add(own, take_labels=True)
    data, label = blobs(10)
    metric = mx.metric.create("acc")
    chain.fit(mx.io.NDArrayIter(data, label, 8), eval_metric=metric, num_epoch=1)
    assert metric.num_inst == 16  # it counts padding
    assert (own.binded, own.params_initialized, own.optimizer_initialized) == (True, True, True)
    own.binded = False
    assert own.optimizer_initialized is False
