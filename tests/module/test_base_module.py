"""`BaseModule` as MXNet has it: a class that programs derive from, or fill in on one object."""

import copy
import logging
import pickle

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import StateError
from dpmodule.contrib.svrg_optimization.svrg_module import SVRGModule


class Batches:
    """An iterator that is no DataIter; its batches have no data."""

    provide_data = None
    provide_label = None

    def __init__(self, count):
        self.count, self.given, self.label_reads = count, 0, []

    def reset(self):
        self.given = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.given == self.count:
            raise StopIteration
        self.given += 1
        return Batch(self, self.given)


class Batch:
    def __init__(self, source, number):
        self.source, self.number = source, number

    @property
    def label(self):
        # the batch whose label is read is the last one handed out
        self.source.label_reads.append((self.number, self.source.given))


def test_methods_can_be_set_on_an_object_and_fit_holds_one_batch_at_a_time():
    mod = mx.mod.BaseModule()
    calls = []
    for name in ("bind", "init_params", "init_optimizer", "forward", "backward", "update", "update_metric"):
        setattr(mod, name, lambda *args, _name=name, **kwargs: calls.append(_name))
    mod.get_params = lambda: (None, None)
    data = Batches(3)
    mod.fit(data, num_epoch=2)
    assert calls.count("update") == 6
    assert data.label_reads
    assert all(number == given for number, given in data.label_reads)


@pytest.mark.parametrize(
    "name", ["bind", "get_params", "forward", "backward", "update", "get_outputs", "install_monitor"]
)
def test_what_is_not_defined_says_so(name):
    arguments = {"bind": [[]], "forward": [None], "install_monitor": [None]}.get(name, [])
    with pytest.raises(NotImplementedError, match=f"BaseModule does not define {name}"):
        getattr(mx.mod.BaseModule(), name)(*arguments)


@pytest.mark.parametrize(
    "name", ["data_names", "output_names", "data_shapes", "label_shapes", "output_shapes"]
)
def test_properties_that_are_not_defined_say_so(name):
    with pytest.raises(NotImplementedError, match=f"BaseModule does not define {name}"):
        getattr(mx.mod.BaseModule(), name)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("to", "pass contexts .* to its constructor"),
        ("parameters", "get_params"),
        ("state_dict", "get_params"),
        ("eval", "is_train"),
        ("zero_grad", "grad_req"),
    ],
)
def test_methods_of_torch_modules_name_what_takes_their_place(name, instead):
    with pytest.raises(AttributeError, match=f"BaseModule has no {name}, .*{instead}"):
        getattr(mx.mod.BaseModule(), name)


def test_an_error_inside_a_property_is_not_hidden():
    class Broken(mx.mod.BaseModule):
        @property
        def data_names(self):
            return None.inputs

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'inputs'"):
        Broken().data_names  # noqa: B018


def classifier():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    return mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))


def examples():
    return mx.io.NDArrayIter(np.zeros((8, 4), "f"), np.zeros(8, "f"), 4)


@pytest.mark.parametrize("method", ["predict", "score", "iter_predict"])
def test_loops_that_come_before_bind_say_so_by_their_own_name(method):
    arguments = [examples(), "acc"] if method == "score" else [examples()]
    with pytest.raises(mx.error.MXNetError, match=rf"Module.{method}: call bind\(.*\) first"):
        list(getattr(classifier(), method)(*arguments))


def from_torch():
    return mx.mod.Module.from_torch(torch.nn.Linear(4, 3), torch.zeros(4, 4), head=mx.sym.SoftmaxOutput)


def with_store():
    first, second = classifier(), classifier()
    first.bind(examples().provide_data, examples().provide_label)
    first.init_params()
    second.bind(examples().provide_data, examples().provide_label, store=first.store)
    return second


@pytest.mark.parametrize("make", [from_torch, with_store])
def test_fit_of_a_bound_module_does_not_warn(make, caplog):
    module = make()
    module.fit(examples(), num_epoch=1)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (torch.nn.CrossEntropyLoss, "torch's CrossEntropyLoss; .* such as mx.sym.SoftmaxOutput$"),
        (torch.nn.MSELoss(), "torch's MSELoss; .* such as mx.sym.LinearRegressionOutput$"),
        (torch.nn.functional.cross_entropy, "torch's cross_entropy; .* such as mx.sym.SoftmaxOutput$"),
        (lambda symbol: None, "does not return a symbol"),
        ("softmax", "str, which does not return a symbol"),
    ],
)
def test_a_head_of_torch_names_the_operator_to_use(head, text):
    with pytest.raises(mx.base.ArgumentError, match=f"from_torch: head is .*{text}"):
        mx.mod.Module.from_torch(torch.nn.Linear(4, 3), torch.zeros(4, 4), head=head)


def network():
    scores = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    return mx.sym.SoftmaxOutput(scores, name="softmax")


def bucket(key):
    return network(), ("data",), ("softmax_label",)


def sequence():
    scores = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    loss = mx.sym.SoftmaxOutput(mx.sym.Variable("data"), name="softmax")
    whole = mx.mod.SequentialModule().add(mx.mod.Module(scores, label_names=None))
    return whole.add(mx.mod.Module(loss), take_labels=True, auto_wiring=True)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: mx.mod.Module(network(), fixed_param_names=["fc_bias"]),
        lambda: mx.mod.BucketingModule(bucket, 3, logger=logging.getLogger("own")),
        sequence,
        lambda: SVRGModule(network(), update_freq=2),
    ],
)
def test_modules_are_copied_before_they_are_bound(make, way):
    module, shapes = make(), ([("data", (4, 3))], [("softmax_label", (4,))])
    data = mx.io.NDArrayIter(np.ones((4, 3), "f"), np.array([0, 1, 1, 0]), 4, label_name="softmax_label")
    batch = next(data)
    batch.bucket_key = 3
    batch.provide_data, batch.provide_label = shapes
    outputs = []
    for one in (COPIES[way](module), module):
        assert one.logger is module.logger
        one.bind(*shapes)
        one.init_params(mx.init.Constant(0.5))
        one.init_optimizer(optimizer_params={"learning_rate": 0.5})
        if isinstance(one, SVRGModule):
            one.update_full_grads(data)
        for _ in range(2):
            one.forward_backward(batch)
            one.update()
        one.forward(batch, is_train=False)
        outputs.append(one.get_outputs()[0].asnumpy().tolist())
    assert outputs[0] == outputs[1]
    for refused in COPIES.values():
        with pytest.raises(
            StateError, match=rf"{type(module).__name__} is bound, and a bound module cannot be"
        ):
            refused(module)
    assert copy.copy(module).get_params()[0].keys() == module.get_params()[0].keys()


def test_a_loaded_module_is_copied_with_its_parameters(tmp_path):
    module = mx.mod.Module(network())
    module.bind([("data", (4, 3))], [("softmax_label", (4,))])
    module.init_params(mx.init.Xavier())
    module.save_checkpoint(str(tmp_path / "net"), 0)
    weight = module.get_params()[0]["fc_weight"].asnumpy()
    for way in COPIES.values():
        other = way(mx.mod.Module.load(str(tmp_path / "net"), 0))
        other.bind([("data", (4, 3))], for_training=False)
        assert (other.get_params()[0]["fc_weight"].asnumpy() == weight).all()
