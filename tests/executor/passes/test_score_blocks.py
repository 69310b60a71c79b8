import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import executor
from dpmodule._core import torch_private
from dpmodule.ops.nn import chunked_softmax, linear
from helpers.switched import assert_same, fired, results, same_with_and_without

S = mx.sym
NAME = "score_blocks"
CLASSES = 2048
SHAPE = {"data": (700, 6)}

DATA = S.Variable("data")


def scores(value=DATA, name="scores", **attrs):
    return S.FullyConnected(value, num_hidden=CLASSES, name=name, **attrs)


def softmax(value=None, name="softmax", **attrs):
    return S.SoftmaxOutput(scores() if value is None else value, name=name, **attrs)


@pytest.fixture(params=["MKL", "oneDNN"])
def library(request, monkeypatch):
    """Run with either library that multiplies matrices."""
    monkeypatch.setattr(linear, "ONEDNN_MIN_WORK", 1)
    monkeypatch.setattr(linear, "onednn_is_faster", lambda *_: request.param == "oneDNN")


CASES = {
    "plain": {},
    "scaled": {"grad_scale": 0.3},
    "ignore": {"use_ignore": True, "ignore_label": 1},
    "valid": {"use_ignore": True, "ignore_label": 0, "normalization": "valid"},
    "batch": {"normalization": "batch"},
    "last axis": {"preserve_shape": True},
}


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("is_train", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_all_attributes(case, is_train):
    counts = same_with_and_without(softmax(**CASES[case]), SHAPE, NAME, rtol=5e-6, is_train=is_train)
    assert counts[NAME] == 1


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "grad_req", ["add", *({"data": a, "scores_weight": b} for a, b in ("wn", "nw", "nn"))]
)
def test_some_gradients(grad_req):
    if isinstance(grad_req, dict):
        word = {"w": "write", "n": "null"}
        grad_req = {"scores_bias": "write", **{k: word[v] for k, v in grad_req.items()}}
    same_with_and_without(softmax(), SHAPE, NAME, rtol=5e-6, grad_req=grad_req)


@pytest.mark.parametrize("rows", [65, 512, 513, 1023])
@pytest.mark.parametrize("no_bias", [True, False])
def test_any_number_of_rows(rows, no_bias):
    net = softmax(scores(S.tanh(DATA * 2), no_bias=no_bias), use_ignore=True, ignore_label=2)
    same_with_and_without(net, {"data": (rows, 6)}, NAME, rtol=5e-6)


def test_two_losses_that_share_what_is_below():
    hidden = S.FullyConnected(DATA, num_hidden=5, name="fc")
    net = S.Group([softmax(scores(hidden)), softmax(scores(hidden, "more"), "second"), S.BlockGrad(hidden)])
    assert same_with_and_without(net, SHAPE, NAME, rtol=5e-6)[NAME] == 2


def test_double_precision_and_data_of_four_axes():
    net, shape = softmax(), {"data": (600, 2, 3, 2)}
    assert same_with_and_without(net, shape, NAME, rtol=1e-12, dtype="float64")[NAME] == 1


def test_every_label_ignored():
    net = softmax(use_ignore=True, ignore_label=7)
    one = net.simple_bind(mx.cpu(), **SHAPE)
    one.arg_dict["softmax_label"][:] = 7
    one.arg_dict["data"][:] = 1
    one.forward(is_train=True)
    one.backward()
    assert all(not g.asnumpy().any() for k, g in one.grad_dict.items() if k != "softmax_label")


def test_labels_that_are_no_class_take_nothing_away():
    net = softmax()
    found = []
    for off in ((), (NAME,)):
        with executor.disabled(*off):
            one = net.simple_bind(mx.cpu(), **SHAPE)
            rng = np.random.RandomState(0)
            for name in ("data", "scores_weight"):
                one.arg_dict[name][:] = mx.nd.array(rng.rand(*one.arg_dict[name].shape))
            one.arg_dict["softmax_label"][:] = mx.nd.array(
                rng.choice([-5, -1, 0, CLASSES - 1, CLASSES, 9999.0], 700)
            )
            one.forward(is_train=True)
            one.backward()
            found.append({f"gradient {k}": v.asnumpy() for k, v in one.grad_dict.items()})
    assert_same(*found, 2e-6)


