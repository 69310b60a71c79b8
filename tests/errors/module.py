"""Wrong calls of `mx.mod`."""

import math

import numpy as np
import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError, BoundsError, DeviceError, NonFiniteError, ShapeError, StateError
from dpmodule.model import _update_params
from dpmodule.module.base_module import _check_input_names, _check_names_match, _parse_data_desc
from dpmodule.module.group.batch_splitter import split_batch, split_input_slice
from helpers import nets
from helpers.nets import mlp
from helpers.small_fits import SHAPES, TWO, batch, blobs, bucket_batch, mean_of_bucket, ready, trained

DATA = mx.sym.Variable("data")
DENSE = mx.sym.FullyConnected(DATA, num_hidden=2, name="fc")
NAMES = ("data",), ("softmax_label",)
ONE = torch.ones(1)
ALIKE = nn.ModuleDict({a: nn.ParameterDict({b: ONE}) for a, b in (("a", "b_c"), ("a_b", "c"))})
PYTHON = mx.mod.PythonModule(["data"], None, ["out"])
WIDE = mx.io.DataBatch([mx.nd.ones((8, 9))], [mx.nd.ones((8,))])
KL = mx.sym.IdentityAttachKLSparseReg(mx.sym.sigmoid(DATA), name="reg")
BARE = mx.io.DataBatch([mx.nd.zeros((8, 6))])


def bound(module=None, shapes=SHAPES, **options):
    module = module or mx.mod.Module(mlp())
    module.bind(*shapes, **options)
    return module


def stepped(module, one=None):
    module.forward(one or batch())
    module.backward()


def made(**options):
    return mx.mod.Module(mlp(), **options)


def fit(*data, module=None, **options):
    data = data or (mx.io.NDArrayIter(*nets.blobs(8), 8),)
    (module or made()).fit(*data, **{"num_epoch": 1, **options})


def search(**options):
    net = mx.sym.FullyConnected(DATA, num_hidden=1)
    net = mx.sym.LinearRegressionOutput(net, mx.sym.Variable("softmax_label"))
    mx.mod.Module(net).lr_find(blobs(), **options)


def bucketing(optimizer=None, **options):
    module = mx.mod.BucketingModule(mean_of_bucket, 6, **options)
    return ready(module, optimizer=optimizer)


def of_keys():
    """Return a module with other parameters, or of other shape, for some keys."""
    nets = {key: mx.sym.FullyConnected(DATA, num_hidden=2, name=key) for key in ("new", "f")}
    nets = {key: (mx.sym.SoftmaxOutput(net, name="softmax"), *NAMES) for key, net in nets.items()}
    return ready(mx.mod.BucketingModule({**nets, "default": mean_of_bucket(6)}.__getitem__, "default"))


def misdescribed(**changed):
    one = bucket_batch(4, np.ones((8, 4)), np.ones(8))
    for name, value in changed.items():
        setattr(one, name, value)
    return one


def chain(*modules):
    found = mx.mod.SequentialModule()
    for number, module in enumerate(modules):
        found.add(module, take_labels=number == len(modules) - 1, auto_wiring=number > 0)
    return found


def low(width=5, name="low"):
    return mx.mod.Module(mx.sym.FullyConnected(DATA, num_hidden=width, name=name), label_names=None)


def two():
    return chain(low(), mx.mod.Module(mlp()))


def loss(gradient=lambda scores, labels: scores, **options):
    found = mx.mod.PythonLossModule("own", grad_func=gradient)
    found.bind([("data", (3, 2))], [("softmax_label", (3,))], **options)
    return found


def scores(labels=True):
    return mx.io.DataBatch([mx.nd.ones((3, 2))], [mx.nd.ones((3,))] if labels else None)


class Scale(mx.mod.PythonModule):
    def __init__(self):
        super().__init__(("data",), ("softmax_label",), ["scale_output"])

    def _compute_output_shapes(self):
        return [("scale_output", self.data_shapes[0][1])]

    def get_outputs(self, merge_multi_context=True):
        return [mx.nd.ones((3, 2))]


def of_torch(module=None, initialized=True, **options):
    found = mx.mod.TorchModule(module or nn.Linear(6, 4), name="net", **options)
    found.bind([("data", (8, 6))])
    if initialized:
        found.init_params()
    return found


