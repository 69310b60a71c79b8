"""Graphs as modules of torch: the same outputs and gradients, names, modes, memory; and torch's own tools on them."""

import copy
import importlib.util
import io
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import dpmodule as mx
from benchmarks.networks import NETWORKS
from dpmodule.base import ArgumentError, OpError, ShapeError, StateError
from helpers.torch_modules import compare, draw, without_dropout
from helpers.walk import walks

ROOT = Path(__file__).parents[2]
SYMBOLS = ROOT / "tests" / "data" / "symbols"
CHECKPOINTS = ROOT / "tests" / "data" / "checkpoints"
SHAPES = {
    "mlp": {"data": (4, 784), "softmax_label": (4,)},
    "lenet": {"data": (4, 1, 28, 28), "softmax_label": (4,)},
    "resnet20": {"data": (2, 3, 32, 32), "softmax_label": (2,)},
    "resnet18": {"data": (2, 3, 64, 64), "softmax_label": (2,)},
    "resnet50": {"data": (2, 3, 64, 64), "softmax_label": (2,)},
    "lstm": {"data": (4, 35, 8), "softmax_label": (4, 35)},
}
FULL_SIZE = {"miaow1988_model": 224, "miraclewkf_vgg_fc_ilsvrc_16_laye": 224}
LARGE = {"apache_test_dnnl_test_dnnl_model", "miraclewkf_vgg16_reduced_model", *FULL_SIZE, "zhuxuhan_model"}


def _words(count):
    return lambda rng, shape: rng.randint(0, count, shape)


def _boxes(rng, shape):
    return np.array([[[0, 0.1, 0.1, 0.4, 0.4], [1, 0.5, 0.5, 0.9, 0.9]]] * shape[0])


TEXT = {"data": _words(20), "softmax_label": _words(20)}
EXAMPLES = {
    "autoencoder": (lambda m: m.network(10), {"data": (4, 64), "target": (4, 64)}, {}),
    "fit_digits": (lambda m: m.network(), {"data": (4, 1, 8, 8), "softmax_label": (4,)}, {}),
    "multi_context": (lambda m: m.network(), {"data": (4, 1, 8, 8), "softmax_label": (4,)}, {}),
    "custom_operator": (lambda m: m.network(), {"data": (4, 64), "softmax_label": (4,)}, {}),
    "detection_ssd": (lambda m: m.network(), {"data": (2, 3, 32, 32), "label": (2, 2, 5)}, {"label": _boxes}),
    "bucketing_lm": (lambda m: m.generator(20, 8)(5)[0], {"data": (4, 5), "softmax_label": (4, 5)}, TEXT),
    "model_parallel_lstm": (
        lambda m: m.generator(20, 8)(5)[0],
        {"data": (4, 5), "softmax_label": (4, 5)},
        TEXT,
    ),
    "stateful_lstm": (
        lambda m: m.network(20, 8)[0],
        {
            "data": (4, 16),
            "lstm_begin_state_0": (1, 4, 8),
            "lstm_begin_state_1": (1, 4, 8),
            "softmax_label": (4, 16),
        },
        TEXT,
    ),
    "sparse_linear": (lambda m: m.linear(4), {"data": (4, 65536), "softmax_label": (4,)}, {}),
}


NOT_EXPORTED = {"custom_operator", "stateful_lstm"}
"""One runs code of the user's, one has several inputs."""


