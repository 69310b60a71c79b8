import gc
import itertools
import random
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import executor
from dpmodule._core import torch_private
from dpmodule.base import MXNetError
from dpmodule.executor import packed_weights, program
from dpmodule.executor.passes import native_convolutions
from dpmodule.executor.passes.fused_convolutions import FusedConvolution, ImageRun, run
from dpmodule.executor.passes.fused_convolutions import call as fused_call
from dpmodule.ops.nn.linear import kernels
from dpmodule.ops.spec import Env
from helpers.walk import walks

S = mx.sym
NAME = "fused_convolutions"
DATA, OTHER = S.Variable("data"), S.Variable("other")
SHAPE = (2, 3, 6, 6)


@pytest.fixture(autouse=True)
def no_packs():
    packed_weights.entries.clear()
    yield
    packed_weights.entries.clear()
    torch_private.select()


def conv(x=DATA, size=1, count=3, name="c", **attrs):
    pad = (size // 2,) * 2
    return S.Convolution(x, kernel=(size, size), pad=pad, num_filter=count, name=name, **attrs)


def norm(x, name="n", **attrs):
    return S.BatchNorm(x, name=name, **attrs)


def conv_norm_relu(fix_gamma=False, no_bias=True):
    x = norm(conv(size=3, count=4, no_bias=no_bias), fix_gamma=fix_gamma)
    return S.Activation(x, act_type="relu", name="r")


def fill(bound):
    rng = np.random.RandomState(0)
    for name, array in {**bound.arg_dict, **bound.aux_dict}.items():
        low = 0.5 if name.endswith(("var", "gamma")) else -1.0
        array[:] = mx.nd.array(rng.uniform(low, 1.5, array.shape), dtype=array.dtype)


def bind(net, shape=SHAPE, off=False, **given):
    with executor.disabled(*((NAME,) if off else ())):
        bound = net.simple_bind(mx.cpu(), **({"data": shape} | given))
        bound.program(False)
    fill(bound)
    return bound


def fired(bound):
    return bound.program(False).low.fired.get(NAME, 0)


def steps(bound):
    return bound.program(False).low.steps


def answer(bound):
    return [out.asnumpy() for out in bound.forward(is_train=False)]


def assert_close(got, want):
    for g, w in zip(got, want, strict=True):
        finite = np.isfinite(w)  # the maximum of padding alone is not
        np.testing.assert_array_equal(g[~finite], w[~finite])
        scale = np.abs(w[finite]).max(initial=1e-30)
        np.testing.assert_allclose(g[finite] / scale, w[finite] / scale, atol=1e-4)


def formula(bound):
    """Convolution, normalisation and rectifier of `conv_norm_relu` in NumPy."""
    v = {k: a.asnumpy().astype(np.float64) for k, a in {**bound.arg_dict, **bound.aux_dict}.items()}
    padded = np.pad(v["data"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    y = np.einsum("nchwij,fcij->nfhw", windows, v["c_weight"])
    c = (1, -1, 1, 1)
    y = (y - v["n_moving_mean"].reshape(c)) / np.sqrt(v["n_moving_var"].reshape(c) + 1e-3)
    return np.maximum(y * v["n_gamma"].reshape(c) + v["n_beta"].reshape(c), 0).astype(np.float32)


def check_formula(bound, times=3):
    for _ in range(times):
        assert_close(answer(bound), [formula(bound)])


def same_with_pass_off(net, shape=SHAPE, count=1, **given):
    plain, fast = bind(net, shape, off=True, **given), bind(net, shape, **given)
    assert (fired(plain), fired(fast)) == (0, count)
    compare(plain, fast)
    return fast


def compare(plain, fast):
    rounds = [answer(fast) for _ in range(3)]
    assert_close(rounds[0], answer(plain))
    for a, b, c in zip(*rounds, strict=True):  # packed or not: the same numbers
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    for name in plain.arg_dict:
        np.testing.assert_array_equal(plain.arg_dict[name].asnumpy(), fast.arg_dict[name].asnumpy(), name)


# what is fused, and what it computes


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("fix_gamma", [False, True])
@pytest.mark.parametrize("no_bias", [False, True])
def test_convolution_normalisation_and_rectifier_are_one_step(fix_gamma, no_bias, public):
    torch_private.select(public)
    fast = same_with_pass_off(conv_norm_relu(fix_gamma, no_bias))
    assert [step.name for step in steps(fast)] == ["convolution_BatchNorm_relu"]
    if no_bias:
        fast.arg_dict["n_gamma"][:] = 1 if fix_gamma else fast.arg_dict["n_gamma"]  # which the formula reads
        check_formula(fast)


LEAKY = {kind: partial(S.LeakyReLU, act_type=kind, slope=0.3) for kind in ("leaky", "elu", "gelu")}
ACTIVATIONS = {"relu": S.relu, "tanh": S.tanh, "sigmoid": S.sigmoid, "none": lambda x: x, **LEAKY}
ACTIVATIONS["rectifier"] = partial(S.Activation, act_type="relu")
ACTIVATIONS["softrelu"] = partial(S.Activation, act_type="softrelu")
ACTIVATIONS |= {
    "relu6": partial(S.clip, a_min=0.0, a_max=6.0),
    "clip": partial(S.clip, a_min=-0.25, a_max=0.5),
}
SUMMED = {"clip", "none", "rectifier", "relu", "relu6"}
"""Activations that are fused behind a sum too."""


@walks(itertools.product(ACTIVATIONS, [False, True], [False, True]))
def test_nan_stays_but_for_the_activation_by_which_mxnet_loses_it(kind, summed, public):
    packed_weights.entries.clear()
    torch_private.select(public)
    fast = same_with_pass_off(ACTIVATIONS[kind](conv() + DATA if summed else conv()))
    alone = set(ACTIVATIONS) - SUMMED if summed else {"softrelu", "elu"}
    assert len(steps(fast)) == (2 if kind in alone else 1)
    fast.arg_dict["data"][0, 0, 0, 0] = np.nan
    for _ in range(3):
        (got,) = answer(fast)
        if kind != "rectifier":
            assert np.isnan(got[0, :, 0, 0]).all()
        elif not public:
            assert (got[0, :, 0, 0] == 0).all()
        assert not np.isnan(got[1:]).any()


def residual(x, name, left=True, stride=1):
    y = conv(x, 3, 4, name, stride=(stride,) * 2, no_bias=True)
    y = conv(S.relu(norm(y, f"{name}n", fix_gamma=False)), 3, 4, f"{name}b")
    y = norm(y, f"{name}bn")
    x = x if stride == 1 else conv(x, 1, 4, f"{name}s", stride=(stride,) * 2)
    return S.relu(x + y if left else y + x)


STEM = conv(count=4, name="stem")
ONE, OWN = residual(STEM, "a"), conv() + DATA
VIEW = S.reshape(STEM, shape=(0, 0, -1))
SUMS = {
    "blocks": (residual(residual(ONE, "b", False, 2), "c"), 8, [True, True, True]),
    "output": (S.Group([ONE, STEM]), 3, [False]),
    "first of two": (residual(ONE, "b") + ONE, 5, [True, False]),
    "activation read": (S.relu(residual(STEM, "b") + STEM), 3, [False]),
    "variable and own data": (conv(OWN, name="d") + OWN, 2, [False] * 2),
    "view read": (S.broadcast_mul(VIEW, S.sum(ONE)), 3, [False]),
}


@pytest.mark.parametrize(("net", "count", "written"), SUMS.values(), ids=SUMS)
def test_sums_are_written_over_what_nobody_reads_any_more(net, count, written):
    calls = [s.function for s in steps(same_with_pass_off(net, count=count))]
    assert [each.overwrites for each in calls if getattr(each, "sums", False)] == written


def wide_unit(x, name, stride=1, left=True, fix_gamma=False):
    """Return a residual unit with enough filters for the kernel."""
    y = norm(conv(x, 1, 16, f"{name}a", stride=(stride,) * 2, no_bias=True), f"{name}an", fix_gamma=fix_gamma)
    y = conv(S.Activation(y, act_type="relu"), 3, 16, f"{name}b")
    x = x if stride == 1 else conv(x, 1, 16, f"{name}s", stride=(stride,) * 2, no_bias=True)
    return S.Activation(x + y if left else y + x, act_type="relu")


READ = norm(conv())
PLAIN = {
    "of one image": (S.relu(S.broadcast_add(conv(), OTHER)), SHAPE, 1, {"other": (1, 3, 1, 1)}),
    "larger": (S.relu(S.broadcast_add(OTHER, conv())), (1, 3, 6, 6), 1, {"other": (4, 3, 6, 6)}),
    "convolution read": (S.Group([S.relu(READ), READ.get_children()[0]]), SHAPE, 1, {}),
    "read twice": ((lambda x: x + x)(conv()), SHAPE, 1, {}),
    "one of three": (norm(conv(), output_mean_var=True)[0], SHAPE, 1, {}),
    "axis": (S.relu(norm(conv(count=6), axis=2)), SHAPE, 1, {}),
    "global": (norm(conv(count=4), use_global_stats=True), SHAPE, 1, {}),
}


@pytest.mark.parametrize(("net", "shape", "count", "given"), PLAIN.values(), ids=PLAIN)
def test_other_readers_and_shapes(net, shape, count, given):
    same_with_pass_off(net, shape, count, **given)


def test_plans_pass_gradients_and_vmap():
    bound = bind(conv_norm_relu())
    program, arrays = bound.program(False), (*bound.arg_dict.values(), *bound.aux_dict.values())
    data, *values = (array.tensor for array in arrays)

    def run(data):
        return program.forward([data, *values], Env(torch.device("cpu"), None, False), [])[0][0]

    with torch.no_grad():
        many = torch.vmap(run)(torch.stack([data, 2 * data]))
        torch.testing.assert_close(many[0], run(data), rtol=1e-4, atol=1e-5)
    x = data.clone().requires_grad_()
    run(x).sum().backward()
    bound.forward(is_train=False)
    bound.backward(mx.nd.ones((2, 4, 6, 6)))
    np.testing.assert_allclose(x.grad.numpy(), bound.grad_dict["data"].asnumpy(), rtol=1e-4, atol=1e-5)


@pytest.fixture
def large(monkeypatch):
    """Let oneDNN run small convolutions like large ones."""
    monkeypatch.setattr(fused_call, "prefers_tiles", lambda *_: False)
    monkeypatch.setattr(program, "_cache", OrderedDict())  # programs of other tests have chosen


def test_packs_are_made_for_each_image_size_but_not_without_end(large):
    bound = bind(conv_norm_relu())
    for shape in ((2, 3, 6, 6), (1, 3, 6, 6), (5, 3, 9, 4), (2, 3, 6, 6)):
        bound = bound.reshape(data=shape, allow_up_sizing=True)
        bound.arg_dict["data"][:] = mx.nd.array(np.random.RandomState(3).uniform(-1, 1, shape))
        check_formula(bound)
    (entry,) = packed_weights.entries.values()
    assert list(entry.packs) == [(6, 6), (9, 4)]  # not one for each batch size
    for size in range(4, 11):
        bound = bound.reshape(data=(1, 3, size, size), allow_up_sizing=True)
        check_formula(bound)
    assert packed_weights.packed_bytes() == 4 * 4 * (4 * 3 * 3 * 3 + 4)


# convolutions in sequence by the extension's kernel


@pytest.fixture
def tried(monkeypatch):
    """Return a list that says of each try to do several convolutions at once whether it was done."""
    found, run = [], ImageRun.__call__

    def call(self, env, *inputs):
        made = run(self, env, *inputs)
        found.append(made is not None)
        return made

    monkeypatch.setattr(ImageRun, "__call__", call)
    return found


BLOCK = getattr(kernels(), "convolution_block", lambda filters: 0)
needs_kernel = pytest.mark.skipif(BLOCK(16) == 0, reason="there is no such kernel")


def wide_net(**given):
    x = conv(size=3, count=16, name="stem")
    x = wide_unit(wide_unit(x, "u", **given), "v", stride=2, left=False, **given)
    return x, wide_unit(x, "w", **given)


@needs_kernel
def test_convolutions_in_sequence_are_done_at_once_with_the_same_numbers(tried):
    inner, net = wide_net(fix_gamma=True)
    pooled = S.Pooling(net, kernel=(2, 2), pool_type="max")
    for each in (net, S.Group([net, inner]), S.Group([pooled, S.sum(inner)])):
        tried.clear()
        same_with_pass_off(each, count=8)
        assert tried == [True] * 3


@needs_kernel
def test_changed_weights_and_nan_in_layers_that_run_at_once(tried):
    bound, plain = bind(wide_net()[1]), bind(wide_net()[1], off=True)
    for _ in range(3):
        answer(bound)
        assert tried.pop()
    for each in (bound, plain):
        each.arg_dict["ua_weight"][:] = 0.25
    for _ in range(3):
        assert_close(answer(bound), answer(plain))
    bound.arg_dict["data"][0, 0, 0, 0] = np.nan
    assert np.isfinite(answer(bound)[0]).all()


@needs_kernel
@pytest.mark.parametrize("kind", ["tanh", "sigmoid", "softrelu", "elu", "leaky"])
def test_an_activation_that_was_moved_after_a_pooling_does_not_divide_a_run(tried, kind):
    op = S.LeakyReLU if kind in ("elu", "leaky") else S.Activation
    active = op(conv(size=3, count=16), act_type=kind)
    pooled = S.Pooling(active, kernel=(2, 2), stride=(2, 2), pool_type="max")
    same_with_pass_off(conv(pooled, name="d", count=16), count=2)
    assert tried == [True] * 3


@needs_kernel
def test_their_results_are_no_memory_that_the_next_ones_write(tried):
    bound = bind(S.Group(list(wide_net())))
    for _ in range(3):
        outs = [out.tensor for out in bound.forward(is_train=False)]
    before = [out.clone() for out in outs]
    bound.arg_dict["data"][:] = 0.5
    bound.forward(is_train=False)
    assert tried == [True] * 4
    assert all(map(torch.equal, outs, before))


def test_the_environment_leaves_convolutions_to_torch(monkeypatch):
    monkeypatch.setenv("DPMODULE_ONEDNN", "0")
    assert fired(bind(conv(name="left_to_torch"))) == 0


# what is kept of parameters


def test_packs_are_made_in_the_second_use_shared_and_go_with_the_parameters_or_by_training(large):
    bound = bind(conv_norm_relu())
    for size in (0, 4 * (4 * 3 * 3 * 3 + 4)):
        answer(bound)
        assert packed_weights.packed_bytes() == size
    answer(bound.reshape(data=(1, 3, 6, 6)))
    assert len(packed_weights.entries) == 1
    bound.arg_dict["n_gamma"][:] = 2
    bound.forward(is_train=True)
    assert len(packed_weights.entries) == 0
    for _ in range(2):
        answer(bound)
    assert packed_weights.packed_bytes() > 0
    del bound
    gc.collect()
    assert len(packed_weights.entries) == 0


def set_all(array, value):
    array[:] = value


def by_a_tensor_in_its_place(array, bound, name):
    own = torch.full(array.shape, 2.5)
    array.tensor = own
    for _ in range(3):
        answer(bound)
    own.data[0] = 1


WAYS = {
    "slice": lambda array, bound, name: set_all(array, 0.5),
    "out": lambda array, bound, name: mx.nd.random.normal(shape=array.shape, out=array),
    "parameters": lambda array, bound, name: bound.copy_params_from({name: mx.nd.ones(array.shape)}),
    "keyword": lambda array, bound, name: bound.forward(is_train=False, **{name: mx.nd.ones(array.shape)}),
    "torch": lambda array, bound, name: array.torch().mul_(2),
    "tensor": lambda array, bound, name: array.tensor.data.copy_(torch.full(array.shape, 2.5)),
    "update": lambda array, bound, name: mx.nd.sgd_update(array, mx.nd.ones(array.shape), out=array, lr=0.1),
    "initializer": lambda array, *_: mx.init.Xavier()(mx.init.InitDesc("x_weight"), array.reshape((1, -1))),
    "tensor in its place": by_a_tensor_in_its_place,
}
HANDLES = {
    "view": (lambda array: array.reshape((-1,)), lambda held: held.__setitem__(slice(0, 2), 3)),
    "torch data": (lambda array: array.torch(), lambda held: held.data.mul_(2)),
    "tensor": (lambda array: array.tensor, lambda held: held.numpy()[:1].__iadd__(1)),
    "numpy": (np.asarray, lambda held: held.__imul__(2)),
    "dlpack": (lambda a: torch.utils.dlpack.from_dlpack(a.to_dlpack_for_write()), lambda held: held.add_(1)),
}
"""What somebody takes of an array, and writes after weights have been packed."""


@walks(itertools.product([*WAYS, *(f"{each} held" for each in HANDLES)], ["c_weight", "n_gamma", "n_beta"]))
def test_no_way_of_writing_parameters_is_missed(way, name):
    packed_weights.entries.clear()
    bound = bind(conv_norm_relu())
    for _ in range(3):
        before = answer(bound)
    if way in WAYS:
        WAYS[way](bound.arg_dict[name], bound, name)
    else:
        take, write = HANDLES[way.removesuffix(" held")]
        held = take(bound.arg_dict[name])
        check_formula(bound, 2)
        write(held)
    check_formula(bound)
    assert np.abs(answer(bound)[0] - before[0]).max() > 1e-3


def test_memory_of_others_is_never_packed_and_that_of_users_arrays_is():
    net, weight, shape = DATA, S.Variable("w"), (1, 4, 5, 5)
    for _ in range(2):  # a single one may keep the layout of the data
        net = S.relu(S.Convolution(net, weight, kernel=(3, 3), num_filter=4, no_bias=True))
    memory, tensor = np.ones((4, 4, 3, 3), np.float32), torch.ones(4, 4, 3, 3)
    others = mx.nd.from_numpy(memory), mx.nd.from_torch(tensor)
    memory.flags.writeable = True
    for weight, write in zip(others, (lambda: memory.__imul__(2), lambda: tensor.data.mul_(2))):
        bound = net.bind(mx.cpu(), {"data": mx.nd.ones(shape), "w": weight})
        assert [answer(bound)[0].max() for _ in range(3)] == [36**2] * 3
        write()
        assert answer(bound)[0].max() == 72**2
        assert len(packed_weights.entries) == 0
    bound = net.bind(mx.cpu(), {"data": mx.nd.ones(shape), "w": mx.nd.array(np.ones((4, 4, 3, 3)))})
    for _ in range(2):
        answer(bound)
    assert packed_weights.packed_bytes() > 0


def _opened(way, net, args, path):
    if way == "from_torch":
        module = torch.nn.Sequential(*(torch.nn.Conv2d(3, 3, 3, padding=1) for _ in range(2))).eval()
        return mx.sym.from_torch(module, torch.zeros(SHAPE))[:2]
    if way == "onnx":
        mx.onnx.export_model(net, args, [SHAPE], np.float32, f"{path}/net.onnx")
        return mx.onnx.import_model(f"{path}/net.onnx")[:2]
    mx.model.save_checkpoint(f"{path}/net", 1, net, args, {})
    return mx.model.load_checkpoint(f"{path}/net", 1)[:2]


@pytest.mark.parametrize("way", ["checkpoint", "onnx", "from_torch"])
def test_parameters_of_files_and_imported_networks_are_packed(way, tmp_path):
    net = conv(conv(size=3, name="c"), size=3, name="d")
    args = {name: array for name, array in bind(net).arg_dict.items() if name != "data"}
    opened, args = _opened(way, net, args, tmp_path)
    (data,) = set(opened.list_arguments()) - set(args)
    bound = opened.bind(mx.cpu(), {**args, data: mx.nd.ones(SHAPE)})
    before = [answer(bound)[0] for _ in range(3)][-1]
    assert packed_weights.packed_bytes() > 0
    next(array for name, array in args.items() if name.endswith("weight"))[:] = 0
    assert np.abs(answer(bound)[0] - before).max() > 1e-3


@pytest.mark.parametrize("shared", [False, True])
def test_modules_between_updates(shared):
    """A shared module's memory may be written by another process, so it is never packed."""
    net = S.SoftmaxOutput(S.FullyConnected(conv_norm_relu(), num_hidden=3, name="fc"), name="softmax")
    made, rng = mx.mod.Module(net), np.random.RandomState(0)
    data = mx.io.NDArrayIter(rng.uniform(-1, 1, (12, *SHAPE[1:])), rng.randint(0, 3, 12), 4)
    made.bind(data.provide_data, data.provide_label)
    mx.random.seed(1)
    made.init_params(mx.init.Uniform(0.5))
    fused = mx.optimizer.TorchOptimizer(torch.optim.SGD, lr=0.5, fused=True, rescale_grad=0.25)
    made.init_optimizer(optimizer="sgd" if shared else fused)
    if shared:
        made.group.store.share_memory()
    for batch in [None, *list(data)]:
        if batch:
            made.forward_backward(batch)
            made.update()
        with executor.disabled(NAME):
            other = mx.mod.Module(net)
            other.bind(data.provide_data, data.provide_label, for_training=False)
            other.set_params(*made.get_params())
            want = other.predict(data).asnumpy()
        for _ in range(3):
            assert_close([made.predict(data).asnumpy()], [want])
        assert (packed_weights.packed_bytes() == 0) == shared


# random networks for images

FUNCTIONS = [
    S.relu, S.sigmoid, S.tanh, S.hard_sigmoid, lambda x: S.Activation(x, act_type="relu"),
    lambda x: S.clip(x, a_min=-0.3, a_max=0.4), lambda x: S.LeakyReLU(x, slope=0.1), lambda x: x * S.sigmoid(x),
    lambda x: x * S.hard_sigmoid(x, alpha=1 / 6, beta=0.5), lambda x: S.LeakyReLU(x, act_type="gelu"),
]  # fmt: skip
EXCHANGES = [
    lambda x: S.swapaxes(x, dim1=1, dim2=2), lambda x: S.transpose(x, axes=(0, 2, 1, 3, 4)),
    lambda x: S.transpose(x, axes=(0, 2, 1, 4, 3)), lambda x: S.transpose(x, axes=(0, 1, 2, 3, 4)),
]  # fmt: skip
FLAT = [S.Flatten, lambda x: S.reshape(x, shape=(0, -1)), lambda x: S.reshape(x, shape=(-1, 0))]
PIXELS = [
    lambda x: S.reshape(x, shape=(0, 0, 1, 1)), lambda x: S.expand_dims(S.expand_dims(x, axis=2), axis=3),
    lambda x: S.expand_dims(S.expand_dims(x, axis=1), axis=-1),
]  # fmt: skip
"""Images of one pixel from rows; the last one has another number of channels."""


def drawn_parts(pick, x, shape):
    """Return random parts of an image, most of them of whole channels."""
    channels = shape[1]
    count, at = pick([n for n in (1, 2, 3, 4) if channels % n == 0]), pick(range(channels))
    return pick((
        lambda: list(S.SliceChannel(x, num_outputs=count)),
        lambda: [S.slice_axis(x, axis=pick((1, 1, 2)), begin=0, end=1), S.slice_axis(x, axis=1, begin=at, end=None)],
        lambda: [S.slice(x, begin=(None, at), end=(None, channels)), S.slice(x, begin=(None, 0), end=(None, at + 1))],
        lambda: [S.slice(x, begin=(None, None, None), end=(None, None, None), step=(None, None, pick((-1, 1))))],
        lambda: list(mx.sym.split_v2(x, (at,), axis=1)) if at else [x],
    ))()  # fmt: skip


def shuffled(pick, x, shape):
    """Return an image with shuffled channels, or another image that is made by such functions."""
    groups = pick([n for n in (1, 2, 3, 4, 5, 8) if shape[1] % n == 0])
    return S.reshape(pick(EXCHANGES)(S.reshape(x, shape=(0, -4, groups, -1, 0, 0))), shape=(0, -3, 0, 0))


def drawn_layer(pick, x, shape, like):
    """Return a random layer on an image; `like` returns an earlier value for which a condition on its shape holds."""
    channels, pads = shape[1], pick(((0, 0), (1, 1), (2, 1)))
    groups = pick((1, 1, 1, channels, *(n for n in (2, 4, 8) if channels % n == 0)))
    filters = groups * pick((1, 1, 2) if groups == channels else (1, 2, 4, 8, 16, 17))
    parts = drawn_parts(pick, x, shape)
    steps = {"stride": pick(((1, 1), (2, 2), (2, 1))), "pad": pads}
    gate = S.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg")
    if pick((True, False)):
        low = pick(FUNCTIONS)(S.FullyConnected(gate, num_hidden=pick((1, 4))))
        gate = pick(PIXELS[:2])(S.sigmoid(S.FullyConnected(low, num_hidden=channels)))
    windows = {"kernel": (pick((2, 3)), 3), "global_pool": pick((False, False, True))} | steps
    windows["pad"] = pick(((0, 0), (1, 1)))
    convolution = {"kernel": (pick((1, 3, 5)), 3), "num_filter": filters, "num_group": groups} | steps
    same = like(lambda other: other == shape)
    return pick((
        *[lambda: S.Convolution(x, dilate=pick(((1, 1), (2, 1))), no_bias=pick((True, False)), **convolution)] * 4,
        lambda: S.Pooling(x, pool_type=pick(("max", "avg")), count_include_pad=pick((True, False)), **windows),
        lambda: S.BatchNorm(x, fix_gamma=pick((True, False))), lambda: pick(FUNCTIONS)(x), lambda: pick(FUNCTIONS)(x),
        lambda: x + same, lambda: S.broadcast_add(same, x), lambda: S.Dropout(x), lambda: pick(FLAT)(x),
        lambda: S.broadcast_mul(*pick(((x, gate), (gate, x)))), lambda: S.FullyConnected(x, num_hidden=pick((1, 16))),
        lambda: S.Concat(like(lambda other: other[2:] == shape[2:]), x, same, dim=1),
        lambda: pick(parts), lambda: S.Concat(pick(parts), pick(parts), dim=1), lambda: shuffled(pick, x, shape),
    ))()  # fmt: skip


def same_kind(pick, images, fits):
    """Return a random image for whose shape a condition holds."""
    return pick([value for value, shape in images if fits(shape)])


def drawn_net(seed):
    """Return a random network of up to 14 layers, and the shape of its data."""
    draw = random.Random(seed)
    pick, values = draw.choice, [S.Variable("data")]
    size = pick((1, 2, 5)), pick((1, 3, 8, 20, 32)), draw.randint(5, 20), draw.randint(5, 20)

    def shape(value):
        return value.infer_shape(data=size)[1][0]

    for _ in range(draw.randint(3, 14)):
        x = pick(values[-3:])
        images = [(value, shape(value)) for value in values if len(shape(value)) == 4]
        if len(shape(x)) == 2:
            layers = pick(FUNCTIONS), S.BatchNorm, lambda x: S.FullyConnected(x, num_hidden=16), pick(PIXELS)
            new = pick(layers)(x)
        else:
            new = drawn_layer(pick, x, shape(x), partial(same_kind, pick, images))
        try:
            if min(shape(new)) > 0:
                values.append(new)
        except MXNetError:  # a window larger than the image
            pass
    return S.Group([values[-1], *draw.sample(values[1:-1], min(len(values) - 2, 2))]), size


@pytest.mark.parametrize(
    "first", [0, 50, *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 4100, 500))]
)
def test_random_networks_for_images(first):
    for seed in range(first, first + (50 if first < 100 else 500)):
        net, shape = drawn_net(seed)
        plain, fast = bind(net, shape, off=True), bind(net, shape)
        for array in (*plain.arg_dict.values(), *fast.arg_dict.values()):
            array *= 0.2  # for finite numbers after many layers
        compare(plain, fast)


def test_dense_layer_on_pixels_that_are_also_an_output(monkeypatch):
    monkeypatch.setattr(FusedConvolution, "is_faster", lambda *_: False)  # the layout of data for torch
    x = S.Variable("data")
    flat, first = S.Flatten(x), S.Convolution(x, kernel=(3, 3), num_filter=8, name="c")
    net = S.Group([S.FullyConnected(flat, num_hidden=16, name="fc"), flat, first])
    compare(*(bind(net, (2, 8, 6, 5), off=off) for off in (True, False)))


def test_dense_layers_of_few_rows_with_large_weights(monkeypatch):
    monkeypatch.setattr(run, "_LARGE_WEIGHT", 0)
    for seed in range(200, 225):
        net, (_, *image) = drawn_net(seed)
        compare(*(bind(net, (3, *image), off=off) for off in (True, False)))


def test_first_predictions_of_a_single_pixel_have_the_bits_of_later_ones():
    pixel = S.Dropout(S.Pooling(S.var("data"), global_pool=True, kernel=(1, 1), pool_type="avg"))
    net = S.Convolution(pixel, num_filter=2, kernel=(1, 3), pad=(2, 1), stride=(2, 2), name="c")
    rng = np.random.RandomState(0)
    for _ in range(20):
        bound = net.simple_bind(mx.cpu(), data=(5, 3, 6, 20))
        for array in bound.arg_dict.values():
            array[:] = mx.nd.array(rng.standard_normal(array.shape))
        first, second, third = (answer(bound)[0] for _ in range(3))
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first, third)


