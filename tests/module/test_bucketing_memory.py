"""What a `BucketingModule` holds: it does not grow with the number of switches, and buckets left hold no results."""

import gc
import weakref

import numpy as np
import pytest
import torch

import dpmodule as mx

LENGTHS = (12, 4, 8, 6)
VOCABULARY, WIDTH, COUNT = 50, 6, 8


def sym_gen(length):
    cell = mx.rnn.FusedRNNCell(WIDTH, mode="lstm", prefix="lstm_")
    data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
    net = mx.sym.Embedding(data, input_dim=VOCABULARY, output_dim=WIDTH, name="embed")
    net, _ = cell.unroll(length, net, merge_outputs=True, layout="NTC")
    net = mx.sym.FullyConnected(mx.sym.Reshape(net, shape=(-1, WIDTH)), num_hidden=VOCABULARY, name="scores")
    return (
        mx.sym.SoftmaxOutput(net, mx.sym.Reshape(label, shape=(-1,)), name="softmax"),
        ("data",),
        ("softmax_label",),
    )


def batch(length):
    words = np.random.RandomState(length).randint(0, VOCABULARY, (2, COUNT, length))
    return mx.io.DataBatch(
        [mx.nd.array(words[0])],
        [mx.nd.array(words[1])],
        bucket_key=length,
        provide_data=[mx.io.DataDesc("data", (COUNT, length))],
        provide_label=[mx.io.DataDesc("softmax_label", (COUNT, length))],
    )


def trained(order=LENGTHS, contexts=None):
    module = mx.mod.BucketingModule(sym_gen, order[0], context=contexts)
    first = batch(order[0])
    module.bind(first.provide_data, first.provide_label)
    module.init_params()
    module.init_optimizer(optimizer_params={"momentum": 0.9})
    for length in order:
        step(module, batch(length))
    return module


def step(module, one):
    module.forward_backward(one)
    module.update()