def from_torch(head):
    mx.mod.Module.from_torch(nn.Linear(4, 3), torch.zeros(4, 4), head=head)


def of_states(**states):
    module = mx.mod.Module(DATA + mx.sym.Variable("s", shape=(8, 6)), label_names=None, state_names=["s"])
    ready(module, shapes=SHAPES[:1]).set_states(**states)


def prepared(rows):
    weight = mx.sym.Variable("w_weight", shape=(40, 1), stype="row_sparse")
    net = mx.sym.dot(mx.sym.Variable("data", stype="csr"), weight)
    module = ready(net, shapes=[[("data", (8, 40))]], init="ones")
    module.prepare(mx.io.DataBatch([mx.nd.ones((8, 40)).tostype("csr")]), sparse_row_id_fn=lambda one: rows)


MODULE = [
    *[(lambda call=call: call(made()), StateError, pattern) for call, pattern in (
        (lambda m: m.forward(batch()), r"Module\.forward: call bind\(data_shapes=\.\.\., label_shapes=\.\.\.\) first"),
        (lambda m: m.data_shapes, "call bind"),
        (lambda m: m.score(blobs(), "acc"), r"Module\.score: call bind\(.*\) first"),
        (lambda m: list(m.iter_predict(blobs())), r"Module\.iter_predict: call bind\(.*\) first"),
        (lambda m: m.to_torch(), "to_torch"),
    )],
    *[(lambda name=name: made(**{name: "text"}), ArgumentError, f"{name} is 'text', expected a list")
      for name in ("data_names", "label_names", "fixed_param_names")],
    (lambda: mx.mod.Module([mlp()]), ArgumentError, "symbol is of type list, expected a Symbol"),
    (lambda: mx.mod.Module(mlp().tojson()), ArgumentError, "type str, expected a Symbol; sym.load_json"),
    (lambda: made(fixed_param_names=["fc1_weigth"]), ArgumentError, r"'fc1_weigth', .*; did you mean fc1_weight, fc2_"),
    (lambda: made(state_names=["dta"]), ArgumentError, r"state_names holds 'dta', .*; did you mean data\?$"),
    (lambda: made(context="gpu"), ArgumentError, "context is 'gpu', expected a Context"),
    (lambda: made(compression_params={"type": "3bit"}), ArgumentError, "compression '3bit' is unknown"),
    (lambda: made(amp="int8"), ArgumentError, 'amp is "?\'int8\'"?, expected "bf16", "fp16", False or None'),
    (lambda: bound(mx.mod.Module(KL, label_names=None, amp="fp16"), SHAPES[:1]), ArgumentError, "reg .*not scaled"),
    (lambda: bound(shapes=[("data", (8, 6))]), ArgumentError, r"data_shapes is \('data', \(8, 6\)\), expected a list"),
    (lambda: bound(shapes=(SHAPES[0], {"softmax_label": (8,)})), ArgumentError, "label_shapes is {.*, expected a list"),
    (lambda: bound(shapes=(SHAPES[0], [("target", (8,))])), ArgumentError, r"label_shapes names \['target'\]"),
    (lambda: bound(shapes=(SHAPES[0], [("softmax_label", (7,))])), ShapeError, "the same batch size: it is 8"),
    (lambda: bound(shapes=([("data", (8, 6, 2, 2, 0))], SHAPES[1])), ShapeError, "cannot infer the shape of .*fc1_wei"),
    (lambda: bound(made(context=mx.gpu(99))), DeviceError, r"gpu\(99\) does not exist"),
    (lambda: bound(made(context=TWO, work_load_list=[1])), ArgumentError, "workload has 1 entries for 2 contexts"),
    (lambda: bound(shared_module=made()), StateError, "shared_module must be bound"),
    (lambda: bound().forward(batch()), StateError, r"Module\.forward: call init_params\(\) first"),
    (lambda: ready().update(), StateError, r"Module\.update: call init_optimizer\(\) first"),
    (lambda: ready().forward(np.ones((8, 6))), ArgumentError, "batch is of type ndarray, expected a DataBatch"),
    (lambda: ready().forward(BARE, is_train=True), ArgumentError, "the batch has no label, but softmax_label is"),
    (lambda: stepped(ready(), WIDE), ShapeError, r"data \(8, 9\), .* need fc1_weight of shape"),
    (lambda: ready().forward(mx.io.DataBatch([[[1.0] * 6] * 8])), ArgumentError, "list for .data., expected an array"),
    (lambda: ready().score([mx.io.DataBatch([mx.nd.zeros((8, 6))], [[1.0] * 8])], "acc"), ArgumentError,
     "list for .softmax"),
    (lambda: bucketing().forward(mx.io.DataBatch([[1.0]], bucket_key=6, provide_data=[("data", (1,))])), ArgumentError,
     "list for .data."),
    (lambda: stepped(ready(for_training=False)), StateError, "for_training=True"),
    (lambda: (m := ready(), stepped(m), m.get_input_grads()), StateError, "inputs_need_grad=True"),
    (lambda: ready().set_params({"fc1_bias": np.ones(16)}, {}, True), ArgumentError, "value of fc1_bias is of type"),
    (lambda: ready().set_params({}, {}), ArgumentError, "no value is given for fc1_bias"),
    (lambda: ready().set_params({"fc1_bias": mx.nd.zeros((3,))}, {}, True), ShapeError, r"fc1_bias has shape \(3,\),"),
    (lambda: ready().init_params(mx.init.Xavier, force_init=True), ArgumentError, "initializer is <class .*, expected"),
    (lambda: ready().init_optimizer(optimizer=mx.optimizer.SGD), ArgumentError, "is the class SGD; pass its name"),
    (lambda: ready().init_optimizer(optimizer_params=0.1), ArgumentError, "optimizer_params is 0.1, expected a dict"),
    (lambda: ready().init_optimizer(optimizer="sdg"), ArgumentError, "unknown optimizer 'sdg'"),
    *[(lambda store=store: ready(contexts=TWO).init_optimizer(store), ArgumentError, "kvstore")
      for store in (3, "adam", "dist_magic")],
    (lambda: ready().borrow_optimizer(ready()), StateError, "other module"),
    (lambda folder: (mx.nd.save(f"{folder}/bad", {"weights": mx.nd.zeros((1,))}), ready().load_params(f"{folder}/bad")),
     ArgumentError, "holds 'weights', expected the names of this network's"),
    (lambda: ready().freeze("hiden_weight"), ArgumentError, "freeze: 'hiden_weight' matches none of the parameters"),
    (lambda: ready(DATA * mx.sym.Variable("half.weight", shape=(8, 6)), shapes=SHAPES[:1]).to_torch(), ArgumentError,
     "'half' of 'half.weight'"),
]  # fmt: skip