def _example(name):
    spec = importlib.util.spec_from_file_location(f"to_torch_{name}", ROOT / "examples" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _network(name, dtype="float32", seed=0):
    symbol, shapes = NETWORKS[name](mx, 10), SHAPES[name]
    arrays, states = draw(symbol, shapes, dtype=dtype, seed=seed)
    return symbol, shapes, arrays, states


def _module(name, dtype="float32"):
    symbol, shapes, arrays, states = _network(name, dtype)
    return symbol.to_torch({n: a for n, a in arrays.items() if n not in shapes}, states)


def _loaded(tensors):
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


# the same numbers as executors


def _same_network(name):
    # unrolled cells make their begin states as float32
    symbol, shapes, arrays, states = _network(name, "float32" if name == "lstm" else "float64")
    compare(symbol, shapes, arrays, states)


@walks(["mlp", "lenet", "lstm", "resnet20"])
def test_networks_compute_the_same_outputs_gradients_and_statistics(name):
    _same_network(name)


@pytest.mark.slow
@walks(["resnet18", "resnet50"])
def test_large_networks_compute_the_same(name):
    _same_network(name)


@walks(sorted(EXAMPLES))
def test_networks_of_the_examples_compute_the_same(name):
    make, shapes, values = EXAMPLES[name]
    symbol = without_dropout(make(_example(name)))
    dtype = (
        "float64" if name == "detection_ssd" else "float32"
    )  # of a bias before BatchNorm only rounding is left
    arrays, states = draw(symbol, shapes, dtype=dtype, values=values)
    skip = {key for key in values if key in ("data", "label")}
    compare(symbol, shapes, arrays, states, skip=skip)


def _published_graph(name):
    expected = json.loads((SYMBOLS / "expected.json").read_text())[name]["infer_inputs"]
    symbol = without_dropout(mx.sym.load(str(SYMBOLS / f"{name}-symbol.json")))
    shapes = {key: tuple(shape) for key, shape in expected.items()}
    if shapes["data"][-1] == 224 and name not in FULL_SIZE:
        shapes["data"] = (2, 3, 64, 64)
    found = dict(zip(symbol.list_arguments(), symbol.infer_shape(**shapes)[0]))
    shapes.update({key: shape for key, shape in found.items() if key.endswith("label")})
    return symbol, shapes


def _published(name):
    symbol, shapes = _published_graph(name)
    compare(symbol, shapes, *draw(symbol, shapes))


NAMES = sorted(path.name.removesuffix("-symbol.json") for path in SYMBOLS.glob("*_*-symbol.json"))


@walks([name for name in NAMES if name not in LARGE])
def test_published_graphs_compute_the_same(name):
    _published(name)


@pytest.mark.slow
@walks(sorted(LARGE))
def test_large_published_graphs_compute_the_same(name):
    _published(name)


@walks([("go_test", 1), ("mtcnn_det1", 1), ("mtcnn_det2", 1), ("mtcnn_det3", 1), ("toy_lenet", 10)])
def test_published_checkpoints_give_what_mxnet_gives(name, epoch):
    symbol, arg_params, aux_params = mx.model.load_checkpoint(str(CHECKPOINTS / name / name), epoch)
    golden = np.load(CHECKPOINTS / name / "golden.npz")
    net = symbol.to_torch(arg_params, aux_params).eval()
    given = {k.split("/")[1]: torch.from_numpy(golden[k]) for k in golden.files if k.startswith("input/")}
    outputs = net(**{name: given[name] for name in given if name in symbol.list_arguments()})
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    for i, out in enumerate(outputs):
        wanted = golden[f"out/{i}"]
        found = out.detach().numpy().ravel()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


# names, inputs, modes


def test_arrays_keep_their_names_and_order():
    symbol, shapes, arrays, states = _network("resnet20")
    net = _module("resnet20")
    assert [name for name, _ in net.named_parameters()] == [
        n for n in symbol.list_arguments() if n not in shapes
    ]
    assert [name for name, _ in net.named_buffers()] == symbol.list_auxiliary_states()
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), {**arrays, **states}[name].asnumpy())


def test_names_with_dots_become_parts_of_parts():
    weight, bias = mx.sym.Variable("encoder.0.weight"), mx.sym.Variable("encoder.0.bias")
    data = mx.sym.Variable("data-in")
    net = mx.sym.FullyConnected(data, weight=weight, bias=bias, num_hidden=3, name="encoder.0")
    params = {
        "encoder.0.weight": mx.nd.ones((3, 2)),
        "encoder.0.bias": mx.nd.ones(3),
        "unknown": mx.nd.ones(1),
    }
    module = net.to_torch(params)
    assert list(module.state_dict()) == ["encoder.0.weight", "encoder.0.bias"]
    assert isinstance(module.get_submodule("encoder.0"), torch.nn.Module)
    assert module(data_in=torch.ones(1, 2)).tolist() == [[3, 3, 3]]


