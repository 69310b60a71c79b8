"""`BaseModule` as MXNet has it: a class that programs derive from, or fill in on one object."""

import copy
import logging
import pickle

import pytest

import dpmodule as mx
from dpmodule.base import StateError
from dpmodule.contrib.svrg_optimization.svrg_module import SVRGModule
from helpers.small_fits import blobs, chain, classifier, ready, step

SHAPES = blobs().provide_data, blobs().provide_label


class Batches:
    """An iterator that is no DataIter; its batches have no data."""

    provide_data = provide_label = None

    def __init__(self):
        self.given, self.label_reads = 0, []

    def reset(self):
        self.given = 0

    def __iter__(self):
        for self.given in range(1, 4):
            yield Batch(self, self.given)


class Batch:
    def __init__(self, source, number):
        self.source, self.number = source, number

    @property
    def label(self):
        # the batch whose label is read is the last one handed out
        self.source.label_reads.append((self.number, self.source.given))


def test_methods_can_be_set_on_an_object_and_fit_holds_one_batch_at_a_time():
    mod, calls, data = mx.mod.BaseModule(), [], Batches()
    for name in ("bind", "init_params", "init_optimizer", "forward", "backward", "update", "update_metric"):
        setattr(mod, name, lambda *args, _name=name, **kwargs: calls.append(_name))
    mod.get_params = lambda: (None, None)
    mod.fit(data, num_epoch=2)
    assert calls.count("update") == 6
    assert data.label_reads
    assert all(number == given for number, given in data.label_reads)


def bucket(key):
    return classifier(), ("data",), ("softmax_label",)


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda module: pickle.loads(pickle.dumps(module))}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: mx.mod.Module(classifier(), fixed_param_names=["scores_bias"]),
        lambda: mx.mod.BucketingModule(bucket, 3, logger=logging.getLogger("own")),
        chain,
        lambda: SVRGModule(classifier(), update_freq=2),
    ],
)
def test_modules_are_copied_before_they_are_bound(make, way):
    module, batch, outputs = make(), next(blobs()), []
    batch.bucket_key, (batch.provide_data, batch.provide_label) = 3, SHAPES
    for one in (COPIES[way](module), module):
        assert one.logger is module.logger
        ready(one, shapes=SHAPES, init=mx.init.Constant(0.5), optimizer={"learning_rate": 0.5})
        if isinstance(one, SVRGModule):
            one.update_full_grads(blobs())
        for _ in range(2):
            step(one, batch)
        one.forward(batch, is_train=False)
        outputs.append(one.get_outputs()[0].asnumpy().tolist())
    assert outputs[0] == outputs[1]
    with pytest.raises(StateError, match=rf"{type(module).__name__} is bound, and a bound module cannot be"):
        COPIES[way](module)
    assert copy.copy(module).get_params()[0].keys() == module.get_params()[0].keys()