KINDS = [
    # buckets
    (lambda: mx.mod.BucketingModule(mean_of_bucket), ArgumentError, "default_bucket_key is missing"),
    (lambda: mx.mod.BucketingModule(3, 4), ArgumentError, "expected a function"),
    (lambda: mx.mod.BucketingModule(mean_of_bucket, 4, max_buckets=0), ArgumentError, "max_buckets is 0"),
    (lambda: mx.mod.BucketingModule(lambda key: mlp(), 4), ArgumentError, r"expected \(symbol, data_names,"),
    (lambda: mx.mod.BucketingModule.load_dict({6: mlp()}), ArgumentError, "load_dict"),
    (lambda: bucketing().bind([], shared_module=bucketing(), force_rebind=True), ArgumentError, "shared_module"),
    (lambda: mx.mod.BucketingModule(mean_of_bucket, 6).switch_bucket(4, SHAPES[0]), StateError, "call bind"),
    (lambda: of_keys().forward(misdescribed(bucket_key=7)), ArgumentError, "bucket key 7: sym_gen has no symbol"),
    (lambda: bucketing().forward(misdescribed(bucket_key=None)), ArgumentError, "the batch has no bucket_key"),
    (lambda: bucketing().forward(misdescribed(provide_data=[mx.io.DataDesc("data", (8, 7))])), ShapeError,
     r"bucket 4: the batch describes data as \(8, 7\), but its array has"),
    (lambda: of_keys().switch_bucket("new", *SHAPES), ArgumentError, "bucket 'new': it has the parameter new_weight"),
    (lambda: of_keys().switch_bucket("f", *SHAPES), ShapeError, r"bucket 'f': .*f_weight"),
    # chains
    (lambda: two().add(low(), wiring=True), ArgumentError, "unknown option 'wiring', expected take_labels"),
    (lambda: two().add(3), ArgumentError, "expected a module"),
    (lambda: (m := two(), m.add(m.modules[1])), ArgumentError, "in the chain already"),
    (lambda: bound(mx.mod.SequentialModule()), StateError, r"call add\(module\) first"),
    (lambda: bound(two(), shared_module=ready(two())), ArgumentError, "shared_module"),
    (lambda: bound(two(), for_training=False, inputs_need_grad=True), ArgumentError, "for_training=False"),
    (lambda: two().bind([[("data", (4, 6))], [("data", (4, 6))]]), ArgumentError, "whole batches"),
    (lambda: ready(two()).forward([batch(4), batch(4)]), ArgumentError, "whole batches"),
    (lambda: ready(two()).forward(WIDE), ShapeError, "^(?!.*module 1)"),
    (lambda: ready(two()).get_input_grads(), StateError, "inputs_need_grad=True"),
    (lambda: two().set_states(value=1), ArgumentError, "SequentialModule has no states"),
    (lambda: two().to_onnx("x.onnx"), ArgumentError, "write each of `modules` by its own to_onnx"),
    (lambda: bound(two()).init_params(arg_params={"low_bias": mx.nd.ones((5,))}), ArgumentError, "no value is given"),
    (lambda: bound(chain(low(), low(6)), SHAPES[:1]).init_params(), ArgumentError, "parameter of module 0 .* and of"),
    (lambda: bound(chain(low(), mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.FullyConnected(
        DATA, mx.sym.Variable("w", shape=(4, 9)), num_hidden=4), name="softmax")))), ShapeError,
     r"module 1 \(Module softmax_output\) does not take what module 0 \(Module low_output\) gives, data \(8, 5\)"),
    (lambda: bound(mx.mod.SequentialModule().add(low()).add(made(), take_labels=True)), ArgumentError,
     r"module 1 .*does not take what module 0 .*data_names are \['data'\]"),
    (lambda: bound(chain(low(), mx.mod.Module(mx.sym.Variable("a") + mx.sym.Variable("b"), ["a", "b"], None))),
     ArgumentError, r"module 1 .*module 0 .*it has 2 inputs, a, b"),
    (lambda: ready(chain(mx.mod.Module(mx.sym.Flatten(DATA), label_names=None), made())).forward(WIDE), ShapeError,
     r"module 1 .*does not take what module 0 .*gives, data \(8, 9\)"),
    (lambda: (m := two(), bound(m.modules[1]), bound(m)), StateError,
     r"module 1 .*module 0 .*bound before, to data \(8, 6\).*force_rebind=True"),
    (lambda: (m := two(), bound(m.modules[1], ([("data", (8, 5))], SHAPES[1])), bound(m)), StateError, "without input"),
    # written in Python
    (lambda: mx.mod.PythonModule(["data"], None, "out"), ArgumentError, "output_names is 'out', expected"),
    (lambda: bound(Scale(), ([("other", (3, 2))], None)), ArgumentError, r"data_shapes names \['other'\], the module'"),
    (lambda: bound(Scale(), ([("data", (3, 2))], [("kind", (3,))])), ArgumentError, r"label_shapes names \['kind'\]"),
    (lambda: bound(Scale(), grad_req="add"), ArgumentError, "grad_req is 'add', a Scale supports only 'write'"),
    (lambda: bound(Scale()).update_metric(None, [[mx.nd.ones((3,))]], pre_sliced=True), ArgumentError, "whole batches"),
    (lambda: PYTHON.get_input_grads(), NotImplementedError, "PythonModule does not define get_input_grads"),
    (lambda: PYTHON.bind([("data", (3, 2))]), NotImplementedError, "PythonModule does not define _compute"),
    (lambda: mx.mod.PythonLossModule(data_names=["a", "b"]), ArgumentError, "expected one name each"),
    (lambda: mx.mod.PythonLossModule(grad_func=3), ArgumentError, "expected a function"),
    (lambda: mx.mod.PythonLossModule().to_onnx("x.onnx"), ArgumentError, "PythonLossModule.to_onnx: only Module and"),
    (lambda: loss().forward(scores(labels=False)), ArgumentError, "own: the batch has no label"),
    (lambda: loss().get_outputs(), StateError, r"call forward\(\)"),
    (lambda: loss().get_input_grads(), StateError, r"call backward\(\)"),
    (lambda: loss().backward(), StateError, r"call forward\(is_train=True\)"),
    (lambda: loss().backward([mx.nd.ones((3, 2))]), ArgumentError, "takes no out_grads"),
    (lambda: stepped(loss(lambda scores, labels: labels), scores()), ShapeError, r"shape \(3,\), expected the scores'"),
    (lambda: stepped(loss(None), scores()), NotImplementedError, "give grad_func"),
    (lambda: stepped(loss(for_training=False), scores(labels=False)), StateError, "for_training=False"),
    # of torch
    (lambda: mx.mod.TorchModule(torch.relu), ArgumentError, "expected a torch.nn.Module"),
    (lambda: mx.mod.TorchModule(nn.Linear(6, 4), []), ArgumentError, "data_names is empty"),
    (lambda: mx.mod.TorchModule(nn.LazyLinear(3)), ArgumentError, "weight of LazyLinear has no shape yet"),
    (lambda: mx.mod.TorchModule(nn.ParameterList([torch.ones(0)])), ArgumentError, "0 of ParameterList is empty"),
    (lambda: mx.mod.TorchModule(nn.Linear(6, 4), dtypes=["float32"] * 2), ArgumentError, "dtypes has 2 entries for 1"),
    (lambda: mx.mod.TorchModule(nn.Linear(6, 4).to("meta")), ArgumentError, r"is on meta, the first context is cpu\(0"),
    (lambda: mx.mod.TorchModule(ALIKE), ArgumentError, r"a\.b_c and a_b\.c would both be called a_b_c"),
    (lambda: of_torch().bind([("data", (8, 5))], force_rebind=True), ShapeError, r"fails on inputs of shape \(8, 5\)"),
    (lambda: of_torch().forward_backward(mx.io.DataBatch([])), StateError, "the outputs are not losses"),
    (lambda: of_torch().backward([mx.nd.ones((8, 4))]), StateError, "call forward"),
    (lambda folder: of_torch().save_checkpoint(f"{folder}/net", 1), ArgumentError, "runs a torch module, which a"),
    (lambda: from_torch(nn.CrossEntropyLoss), ArgumentError, "torch's CrossEntropyLoss; .* such as mx.sym."),
    (
        lambda: mx.mod.Module.from_torch(nn.Linear(4, 3), torch.zeros(4, 4), dynamic="b"),
        ArgumentError,
        "dynamic is 'b', expected a dict such as",
    ),
    (lambda: from_torch("softmax"), ArgumentError, "str, which does not return a symbol"),
    # the base
    *[(lambda name=name, arguments=arguments: getattr(mx.mod.BaseModule(), name)(*arguments), NotImplementedError,
       f"BaseModule does not define {name}")
      for name, arguments in (("bind", [[]]), ("get_params", []), ("forward", [None]), ("backward", []), ("update", []),
                              ("get_outputs", []), ("install_monitor", [None]))],
    *[(lambda name=name: getattr(mx.mod.BaseModule(), name), NotImplementedError, f"BaseModule does not define {name}")
      for name in ("data_names", "output_names", "data_shapes", "label_shapes", "output_shapes")],
    *[(lambda name=name: getattr(mx.mod.BaseModule(), name), AttributeError, f"BaseModule has no {name}, .*{instead}")
      for name, instead in (("to", "pass contexts .* to its constructor"), ("zero_grad", "grad_req"))],
]  # fmt: skip