def test_inputs_come_by_name_or_in_the_order_of_arguments():
    one, two = mx.sym.Variable("one"), mx.sym.Variable("two")
    net = mx.sym.Group([one - two, two * 2]).to_torch()
    first, second = torch.tensor([3.0]), torch.tensor([1.0])
    assert [t.item() for t in net(first, second)] == [t.item() for t in net(two=second, one=first)] == [2, 2]


def test_a_label_before_an_input_makes_neither_needed_for_python():
    label, data = mx.sym.Variable("label"), mx.sym.Variable("data")
    hidden = mx.sym.LinearRegressionOutput(data * 2, label, name="one")
    net = mx.sym.Group([mx.sym.Reshape(label * 2, shape=(-1,)), hidden])
    assert list(net.list_arguments()) == ["label", "data"]
    with pytest.raises(TypeError, match="label"):
        net.to_torch()(data=torch.ones(2))  # an output of its own needs it
    other = hidden.to_torch().eval()
    assert other(data=torch.ones(2)).tolist() == [2, 2]


def test_a_loss_without_label_predicts_in_eval_mode_and_is_refused_in_train_mode():
    net, data = _module("mlp"), torch.rand(3, 784)
    with pytest.raises(ArgumentError, match="SoftmaxOutput: no label was given.*eval"):
        net(data)
    out = net.eval()(data)
    out[0, 0].log().backward()
    assert net.fc1_weight.grad.abs().sum() > 0  # differentiated as any function


def test_what_is_made_of_missing_labels_alone_is_left_out():
    net = _module("lstm").eval()
    data = torch.rand(3, 35, 8)
    assert torch.equal(net(data), net(data, torch.zeros(3, 35)))


def test_losses_ignore_the_gradient_that_comes():
    net, data, label = _module("mlp"), torch.rand(3, 784), torch.tensor([1.0, 2.0, 3.0])
    found = []
    for factor in (1.0, 100.0):
        net.zero_grad()
        (net(data, label).sum() * factor).backward()
        found.append(net.fc1_weight.grad.clone())
    assert torch.equal(*found)
    assert found[0].abs().sum() > 0


def test_moving_statistics_move_in_train_mode_alone():
    net = _module("resnet20")
    before = net.stem_bn_moving_mean.clone()
    net.eval()(torch.rand(2, 3, 32, 32))
    assert torch.equal(net.stem_bn_moving_mean, before)
    net.train()(torch.rand(2, 3, 32, 32), torch.zeros(2))
    assert not torch.equal(net.stem_bn_moving_mean, before)


def test_a_fixed_gamma_is_one_and_frozen():
    net = mx.sym.BatchNorm(mx.sym.Variable("data"), name="bn")
    arrays = {"bn_gamma": mx.nd.array([3.0, 4.0]), "bn_beta": mx.nd.zeros(2)}
    module = net.to_torch(arrays, {"bn_moving_mean": mx.nd.zeros(2), "bn_moving_var": mx.nd.ones(2)})
    assert module.bn_gamma.tolist() == [1, 1]
    assert not module.bn_gamma.requires_grad
    assert module.bn_beta.requires_grad
    assert arrays["bn_gamma"].asnumpy().tolist() == [3, 4]


def test_random_numbers_come_from_torchs_generator():
    data = mx.sym.Variable("data")
    net = (mx.sym.Dropout(data, p=0.5) + mx.sym.random.uniform(shape=(20, 30))).to_torch()
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(net(torch.ones(20, 30)))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(mx.sym.Dropout(data, p=0.5).to_torch().eval()(torch.ones(3)), torch.ones(3))


@walks([(0.3, ()), (0.3, (0,)), (0.0, ())])
def test_dropout_drops_its_share(p, axes):
    torch.manual_seed(0)
    out = mx.sym.Dropout(mx.sym.Variable("data"), p=p, axes=axes).to_torch()(torch.ones(400, 50))
    assert set(out.unique().tolist()) <= {0.0, torch.tensor(1 / (1 - p)).item()}
    assert abs((out == 0).float().mean().item() - p) < (0.2 if axes else 0.02)
    if axes:
        assert torch.equal(out, out[:1].expand_as(out))