@needs_kernel
@pytest.mark.parametrize("first", range(100, 180, 40))
def test_batches_that_are_computed_in_parts(first, monkeypatch):
    """With little memory for results, each part of a batch has the numbers that the whole batch has."""
    monkeypatch.setattr(run, "_MAX_ARENA", 200)
    # whole batches, whose kernels do not matter, by oneDNN
    monkeypatch.setattr(fused_call, "prefers_tiles", lambda sizes, *_: sizes.data[0] < 6)
    calls, compute = [], ImageRun._compute

    def counted(self, plan, *rest):
        calls.append(plan.calls)
        return compute(self, plan, *rest)

    monkeypatch.setattr(ImageRun, "_compute", counted)
    for seed in range(first, first + 40):
        net, (_, *image) = drawn_net(seed)
        plain, fast = bind(net, (6, *image), off=True), bind(net, (6, *image))
        for array in (*plain.arg_dict.values(), *fast.arg_dict.values()):
            array *= 0.2
        compare(plain, fast)
    assert calls.count(6) > 100


MIXED = {
    "first": lambda x: S.Pooling(S.slice_axis(x, axis=0, begin=0, end=1), kernel=(2, 2), stride=(2, 2)),
    "reversed": lambda x: S.slice(x, begin=(None, None), end=(None, None), step=(-1, 1)),
    "exchanged": lambda x: S.reshape(
        S.swapaxes(S.reshape(x, shape=(0, -4, 2, -1, -2)), dim1=0, dim2=2), shape=(-1, 8, 8, 8)
    ),
}


