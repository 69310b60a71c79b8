"""Graphs as modules of torch: outputs and gradients, names, modes, memory; and torch's own tools on them."""

import copy
import importlib.util
import io
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from benchmarks.networks import NETWORKS
from dpmodule.base import ArgumentError, StateError
from helpers.walk import walks

S = mx.sym
ROOT = Path(__file__).parents[2]
DATA = S.Variable("data")


def images(count, *shape):
    return {"data": (count, *shape), "softmax_label": (count,)}


SHAPES = {"mlp": images(4, 784), "resnet20": images(2, 3, 32, 32)}
SHAPES["lstm"] = {"data": (4, 35, 8), "softmax_label": (4, 35)}


def draw(symbol, shapes, values=None, dtype="float64"):
    """Return arrays for the arguments, and for the states, of a symbol."""
    rng, found = np.random.RandomState(0), []
    arg_shapes, _, aux_shapes = symbol.infer_shape(**shapes)
    for names, known in (symbol.list_arguments(), arg_shapes), (symbol.list_auxiliary_states(), aux_shapes):
        arrays = {}
        for name, shape in zip(names, known):
            value = rng.rand(*shape) + 0.5
            if name in (values or {}):
                value = np.array(values[name])
            elif name.endswith("label"):
                value = rng.randint(0, 2, shape)
            elif not name.endswith(("gamma", "var")):
                size = 100 if len(shape) < 2 else np.prod(shape[1:])
                value = rng.randn(*shape) * (1 if name in shapes else size**-0.5)
            arrays[name] = mx.nd.array(value, dtype=dtype)
        found.append(arrays)
    return found


def assert_close(what, found, wanted, tolerance=1e-5):
    found, scale = found.detach().numpy(), max(np.abs(wanted).max(initial=0), 1e-3)
    assert found.shape == wanted.shape, what
    assert np.abs(found - wanted).max(initial=0) <= tolerance * scale, what


def compare(symbol, shapes, values=None, dtype="float64", skip=()):
    """Assert that the module of a symbol computes what its executor does, in both modes; return the module."""
    arrays, states = draw(symbol, shapes, values, dtype)
    inputs = [name for name in arrays if name in shapes]
    net = symbol.to_torch({n: a for n, a in arrays.items() if n not in shapes}, states)
    grads = {n: mx.nd.zeros(a.shape, dtype=a.dtype) for n, a in arrays.items() if n not in skip}
    args, kept = ({n: a.copy() for n, a in each.items()} for each in (arrays, states))
    bound = symbol.bind(mx.cpu(), args, grads, "write", kept)
    given = [arrays[n].torch().clone().requires_grad_(n not in skip) for n in inputs]
    for is_train in (False, True):
        outputs, found = bound.forward(is_train=is_train), net.train(is_train)(*given)
        found = found if isinstance(found, tuple) else (found,)
        for one, other in zip(found, outputs, strict=True):
            assert_close(is_train, one, other.asnumpy())
    heads = [np.random.RandomState(1).randn(*t.shape) for t in found]
    bound.backward([mx.nd.array(h, dtype=out.dtype) for h, out in zip(heads, outputs)])
    pairs = [(t, torch.from_numpy(h).to(t.dtype)) for t, h in zip(found, heads) if t.requires_grad]
    torch.autograd.backward(*zip(*pairs))
    leaves = {**dict(net.named_parameters()), **dict(zip(inputs, given))}
    for name, grad in grads.items():
        wanted = leaves[name].grad
        assert_close(name, torch.zeros_like(leaves[name]) if wanted is None else wanted, grad.asnumpy())
    for name, state in kept.items():
        assert_close(name, net.get_buffer(name), state.asnumpy())
    return net


def network(name, dtype="float32"):
    symbol, shapes = NETWORKS[name](mx, 10), SHAPES[name]
    arrays, states = draw(symbol, shapes, dtype=dtype)
    return symbol.to_torch({n: a for n, a in arrays.items() if n not in shapes}, states)


def loaded(tensors):
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


# the same numbers as executors