def test_begin_states_follow_the_batch_the_type_and_the_device():
    net = _module("lstm").eval()
    for size in (1, 3):
        assert net(torch.rand(size, 35, 8)).shape == (size * 35, 10)
    assert copy.deepcopy(net).double()(torch.rand(2, 35, 8).double()).dtype == torch.float64
    assert copy.deepcopy(net).to("meta")(torch.rand(2, 35, 8, device="meta")).is_meta


def test_what_has_a_size_of_its_own_keeps_it():
    data = mx.sym.Variable("data")
    net = mx.sym.broadcast_add(data, mx.sym.arange(3)) + mx.sym.zeros((1, 3), dtype="float64")
    assert net.to_torch()(torch.ones(1, 3).double()).tolist() == [[1, 2, 3]]


def test_sizes_that_nothing_tells_are_asked_for():
    data = mx.sym.Variable("data")
    net = mx.sym.broadcast_add(mx.sym.Reshape(data, shape=(-1, 4)), mx.sym.zeros((0, 4)))
    with pytest.raises(ArgumentError, match=r"_zeros.*give shapes=.*data"):
        net.to_torch()


@walks([torch.float64, torch.float16, torch.bfloat16])
def test_modules_convert_to_other_types(dtype):
    net = _module("resnet20").eval()
    data = torch.rand(2, 3, 32, 32)
    found = copy.deepcopy(net).to(dtype)(data.to(dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), net(data), rtol=0, atol=0.02)


# memory, copies, files


def test_parameters_are_copies_unless_they_are_to_be_shared():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, no_bias=True, name="fc")
    weight = mx.nd.ones((2, 3))
    copied, shared = net.to_torch({"fc_weight": weight}), net.to_torch({"fc_weight": weight}, share=True)
    with torch.no_grad():
        shared.fc_weight.fill_(2)
    assert weight.asnumpy().min() == 2
    weight[:] = 5
    assert shared.fc_weight.min() == 5
    assert copied.fc_weight.max() == 1


def test_sparse_arrays_are_copied_dense_and_not_shared():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, no_bias=True, name="fc")
    weight = mx.nd.array([[0, 0], [1, 2]]).tostype("row_sparse")
    assert net.to_torch({"fc_weight": weight}).fc_weight.tolist() == [[0, 0], [1, 2]]
    with pytest.raises(ArgumentError, match="row_sparse, which cannot be shared"):
        net.to_torch({"fc_weight": weight}, share=True)


@walks(["resnet20", "lstm"])
def test_modules_are_copied_pickled_and_traced(name):
    net = _module(name)
    data, label = torch.rand(SHAPES[name]["data"]), torch.zeros(SHAPES[name]["softmax_label"])
    others = [copy.deepcopy(net), _loaded(net), torch.fx.symbolic_trace(copy.deepcopy(net))]
    wanted = net(data, label)
    for other in others:
        assert torch.equal(other(data, label), wanted)
    wanted = net.eval()(data)
    for other in others[:2]:  # a trace has the mode in which it was made
        assert list(other.state_dict()) == list(net.state_dict())
        assert torch.equal(other.eval()(data), wanted)


def test_state_dictionaries_are_saved_and_loaded():
    net, other = _module("mlp"), mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=128, name="fc1")
    state = _loaded(net.state_dict())
    module = other.to_torch({name: mx.nd.from_torch(value) for name, value in state.items()})
    assert torch.equal(module.fc1_weight, net.fc1_weight)
    missing, unexpected = module.load_state_dict(state, strict=False)
    assert not missing
    assert len(unexpected) == 4


def test_source_reads_like_the_network():
    code = _module("mlp").code
    assert "fc1 = dpmodule_ops_fx_FullyConnected(data, fc1_weight, fc1_bias, num_hidden = 128)" in code
    assert "def forward(self, data, softmax_label = None):" in code


# loops, branches, operators of users'