def test_against_the_formula():
    rng = np.random.RandomState(0)
    x, w, y = rng.randn(600, 4), rng.randn(CLASSES, 4), rng.randint(0, CLASSES, 600)
    one = softmax(scores(no_bias=True)).simple_bind(mx.cpu(), data=(600, 4))
    values = {"data": mx.nd.array(x), "scores_weight": mx.nd.array(w), "softmax_label": mx.nd.array(y)}
    out = one.forward(is_train=True, **values)[0].asnumpy()
    one.backward()
    p = np.exp(x @ w.T - (x @ w.T).max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    np.testing.assert_allclose(out, p, atol=1e-6)
    p[np.arange(600), y] -= 1
    np.testing.assert_allclose(one.grad_dict["data"].asnumpy(), p @ w, atol=1e-4)
    np.testing.assert_allclose(one.grad_dict["scores_weight"].asnumpy(), p.T @ x, atol=1e-4)


@pytest.mark.parametrize(
    "net",
    [
        softmax(S.FullyConnected(DATA, num_hidden=CLASSES - 1, name="scores")),
        softmax(scores() * 2),
        softmax(smooth_alpha=0.1),
        softmax(out_grad=True),
        softmax(scores(flatten=False), preserve_shape=True),
    ],
)
def test_others_are_left_alone(net):
    assert NAME not in fired(net, SHAPE)


def test_scores_that_are_read_elsewhere_are_left_alone():
    both = scores()
    assert NAME not in fired(S.Group([softmax(both), S.BlockGrad(both)]), SHAPE)
    assert NAME not in fired(S.MakeLoss(softmax() * 2), SHAPE)


def test_soft_labels_and_few_rows_go_the_plain_way():
    one = softmax().simple_bind(mx.cpu(), data=(4, 6), softmax_label=(4, CLASSES))
    one.arg_dict["softmax_label"][:] = 0.5
    out = one.forward(is_train=True)[0].asnumpy()
    one.backward()
    np.testing.assert_allclose(one.grad_dict["scores_bias"].asnumpy(), (out - 0.5).sum(0), rtol=1e-5)


def test_an_output_and_a_label_written_before_backward_count():
    grads = []
    for off in ((), (NAME,)):
        with executor.disabled(*off):
            one = softmax().simple_bind(mx.cpu(), **SHAPE)
            out = one.forward(is_train=True, data=np.ones((700, 6)))[0]
            out[:] = 0.25
            one.arg_dict["softmax_label"][:] = 3
            one.backward()
            grads.append(one.grad_dict["scores_bias"].asnumpy())
    np.testing.assert_allclose(*grads, rtol=1e-5)
    assert grads[0][3] == pytest.approx(700 * -0.75, rel=1e-5)


@pytest.mark.parametrize("write", ["array", "batch"])
@pytest.mark.parametrize("off", [(), (NAME,)])
def test_a_label_read_where_it_lies_counts_as_the_array_that_it_is_copied_into(off, write):
    label = torch.full((700,), 3.0)
    with executor.disabled(*off):
        one = softmax().simple_bind(mx.cpu(), **SHAPE)
        one.run(True, {"data": torch.ones(700, 6), "softmax_label": label})
        array = one.arg_dict["softmax_label"]
        if write == "array":
            array[:] = 5
        else:
            label[:] = 7
        one.backward()
    grad = one.grad_dict["scores_bias"].asnumpy()
    assert np.flatnonzero(grad < 0).tolist() == [5 if write == "array" else 3]


def test_a_monitor_sees_the_scores():
    seen = []
    one = softmax().simple_bind(mx.cpu(), **SHAPE)
    one.set_monitor_callback(lambda name, value: seen.append(name))
    one.forward(is_train=True)
    assert seen == ["scores_output", "softmax_output"]


def test_prediction_gives_what_training_gives():
    one = softmax().simple_bind(mx.cpu(), **SHAPE)
    one.arg_dict["data"][:] = mx.nd.array(np.random.RandomState(0).randn(700, 6))
    one.arg_dict["scores_weight"][:] = mx.nd.array(np.random.RandomState(1).randn(CLASSES, 6))
    trained = one.forward(is_train=True)[0].asnumpy()
    assert np.array_equal(one.forward(is_train=False)[0].asnumpy(), trained)


def test_an_error_in_it_names_the_node(monkeypatch):
    one = softmax().simple_bind(mx.cpu(), **SHAPE)

    def fail(*args):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(chunked_softmax, "_probabilities", fail)
    with pytest.raises(mx.base.MXNetError, match=r"SoftmaxOutput 'softmax' .*no such luck"):
        one.forward(is_train=True)


# the memory of the outputs


def run(one, value):
    return one.forward(is_train=True, data=np.full((700, 6), value))[0]


def weighted():
    one = softmax().simple_bind(mx.cpu(), **SHAPE)
    one.arg_dict["scores_weight"][:] = mx.nd.array(np.random.RandomState(0).randn(CLASSES, 6))
    return one


def test_an_output_is_computed_where_the_last_one_lay():
    one = weighted()
    first = run(one, 0.0).tensor.data_ptr()
    one.backward()
    assert run(one, 1.0).tensor.data_ptr() == first
    assert one.forward(is_train=False)[0].tensor.data_ptr() == first


HOLDERS = {
    "tensor": lambda out: out.torch(),
    "slice": lambda out: out[0:3],
    "numpy": np.asarray,
    "alias": lambda out: out.tensor.detach(),
    "the tensor itself": lambda out: out.tensor,
    "storage": lambda out: out.tensor.untyped_storage(),
    "reshape": lambda out: out.reshape((-1,)),
    "detach": lambda out: out.detach(),
}


def numbers(held):
    """Return a copy of what somebody holds."""
    if isinstance(held, np.ndarray):
        return held.copy()
    if isinstance(held, torch.UntypedStorage):
        held = torch.empty(0).set_(held)
    return held.clone().numpy() if isinstance(held, torch.Tensor) else held.asnumpy()


@pytest.mark.parametrize("is_train", [True, False])
@pytest.mark.parametrize("holder", HOLDERS)
def test_what_somebody_holds_keeps_its_values(holder, is_train):
    one = weighted()
    held = HOLDERS[holder](run(one, 1.0))
    values = numbers(held)
    one.forward(is_train=is_train, data=np.zeros((700, 6)))
    assert np.array_equal(numbers(held), values)
    assert np.allclose(one.outputs[0].asnumpy(), 1 / CLASSES)


def test_what_autograd_has_recorded_keeps_its_values():
    one = weighted()
    out = run(one, 1.0)
    out.attach_grad()
    before = out.asnumpy()
    with mx.autograd.record():
        square = out * out
    run(one, 0.0)
    square.backward()
    if out.grad is not None:
        np.testing.assert_allclose(out.grad.asnumpy(), 2 * before)


def test_a_second_backward_leaves_the_output_alone():
    one = weighted()
    out = run(one, 1.0)
    one.backward()
    first = out.asnumpy(), one.grad_dict["data"].asnumpy()
    one.backward()
    assert np.array_equal(out.asnumpy(), first[0])
    assert np.array_equal(one.grad_dict["data"].asnumpy(), first[1])


@pytest.mark.parametrize("is_train", [True, False])
def test_what_torch_keeps_for_a_backward_of_its_own_keeps_its_values(is_train):
    one = weighted()
    values = run(one, 1.0).asnumpy()
    weight = torch.ones(values.shape, requires_grad=True)
    with torch.enable_grad():
        total = (weight * one.outputs[0].tensor).sum()
    one.forward(is_train=is_train, data=np.zeros((700, 6)))
    total.backward()
    assert np.array_equal(weight.grad.numpy(), values)


def test_memory_that_other_processes_may_read_is_left_to_them():
    one = weighted()
    run(one, 0.0).tensor.share_memory_()
    first = one.outputs[0].tensor.data_ptr()
    assert run(one, 1.0).tensor.data_ptr() != first


def test_without_a_count_of_holders_memory_is_new_each_time():
    torch_private.select(public=True)
    executor.memory._alone.cache_clear()
    try:
        one = weighted()
        first = run(one, 0.0)
        tensor = first.tensor
        address = tensor.data_ptr()
        assert run(one, 1.0).tensor.data_ptr() != address
    finally:
        torch_private.select()
        executor.memory._alone.cache_clear()


def test_given_up_outputs_are_no_memory_to_write_in():
    one = weighted()
    old = run(one, 1.0)
    values = old.asnumpy()
    one.release()
    assert np.allclose(run(one, 0.0).asnumpy(), 1 / CLASSES)
    assert np.array_equal(old.asnumpy(), values)


def test_a_failed_run_holds_no_memory(monkeypatch):
    one = weighted()
    first = run(one, 0.0).tensor.data_ptr()
    with monkeypatch.context() as patch:
        patch.setattr(chunked_softmax, "_inputs", lambda *args: 1 / 0)
        with pytest.raises(mx.base.MXNetError):
            run(one, 1.0)
    assert run(one, 1.0).tensor.data_ptr() == first
    assert all(env.memory is None for env in one._prepare(True, True).shaped)


def test_peak_memory_is_far_below_that_of_all_scores():
    def peak(*off):
        with executor.disabled(*off):
            one = softmax(scores(name="s")).simple_bind(mx.cpu(), data=(6000, 6))
            one.forward(is_train=True)
            one.backward()
            kinds = [torch.profiler.ProfilerActivity.CPU]
            with torch.profiler.profile(activities=kinds, profile_memory=True) as seen:
                one.forward(is_train=True)
                one.backward()
        events = seen.profiler.kineto_results.events()
        now = most = 0
        for _, size in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
            now += size
            most = max(most, now)
        return most / (6000 * CLASSES * 4)

    assert peak() < 0.5
    assert peak(NAME) > 0.9


def test_contexts_agree():
    rng = np.random.RandomState(0)
    data, label = rng.randn(1400, 6), rng.randint(0, CLASSES, 1400)
    found = []
    for contexts in ([mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]):
        module = mx.mod.Module(softmax(), context=contexts)
        module.bind([("data", (1400, 6))], [("softmax_label", (1400,))])
        np.random.seed(0)
        mx.random.seed(0)
        module.init_params(mx.init.Uniform(0.5))
        module.init_optimizer(optimizer_params={"learning_rate": 1.0})
        module.forward_backward(mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)]))
        module.update()
        found.append({f"gradient {k}": v.asnumpy() for k, v in module.get_params()[0].items()})
    assert_same(*found, 1e-5)


def test_results_of_a_bound_subgraph_stay():
    got, _ = results(S.Group([softmax(), S.MakeLoss(S.sum(DATA))]), SHAPE)
    want, _ = results(S.Group([softmax(), S.MakeLoss(S.sum(DATA))]), SHAPE, [NAME])
    assert_same(got, want, 2e-6)