def test_a_custom_operator_computes_the_same():
    spec = importlib.util.spec_from_file_location("to_torch", ROOT / "examples" / "custom_operator.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    compare(module.network(), images(4, 64), dtype="float32")


def loop():
    data, state, weight = (S.Variable(n) for n in ("data", "state", "fc_weight"))

    def body(x, states):
        hidden = S.FullyConnected(x, weight=weight, num_hidden=4, no_bias=True, name="fc") + states[0]
        return S.tanh(hidden), [hidden]

    out, states = S.contrib.foreach(body, data, [state])
    return S.Group([out, states[0]])


def test_foreach_runs_trains_and_exports_with_any_batch():
    net, batch = compare(loop(), {"data": (5, 2, 3), "state": (2, 4)}).eval(), torch.export.Dim("batch")
    given, more = ([torch.rand(5, n, 3).double(), torch.rand(n, 4).double()] for n in (3, 6))
    sizes = {1: batch}, {0: batch}
    made = torch.export.export(net, tuple(given), dynamic_shapes=sizes, strict=False).module()
    for one, two in zip(net(*more), made(*more)):
        torch.testing.assert_close(one, two)
    assert torch.equal(loaded(net)(*more)[0], net(*more)[0])


@pytest.mark.parametrize("start", [0, 5])
def test_while_loops_run_and_train(start):
    variables, body = [S.Variable("count"), S.Variable("x")], lambda count, x: (x * 2, [count + 1, x * 1.5])
    out, states = S.contrib.while_loop(lambda count, x: count < 3, body, variables, max_iterations=5)
    symbol = S.Group([*(out if isinstance(out, list) else [out]), *states])
    compare(symbol, {"count": (1,), "x": (2, 3)}, {"count": [start]}, skip={"count"})


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_run_and_train_and_say_why_they_are_not_exported(sign):
    a, b = S.Variable("a"), S.Variable("b")
    symbol = S.contrib.cond(S.sum(a) > 0, lambda: a * b, lambda: a - b)
    net = compare(symbol, {"a": (2, 3), "b": (2, 3)}, {"a": np.full((2, 3), sign)})
    with pytest.raises(StateError, match=r"_cond chooses by its data.*mx.onnx.export_model"):
        torch.export.export(net, (torch.ones(2, 3), torch.ones(2, 3)), strict=False)


def test_torch_modules_in_a_symbol_run_and_train():
    body = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    module = mx.mod.Module(S.torch_module(body, DATA, name="body"), label_names=None)
    module.bind([("data", (5, 3))])
    module.init_params()
    net, data = module.to_torch(), torch.rand(5, 3)
    torch.testing.assert_close(net(data), body(data))
    net(data).square().sum().backward()
    assert net.body_0_weight.grad.abs().sum() > 0
    torch.testing.assert_close(net.body_1_running_mean, body[1].running_mean * 1.9)  # a second step


# names, inputs, modes


def test_names_with_dots_become_parts_of_parts():
    weight, bias = S.Variable("encoder.0.weight"), S.Variable("encoder.0.bias")
    net = S.FullyConnected(S.Variable("data-in"), weight=weight, bias=bias, num_hidden=3, name="encoder.0")
    shapes = {"encoder.0.weight": (3, 2), "encoder.0.bias": 3, "unknown": 1}
    module = net.to_torch({name: mx.nd.ones(shape) for name, shape in shapes.items()})
    assert list(module.state_dict()) == ["encoder.0.weight", "encoder.0.bias"]
    assert isinstance(module.get_submodule("encoder.0"), torch.nn.Module)
    assert module(data_in=torch.ones(1, 2)).tolist() == [[3, 3, 3]]


def test_labels_are_needed_where_an_output_or_a_gradient_is_made_of_them():
    label = S.Variable("label")
    hidden = S.LinearRegressionOutput(DATA * 2, label, name="one")
    with pytest.raises(TypeError, match="label"):
        S.Group([S.Reshape(label * 2, shape=(-1,)), hidden]).to_torch()(data=torch.ones(2))
    assert hidden.to_torch().eval()(data=torch.ones(2)).tolist() == [2, 2]
    mlp, data = network("mlp"), torch.rand(3, 784)
    with pytest.raises(ArgumentError, match="SoftmaxOutput: no label was given.*eval"):
        mlp(data)
    mlp.eval()(data)[0, 0].log().backward()
    assert mlp.fc1_weight.grad.abs().sum() > 0  # differentiated as any function
    lstm, words = network("lstm").eval(), torch.rand(3, 35, 8)
    assert torch.equal(lstm(words), lstm(words, torch.zeros(3, 35)))


@pytest.mark.parametrize(("p", "axes"), [(0.3, ()), (0.3, (0,)), (0.0, ())])
def test_dropout_drops_its_share(p, axes):
    torch.manual_seed(0)
    out = S.Dropout(DATA, p=p, axes=axes).to_torch()(torch.ones(400, 50))
    assert set(out.unique().tolist()) <= {0.0, torch.tensor(1 / (1 - p)).item()}
    assert abs((out == 0).float().mean().item() - p) < (0.2 if axes else 0.02)
    assert not axes or torch.equal(out, out[:1].expand_as(out))


def test_begin_states_follow_the_batch_the_type_and_the_device():
    net = network("lstm").eval()
    for size in (1, 3):
        assert net(torch.rand(size, 35, 8)).shape == (size * 35, 10)
    assert copy.deepcopy(net).double()(torch.rand(2, 35, 8).double()).dtype == torch.float64
    assert copy.deepcopy(net).to("meta")(torch.rand(2, 35, 8, device="meta")).is_meta
    sized = S.broadcast_add(DATA, S.arange(3)) + S.zeros((1, 3), dtype="float64")  # keeps its own
    assert sized.to_torch()(torch.ones(1, 3).double()).tolist() == [[1, 2, 3]]


# memory, copies, files


def test_parameters_are_copies_unless_they_are_to_be_shared():
    net, weight = S.FullyConnected(DATA, num_hidden=2, no_bias=True, name="fc"), mx.nd.ones((2, 3))
    copied, shared = net.to_torch({"fc_weight": weight}), net.to_torch({"fc_weight": weight}, share=True)
    with torch.no_grad():
        shared.fc_weight.fill_(2)
    assert weight.asnumpy().min() == 2
    weight[:] = 5
    assert (shared.fc_weight.min(), copied.fc_weight.max()) == (5, 1)
    sparse = mx.nd.array([[0, 0], [1, 2]]).tostype("row_sparse")
    assert net.to_torch({"fc_weight": sparse}).fc_weight.tolist() == [[0, 0], [1, 2]]


def test_modules_are_copied_pickled_and_traced():
    net, data, label = network("lstm"), torch.rand(4, 35, 8), torch.zeros(4, 35)
    others = [copy.deepcopy(net), loaded(net), torch.fx.symbolic_trace(copy.deepcopy(net))]
    wanted = net(data, label)
    assert all(torch.equal(other(data, label), wanted) for other in others)
    wanted = net.eval()(data)
    for other in others[:2]:  # a trace has the mode in which it was made
        assert list(other.state_dict()) == list(net.state_dict())
        assert torch.equal(other.eval()(data), wanted)


# torch's tools

SLOW = pytest.param("resnet20", "inductor", marks=pytest.mark.slow)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "backend"), [("mlp", "aot_eager"), SLOW])
@pytest.mark.filterwarnings("ignore")
def test_networks_are_compiled_whole_with_any_batch(name, backend):
    torch._dynamo.reset()
    net, shapes = network(name, "float64"), SHAPES[name]
    compiled = torch.compile(net, dynamic=True, fullgraph=True, backend=backend)
    for size in (4, 7):
        data = torch.rand(size, *shapes["data"][1:]).double()
        label, grads = torch.randint(0, 10, (size, *shapes["softmax_label"][1:])).double(), []
        for module in (copy.deepcopy(net), compiled):
            net.zero_grad()
            module.train()(data, label).sum().backward()
            grads.append([p.grad for p in module.parameters()])
        torch.testing.assert_close(*grads)
        with torch.no_grad():
            torch.testing.assert_close(compiled.eval()(data), net.eval()(data))
    torch._dynamo.reset()