def _loop():
    data, state, weight = (mx.sym.Variable(n) for n in ("data", "state", "fc_weight"))

    def body(x, states):
        hidden = mx.sym.FullyConnected(x, weight=weight, num_hidden=4, no_bias=True, name="fc") + states[0]
        return mx.sym.tanh(hidden), [hidden]

    out, states = mx.sym.contrib.foreach(body, data, [state])
    return mx.sym.Group([out, states[0]]), {"data": (5, 2, 3), "state": (2, 4)}


def test_foreach_runs_trains_and_exports_with_any_batch():
    symbol, shapes = _loop()
    net = compare(symbol, shapes, *draw(symbol, shapes)).eval()
    batch = torch.export.Dim("batch")
    given = torch.rand(5, 3, 3).double(), torch.rand(3, 4).double()
    sizes = {1: batch}, {0: batch}
    made = torch.export.export(net, given, dynamic_shapes=sizes, strict=False).module()
    more = torch.rand(5, 6, 3).double(), torch.rand(6, 4).double()
    for one, two in zip(net(*more), made(*more)):
        torch.testing.assert_close(one, two)
    assert torch.equal(_loaded(net)(*more)[0], net(*more)[0])


@walks([0, 5])
def test_while_loops_run_and_train(start):
    count, x = mx.sym.Variable("count"), mx.sym.Variable("x")
    out, states = mx.sym.contrib.while_loop(
        lambda count, x: count < 3,
        lambda count, x: (x * 2, [count + 1, x * 1.5]),
        [count, x],
        max_iterations=5,
    )
    symbol = mx.sym.Group([*(out if isinstance(out, list) else [out]), *states])
    shapes = {"count": (1,), "x": (2, 3)}
    arrays, none = draw(symbol, shapes, values={"count": np.full((1,), start)})
    compare(symbol, shapes, arrays, none, skip={"count"})


@walks([1, -1])
def test_branches_run_and_train_and_say_why_they_are_not_exported(sign):
    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    symbol = mx.sym.contrib.cond(mx.sym.sum(a) > 0, lambda: a * b, lambda: a - b)
    shapes = {"a": (2, 3), "b": (2, 3)}
    net = compare(symbol, shapes, *draw(symbol, shapes, values={"a": np.full((2, 3), sign)}))
    with pytest.raises(StateError, match=r"_cond chooses by its data.*mx.onnx.export_model"):
        torch.export.export(net, (torch.ones(2, 3), torch.ones(2, 3)), strict=False)


def test_torch_modules_in_a_symbol_run_and_train():
    body = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    symbol = mx.sym.torch_module(body, mx.sym.Variable("data"), name="body")
    module = mx.mod.Module(symbol, label_names=None)
    module.bind([("data", (5, 3))])
    module.init_params()
    net, data = module.to_torch(), torch.rand(5, 3)
    torch.testing.assert_close(net(data), body(data))
    net(data).square().sum().backward()
    assert net.body_0_weight.grad.abs().sum() > 0
    torch.testing.assert_close(net.body_1_running_mean, body[1].running_mean * 1.9)  # a second step


# bad input


def test_missing_and_unfit_arrays_come_in_one_error():
    net = mx.sym.BatchNorm(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"), name="bn")
    with pytest.raises(ArgumentError) as error:
        net.to_torch({"fc_weight": [1], "bn_gamma": mx.nd.ones(3), "bn_beta": mx.nd.ones(3)})
    text = str(error.value)
    assert "arg_params has no fc_bias" in text
    assert "fc_weight is list" in text
    assert "aux_params has no bn_moving_mean, bn_moving_var" in text


def test_arrays_that_are_no_dict_or_named_as_in_files_are_refused_with_a_hint():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, no_bias=True, name="fc")
    with pytest.raises(ArgumentError, match="arg_params is list, expected a dict"):
        net.to_torch([1])
    with pytest.raises(
        ArgumentError, match=r"no fc_weight \(its names have the prefixes of files.*load_checkpoint"
    ):
        net.to_torch({"arg:fc_weight": mx.nd.ones((3, 2))})