@pytest.mark.parametrize("mix", MIXED.values(), ids=MIXED)
def test_batches_whose_images_are_mixed_are_computed_at_once(mix, monkeypatch):
    monkeypatch.setattr(run, "_MAX_ARENA", 2**8)
    x = conv(conv(DATA, 3, 8, "a"), 3, 8, "b")
    net = S.Group([x, conv(mix(x), 3, 8, "c")])
    same_with_pass_off(net, (4, 3, 8, 8), count=3)


@needs_kernel
@pytest.mark.parametrize("layers", [1, 2])
def test_few_filters_with_large_windows_are_sums_of_windows(layers, monkeypatch):
    chosen, train = [], native_convolutions.train_convolution
    monkeypatch.setattr(
        native_convolutions, "train_convolution", lambda *args: chosen.append(args[4].result) or train(*args)
    )
    trained = "dpmodule.ops.nn.trained_convolution"
    monkeypatch.setattr(f"{trained}.trees_of", lambda choice: choice)
    monkeypatch.setattr(f"{trained}.predict", lambda choice, _: -1 if "windows" in choice else 1)
    monkeypatch.setattr(fused_call, "prefers_tiles", lambda *_: False)
    monkeypatch.setattr(program, "_cache", OrderedDict())  # programs of other tests have chosen
    first = DATA if layers == 1 else conv(size=3, count=24, name="a")
    net = mx.sym.Activation(norm(conv(first, size=5)), act_type="relu")
    same_with_pass_off(net, (2, 24, 40, 40), layers)
    assert set(chosen) == {"windows"}


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 17])
@pytest.mark.parametrize("size", [(1, 5, 7), (3, 40, 33), (2, 96, 96)])
def test_images_in_any_layout_have_the_same_results(channels, size):
    torch.manual_seed(0)
    data = torch.randn(size[0], channels, *size[1:])
    layouts = [
        data,
        data.contiguous(memory_format=torch.channels_last),
        data.transpose(2, 3).contiguous().transpose(2, 3),
        torch.cat([data, data], 1)[:, channels:],
    ]
    image = mx.sym.Variable("data")
    first = mx.sym.Convolution(image, name="a", kernel=(3, 3), pad=(1, 1), num_filter=24)
    net = mx.sym.Convolution(mx.sym.Activation(first, act_type="relu"), name="b", kernel=(1, 1), num_filter=9)
    net = mx.sym.Concat(net, image, dim=1)
    found, threads, default = [], torch.get_num_threads(), torch.get_default_dtype()
    try:
        for x, count, dtype in itertools.product(layouts, (1, 2), (default, torch.bfloat16)):
            torch.set_num_threads(count)
            torch.set_default_dtype(dtype)  # that of a user's own tensors
            array = mx.nd.NDArray(x, mx.cpu())
            module = mx.mod.Module(net, label_names=None)
            module.bind([("data", x.shape)], for_training=False)
            mx.random.seed(0)
            module.init_params(mx.init.Uniform(0.5))
            for _ in range(2):
                module.forward(mx.io.DataBatch([array]), is_train=False)
            found.append(module.get_outputs()[0].asnumpy())
            np.testing.assert_array_equal(found[-1], found[0])
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(default)
    given = {
        name: torch.from_numpy(array.asnumpy()).double() for name, array in module.get_params()[0].items()
    }
    hidden = torch.conv2d(data.double(), given["a_weight"], given["a_bias"], padding=1).relu()
    wanted = torch.cat([torch.conv2d(hidden, given["b_weight"], given["b_bias"]), data.double()], 1)
    np.testing.assert_allclose(found[0], wanted.numpy(), rtol=1e-4, atol=1e-5)
