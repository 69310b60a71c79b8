"""What a `BucketingModule` holds: it does not grow with the number of switches, and buckets left hold no results."""

import gc

import numpy as np
import pytest
import torch

import dpmodule as mx
from helpers.small_fits import both_contexts, bucket_batch, ready, step

LENGTHS = (12, 4, 8, 6)
VOCABULARY, WIDTH, COUNT = 50, 6, 8


def sym_gen(length):
    cell = mx.rnn.FusedRNNCell(WIDTH, mode="lstm", prefix="lstm_")
    data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
    net = mx.sym.Embedding(data, input_dim=VOCABULARY, output_dim=WIDTH, name="embed")
    net, _ = cell.unroll(length, net, merge_outputs=True, layout="NTC")
    net = mx.sym.FullyConnected(mx.sym.Reshape(net, shape=(-1, WIDTH)), num_hidden=VOCABULARY, name="scores")
    net = mx.sym.SoftmaxOutput(net, mx.sym.Reshape(label, shape=(-1,)), name="softmax")
    return net, ("data",), ("softmax_label",)


def batch(length, count=COUNT):
    return bucket_batch(length, *np.random.RandomState(length).randint(0, VOCABULARY, (2, count, length)))


def switch(module, length):
    one = batch(length)
    module.switch_bucket(length, one.provide_data, one.provide_label)


def trained(order=LENGTHS, contexts=None):
    module, first = mx.mod.BucketingModule(sym_gen, order[0], context=contexts), batch(order[0])
    ready(module, shapes=(first.provide_data, first.provide_label), init=None, optimizer={"momentum": 0.9})
    for length in order:
        step(module, batch(length))
    return module


def live_bytes():
    """Return the bytes of all tensors that Python can reach, memory that several share counted once."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) is torch.Tensor and thing.layout is torch.strided:
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


SLOW = [pytest.mark.slow, pytest.mark.timeout(600)]


@both_contexts
@pytest.mark.parametrize("switches", [200, pytest.param(10_000, marks=SLOW)])
@pytest.mark.parametrize(
    "visit", [lambda mod, length: step(mod, batch(length)), switch], ids=["step", "switch"]
)
def test_switching_does_not_grow(visit, switches, contexts):
    module, found = trained(contexts=contexts), []
    for count in (8, switches):
        for number in range(count):
            visit(module, LENGTHS[number % len(LENGTHS)])
        switch(module, LENGTHS[0])
        found.append((len(gc.get_objects()), live_bytes()))
    (objects, held), (objects_later, held_later) = found
    assert held_later <= held
    assert objects_later - objects < 100


@pytest.mark.parametrize("order", [LENGTHS, LENGTHS[::-1], (8, 12, 4, 6)])
def test_all_buckets_hold_no_more_than_the_largest_alone(order):
    before, alone = live_bytes(), trained(LENGTHS[:1])
    wanted = live_bytes() - before
    del alone
    before, module = live_bytes(), trained((*order, LENGTHS[0]))
    assert live_bytes() - before <= 1.05 * wanted
    places = set()
    for length in order:
        module.forward(batch(length))
        places.add(module._curr_module.group.execs[0].arg_dict["data"].tensor.data_ptr())
    assert len(places) == 1


def test_outputs_of_a_bucket_that_has_not_run_again_are_zeros_that_can_be_written():
    module = trained()
    module.forward(batch(12))
    taken = module.get_outputs()[0]
    values = taken.asnumpy().copy()
    switch(module, 4)
    (output,) = module.get_outputs()
    assert not output.asnumpy().any()
    output[0] = 3.0
    assert module.get_outputs()[0].asnumpy()[0].tolist() == [3.0] * VOCABULARY
    module.forward(batch(4))
    np.testing.assert_allclose(output.asnumpy().sum(axis=1), 1, rtol=1e-5)
    for length in LENGTHS[1:]:
        step(module, batch(length))
    assert values.any()
    np.testing.assert_array_equal(taken.asnumpy(), values)  # one taken before keeps its values


def test_leaving_a_bucket_and_updating_return_free_memory(monkeypatch):
    calls, module = [], trained()
    monkeypatch.setattr("dpmodule.module.bucketing_module.trim_heap", lambda: calls.append(module.bucket_key))
    module.forward(batch(4))
    module.forward(batch(8))
    assert calls == []  # so little is not worth the time
    monkeypatch.setattr("dpmodule.module.bucketing_module._WORTH_RETURNING", 1)
    for length in (4, 8, 6, 12):
        module.forward(batch(length))
    assert calls == [8, 4, 8, 6]
    switch(module, 4)
    switch(module, 12)
    assert calls == [8, 4, 8, 6, 12]  # nothing had been computed in 4
    step(module, batch(8))
    module.forward(batch(4))
    assert calls[5:] == [8]  # since update there is nothing new
    calls.clear()
    trained(order=LENGTHS[:1])
    assert calls == []  # one bucket alone keeps its memory