def test_arrays_of_another_shape_are_refused():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    with pytest.raises(ShapeError, match=r"fc.*bias has shape \(4,\), expected \(3,\)"):
        net.to_torch({"fc_weight": mx.nd.ones((3, 2)), "fc_bias": mx.nd.ones(4)})


def test_names_that_torch_cannot_have_come_in_one_error():
    names = ["type", "a.b", "a", "c..d", "training"]
    net = sum((mx.sym.Variable(name) for name in names), mx.sym.Variable("data"))
    with pytest.raises(ArgumentError) as error:
        net.to_torch({name: mx.nd.ones(1) for name in names})
    for part in (
        "'type' of 'type'",
        "'a' is a variable, so 'a.b'",
        "'c..d' has an empty part",
        "'training' of",
    ):
        assert part in str(error.value)


def test_operators_that_a_module_cannot_have_come_in_one_error():
    ragged = mx.sym.sequence_pool(mx.sym.Variable("words", stype="ragged"), pool_type="mean", name="pooled")
    names = ("weight", "grad", "mom")
    update = mx.sym.sgd_mom_update(*(mx.sym.Variable(n) for n in names), lr=0.1, name="step")
    with pytest.raises(OpError) as error:
        mx.sym.Group([ragged, update]).to_torch({}, {"mom": mx.nd.ones(1)})
    assert "'words'" in str(error.value)
    assert "stored as ragged" in str(error.value)
    assert "'step'" in str(error.value)


# torch's tools

BATCH = torch.export.Dim("batch", min=2)


def _exported(net, data, strict=False):
    return torch.export.export(net, (data,), dynamic_shapes={"data": {0: BATCH}}, strict=strict)


def _check_export(name, strict):
    net, shape = _module(name).eval(), SHAPES[name]["data"]
    made = _exported(net, torch.rand(shape), strict).module()
    more = torch.rand(7, *shape[1:])
    torch.testing.assert_close(made(more), net(more))


