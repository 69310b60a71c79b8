import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import executor
from dpmodule._core import torch_private
from dpmodule.ops.nn import chunked_softmax, linear
from helpers.switched import same_with_and_without

S = mx.sym
NAME = "score_blocks"
CLASSES = 2048
DATA = S.Variable("data")


def scores(value=DATA, name="scores", count=CLASSES, **attrs):
    return S.FullyConnected(value, num_hidden=count, name=name, **attrs)


def softmax(value=None, name="softmax", **attrs):
    return S.SoftmaxOutput(scores() if value is None else value, name=name, **attrs)


@pytest.fixture(params=["MKL", "oneDNN"])
def library(request, monkeypatch):
    """Run with either library that multiplies matrices."""
    monkeypatch.setattr(linear, "ONEDNN_MIN_WORK", 1)
    monkeypatch.setattr(linear, "onednn_is_faster", lambda *_: request.param == "oneDNN")


def row(net, count=1, shape=(700, 6), rtol=5e-6, **options):
    return net, count, shape, {"rtol": rtol, **options}


def requests(data, weight):
    return {"grad_req": {"data": data, "scores_weight": weight, "scores_bias": "write"}}


BOTH = scores()
IGNORING = {"use_ignore": True, "ignore_label": 2}
NO_CLASS = np.random.RandomState(0).choice([-5, -1, 0, CLASSES - 1, CLASSES, 9999.0], 700)


VALID = {"use_ignore": True, "ignore_label": 0, "normalization": "valid"}
ATTRS = [{"grad_scale": 0.3}, VALID, {"normalization": "batch"}]
CASES = {
    **{f"{attrs}": row(softmax(**attrs)) for attrs in ATTRS},
    "predicting": row(softmax(**VALID), is_train=False),
    "add": row(softmax(), grad_req="add"),
    "of the weight": row(softmax(), **requests("null", "write")),
    "of the bias": row(softmax(), **requests("null", "null")),
    "65 rows": row(softmax(scores(S.tanh(DATA * 2)), **IGNORING), 1, (65, 6)),
    "no bias": row(softmax(scores(no_bias=True), **IGNORING), 1, (513, 6)),
    "beside others": row(S.Group([softmax(), S.MakeLoss(S.sum(DATA))])),
    "float64 of 4 axes": row(softmax(), 1, (600, 2, 3, 2), 1e-12, dtype="float64"),
    "labels of no class": row(softmax(), values={"softmax_label": NO_CLASS}),
    "few classes": row(softmax(scores(count=CLASSES - 1)), 0),
    "smooth": row(softmax(smooth_alpha=0.1), 0),
    "with a gradient": row(softmax(out_grad=True), 0, seeds=True),
    "of rows": row(softmax(scores(flatten=False), preserve_shape=True), 0),
    "read": row(S.Group([softmax(BOTH), S.BlockGrad(BOTH)]), 0),
}


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("net", "count", "shape", "options"), CASES.values(), ids=CASES)
def test_results_are_those_without(net, count, shape, options):
    assert same_with_and_without(net, {"data": shape}, NAME, **options).get(NAME, 0) == count


def bound():
    """Bind a net; its weight is drawn, all else is 0."""
    one = softmax().simple_bind(mx.cpu(), data=(700, 6))
    weight = one.arg_dict["scores_weight"]
    weight[:] = mx.nd.array(np.random.RandomState(0).randn(*weight.shape))
    return one


def bias_gradient(one):
    return one.grad_dict["scores_bias"].asnumpy()


@pytest.mark.parametrize("write", ["array", "batch"])
def test_a_label_read_where_it_lies_counts_as_the_array_that_it_is_copied_into(write):
    label, one = torch.full((700,), 3.0), bound()
    one.run(True, {"data": torch.ones(700, 6), "softmax_label": label})
    array = one.arg_dict["softmax_label"]
    (array if write == "array" else label)[:] = 5
    one.backward()
    assert np.flatnonzero(bias_gradient(one) < 0).tolist() == [5 if write == "array" else 3]


def test_an_error_in_it_names_the_node_and_holds_no_memory(monkeypatch):
    one = bound()
    first = run(one, 0.0).tensor.data_ptr()
    with monkeypatch.context() as patch:
        patch.setattr(chunked_softmax, "_probabilities", lambda *args: 1 / 0)
        with pytest.raises(mx.base.MXNetError, match=r"SoftmaxOutput 'softmax' .*division by zero"):
            run(one, 1.0)
    assert run(one, 1.0).tensor.data_ptr() == first
    assert all(env.memory is None for env in one._prepare(True, True).shaped)


# the memory of the outputs


def run(one, value):
    return one.forward(is_train=True, data=np.full((700, 6), value))[0]


def test_an_output_is_computed_where_the_last_one_lay():
    one = bound()
    first = run(one, 0.0).tensor.data_ptr()
    one.backward()
    assert run(one, 1.0).tensor.data_ptr() == first
    assert one.forward(is_train=False)[0].tensor.data_ptr() == first


def recorded(out):
    """Return what a backward of torch's own keeps: the gradient by a weight is the output."""
    weight = torch.ones(out.shape, requires_grad=True)
    with torch.enable_grad():
        return weight, (weight * out.tensor).sum()


HOLDERS = {  # what somebody takes of an output, and how it is read
    "tensor": (lambda out: out.torch(), lambda held: held),
    "storage": (lambda out: out.tensor.untyped_storage(), lambda held: torch.empty(0).set_(held)),
    "torch's backward": (recorded, lambda held: torch.autograd.grad(*held[::-1], retain_graph=True)[0]),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_somebody_holds_keeps_its_values(holder):
    one, (take, read) = bound(), HOLDERS[holder]
    held = take(run(one, 1.0))
    values = read(held).clone()
    assert np.allclose(run(one, 0.0).asnumpy(), 1 / CLASSES)
    assert torch.equal(read(held), values)


def test_memory_that_other_processes_may_read_is_left_to_them():
    one = bound()
    run(one, 0.0).tensor.share_memory_()
    first = one.outputs[0].tensor.data_ptr()
    assert run(one, 1.0).tensor.data_ptr() != first


def test_without_a_count_of_holders_memory_is_new_each_time():
    torch_private.select(public=True)
    executor.memory._alone.cache_clear()
    try:
        one = bound()
        tensor = run(one, 0.0).tensor
        assert run(one, 1.0).tensor.data_ptr() != tensor.data_ptr()
    finally:
        torch_private.select()
        executor.memory._alone.cache_clear()


def test_peak_memory_is_far_below_that_of_all_scores():
    def peak(*off):
        """Return the most bytes at a time, beside those of all scores."""
        with executor.disabled(*off):
            one = softmax().simple_bind(mx.cpu(), data=(6000, 6))
            for _ in range(2):
                with torch.profiler.profile(profile_memory=True) as seen:
                    one.forward(is_train=True)
                    one.backward()
        events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
        sizes = [size for _, size in sorted((e.start_ns(), e.nbytes()) for e in events)]
        return np.cumsum(sizes).max() / (6000 * CLASSES * 4)

    assert peak() < 0.5
    assert peak(NAME) > 0.9