# networks that torch's tools record


def rnn(mode="lstm", layout="NTC"):
    return mx.rnn.FusedRNNCell(5, 1, mode, prefix="l_").unroll(3, DATA, layout=layout, merge_outputs=True)[0]


def pooled(**options):
    net = S.Convolution(DATA, kernel=(3, 3), num_filter=9, name="conv")
    return S.Pooling(net, kernel=(2, 2), stride=(3, 3), **options)


DEPRECATED = "ignore:`torch.jit.trace.*` is (deprecated|not supported in Python)"
TRACING = pytest.mark.filterwarnings(DEPRECATED, "ignore::torch.jit.TracerWarning")
RECORDED = {  # and whether torch.export takes it without being told shapes
    "lstm": (rnn(), (4, 3, 2), True),
    "gru_of_steps": (rnn("gru", "TNC"), (3, 4, 2), False),
    "layer_norm_of_rows": (S.LayerNorm(DATA, axis=1, name="norm"), (4, 3, 2), True),
    "full_max_pool": (pooled(pool_type="max", pooling_convention="full"), (2, 1, 8, 8), False),
    "norms": (
        S.broadcast_maximum(S.InstanceNorm(DATA, name="i"), S.GroupNorm(DATA, num_groups=3, name="g")),
        (4, 3, 5),
        True,
    ),
    "classes": (S.SoftmaxOutput(S.relu(S.max(pooled(), axis=(2, 3))), name="softmax"), (5, 1, 8, 8), False),
}


