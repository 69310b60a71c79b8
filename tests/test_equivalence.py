"""Every way to run a network gives the same outputs, gradients and step: networks of helpers/nets.py times ways."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import autobatch as dy
from dpmodule import executor
from dpmodule.base import ArgumentError, MXNetError
from dpmodule.executor.passes import PASSES
from helpers.nets import NETS
from helpers.ranks import run_ranks

RATE = 0.1


class Problem:
    """A network with values for all its variables, and gradients for its outputs.

    Attributes:
        data: names of the inputs without the labels.
        labels: names of the labels.
        arrays: values of all arguments and auxiliary states by name.
        heads: gradients of the outputs.
    """

    def __init__(self, name):
        self.name, self.net = name, NETS[name]
        self.symbol = self.net.symbol()
        self.arrays = self.net.arrays(self.symbol)
        self.labels = [each for each in self.symbol.list_arguments() if each.endswith("label")]
        self.data = [each for each in self.net.shapes if each in self.arrays and each not in self.labels]
        shapes = self.symbol.infer_shape(
            **{name: self.arrays[name].shape for name in self.symbol.list_arguments()}
        )[1]
        self.ops = {node["op"] for node in json.loads(self.symbol.tojson())["nodes"]}
        self.has_loss = any(op == "MakeLoss" or op.endswith("Output") for op in self.ops)
        rng = np.random.RandomState(5)
        self.heads = [rng.uniform(-1, 1, shape) for shape in shapes]

    def params(self, states=False):
        """Return the parameters, or the auxiliary states, as arrays."""
        names = self.symbol.list_auxiliary_states() if states else self.symbol.list_arguments()
        return {name: array(self.arrays[name]) for name in names if name not in (*self.data, *self.labels)}

    def batch(self):
        values = [[array(self.arrays[name]) for name in names] for names in (self.data, self.labels)]
        return mx.io.DataBatch(*values)


def array(values, dtype=None):
    if values.dtype == object:
        return mx.nd.ragged_array(values.tolist())
    return mx.nd.array(values, dtype=dtype or values.dtype)


def describe(name, values):
    is_ragged = values.dtype == object
    dtype = "int64" if is_ragged else values.dtype
    return mx.io.DataDesc(name, values.shape, dtype, stype="ragged" if is_ragged else "default")


def numbered(title, arrays):
    return {f"{title} {i}": each.asnumpy() for i, each in enumerate(arrays)}


def stepped(values, gradients):
    """Return arguments after a step of gradient descent."""
    return {f"step of {name}": values[name] - RATE * gradients[name] for name in gradients}


def bound_with_arrays(problem, symbol=None, arrays=None, dtype=None):
    """Return an executor, its arguments, their gradients, and the states."""
    symbol, arrays = problem.symbol if symbol is None else symbol, arrays or problem.arrays
    arrays = {k: array(v, dtype if v.dtype.kind == "f" else None) for k, v in arrays.items()}
    args = {name: arrays[name] for name in symbol.list_arguments()}
    states = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    grads = {k: mx.nd.zeros(a.shape, dtype=a.dtype) for k, a in args.items() if np.dtype(a.dtype).kind == "f"}
    return symbol.bind(mx.cpu(), args, grads, "write", states), args, grads, states


@cache
def fired(name):
    """Return the names of the passes that rewrite a network, for prediction or training."""
    bound = bound_with_arrays(Problem(name))[0]
    return {each for is_train in (False, True) for each in bound.program(is_train).low.fired}


def by_executor(problem, symbol=None, arrays=None, monitor=None, dtype=None):
    """Return prediction, outputs, states, and the arguments after a step."""
    bound, args, grads, states = bound_with_arrays(problem, symbol, arrays, dtype)
    if monitor:
        bound.set_monitor_callback(monitor)
    found = numbered("prediction", bound.forward(is_train=False))
    mx.random.seed(1)
    outputs = bound.forward(is_train=True)
    found |= numbered("output", outputs)
    bound.backward([array(head, out.dtype) for head, out in zip(problem.heads, outputs)])
    found |= stepped({k: args[k].asnumpy() for k in grads}, {k: g.asnumpy() for k, g in grads.items()})
    return found | {f"state {name}": state.asnumpy() for name, state in states.items()}


def node_by_node(problem):
    with executor.disabled(*(each.name for each in PASSES)):
        return by_executor(problem, monitor=lambda name, values: None)


def without(name):
    def run(problem, folder):
        with executor.disabled(name):
            return by_executor(problem)

    return run


def generated_program(problem, folder):
    return by_executor(problem)


def two_threads(problem, folder):
    torch.set_num_threads(2)
    return by_executor(problem)


def in_float64(problem, folder):
    return by_executor(problem, dtype="float64")


def transposed_memory(problem, folder):
    """Fill arrays from arrays whose axes lie in reverse order."""
    return by_executor(problem, arrays={name: np.asfortranarray(v) for name, v in problem.arrays.items()})


def saved_and_loaded(problem, folder, kind="params"):
    prefix = str(folder / "net")
    mx.model.save_checkpoint(prefix, 0, problem.symbol, problem.params(), problem.params(True), format=kind)
    symbol, args, states = mx.model.load_checkpoint(prefix, 0)
    assert {**args, **states}.keys() == {**problem.params(), **problem.params(True)}.keys()
    loaded = {name: each.asnumpy() for name, each in {**args, **states}.items()}
    return by_executor(problem, symbol, problem.arrays | loaded)


def safetensors(problem, folder):
    return saved_and_loaded(problem, folder, "safetensors")


# modules


def by_module(problem, optimizer="sgd", **options):
    """Return outputs, states and arguments after a step of a module."""
    if "sym_gen" in options:
        module = mx.mod.BucketingModule(options.pop("sym_gen"), default_bucket_key=0, **options)
    else:
        module = mx.mod.Module(problem.symbol, problem.data, problem.labels or None, **options)
    arrays = problem.arrays
    floats = all(arrays[name].dtype.kind == "f" for name in problem.data)
    data, labels = (
        [describe(name, arrays[name]) for name in names] for names in (problem.data, problem.labels)
    )
    module.bind(data, labels or None, inputs_need_grad=floats)
    module.init_params(arg_params=problem.params(), aux_params=problem.params(True))
    module.init_optimizer(optimizer=optimizer, optimizer_params={"learning_rate": RATE, "rescale_grad": 1.0})
    if isinstance(module, mx.mod.BucketingModule):
        return module, trained(problem, module, floats, bucket_key=1, provide_data=data, provide_label=labels)
    return module, trained(problem, module, floats)


def trained(problem, module, floats, **keys):
    batch = problem.batch()
    for name, value in keys.items():
        setattr(batch, name, value)
    mx.random.seed(1)
    module.forward(batch, is_train=True)
    outputs = module.get_outputs()
    found = numbered("output", outputs)
    module.backward([array(head, out.dtype) for head, out in zip(problem.heads, outputs)])
    if floats:
        grads = {name: grad.asnumpy() for name, grad in zip(problem.data, module.get_input_grads())}
        found |= stepped(problem.arrays, grads)
    module.update()
    args, states = module.get_params()
    found |= {f"step of {name}": value.asnumpy() for name, value in args.items()}
    return found | {f"state {name}": value.asnumpy() for name, value in states.items()}


def one_context(problem, folder):
    return by_module(problem)[1]


def two_contexts(problem, folder):
    found = by_module(problem, context=[mx.cpu(0), mx.cpu(1)])[1]
    return {name: value for name, value in found.items() if not name.startswith("state")}


def bf16(problem, folder):
    return by_module(problem, amp="bfloat16")[1]


def compiled(problem, folder):
    return by_module(problem, compile=True)[1]


def second_bucket(problem, folder):
    """Train in a second bucket, which shares the parameters of the first."""
    return by_module(problem, sym_gen=lambda key: (problem.symbol, problem.data, problem.labels or None))[1]


def imperative(problem, folder):
    """Call the operators of the saved symbol one by one, and record them by autograd."""
    graph = json.loads(problem.symbol.tojson())
    values, leaves = [], {}
    for node in graph["nodes"]:
        if node["op"] == "null":
            leaf = leaves[node["name"]] = array(problem.arrays[node["name"]])
            if (
                np.dtype(leaf.dtype).kind == "f"
                and node["name"] not in problem.symbol.list_auxiliary_states()
            ):
                leaf.attach_grad()
            values.append([leaf])
            continue
        operator = getattr(mx.nd, node["op"], None) or getattr(mx.nd._internal, node["op"])
        with mx.autograd.record():
            inputs = [values[i][k] for i, k, _ in node["inputs"]]
            values.append(as_list(operator(*inputs, **node.get("attrs", {}))))
    outputs = [values[i][k] for i, k, _ in graph["heads"]]
    mx.autograd.backward(outputs, [array(head, out.dtype) for head, out in zip(problem.heads, outputs)])
    grads = {name: leaf.grad.asnumpy() for name, leaf in leaves.items() if leaf.grad is not None}
    return numbered("output", outputs) | stepped(problem.arrays, {k: g for k, g in grads.items() if g.any()})


def as_block(problem, folder):
    """Call the network as a block of Gluon, and record it."""
    names = [*problem.data, *problem.labels]
    block = mx.gluon.SymbolBlock(problem.symbol, [mx.sym.Variable(name) for name in names])
    block.load_dict({**problem.params(), **problem.params(True)}, cast_dtype=True, dtype_source="saved")
    inputs = {name: array(problem.arrays[name]) for name in names}
    found = numbered("prediction", as_list(block(*inputs.values())))
    leaves = {name: param.data() for name, param in block.params.items() if param.grad_req != "null"}
    for name in problem.data:
        if np.dtype(inputs[name].dtype).kind == "f":
            inputs[name].attach_grad()
            leaves[name] = inputs[name]
    mx.random.seed(1)
    with mx.autograd.record():
        outputs = as_list(block(*inputs.values()))
    found |= numbered("output", outputs)
    mx.autograd.backward(outputs, [array(head, out.dtype) for head, out in zip(problem.heads, outputs)])
    found |= stepped(
        {k: v.asnumpy() for k, v in leaves.items()}, {k: v.grad.asnumpy() for k, v in leaves.items()}
    )
    states = problem.symbol.list_auxiliary_states()
    return found | {f"state {name}": block.params[name].data().asnumpy() for name in states}


# torch, ONNX, cells


def by_torch(problem, module, names):
    """Return what a torch module computes."""
    tensors = {k: torch.tensor(problem.arrays[k]) for k in names}
    floats = [k for k in names if tensors[k].is_floating_point() and k not in problem.labels]
    for name in floats:
        tensors[name].requires_grad_()
    params = dict(module.named_parameters())
    module.eval()
    with torch.no_grad():
        prediction = as_list(module(**tensors))
    torch.manual_seed(1)
    outputs = as_list(module.train()(**tensors))
    pairs = [
        (out, torch.tensor(head, dtype=out.dtype))
        for out, head in zip(outputs, problem.heads)
        if out.requires_grad
    ]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    found = {f"prediction {i}": each.detach().numpy() for i, each in enumerate(prediction)}
    found |= {f"output {i}": each.detach().numpy() for i, each in enumerate(outputs)}
    leaves = {**params, **{name: tensors[name] for name in floats}}
    grads = {k: v.grad.numpy() for k, v in leaves.items() if v.grad is not None}
    found |= stepped({k: v.detach().numpy() for k, v in leaves.items()}, grads)
    return found | {f"state {name}": value.numpy() for name, value in module.named_buffers()}


def as_list(outputs):
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def to_torch(problem, folder):
    module = problem.symbol.to_torch(problem.params(), problem.params(True), shapes=problem.net.shapes)
    return by_torch(problem, module, [*problem.data, *problem.labels])


def from_torch(problem, folder):
    """Turn the symbol into a torch module, and that into a symbol again; compare predictions and gradients."""
    module = problem.symbol.to_torch(problem.params(), problem.params(True), shapes=problem.net.shapes)
    example = {name: torch.tensor(problem.arrays[name]) for name in (*problem.data, *problem.labels)}
    symbol, args, states = mx.sym.from_torch(module.eval(), dynamic={}, **example)
    arrays = {name: each.asnumpy() for name, each in {**args, **states}.items()}
    return by_executor(problem, symbol, problem.arrays | arrays)


def onnx(problem, folder):
    known, arrays = {**problem.params(), **problem.params(True)}, problem.arrays
    path = mx.onnx.export_model(
        problem.symbol,
        known,
        {name: arrays[name].shape for name in problem.data},
        [arrays[name].dtype for name in problem.data],
        str(folder / "net.onnx"),
    )
    symbol, args, states = mx.onnx.import_model(path)
    loaded = {name: each.asnumpy() for name, each in {**args, **states}.items()}
    return by_executor(problem, symbol, arrays | loaded)


def cell(problem, folder):
    """Call a cell of automatic batching for every row."""
    params = {**problem.params(), **problem.params(True)}
    names = [*problem.data, *problem.labels]
    made = dy.cell(problem.symbol, params, inputs=names)
    made.is_train = True
    dy.renew_cg()
    rows = [
        {name: dy.inputTensor(problem.arrays[name][i]) for name in names}
        for i in range(len(problem.arrays[names[0]]))
    ]
    outputs = [as_list(made(**row)) for row in rows]
    products = [
        dy.sum_elems(dy.cmult(out, dy.inputTensor(head[i].astype("float32"))))
        for i, row in enumerate(outputs)
        for out, head in zip(row, problem.heads)
    ]
    dy.esum(products).backward()
    found = {
        f"output {i}": np.stack([row[i].npvalue() for row in outputs]).reshape(head.shape)
        for i, head in enumerate(problem.heads)
    }
    return found | stepped(
        problem.arrays, {k: a.grad.asnumpy() for k, a in params.items() if a.grad is not None}
    )


# training that goes on elsewhere


def resumed(problem, folder):
    """Save before the second step, load, and compare with a run that is not interrupted."""
    module, found = by_module(problem, optimizer="adagrad")
    prefix = str(folder / "run")
    module.save_checkpoint(prefix, 1, save_optimizer_states=True)
    names = {"data_names": problem.data, "label_names": problem.labels or None}
    again = mx.mod.Module.load(prefix, 1, load_optimizer_states=True, **names)
    again.bind(module.data_shapes, module.label_shapes or None)
    again.init_optimizer("local", "adagrad", {"learning_rate": RATE, "rescale_grad": 1.0})
    same(trained(problem, again, False), trained(problem, module, False), 1e-5)
    return {name: value for name, value in found.items() if name.startswith("output")}


@cache
def of_two_processes(folder):
    """Train all networks that can be split, half of the rows in each of two processes."""
    run_ranks(Path(__file__).parent / "programs" / "equivalence_rank.py", 2, folder, kind="file", seconds=120)
    with np.load(Path(folder) / "parameters.npz") as file:
        return dict(file)


def two_processes(problem, folder):
    found = of_two_processes(folder.parent)
    return {key.split("|")[1]: value for key, value in found.items() if key.split("|")[0] == problem.name}


def hogwild(problem, folder, mode="serial"):
    """Train by AsyncExecutor on one batch from a text file."""
    names, arrays = [*problem.data, *problem.labels], problem.arrays
    with open(folder / "lines", "w") as file:
        for row in zip(*(arrays[name] for name in names)):
            slots = [np.ravel(values).tolist() for values in row]
            print(*(f"{len(slot)} {' '.join(map(repr, slot))}" for slot in slots), file=file)
    kinds = {n: ("uint64", "false") if n in problem.net.ragged else ("float", "true") for n in names}
    slots = "".join(
        f'slots {{ name: "{name}" type: "{kind}" is_dense: {is_dense} is_used: true }} '
        for name, (kind, is_dense) in kinds.items()
    )
    feed = mx.DataFeedDesc(f"batch_size: {len(arrays[names[0]])} multi_slot_desc {{ {slots} }}")
    with mx.AsyncExecutor() as run:
        run.run_from_files(
            problem.symbol, feed, [folder / "lines"], 1, mode=mode, arg_params=problem.params(),
            aux_params=problem.params(True), optimizer="sgd",
            optimizer_params={"learning_rate": RATE, "rescale_grad": 1.0},
        )  # fmt: skip
        return {f"step of {k}": v.asnumpy() for k, v in run.get_params(problem.symbol)[0].items()}


def hogwild_in_cpp(problem, folder):
    return hogwild(problem, folder, "native")


FUNCTIONS = (
    generated_program, two_threads, in_float64, transposed_memory, saved_and_loaded, safetensors, one_context,
    two_contexts, second_bucket, imperative, as_block, bf16, compiled, to_torch, from_torch, onnx, cell, resumed,
    two_processes, hogwild, hogwild_in_cpp,
)  # fmt: skip
WAYS = {
    **{f"without {each.name}": without(each.name) for each in PASSES},
    **{each.__name__: each for each in FUNCTIONS},
}
TOLERANCE = {"bf16": 0.12, "two_contexts": 2e-4}
WITHOUT_LOSSES = ("from_torch", "onnx")
"""Ways in which losses become predictions."""
SPLIT = ("two_contexts", "two_processes", "cell")
OTHER_NUMBERS = (*SPLIT, "imperative", "to_torch", "from_torch", "onnx", "hogwild", "hogwild_in_cpp")
"""Ways that draw other random numbers."""
ONE_TYPE = ("in_float64", "bf16", "cell", "hogwild", "hogwild_in_cpp")
DENSE = ("as_block", "in_float64", "transposed_memory", "bf16", "to_torch", "from_torch", "onnx")
"""Ways without rows of different lengths."""


def applies(way, problem):
    """Decide whether a way can run a network."""
    net, arrays = problem.net, problem.arrays
    if way.startswith("without "):
        return way.removeprefix("without ") in fired(problem.name)
    if way in SPLIT and not net.rows or way in OTHER_NUMBERS and net.random or way in DENSE and net.ragged:
        return False
    if way in ONE_TYPE and {arrays[k].dtype.name for k in arrays if k not in net.ragged} != {"float32"}:
        return False
    if way in ("in_float64", "imperative"):  # begin states are float32, of unknown length
        return not any("begin_state" in name for name in problem.symbol.get_internals().list_outputs())
    if way in ("two_processes", "resumed") and not problem.params():
        return False
    if way == "two_processes":
        return len(arrays[problem.data[0]]) % 2 == 0
    if way == "hogwild_in_cpp" and not net.ragged:
        return False
    if way.startswith("hogwild"):
        rows = all(name in net.ragged or arrays[name].ndim == 2 for name in problem.data)
        return problem.has_loss and rows and len(problem.labels) == 1
    return True


def same(found, wanted, tolerance):
    """Compare results; differences count beside the largest number of an array."""
    assert found
    assert len(found.keys() - wanted.keys()) < len(found), f"only other names: {sorted(found)}"
    for name in found.keys() & wanted.keys():
        value, want = found[name], wanted[name]
        assert value.shape == want.shape, f"{name}: shape {value.shape} instead of {want.shape}"
        scale = max(float(np.abs(want).max(initial=0)), 1e-2)
        np.testing.assert_allclose(
            value.astype("float64") / scale, want.astype("float64") / scale, 0, tolerance, err_msg=name
        )


DIFFERENCES = {
    ("from_torch", "cbrt of a scaled value"): "copysign has no translation",
    ("from_torch", "one_hot"): "a full of a size that is computed has no translation",
    ("from_torch", "BatchNorm by moving statistics"): "use_global_stats becomes the mode of the run",
    ("onnx", "LeakyReLU selu"): "MXNet's gradient of selu is not that of its formula",
    ("imperative", "integers"): "nothing to differentiate",
    ("as_block", "integers"): "nothing to differentiate",
    ("bf16", "dense block"): "roundings change which units of relu are active",
    ("bf16", "two towers"): "roundings change which units of relu are active",
    ("bf16", "random network 12"): "roundings change which units of relu are active",
}
"""Ways that a network cannot go, or in which its numbers differ, with the reason."""


def check(way, problem, folder):
    found = WAYS[way](problem, folder)
    if problem.has_loss and way in WITHOUT_LOSSES:
        found = {name: value for name, value in found.items() if name.startswith("prediction")}
    same(found, reference(problem.name), TOLERANCE.get(way, 1e-4))


@cache
def problem_of(name):
    return Problem(name)


@cache
def reference(name):
    return node_by_node(problem_of(name))


def cases(way):
    """Return the names of the networks that a way can run."""
    return [name for name in NETS if applies(way, problem_of(name)) and (way, name) not in DIFFERENCES]


@pytest.mark.parametrize("way", [way for way in WAYS if way != "compiled"])
def test_all_networks(way, tmp_path):
    wrong = []
    for number, name in enumerate(cases(way)):
        folder = tmp_path / str(number)
        folder.mkdir()
        torch.set_num_threads(1)
        try:
            check(way, problem_of(name), folder)
        except (AssertionError, MXNetError, RuntimeError) as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


COMPILED = ("dense and relu", "SoftmaxOutput")


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:compile. the graph runs uncompiled. it has sparse values")
@pytest.mark.parametrize(
    "name", [name if name in COMPILED else pytest.param(name, marks=pytest.mark.slow) for name in NETS]
)
def test_compiled_networks(name, tmp_path):
    check("compiled", problem_of(name), tmp_path)


@pytest.mark.parametrize(("way", "name"), DIFFERENCES)
def test_differences_are_still_there(way, name, tmp_path):
    with pytest.raises((AssertionError, MXNetError)):
        check(way, problem_of(name), tmp_path)


CLASSES = {"SoftmaxOutput", "SVMOutput"}
"""Losses whose labels are numbers of classes."""


@pytest.mark.parametrize("label", [999, -7, 0.5])
def test_labels_that_are_not_classes_are_refused_whatever_the_network(label):
    tried = 0
    for name in NETS:
        problem = problem_of(name)
        if problem.ops & CLASSES:
            arrays = {k: v.copy() for k, v in problem.arrays.items()}
            for each in problem.labels:
                arrays[each].flat[-1] = label
            data, labels = ({k: array(arrays[k]) for k in names} for names in (problem.data, problem.labels))
            module = mx.mod.Module(problem.symbol, problem.data, problem.labels)
            with pytest.raises(ArgumentError, match="which is not one of the . classes"):
                module.fit(
                    mx.io.NDArrayIter(data, labels, len(next(iter(labels.values())))),
                    num_epoch=1,
                    check_labels="raise",
                )
            tried += 1
    assert tried > 20