@walks(["mlp", "lenet"])
def test_networks_are_exported_with_any_batch(name):
    _check_export(name, strict=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
@walks(
    [(name, strict) for name in EXAMPLES if name not in NOT_EXPORTED for strict in (False, True)],
    seconds=600,
)
def test_networks_of_the_examples_are_exported_with_any_batch(name, strict):
    make, shapes, values = EXAMPLES[name]
    symbol = make(_example(name))
    if name == "detection_ssd":  # without the labels, which it is trained with
        symbol = symbol.get_internals()["detection_output"]
    _check_exported(symbol, shapes, values, strict)


@pytest.mark.slow
@pytest.mark.timeout(600)
@walks([(name, strict) for name in NAMES if name not in FULL_SIZE for strict in (False, True)], seconds=600)
def test_published_graphs_are_exported_with_any_batch(name, strict):
    _check_exported(*_published_graph(name), {}, strict)


def _check_exported(symbol, shapes, values, strict):
    symbol_shapes = {key: shape for key, shape in shapes.items() if key in symbol.list_arguments()}
    arrays, states = draw(symbol, symbol_shapes, dtype="float32", values=values)
    net = symbol.to_torch({n: a for n, a in arrays.items() if n not in shapes}, states).eval()
    (data,) = (arrays[n].torch() for n in shapes if n in arrays and "label" not in n and n != "target")
    data = torch.cat([data, data])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.export.export(net, (data,), dynamic_shapes=({0: BATCH},), strict=strict).module()
    more = torch.cat([data, data, data])
    found, wanted = made(more), net(more)
    for one, two in zip(*((t if isinstance(t, (tuple, list)) else (t,)) for t in (found, wanted))):
        torch.testing.assert_close(one, two)


@pytest.mark.slow
@walks([(name, strict) for name in SHAPES for strict in (False, True)], seconds=600)
def test_all_networks_are_exported_with_any_batch(name, strict):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch thinks of code that it traces
        _check_export(name, strict)


def _check_compiled(name, **options):
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net, shapes = _module(name, "float64"), SHAPES[name]
        compiled = torch.compile(net, dynamic=True, fullgraph=True, **options)
        for size in (4, 7):
            data = torch.rand(size, *shapes["data"][1:]).double()
            label = torch.randint(0, 10, (size, *shapes["softmax_label"][1:])).double()
            grads = []
            for module in (copy.deepcopy(net), compiled):
                net.zero_grad()
                module.train()(data, label).sum().backward()
                grads.append([p.grad for p in module.parameters()])
            for one, two in zip(*grads):
                torch.testing.assert_close(one, two)
            with torch.no_grad():
                torch.testing.assert_close(compiled.eval()(data), net.eval()(data))
    torch._dynamo.reset()


def test_a_network_is_compiled_whole_with_any_batch():
    _check_compiled("mlp", backend="aot_eager")


@pytest.mark.slow
@pytest.mark.timeout(900)
@walks(
    [(n, backend) for n in ("mlp", "lenet", "resnet20") for backend in ("aot_eager", "inductor")], seconds=900
)
def test_networks_are_compiled_whole_with_any_batch(name, backend):
    _check_compiled(name, backend=backend)


@pytest.mark.slow
@pytest.mark.timeout(600)
@walks(list(SHAPES), seconds=600)
def test_networks_go_through_torchs_exporter_to_onnx(name, tmp_path_factory):
    net, shape = _module(name).eval(), SHAPES[name]["data"]
    file = str(tmp_path_factory.mktemp("onnx") / "net.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"dynamo": True, "dynamic_shapes": {"data": {0: BATCH}}, "verbose": False}
        torch.onnx.export(net, (torch.rand(shape),), **options).save(file)
    session = onnxruntime.InferenceSession(file)
    more = torch.rand(7, *shape[1:])
    found = session.run(None, {session.get_inputs()[0].name: more.numpy()})[0]
    np.testing.assert_allclose(found, net(more).detach().numpy(), rtol=1e-4, atol=1e-5)


# networks that torch's tools record


def _rnn(mode="lstm", layout="NTC", **options):
    cell = mx.rnn.FusedRNNCell(5, mode=mode, prefix="l_", **{"num_layers": 1, **options})
    return cell.unroll(3, mx.sym.Variable("data"), layout=layout, merge_outputs=True)[0]


def _as_gluon(directions):
    """An LSTM as Gluon exports it: it makes its begin states and joins parameters, some of them of unknown shape."""
    networks = [f"{side}{layer}" for layer in range(2) for side in "lr"[:directions]]
    shapes = {f"{n}_i2h_weight": (20, 0 if n.endswith("0") else 5 * directions) for n in networks}
    shapes |= {f"{n}_h2h_weight": (20, 5) for n in networks}
    order = [f"{n}_{part}_weight" for n in networks for part in ("i2h", "h2h")]
    order += [f"{n}_{part}_bias" for n in networks for part in ("i2h", "h2h")]
    flat = [
        mx.sym.Reshape(mx.sym.Variable(name, shape=shapes.get(name, (20,))), shape=(-1,)) for name in order
    ]
    begin = [mx.sym.zeros(shape=(2 * directions, 0, 5), name=f"h0_{i}") for i in range(2)]
    data = mx.sym.SwapAxis(mx.sym.Variable("data"), dim1=0, dim2=1)
    options = {"num_layers": 2, "bidirectional": directions == 2, "state_outputs": True}
    out = mx.sym.RNN(
        data, mx.sym._internal._rnn_param_concat(*flat, dim=0), *begin, state_size=5, mode="lstm", **options
    )
    return mx.sym.SwapAxis(out[0], dim1=0, dim2=1)


def _pooled(**options):
    data = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=9, name="conv")
    return mx.sym.Pooling(data, kernel=(2, 2), **options)


TRACING = pytest.mark.filterwarnings(
    "ignore:`torch.jit.trace.*` is deprecated", "ignore::torch.jit.TracerWarning"
)
RECORDED = {
    "lstm": (_rnn(), (4, 3, 2)),
    "gru_of_steps": (_rnn("gru", "TNC"), (3, 4, 2)),
    "deep_lstm": (_rnn(num_layers=2, bidirectional=True), (4, 3, 2)),
    "gluon": (_as_gluon(1), (4, 3, 2)),
    "gluon_both_ways": (_as_gluon(2), (4, 3, 2)),
    "layer_norm": (
        mx.sym.LayerNorm(
            mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="fc"), name="norm"
        ),
        (4, 2),
    ),
    "layer_norm_of_rows": (mx.sym.LayerNorm(mx.sym.Variable("data"), axis=1, name="norm"), (4, 3, 2)),
    "max_pool": (_pooled(pool_type="max", stride=(2, 2)), (2, 1, 8, 8)),
    "full_max_pool": (_pooled(pool_type="max", stride=(3, 3), pooling_convention="full"), (2, 1, 8, 8)),
    "global_pool": (_pooled(pool_type="max", global_pool=True), (2, 1, 8, 8)),
    "average_pool": (_pooled(pool_type="avg", pad=(1, 1), count_include_pad=False), (2, 1, 8, 8)),
    "classes": (
        mx.sym.SoftmaxOutput(
            mx.sym.Activation(mx.sym.max(_pooled(), axis=(2, 3)), act_type="relu"), name="softmax"
        ),
        (5, 1, 8, 8),
    ),
}