def recorded(name):
    """Return a network, a batch of it, a larger one, and the axis of batches."""
    symbol, shape, _ = RECORDED[name]
    arrays, _ = draw(symbol, {"data": shape}, dtype="float32")
    wanted = symbol.bind(mx.cpu(), dict(arrays)).forward(is_train=False)[0].torch()
    data = arrays.pop("data").torch()
    arrays.pop("softmax_label", None)
    net, axis = symbol.to_torch(arrays, {}).eval(), 1 if name == "gru_of_steps" else 0
    torch.testing.assert_close(net(data), wanted)
    return net, data, torch.cat([data * (i + 1) / 70 for i in range(70)], axis), axis


@TRACING
@walks(sorted(RECORDED))
def test_networks_are_traced_and_exported(name):
    net, data, more, axis = recorded(name)
    traced = torch.jit.trace(net, (data,))
    assert "^" not in str(traced.inlined_graph)  # no call of Python
    torch.testing.assert_close(traced(more), net(more))
    if RECORDED[name][2]:
        sizes = ({axis: torch.export.Dim.AUTO},)
        program = torch.export.export(net, (data,), dynamic_shapes=sizes, strict=False)
        torch.testing.assert_close(program.module()(more), net(more))


@TRACING
def test_a_loss_is_not_traced_in_train_mode():
    net, data, _, _ = recorded("classes")
    with pytest.raises(StateError, match="cannot record the gradient of a loss"):
        torch.jit.trace(net.train(), (data, torch.zeros(5)))


def derivative_forward(function, x):
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.unpack_dual(
            function(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        ).tangent


TRANSFORMS = {
    "grad": lambda function, x: torch.func.grad(lambda v: function(v).pow(2).sum())(x),
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (torch.ones_like(x),))[1],
    "forward_ad": derivative_forward,
    "vmap": lambda function, x: torch.vmap(function)(torch.stack([x, 2 * x])),
    "many gradients": lambda function, x: torch.autograd.functional.jacobian(
        lambda v: function(v).flatten()[:2], x, vectorize=True
    ),
}


LAYERS = [
    torch.nn.AvgPool2d(3, 1, 1),
    torch.nn.AvgPool2d(2),
    torch.nn.MaxPool2d(3, 2, 1),
    torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.MaxPool2d(2), torch.nn.AvgPool2d(3)),
    torch.nn.InstanceNorm2d(8, affine=True),
    torch.nn.Linear(32, 16),
    torch.nn.Softmax(-1),
]


@pytest.mark.filterwarnings("ignore:.*jit.script.*:DeprecationWarning")  # by torch's own forward mode
@pytest.mark.parametrize(
    ("layer", "transform"),
    [
        pytest.param(layer, transform, id=f"{type(layer).__name__}-{transform}")
        for layer in LAYERS
        for transform in TRANSFORMS
        # torch cannot run many backwards of group_norm together
        if not (isinstance(layer, torch.nn.InstanceNorm2d) and transform == "many gradients")
    ],
)
def test_transformations_of_torch(layer, transform):
    x = torch.randn(2, 8, 32, 32).contiguous(memory_format=torch.channels_last)
    for data in (x, x.contiguous()):
        symbol, arguments, states = S.from_torch(layer, data)
        found = TRANSFORMS[transform](symbol.to_torch(arguments, states), data)
        torch.testing.assert_close(found, TRANSFORMS[transform](layer, data), rtol=1e-4, atol=1e-4)
