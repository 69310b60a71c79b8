"""Wrong calls of `AutobatchModule`."""

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.base import ArgumentError, ShapeError, StateError


def of_words(words, tags):
    """Return the rows of words, one beside the other."""
    return None, dy.concatenate([dy.inputTensor([[float(word)] * 3]) for word in words])


def collection():
    found = dy.ParameterCollection()
    found.add_parameters(1, name="w")
    return found


def ready(function, params=None, **options):
    mod = mx.mod.AutobatchModule(function, collection() if params is None else params, **options)
    mod.bind([("data", (2,))])
    mod.init_params()
    return mod


def of_one_name():
    m = dy.ParameterCollection()
    m.add_subcollection("a").add_parameters(1, name="b")
    m.add_parameters(1, name="a_b")
    return mx.mod.AutobatchModule(print, m)


def scalar(*_):
    return dy.scalarInput(1)


def forward(function, *columns, **options):
    mod = ready(function)
    mod.forward(mx.io.DataBatch(*(columns or ([[1, 2]],))), **options)
    return mod


ROWS = [
    (lambda: mx.mod.AutobatchModule(print, {}), ArgumentError, "params is dict"),
    (lambda: mx.mod.AutobatchModule(1, dy.ParameterCollection()), ArgumentError, "function is int"),
    (lambda: ready(print, dy.ParameterCollection()), ArgumentError, "collection has no parameters yet"),
    (lambda: ready(scalar).bind([("data", (1,))], inputs_need_grad=True, force_rebind=True), ArgumentError,
     "inputs_need_grad"),
    (lambda: ready(scalar).bind([("data", (1,))], grad_req="null", force_rebind=True), ArgumentError, "grad_req"),
    (lambda: ready(print, fixed_param_names=["v"]), ArgumentError, "the parameters are w"),
    (lambda: of_one_name().bind([("data", (1,))]), ArgumentError, "'a_b'"),
    (lambda: forward(lambda x, y: 1.0), ArgumentError, "returned float"),
    (lambda: forward(lambda x, y: (None, scalar())), ArgumentError, "no loss in training"),
    (lambda: forward(lambda x, y: (scalar(),) * (1 + x)), ArgumentError, r"\[1, 2\] outputs"),
    (lambda: mx.mod.AutobatchModule(scalar, collection()).bind(
        [("data", (2, 3))], shared_module=mx.mod.Module(mx.sym.Variable("data"), label_names=None)), ArgumentError,
         "another collection"),
    (lambda: mx.mod.AutobatchModule(scalar, collection()).get_input_grads(), ArgumentError, "get_input_grads: the"),
    (lambda: mx.mod.AutobatchModule(scalar, collection(), compression_params={"type": "3bit"}), ArgumentError, "3bit"),
    (lambda: mx.mod.AutobatchModule(scalar, collection()).updates, StateError, "AutobatchModule: call init_optimizer"),
    (lambda: ready(of_words, stack=True).predict(mx.mod.ExampleIter([[1], [2, 3]], batch_size=2)), ShapeError,
     r"stack=True, but examples have outputs of shapes \(1, 3\), \(2, 3\)"),
    (lambda: forward(scalar, [[1], [2]]), ArgumentError, "2 columns of data, expected 1"),
    (lambda: forward(scalar, [[1, 2]], [[1]]), ArgumentError, "expected equal ones"),
    (lambda: forward(scalar, [3]), ArgumentError, "a column is int"),
    (lambda: ready(scalar).get_outputs(), StateError, "call forward"),
    (lambda: forward(scalar, is_train=False).backward(), StateError, "is_train=True"),
    (lambda: forward(scalar).update(), StateError, "init_optimizer"),
    (lambda: forward(scalar).backward([1]), ArgumentError, "out_grads"),
    (lambda: mx.mod.ExampleIter([1, 2], [1]), ArgumentError, "expected equal ones"),
    (lambda: mx.mod.ExampleIter([]), ArgumentError, "expected equal ones"),
    (lambda: mx.mod.ExampleIter([1], batch_size=0), ArgumentError, "batch_size is 0"),
]  # fmt: skip
