"""Wrong calls of `mx.optimizer` and its updaters."""

import pickle
import struct

import torch

import dpmodule as mx
from dpmodule import optimizer
from dpmodule.base import ArgumentError, DTypeError, FileFormatError, ShapeError, SignatureError, StateError

two, three = mx.nd.ones((2,)), mx.nd.ones((3,))
HUGE = struct.pack("<Iii2qiii", 0xF993FAC9, 0, 2, 2**20, 2**20, 1, 0, 0)


def updater(name="sgd", **options):
    return optimizer.get_updater(optimizer.create(name, **options))


def step(grad, weight=two, name="sgd", at_once=False):
    weight = weight.copy()
    if at_once:
        updater(name).update_all([0], [grad], [weight])
    else:
        updater(name)(0, grad, weight)


def module_with(**params):
    module = mx.mod.Module(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), label_names=[])
    module.bind([("data", (2, 3))])
    module.init_params()
    module.init_optimizer(optimizer_params=params)


def resumed(saved, loading, shape=(2,), **options):
    """Make a step with one optimizer, and one with another that has its states."""
    first, second = updater(saved, **options), updater(loading, **({} if saved != loading else options))
    first(0, two, two.copy())
    second.set_states(first.get_states())
    second.update_all([0], [mx.nd.ones(shape)], [mx.nd.ones(shape)])


def dump_with_code():
    made = optimizer.create("sgd")
    made.hook = print
    optimizer.get_updater(made).get_states(dump_optimizer=True)


def dump_of_torch(wrong):
    data = updater(torch.optim.Adam).get_states(dump_optimizer=True)
    updater().set_states(data.replace(b"Adam", wrong))


def array_of(payload):
    data = b"cmxnet.ndarray.ndarray\nNDArray\n(NtR}Vhandle\n" + payload + b"sb"
    updater().set_states(b"\x80\x03}(K\x00" + data + b"u.")


def loop():
    states = {}
    states[0] = [states]
    updater().set_states(pickle.dumps(states))


TORCH_SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW
ROWS = [
    (lambda: optimizer.create("sdg"), ArgumentError, r"^(?!.*(torchoptimizer|_svrg)).*did you mean sgd\?$"),
    (lambda: optimizer.create("torchoptimizer"), SignatureError, "missing a required argument: 'factory'"),
    (lambda: optimizer.create(3), ArgumentError, "expected an? Optimizer|optimizer is 3"),
    (lambda: optimizer.SGD(param_idx2name=[1]), ArgumentError, "param_idx2name"),
    *[
        (lambda make=make, given=given: make(**given), SignatureError, hint)
        for given, hint in (
            (
                {"lr": 1, "weight_decay": 1},
                r"'lr', 'weight_decay'; it takes .*; did you mean learning_rate, wd\?$",
            ),
            ({"zzz": 0.9}, "'zzz'; it takes .*param_dict$"),
        )
        for make in (optimizer.SGD, lambda **given: optimizer.create("sgd", **given), module_with)
    ],
    (lambda: optimizer.register(int), ArgumentError, "not a subclass"),
    (lambda: optimizer.Optimizer().update(0, two, two, None), NotImplementedError, "Optimizer"),
    (
        lambda: optimizer.create("nag", momentum=None),
        ArgumentError,
        "momentum is None, expected a number; 0 mea",
    ),
    (lambda: optimizer.create("groupadagrad", wd=0.1), ArgumentError, "wd is 0.1, expected 0"),
    (lambda: optimizer.create("groupadagrad").create_state(0, three), ShapeError, r"\(3,\), expected 2 axes"),
    (lambda: optimizer.create("lbsgd", batch_scale=0), ArgumentError, "batch_scale is 0"),
    # gradients
    *[
        (lambda g=g, n=n, a=a: step(g, two, n, a), error, said)
        for g, error, said in (
            (three, ShapeError, r"\(3,\).*\(2,\)"),
            (two.astype("float64"), DTypeError, "float64.*float32"),
        )
        for n, a in (("sgd", False), ("adam", True))
    ],
    (lambda: updater().update_all([0, 1], [two], [two]), ArgumentError, "2 indices, but 1 weights"),
    (lambda: updater().update_all([0], [two, two], [two]), ArgumentError, "2 gradients for 1"),
    (lambda: optimizer.SGD().update([0], [two], [two], []), ArgumentError, "1 indices, 1 weights and 0"),
    # torch.optim
    (lambda: optimizer.create(torch.optim.LBFGS), ArgumentError, "LBFGS calls a closure"),
    (lambda: optimizer.create(ADAMW, foo=1), ArgumentError, "AdamW does not accept .*foo"),
    (lambda: optimizer.create(ADAMW, weight_decay=0.1, wd=0.2), ArgumentError, "pass only one of them"),
    (lambda: optimizer.create(torch.optim.Rprop, wd=0.1), ArgumentError, "Rprop has no weight decay"),
    (lambda: optimizer.create(lambda params: 3), ArgumentError, "returned a int"),
    (lambda: optimizer.create(TORCH_SGD([torch.zeros(1)])), ArgumentError, "optimizer is SGD, expected a"),
    (lambda: dump_of_torch(b"Path"), FileFormatError, "torch.optim has no optimizer"),
    # states
    (lambda: resumed("adam", "sgd"), StateError, "SGD expects nothing"),
    (lambda: resumed("sgd", TORCH_SGD, momentum=0.9), StateError, "TorchOptimizer expects a dict"),
    (lambda: resumed("adam", "adam", (3,)), StateError, r"parameter 0 .*\(2,\).*\(3,\)"),
    (lambda: resumed(TORCH_SGD, torch.optim.Adam, momentum=0.9), StateError, "Adam cannot continue from"),
    (dump_with_code, ArgumentError, "built-in function print.*save without the optimizer"),
    *[(lambda p=p: array_of(p), FileFormatError, "") for p in (b"N", b"C\x08" + bytes(8))],
    (lambda: array_of(b"C" + bytes([len(HUGE)]) + HUGE), FileFormatError, "float32 data"),
    *[
        (lambda d=d: updater().set_states(d), FileFormatError, "optimizer states|no optimizer")
        for d in (b"garbage", b"\x80\x09N.")
    ],
    (lambda: updater().set_states(pickle.dumps([1])), FileFormatError, "states are a list"),
    (loop, FileFormatError, "contain themselves"),
]