LOOPS = [
    *[(lambda options=options: fit(**options), ArgumentError, pattern) for options, pattern in (
        ({"num_epoch": None}, "num_epoch is missing"),
        ({"num_epoch": 2.0}, "num_epoch is 2.0, expected a whole number"),
        ({"on_nonfinite": "stop"}, "on_nonfinite is 'stop'"),
        ({"check_labels": "stop"}, "check_labels is 'stop', expected raise or warn or ignore"),
        ({"accumulate": 0}, "accumulate is 0, expected a whole number of batches, at least 1"),
        ({"clip_global_norm": 0}, "clip_global_norm is 0, expected a number above 0"),
        ({"max_time_s": math.nan}, "max_time_s is nan"),
        ({"eval_every_n_batches": 1.5}, "eval_every_n_batches is 1.5"),
        ({"accumulate": 2, "training_step": print}, "a training_step updates parameters itself"),
        ({"training_step": lambda module, batch: 3}, "training_step returned int, expected a dict"),
        ({"resume": "auto"}, 'resume="auto" resumes what checkpoint= saves'),
        ({"batch_end_callback": 5}, "a callback is 5, expected a function"),
        ({"checkpoint": 3}, "checkpoint is 3, expected a callback.Checkpoint"),
    )],
    (lambda folder: fit(resume=f"{folder}/none"), mx.base.FileError, "no run is saved under this prefix"),
    (lambda: trained()[1]["train-acuracy"], ArgumentError, "'train-acuracy' was not measured.*train-accuracy"),
    (lambda: fit(mx.io.NDArrayIter(np.full((8, 6), np.nan), np.zeros(8), 8), module=made(amp="fp16")), NonFiniteError,
     r"batch 0 of epoch 0 \(samples 0, 1"),
    *[(lambda name=name: [*getattr(ready(), name)(blobs(), on_nonfinite="skip")], ArgumentError,
       "on_nonfinite is 'skip', expected raise or warn or ignore") for name in ("predict", "iter_predict")],
    (lambda: search(start_lr=1, end_lr=0.1), ArgumentError, "0 < start_lr < end_lr"),
    (lambda: search(num_batches=3), ArgumentError, "num_batches is 3, expected at least 22"),
    (lambda: search(start_lr=1e3, end_lr=1e5), StateError, "use a smaller start_lr"),
    (lambda: mx.mod.Module(DENSE, label_names=None).lr_find(blobs()), ArgumentError, "ends in FullyConnected, which"),
    # states
    (lambda: of_states(), ArgumentError, "pass either states or value"),
    (lambda: of_states(states=[], value=1), ArgumentError, "pass either states or value"),
    (lambda: of_states(states=[]), ArgumentError, "got 0 states, the module has 1: s"),
    (lambda: of_states(states=[[]]), ArgumentError, "expected a list of 1 arrays, one per context"),
    (lambda: of_states(states=[mx.nd.ones((8, 6))]), ArgumentError, "merge_multi_context=False"),
    (lambda: of_states(states=[[mx.nd.ones((1, 6))]]), ShapeError, r"s has shape \(1, 6\), expected \(8, 6"),
    (lambda: ready().get_states(), ArgumentError, "merge_multi_context|pass False"),
    # rows of sparse parameters
    (lambda: prepared([1]), ArgumentError, "returned list, expected a dict"),
    (lambda: prepared({"u": mx.nd.array([0])}), ArgumentError, "'u', which is not a parameter"),
    (lambda: prepared({"w_weight": mx.nd.array([40])}), BoundsError, "row 40"),
]  # fmt: skip

HELPERS = [
    (lambda: split_batch(4, [1, 0]), ArgumentError, "expected"),
    (lambda: split_batch(-1, [1]), ArgumentError, "expected"),
    (lambda: split_input_slice(3, [1, 1, 1, 1]), ArgumentError, "Too many slices"),
    (lambda: _check_input_names(DENSE, ["date"], "data", True), ArgumentError, r"data_names.*'date'.*data"),
    (lambda: _parse_data_desc(["a"], [], [("b", (1,))], None), ArgumentError, "data_shapes"),
    (lambda: _check_names_match(["a"], [], "data", True), ArgumentError, "nothing"),
    (lambda: _update_params([[mx.nd.ones(1)]], [[mx.nd.ones(1)]], None, 1, mx.kv.create("local")), ArgumentError,
     "param_names"),
    (lambda: mx.optimizer.SGD(lr_scheduler="factor"), ArgumentError, "lr_scheduler is 'factor', expected an LRS"),
    (lambda: mx.optimizer.SGD(learning_rate=1, lr_scheduler=abs), ArgumentError, "no base_lr that learning_rate could"),
]  # fmt: skip

ROWS = [*MODULE, *KINDS, *LOOPS, *HELPERS]