EXPORTED = ("lstm", "gluon_both_ways", "layer_norm", "layer_norm_of_rows")


def _recorded(name):
    """Return a network without being told shapes, one batch, and a larger one."""
    symbol, shape = RECORDED[name]
    label = {"softmax_label": shape[:1]} if name == "classes" else {}
    arrays, _ = draw(symbol, {"data": shape, **label}, dtype="float32")
    executor = symbol.bind(mx.cpu(), {n: a.copy() for n, a in arrays.items()})
    wanted = executor.forward(is_train=False)[0].torch()
    data = arrays.pop("data").torch()
    arrays.pop("softmax_label", None)
    net = symbol.to_torch(arrays, {}).eval()
    torch.testing.assert_close(net(data), wanted)
    axis = 1 if name == "gru_of_steps" else 0
    return net, data, torch.cat([data * (i + 1) / 70 for i in range(70)], axis), axis


@TRACING
@walks(sorted(RECORDED))
def test_networks_are_traced_and_exported_with_any_batch(name):
    net, data, more, axis = _recorded(name)
    wanted = net(more)
    traced = torch.jit.trace(net, (data,))
    assert "^" not in str(traced.inlined_graph)  # no call of Python
    torch.testing.assert_close(traced(more), wanted)
    if name in EXPORTED:
        shapes = ({axis: torch.export.Dim.AUTO},)
        program = torch.export.export(net, (data,), dynamic_shapes=shapes, strict=False)
        torch.testing.assert_close(program.module()(more), wanted)


@walks(["lstm"])
def test_recurrent_networks_are_compiled_with_gradients(name):
    net, data, _, _ = _recorded(name)
    grads = []
    for module in (net, torch.compile(net, backend="aot_eager")):
        net.zero_grad()
        module(data).square().sum().backward()
        grads.append(net.l_parameters.grad.clone())
    torch.testing.assert_close(*grads)
    torch._dynamo.reset()


@TRACING
def test_a_loss_is_not_traced_in_train_mode():
    net, data, _, _ = _recorded("classes")
    with pytest.raises(StateError, match="cannot record the gradient of a loss"):
        torch.jit.trace(net.train(), (data, torch.zeros(5)))


def test_softmax_up_to_a_length():
    symbol = mx.sym.softmax(mx.sym.Variable("data"), mx.sym.Variable("length"), use_length=True, axis=1)
    data, length = torch.randn(3, 4), torch.tensor([1, 2, 4], dtype=torch.int32)
    wanted = [row[:n].softmax(0).tolist() + [0.0] * (4 - n) for row, n in zip(data, length.tolist())]
    torch.testing.assert_close(symbol.to_torch()(data, length), torch.tensor(wanted))
    scaled = mx.sym.softmax(mx.sym.Variable("data"), temperature=2.0).to_torch()
    torch.testing.assert_close(scaled(data), (data / 2).softmax(1))