def live_bytes():
    """Return the bytes of all tensors that Python can reach, memory that several share counted once."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) is torch.Tensor and thing.layout is torch.strided:
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def visit(module, batches, switches, compute):
    for number in range(switches):
        one = batches[number % len(batches)]
        if compute(number):
            step(module, one)
        else:
            module.switch_bucket(one.bucket_key, one.provide_data, one.provide_label)
    module.switch_bucket(LENGTHS[0], batches[0].provide_data, batches[0].provide_label)


def check_growth(switches, compute, contexts=None):
    module = trained(contexts=contexts)
    batches = [batch(length) for length in LENGTHS]
    visit(module, batches, 2 * len(batches), compute)
    objects, held = len(gc.get_objects()), live_bytes()
    visit(module, batches, switches, compute)
    assert live_bytes() <= held
    assert len(gc.get_objects()) - objects < 100


@pytest.mark.parametrize("contexts", [None, [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
@pytest.mark.parametrize("compute", [bool, lambda number: False], ids=["steps", "switches"])
def test_switching_does_not_grow(compute, contexts):
    check_growth(200, compute, contexts)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("compute", [bool, lambda number: False], ids=["steps", "switches"])
def test_ten_thousand_switches_do_not_grow(compute):
    check_growth(10_000, compute)


def test_outputs_of_a_bucket_are_given_up_when_it_is_left():
    module = trained()
    module.forward(batch(12), is_train=True)
    output = weakref.ref(module.get_outputs()[0].tensor)
    made = live_bytes()
    module.switch_bucket(4, [("data", (COUNT, 4))], [("softmax_label", (COUNT, 4))])
    assert output() is None
    module.switch_bucket(12, [("data", (COUNT, 12))], [("softmax_label", (COUNT, 12))])
    assert module.get_outputs()[0].shape == (COUNT * 12, VOCABULARY)
    assert live_bytes() <= made


@pytest.mark.parametrize("order", [LENGTHS, LENGTHS[::-1], (8, 12, 4, 6)])
def test_all_buckets_hold_no_more_than_the_largest_alone(order):
    before = live_bytes()
    alone = trained(LENGTHS[:1])
    wanted = live_bytes() - before
    del alone
    before = live_bytes()
    module = trained((*order, LENGTHS[0]))
    assert live_bytes() - before <= 1.05 * wanted
    assert len(module.bucket_keys) == len(LENGTHS)


def test_outputs_of_a_bucket_that_has_not_run_again_are_zeros_that_can_be_written():
    module = trained()
    module.switch_bucket(4, [("data", (COUNT, 4))], [("softmax_label", (COUNT, 4))])
    (output,) = module.get_outputs()
    assert not output.asnumpy().any()
    output[0] = 3.0
    assert module.get_outputs()[0].asnumpy()[0].tolist() == [3.0] * VOCABULARY
    module.forward(batch(4))
    np.testing.assert_allclose(output.asnumpy().sum(axis=1), 1, rtol=1e-5)


def test_an_output_taken_before_keeps_its_values():
    module = trained()
    module.forward(batch(12))
    taken = module.get_outputs()[0]
    values = taken.asnumpy().copy()
    assert values.any()
    for length in LENGTHS[1:]:
        step(module, batch(length))
    np.testing.assert_array_equal(taken.asnumpy(), values)


def test_a_bucket_bound_again_for_another_batch_size_gives_up_every_result():
    module = trained()
    other = mx.io.DataBatch([mx.nd.ones((2, 12))], [mx.nd.ones((2, 12))], bucket_key=12)
    module.forward(batch(12), is_train=True)
    first = weakref.ref(module.get_outputs()[0].tensor)
    module.forward(other, is_train=True)
    second = weakref.ref(module.get_outputs()[0].tensor)
    assert module.get_outputs()[0].shape == (2 * 12, VOCABULARY)
    module.forward(batch(4))
    assert first() is None
    assert second() is None


@pytest.mark.parametrize("order", [LENGTHS, LENGTHS[::-1], (8, 12, 4, 6)])
def test_inputs_of_all_buckets_lie_in_one_memory(order):
    module = trained(order)
    for length in order:  # the largest has been seen: now every bucket uses its memory
        step(module, batch(length))
    places = set()
    for length in order:
        module.forward(batch(length))
        places.add(module._curr_module.group.execs[0].arg_dict["data"].tensor.data_ptr())
    assert len(places) == 1


def test_leaving_a_bucket_and_updating_return_free_memory(monkeypatch):
    module, calls = trained(), []
    monkeypatch.setattr("dpmodule.module.bucketing_module.trim_heap", lambda: calls.append(module.bucket_key))
    module.forward(batch(4))
    module.forward(batch(8))
    assert calls == []  # so little is not worth the time
    monkeypatch.setattr("dpmodule.module.bucketing_module._WORTH_RETURNING", 1000)
    module.forward(batch(4))
    module.forward(batch(8))
    module.forward(batch(6))
    module.forward(batch(12))
    assert calls == [8, 4, 8, 6]
    module.switch_bucket(4, [("data", (COUNT, 4))], [("softmax_label", (COUNT, 4))])
    module.switch_bucket(12, [("data", (COUNT, 12))], [("softmax_label", (COUNT, 12))])
    assert calls == [8, 4, 8, 6, 12]  # nothing had been computed in 4
    module.forward_backward(batch(8))
    module.update()
    assert calls[5:] == [8]
    module.forward(batch(4))
    assert calls[5:] == [8]  # since update there is nothing new


def test_fit_returns_free_memory_once_an_epoch(monkeypatch):
    calls = []
    module = trained()
    monkeypatch.setattr("dpmodule.module.bucketing_module.trim_heap", lambda: calls.append(1))
    monkeypatch.setattr("dpmodule.module.bucketing_module._WORTH_RETURNING", 1)
    rows = [list(range(1, length)) for length in LENGTHS for _ in range(COUNT * 2)]
    data = mx.rnn.BucketSentenceIter(rows, COUNT, buckets=sorted(LENGTHS), invalid_label=0)
    module.fit(data, num_epoch=3, eval_metric=mx.metric.Perplexity(0))
    assert len(calls) == 3
    step(module, batch(LENGTHS[0]))
    assert len(calls) == 4


def test_free_memory_is_returned_again_after_a_fit_that_failed(monkeypatch):
    calls = []
    module = trained()
    monkeypatch.setattr("dpmodule.module.bucketing_module.trim_heap", lambda: calls.append(1))
    monkeypatch.setattr("dpmodule.module.bucketing_module._WORTH_RETURNING", 1)
    rows = [list(range(1, length)) for length in LENGTHS for _ in range(COUNT * 2)]
    data = mx.rnn.BucketSentenceIter(rows, COUNT, buckets=sorted(LENGTHS), invalid_label=0)

    def fail(param):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        module.fit(data, num_epoch=1, eval_metric=mx.metric.Perplexity(0), batch_end_callback=fail)
    assert len(calls) == 1
    step(module, batch(LENGTHS[0]))
    assert len(calls) == 2


def test_one_bucket_alone_keeps_its_memory(monkeypatch):
    calls = []
    monkeypatch.setattr("dpmodule.module.bucketing_module.trim_heap", lambda: calls.append(1))
    monkeypatch.setattr("dpmodule.module.bucketing_module._WORTH_RETURNING", 1)
    trained(order=LENGTHS[:1])
    assert calls == []
