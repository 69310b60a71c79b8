import gc
import itertools

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import executor
from dpmodule._core import torch_private
from dpmodule.executor import packed_weights
from dpmodule.executor.passes.fused_convolutions import ConvolutionRun
from dpmodule.ops import write_tracking
from dpmodule.ops.nn.linear import kernels
from dpmodule.ops.spec import Env
from helpers.walk import walks

S = mx.sym
NAME = "fused_convolutions"


@pytest.fixture(autouse=True)
def no_packs():
    packed_weights.entries.clear()
    yield
    packed_weights.entries.clear()


def conv_norm_relu(fix_gamma=False, no_bias=True):
    x = S.Convolution(S.Variable("data"), kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=no_bias, name="c")
    return S.Activation(S.BatchNorm(x, fix_gamma=fix_gamma, name="n"), act_type="relu", name="r")


def fill(bound, seed=0, skip=()):
    rng = np.random.RandomState(seed)
    for name, array in {**bound.arg_dict, **bound.aux_dict}.items():
        low = 0.5 if name.endswith(("var", "gamma")) else -1.0
        if name not in skip:
            array[:] = mx.nd.array(rng.uniform(low, 1.5, array.shape), dtype=array.dtype)


def bind(net, shape=(2, 3, 6, 6), off=False, **given):
    with executor.disabled(*((NAME,) if off else ())):
        bound = net.simple_bind(mx.cpu(), **({"data": shape} | given))
        bound.program(False)
    fill(bound)
    return bound


def fired(bound):
    return bound.program(False).low.fired.get(NAME, 0)


def answer(bound):
    return [out.asnumpy() for out in bound.forward(is_train=False)]


def assert_close(got, want):
    assert len(got) == len(want)
    for g, w in zip(got, want):
        scale = np.abs(w).max() + 1e-30
        np.testing.assert_allclose(g / scale, w / scale, atol=1e-4 if w.dtype == np.float32 else 1e-12)


def formula(bound):
    """Convolution, normalisation and rectifier of `conv_norm_relu` in NumPy."""
    v = {k: a.asnumpy().astype(np.float64) for k, a in {**bound.arg_dict, **bound.aux_dict}.items()}
    padded = np.pad(v["data"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    y = np.einsum("nchwij,fcij->nfhw", windows, v["c_weight"])
    c = (1, -1, 1, 1)
    y = (y - v["n_moving_mean"].reshape(c)) / np.sqrt(v["n_moving_var"].reshape(c) + 1e-3)
    return np.maximum(y * v["n_gamma"].reshape(c) + v["n_beta"].reshape(c), 0).astype(np.float32)


def same_with_pass_off(net, shape=(2, 3, 6, 6), count=1, **given):
    plain, fast = bind(net, shape, off=True, **given), bind(net, shape, **given)
    assert fired(plain) == 0
    assert fired(fast) == count
    want = answer(plain)
    rounds = [answer(fast) for _ in range(3)]
    assert_close(rounds[0], want)
    for other in rounds[1:]:  # packed or not: the same numbers
        for a, b in zip(rounds[0], other):
            np.testing.assert_array_equal(a, b)
    for name in plain.arg_dict:
        np.testing.assert_array_equal(plain.arg_dict[name].asnumpy(), fast.arg_dict[name].asnumpy(), name)
    return fast


# what is fused, and what it computes


def test_convolution_normalisation_and_rectifier_are_one_step():
    bound = bind(conv_norm_relu())
    assert [step.name for step in bound.program(False).low.steps] == ["convolution_BatchNorm_relu"]
    for _ in range(3):
        assert_close(answer(bound), [formula(bound)])


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("fix_gamma", [False, True])
@pytest.mark.parametrize("no_bias", [False, True])
def test_results_are_those_of_the_operators(fix_gamma, no_bias, public):
    torch_private.select(public)
    try:
        fast = same_with_pass_off(conv_norm_relu(fix_gamma, no_bias))
    finally:
        torch_private.select()
    gamma = fast.arg_dict["n_gamma"].asnumpy()
    assert (gamma == 1).all() == fix_gamma


ACTIVATIONS = {
    "relu": lambda x: S.relu(x),
    "rectifier": lambda x: S.Activation(x, act_type="relu"),
    "tanh": lambda x: S.Activation(x, act_type="tanh"),
    "sigmoid": lambda x: S.sigmoid(x),
    "softrelu": lambda x: S.Activation(x, act_type="softrelu"),
    "leaky": lambda x: S.LeakyReLU(x, act_type="leaky", slope=0.3),
    "elu": lambda x: S.LeakyReLU(x, act_type="elu"),
    "gelu": lambda x: S.LeakyReLU(x, act_type="gelu"),
    "relu6": lambda x: S.clip(x, 0.0, 6.0),
    "clip": lambda x: S.clip(x, -0.25, 0.5),
    "none": lambda x: x,
}


@walks(itertools.product(ACTIVATIONS, [False, True], [False, True]))
def test_activations(kind, summed, public):
    packed_weights.entries.clear()
    data = S.Variable("data")
    x = S.Convolution(data, kernel=(1, 1), num_filter=3, name="c")
    net = ACTIVATIONS[kind](x + data if summed else x)
    torch_private.select(public)
    try:
        fast = same_with_pass_off(net)
    finally:
        torch_private.select()
    alone = (
        {"softrelu", "elu"}
        if not summed
        else set(ACTIVATIONS) - {"clip", "none", "rectifier", "relu", "relu6"}
    )
    assert len(fast.program(False).low.steps) == (2 if kind in alone else 1)


@walks(itertools.product(ACTIVATIONS, [False, True], [False, True]))
def test_nan_stays_but_for_the_activation_by_which_mxnet_loses_it(kind, summed, public):
    packed_weights.entries.clear()
    data = S.Variable("data")
    x = S.BatchNorm(S.Convolution(data, kernel=(1, 1), num_filter=3, name="c"), name="n")
    torch_private.select(public)
    try:
        bound = bind(ACTIVATIONS[kind](x + data if summed else x))
        bound.arg_dict["data"][0, 0, 0, 0] = np.nan
        for _ in range(3):
            (got,) = answer(bound)
            if kind != "rectifier":
                assert np.isnan(got[0, :, 0, 0]).all()
            elif not public:
                assert (got[0, :, 0, 0] == 0).all()
            assert not np.isnan(got[1:]).any()
    finally:
        torch_private.select()


def residual(x, name, left=True, stride=1):
    y = S.Convolution(
        x, kernel=(3, 3), pad=(1, 1), stride=(stride,) * 2, num_filter=4, no_bias=True, name=name
    )
    y = S.relu(S.BatchNorm(y, fix_gamma=False, name=f"{name}n"))
    y = S.Convolution(y, kernel=(3, 3), pad=(1, 1), num_filter=4, name=f"{name}b")
    y = S.BatchNorm(y, name=f"{name}bn")
    if stride != 1:
        x = S.Convolution(x, kernel=(1, 1), stride=(stride,) * 2, num_filter=4, name=f"{name}s")
    return S.relu(x + y if left else y + x)


def test_residual_blocks_write_over_what_nobody_reads_any_more():
    x = S.Convolution(S.Variable("data"), kernel=(1, 1), num_filter=4, name="stem")
    net = residual(residual(residual(x, "a"), "b", left=False, stride=2), "c")
    fast = same_with_pass_off(net, count=8)
    steps = fast.program(False).low.steps
    assert len(steps) == 8
    assert [step.function.overwrites for step in steps if step.function.sums] == [True, True, True]


def test_a_sum_goes_to_the_convolution_with_the_smaller_strides():
    x = S.Variable("data")
    shortcut = S.Convolution(x, kernel=(1, 1), stride=(2, 2), num_filter=4, name="short")
    main = S.Convolution(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), num_filter=4, name="first")
    main = S.Convolution(main, kernel=(1, 1), num_filter=4, name="last")
    for net in (shortcut + main, main + shortcut):
        steps = same_with_pass_off(net, count=3).program(False).low.steps
        nodes = [bind(net).graph.nodes[step.node].name for step in steps]
        assert {n: s.function.sums for n, s in zip(nodes, steps)} == {
            "short": False,
            "first": False,
            "last": True,
        }


def test_a_summand_that_is_needed_later_is_kept():
    x = S.Convolution(S.Variable("data"), kernel=(1, 1), num_filter=4, name="stem")
    one = residual(x, "a")
    for net, count, written in (
        (S.Group([one, x]), 3, [False]),  # an output
        (one * x, 3, [False]),  # read later
        (residual(one, "b") + one, 5, [True, False]),
        (S.relu(residual(x, "b") + x), 3, [False]),
    ):
        fast = same_with_pass_off(net, count=count)
        calls = [
            step.function for step in fast.program(False).low.steps if step.name.startswith("convolution")
        ]
        assert [call.overwrites for call in calls if call.sums] == written


VIEWS = {
    "BlockGrad": lambda x: S.BlockGrad(x),
    "Cast": lambda x: S.Cast(x, dtype="float32"),
    "Dropout": lambda x: S.Dropout(x, p=0.5),
    "SliceChannel": lambda x: S.SliceChannel(x, num_outputs=2)[0],
    "reshape": lambda x: S.reshape(x, shape=(0, 0, -1)),
    "slice": lambda x: S.slice_axis(x, axis=1, begin=0, end=2),
    "transpose": lambda x: S.transpose(x, axes=(0, 2, 3, 1)),
}


@pytest.mark.parametrize("kind", list(VIEWS))
def test_a_summand_of_which_a_view_is_needed_later_is_kept(kind):
    x = S.Convolution(S.Variable("data"), kernel=(1, 1), num_filter=4, name="stem")
    view = VIEWS[kind](x)
    for net in (S.broadcast_mul(view, S.sum(residual(x, "a"))), S.Group([view, residual(x, "a")])):
        fast = same_with_pass_off(net, count=3)
        assert not any(getattr(s.function, "overwrites", False) for s in fast.program(False).low.steps)


def test_a_variable_and_the_data_of_the_convolution_are_not_written_over():
    x = S.Variable("data")
    y = S.Convolution(x, kernel=(1, 1), num_filter=3, name="c") + x
    z = S.Convolution(y, kernel=(1, 1), num_filter=3, name="d") + y
    fast = same_with_pass_off(z, count=2)
    assert [s.function.overwrites for s in fast.program(False).low.steps] == [False, False]


def test_summands_of_other_shapes_are_broadcast():
    x = S.Convolution(S.Variable("data"), kernel=(1, 1), num_filter=3, name="c")
    net = S.relu(S.broadcast_add(x, S.Variable("other")))
    same_with_pass_off(net, other=(1, 3, 1, 1))
    same_with_pass_off(net, other=(2, 3, 6, 6))
    net = S.relu(S.broadcast_add(S.Variable("other"), x))
    same_with_pass_off(net, (1, 3, 6, 6), other=(4, 3, 6, 6))


def test_a_sum_over_a_single_filter():
    x = S.Convolution(S.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=1, name="c")
    same_with_pass_off(S.relu(x + S.Variable("other")), other=(2, 1, 6, 6))


def test_values_that_others_read_stay():
    conv = S.Convolution(S.Variable("data"), kernel=(1, 1), num_filter=3, name="c")
    norm = S.BatchNorm(conv, name="n")
    act = S.relu(norm)
    same_with_pass_off(S.Group([act, conv]))
    same_with_pass_off(S.Group([act, norm]))
    same_with_pass_off(S.Group([act, act + conv]))
    same_with_pass_off(conv + conv)
    same_with_pass_off(S.BatchNorm(conv, output_mean_var=True, name="m")[0])
    same_with_pass_off(S.Group(list(S.BatchNorm(conv, output_mean_var=True, name="m"))))


def test_other_axes_and_numbers_of_axes_are_left_alone():
    x = S.Variable("data")
    other = S.relu(S.BatchNorm(S.Convolution(x, kernel=(1, 1), num_filter=6, name="c"), axis=2, name="n"))
    assert len(same_with_pass_off(other).program(False).low.steps) == 3
    for kernel, shape in (((3,), (2, 3, 8)), ((2, 2, 2), (2, 3, 4, 4, 4))):
        net = S.relu(S.BatchNorm(S.Convolution(x, kernel=kernel, num_filter=2, name="c"), name="n"))
        same_with_pass_off(net, shape, count=0)


def test_training_and_backward_are_as_without_the_pass():
    plain, fast = bind(conv_norm_relu(), off=True), bind(conv_norm_relu())
    for bound in (plain, fast, fast):
        bound.forward(is_train=False)
    for bound in (plain, fast):
        bound.backward(mx.nd.ones((2, 4, 6, 6)))  # of a prediction
    for name, grad in plain.grad_dict.items():
        np.testing.assert_array_equal(fast.grad_dict[name].asnumpy(), grad.asnumpy(), name)
    assert NAME not in fast.program(True).low.fired


def test_global_statistics_in_training_and_predictions_of_batch_statistics():
    x = S.Convolution(S.Variable("data"), kernel=(1, 1), num_filter=4, name="c")
    same_with_pass_off(S.BatchNorm(x, use_global_stats=True, name="n"))
    weight = S.Variable("w")
    graph = S.contrib.foreach(
        lambda d, s: (S.BatchNorm(S.Convolution(d, weight, kernel=(1, 1), num_filter=2, no_bias=True)), s),
        S.Variable("data"),
        S.Variable("state"),
    )[0]
    plain, fast = (bind(graph, (3, 2, 2, 4, 4), off, state=(1,), w=(2, 2, 1, 1)) for off in (True, False))
    for is_train in (False, True, False):
        outs = [b.forward(is_train=is_train)[0].asnumpy() for b in (plain, fast)]
        assert_close(outs[1:], outs[:1])
        for name in plain.aux_dict:
            np.testing.assert_allclose(
                fast.aux_dict[name].asnumpy(), plain.aux_dict[name].asnumpy(), rtol=1e-5
            )


def test_monitors_see_every_operator():
    bound, seen = bind(conv_norm_relu()), []
    answer(bound)
    bound.set_monitor_callback(lambda name, array: seen.append(name))
    watched = answer(bound)
    assert seen == ["c_output", "n_output", "r_output"]
    bound.set_monitor_callback(None)
    assert_close(answer(bound), watched)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types_run_as_they_are(dtype):
    net = S.relu(S.Convolution(S.Variable("data"), kernel=(3, 3), num_filter=2, name="c"))
    outs = []
    for off in (True, False):
        with executor.disabled(*((NAME,) if off else ())):
            bound = net.simple_bind(mx.cpu(), type_dict={"data": dtype}, data=(1, 2, 5, 5))
            bound.program(False)
        fill(bound)
        outs.append([answer(bound)[0] for _ in range(3)])
    for a, b in zip(*outs):
        np.testing.assert_array_equal(a, b)


def test_gradients_through_a_plan_and_vmap_are_those_of_torch():
    bound = bind(conv_norm_relu())
    program, values = (
        bound.program(False),
        [a.tensor for a in (*bound.arg_dict.values(), *bound.aux_dict.values())],
    )
    env = Env(torch.device("cpu"), None, False)

    def run(data):
        return program.forward([data, *values[1:]], env, [])[0][0]

    with torch.no_grad():
        want = run(values[0])
        many = torch.vmap(run)(torch.stack([values[0], 2 * values[0]]))
    torch.testing.assert_close(many[0], want, rtol=1e-4, atol=1e-5)
    x = values[0].clone().requires_grad_()
    run(x).sum().backward()
    assert x.grad is not None


def test_shapes_change():
    bound = bind(conv_norm_relu())
    for shape in ((2, 3, 6, 6), (1, 3, 6, 6), (5, 3, 9, 4), (2, 3, 6, 6)):
        bound = bound.reshape(data=shape, allow_up_sizing=True)
        bound.arg_dict["data"][:] = mx.nd.array(np.random.RandomState(3).uniform(-1, 1, shape))
        for _ in range(3):
            assert_close(answer(bound), [formula(bound)])
    (entry,) = packed_weights.entries.values()
    assert list(entry.packs) == [(6, 6), (9, 4)]  # not one for each batch size


def test_packs_of_ever_new_image_sizes_do_not_fill_the_memory():
    bound = bind(conv_norm_relu())
    for size in range(4, 11):
        bound = bound.reshape(data=(1, 3, size, size), allow_up_sizing=True)
        for _ in range(3):
            assert_close(answer(bound), [formula(bound)])
    assert packed_weights.packed_bytes() == 4 * 4 * (4 * 3 * 3 * 3 + 4)


# convolutions one after the other by the extension's kernel


@pytest.fixture
def tried(monkeypatch):
    """Return a list that says of each try to do several convolutions at once whether it was done."""
    found, run = [], ConvolutionRun.__call__

    def call(self, env, *inputs):
        made = run(self, env, *inputs)
        found.append(made is not None)
        return made

    monkeypatch.setattr(ConvolutionRun, "__call__", call)
    return found


needs_kernel = pytest.mark.skipif(
    getattr(kernels(), "convolution_block", lambda filters: 0)(16) == 0, reason="there is no such kernel"
)


def wide_unit(x, name, stride=1, filters=16, left=True, fix_gamma=False):
    """Return a residual unit with filters enough for the kernel."""
    one = {"kernel": (1, 1), "num_filter": filters, "no_bias": True}
    y = S.Convolution(x, stride=(stride,) * 2, name=f"{name}a", **one)
    y = S.Activation(S.BatchNorm(y, fix_gamma=fix_gamma, name=f"{name}an"), act_type="relu")
    y = S.Convolution(y, kernel=(3, 3), pad=(1, 1), num_filter=filters, name=f"{name}b")
    if stride != 1:
        x = S.Convolution(x, stride=(stride,) * 2, name=f"{name}s", **one)
    return S.Activation(x + y if left else y + x, act_type="relu")


def wide_net(**given):
    x = S.Convolution(S.Variable("data"), kernel=(3, 3), num_filter=16, pad=(1, 1), name="stem")
    x = wide_unit(wide_unit(x, "u", **given), "v", stride=2, left=False, **given)
    return x, wide_unit(x, "w", filters=16, **given)


@needs_kernel
@pytest.mark.parametrize("fix_gamma", [False, True])
def test_convolutions_in_a_row_are_done_at_once_with_the_same_numbers(tried, fix_gamma):
    inner, net = wide_net(fix_gamma=fix_gamma)
    for each in (
        net,
        S.Group([net, inner]),
        S.Group([S.Pooling(net, kernel=(2, 2), pool_type="max"), S.sum(inner)]),
    ):
        tried.clear()
        same_with_pass_off(each, count=8)
        assert tried == [False, False, True]  # once their weights are kept


@needs_kernel
def test_they_run_one_by_one_where_something_does_not_fit(tried):
    bound, plain = bind(wide_net()[1]), bind(wide_net()[1], off=True)
    for _ in range(3):
        answer(bound)
    assert tried.pop()
    for each in (bound, plain):  # a weight has changed: its pack is made in its second use
        each.arg_dict["ua_weight"][:] = 0.25
    for done in (False, False, True):
        assert_close(answer(bound), answer(plain))
        assert tried.pop() == done
    for each in (bound, plain):
        each.arg_dict["data"][0, 0, 0, 0] = np.nan
    got = answer(bound)
    assert tried.pop()
    assert np.isfinite(got[0]).all()
    torch.set_num_threads(2)
    for one, other in zip(answer(bound), got):
        np.testing.assert_array_equal(one, other)
    assert tried.pop()
    torch.set_num_threads(1)
    other = bound.reshape(data=(5, 3, 8, 4), allow_up_sizing=True)
    other.arg_dict["data"][:] = mx.nd.array(np.random.RandomState(3).uniform(-1, 1, (5, 3, 8, 4)))
    got = answer(other)
    assert tried.pop()
    torch.set_num_threads(2)
    assert_close(got, answer(other))


@needs_kernel
def test_their_results_are_no_memory_that_the_next_ones_write(tried):
    bound = bind(S.Group(list(wide_net())))
    for _ in range(3):
        outs = [out.tensor for out in bound.forward(is_train=False)]
    before = [out.clone() for out in outs]
    bound.arg_dict["data"][:] = 0.5
    bound.forward(is_train=False)
    assert tried == [False, False, True, True]
    for a, b in zip(outs, before):
        assert torch.equal(a, b)


@needs_kernel
def test_convolutions_with_computed_parameters_stay_alone(tried):
    x = S.Convolution(S.Variable("data"), kernel=(1, 1), num_filter=16, name="stem")
    weight = S.Convolution(x, kernel=(1, 1), num_filter=16, name="w")  # of one image: (1, 16, 1, 16)
    weight = S.Reshape(weight, shape=(16, 16, 1, 1))
    for size, found in ((16, weight), (16, S.Variable("other_weight"))):
        y = S.Convolution(
            wide_unit(x, "u"), found, kernel=(1, 1), num_filter=size, no_bias=True, name="other"
        )
        given = {} if found is weight else {"other_weight": (16, 16, 1, 1)}
        same_with_pass_off(y, (1, 3, 1, 16), count=4 + (found is weight), **given)


@needs_kernel
def test_an_error_in_them_names_the_node(tried):
    program = bind(wide_net()[1]).program(False)
    lines = program.source.splitlines()
    inside = [at for at, line in enumerate(lines, 1) if line.startswith("        ") and "convolution" in line]
    names = [[program.low.graph.nodes[n].name for n in program.nodes_at(at)][0] for at in inside]
    assert names == ["ua", "ub", "va", "vs", "vb", "wa", "wb"] or names == [
        "ua",
        "ub",
        "va",
        "vb",
        "vs",
        "wa",
        "wb",
    ]


CASES = list(
    itertools.product(
        [1, 2, 4], [(1, 1), (3, 3), (2, 5)], [(1, 1), (2, 1)], [(0, 0), (1, 2)], [(1, 1), (2, 2)]
    )
)


@pytest.mark.parametrize("seed", range(8))
def test_any_attributes(seed):
    rng = np.random.RandomState(seed)
    for number in rng.choice(len(CASES), 8, replace=False):
        group, kernel, stride, pad, dilate = CASES[number]
        channels, filters = (int(rng.choice([group, 4 * group])) for _ in range(2))
        attrs = {"kernel": kernel, "stride": stride, "pad": pad, "dilate": dilate, "num_group": group}
        x = S.Convolution(
            S.Variable("data"), num_filter=filters, no_bias=bool(rng.randint(2)), name="c", **attrs
        )
        if rng.randint(2):
            x = S.BatchNorm(x, fix_gamma=bool(rng.randint(2)), eps=float(rng.choice([2e-5, 0.1])), name="n")
        summed = rng.randint(2)
        shape = int(rng.randint(1, 4)), channels, int(rng.randint(9, 14)), int(rng.randint(9, 14))
        given = {"other": x.infer_shape(data=shape)[1][0]} if summed else {}
        x = x + S.Variable("other") if summed else x
        x = list(ACTIVATIONS.values())[rng.randint(len(ACTIVATIONS))](x)
        same_with_pass_off(x, shape, **given)


@pytest.mark.parametrize("seed", range(6))
def test_random_networks(seed):
    rng = np.random.RandomState(seed)
    values = [S.Convolution(S.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=4, name="stem")]
    weight, count = S.Variable("shared"), 1
    for i in range(12):
        x = values[-rng.randint(1, min(3, len(values)) + 1)]
        kind = rng.randint(5)
        if kind == 0:
            own = {} if rng.randint(2) else {"weight": weight}
            x = S.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True, name=f"c{i}", **own)
            count += 1
        elif kind == 1:
            x = S.BatchNorm(x, fix_gamma=bool(rng.randint(2)), name=f"n{i}")
        elif kind == 2:
            x = x + values[rng.randint(len(values))]
        elif kind == 3:
            x = S.Pooling(x, kernel=(3, 3), pad=(1, 1), stride=(1, 1), pool_type="max", name=f"p{i}")
        else:
            x = list(ACTIVATIONS.values())[rng.randint(len(ACTIVATIONS) - 1)](x)
        values.append(x)
    net = S.Group([values[-1], values[rng.randint(len(values))] * 2])
    inside = sum(node.op is not None and node.op.name == "Convolution" for node in bind(net).graph.nodes)
    same_with_pass_off(net, (2, 3, 7, 7), count=inside)


def test_the_environment_leaves_convolutions_to_torch(monkeypatch):
    monkeypatch.setenv("DPMODULE_ONEDNN", "0")
    net = S.Convolution(S.Variable("data"), kernel=(1, 1), num_filter=2, name="left_to_torch")
    assert fired(bind(net)) == 0


# what is kept of parameters


def test_parameters_are_packed_when_seen_twice_and_shared():
    net = conv_norm_relu()
    one = bind(net)
    answer(one)
    assert packed_weights.packed_bytes() == 0
    answer(one)
    assert packed_weights.packed_bytes() == 4 * (4 * 3 * 3 * 3 + 4)
    two = one.reshape(data=(1, 3, 6, 6))
    answer(two)
    assert len(packed_weights.entries) == 1


def test_a_gamma_that_counts_as_1_is_written_but_the_pack_stays():
    bound = bind(conv_norm_relu(fix_gamma=True))
    bound.arg_dict["n_gamma"][:] = 3
    for _ in range(2):
        want = answer(bound)
    (entry,) = packed_weights.entries.values()
    (pack,) = entry.packs.values()
    bound.arg_dict["n_gamma"][:] = 4
    assert_close(answer(bound), want)
    assert bound.arg_dict["n_gamma"].asnumpy().tolist() == [1] * 4
    assert list(next(iter(packed_weights.entries.values())).packs.values()) == [pack]


def test_packs_go_with_the_parameters_and_when_training_finds_them_changed():
    bound = bind(conv_norm_relu())
    for _ in range(2):
        answer(bound)
    bound.arg_dict["n_gamma"][:] = 2
    bound.forward(is_train=True)
    assert len(packed_weights.entries) == 0
    for _ in range(2):
        answer(bound)
    assert packed_weights.packed_bytes() > 0
    del bound
    gc.collect()
    assert len(packed_weights.entries) == 0


def by_slice(bound, name):
    bound.arg_dict[name][:] = 0.5


def by_part(bound, name):
    bound.arg_dict[name][1:2] = 0.7


def by_view(bound, name):
    view = bound.arg_dict[name].reshape((-1,))
    answer(bound)
    view[0:2] = 3


def by_recorded_view(bound, name):
    weight = bound.arg_dict[name]
    weight.attach_grad()
    with mx.autograd.record():
        view, part = weight.reshape((-1,)), weight[0:1]
    for _ in range(2):
        answer(bound)
    view[:] = 3
    for _ in range(2):
        assert_close(answer(bound), [formula(bound)])
    part[:] = 2


def by_monitor(bound, name):
    seen, shape = [], bound.arg_dict[name].shape
    bound.set_monitor_callback(lambda _, array: seen.append(array) if array.shape == shape else None, True)
    bound.forward(is_train=True)
    bound.set_monitor_callback(None)
    for _ in range(2):
        answer(bound)
    for array in seen:
        array[:] = 2


def by_operator(bound, name):
    bound.arg_dict[name] *= 2


def by_out(bound, name):
    mx.nd.random.normal(shape=bound.arg_dict[name].shape, out=bound.arg_dict[name])


def by_copy(bound, name):
    mx.nd.ones(bound.arg_dict[name].shape).copyto(bound.arg_dict[name])


def by_copy_params(bound, name):
    bound.copy_params_from({name: mx.nd.ones(bound.arg_dict[name].shape)})


def by_keyword(bound, name):
    bound.forward(is_train=False, **{name: mx.nd.ones(bound.arg_dict[name].shape)})


def by_torch(bound, name):
    bound.arg_dict[name].torch().mul_(2)


def by_torch_data(bound, name):
    handed = bound.arg_dict[name].torch()
    for _ in range(2):
        answer(bound)
    handed.data.mul_(2)


def by_tensor(bound, name):
    bound.arg_dict[name].tensor.data.copy_(torch.full(bound.arg_dict[name].shape, 2.5))


def by_tensor_as_numpy(bound, name):
    bound.arg_dict[name].tensor.numpy()[...] = 2.5


def by_tensor_taken_before(bound, name):
    handed = bound.arg_dict[name].tensor
    for _ in range(2):
        answer(bound)
    handed.numpy()[0] += 1


def by_a_tensor_in_its_place(bound, name):
    own = torch.full(bound.arg_dict[name].shape, 2.5)
    bound.arg_dict[name].tensor = own
    for _ in range(3):
        answer(bound)
    own.data[0] = 1


def by_numpy(bound, name):
    shared = np.asarray(bound.arg_dict[name])
    for _ in range(2):
        answer(bound)
    shared *= 2


def by_numpy_of_a_view(bound, name):
    shared = np.asarray(bound.arg_dict[name].reshape((-1,))[0:2])
    for _ in range(2):
        answer(bound)
    shared += 1


def by_dlpack(bound, name):
    shared = torch.utils.dlpack.from_dlpack(bound.arg_dict[name].to_dlpack_for_write())
    for _ in range(2):
        answer(bound)
    shared.add_(1)


def by_updater(optimizer, **options):
    def write(bound, name):
        updater = mx.optimizer.get_updater(mx.optimizer.create(optimizer, learning_rate=0.5, **options))
        weight = bound.arg_dict[name]
        for _ in range(2):
            updater(0, mx.nd.ones(weight.shape), weight)
            answer(bound)
            answer(bound)
            updater(0, mx.nd.ones(weight.shape), weight)

    return write


def by_operator_update(bound, name):
    weight = bound.arg_dict[name]
    mx.nd.sgd_update(weight, mx.nd.ones(weight.shape), out=weight, lr=0.1, wd=0.0)


def by_kvstore(bound, name):
    store = mx.kv.create("local")
    store.init(0, mx.nd.ones(bound.arg_dict[name].shape))
    store.pull(0, out=bound.arg_dict[name])


def by_initializer(bound, name):
    mx.init.Xavier()(mx.init.InitDesc("x_weight"), bound.arg_dict[name].reshape((1, -1)))


WAYS = {k: v for k, v in list(globals().items()) if k.startswith("by_") and k != "by_updater"} | {
    "sgd": by_updater("sgd"),
    "sgd with momentum": by_updater("sgd", momentum=0.9),
    "nag": by_updater("nag", momentum=0.9),
    "adam": by_updater("adam"),
    "rmsprop": by_updater("rmsprop"),
    "adagrad": by_updater("adagrad"),
    "ftrl": by_updater("ftrl"),
}


@walks(itertools.product(WAYS, ["c_weight", "n_gamma", "n_beta"]))
def test_no_way_of_writing_parameters_is_missed(way, name):
    packed_weights.entries.clear()
    bound = bind(conv_norm_relu())
    for _ in range(3):
        before = answer(bound)
    WAYS[way](bound, name)
    for _ in range(3):
        got = answer(bound)
        assert_close(got, [formula(bound)])
        assert np.abs(got[0] - before[0]).max() > 1e-3


def test_moving_statistics_that_training_moves():
    bound = bind(conv_norm_relu())
    for _ in range(3):
        for _ in range(3):
            assert_close(answer(bound), [formula(bound)])
        before = bound.aux_dict["n_moving_mean"].asnumpy()
        bound.forward(is_train=True)
        bound.backward([mx.nd.ones((2, 4, 6, 6))])
        assert np.abs(bound.aux_dict["n_moving_mean"].asnumpy() - before).max() > 1e-3


def test_statistics_moved_inside_a_loop():
    data = S.Variable("data")
    vectors = [S.Variable(f"n_{v}") for v in ("gamma", "beta")]
    states = [S.Variable(f"n_moving_{v}", __init__="zero") for v in ("mean", "var")]
    conv, weight = {"kernel": (1, 1), "num_filter": 2, "no_bias": True}, S.Variable("w")

    def body(x, state):
        return S.BatchNorm(S.Convolution(x, weight, **conv), *vectors, *states, fix_gamma=False), state

    looped = S.contrib.foreach(body, S.expand_dims(data, 0), S.Variable("state"))[0]
    outside = S.BatchNorm(S.Convolution(data, weight, **conv), *vectors, *states, fix_gamma=False)
    shapes = {"data": (2, 3, 4, 4), "state": (1,)}
    loop, plain = looped.simple_bind(mx.cpu(), **shapes), outside.simple_bind(mx.cpu(), data=(2, 3, 4, 4))
    fill(loop)
    arrays = {**loop.arg_dict, **loop.aux_dict}
    user = outside.bind(
        mx.cpu(),
        {n: arrays[n] for n in outside.list_arguments()},
        aux_states={n: arrays[n] for n in outside.list_auxiliary_states()},
    )
    del plain
    for _ in range(3):
        answer(user)
    assert packed_weights.packed_bytes() > 0
    loop.forward(is_train=True)
    loop.backward([mx.nd.ones(loop.outputs[0].shape)])
    with executor.disabled(NAME):
        other = outside.bind(
            mx.cpu(),
            {n: arrays[n] for n in outside.list_arguments()},
            aux_states={n: arrays[n] for n in outside.list_auxiliary_states()},
        )
        want = answer(other)
    assert_close(answer(user), want)


def test_memory_of_others_is_never_packed():
    memory = np.ones((4, 3, 3, 3), np.float32)
    weight = mx.nd.from_numpy(memory)
    net = S.Convolution(S.Variable("data"), S.Variable("w"), kernel=(3, 3), num_filter=4, no_bias=True)
    bound = net.bind(mx.cpu(), {"data": mx.nd.ones((1, 3, 3, 3)), "w": weight})
    for _ in range(3):
        assert answer(bound)[0].max() == 27
    memory.flags.writeable = True
    memory *= 2
    assert answer(bound)[0].max() == 54
    assert len(packed_weights.entries) == 0
    tensor = torch.ones(4, 3, 3, 3)
    bound = net.bind(mx.cpu(), {"data": mx.nd.ones((1, 3, 3, 3)), "w": mx.nd.from_torch(tensor)})
    for _ in range(3):
        assert answer(bound)[0].max() == 27
    tensor.data.mul_(3)
    assert answer(bound)[0].max() == 81


def test_arrays_that_users_bind_are_packed():
    net = S.Convolution(S.Variable("data"), S.Variable("w"), kernel=(3, 3), num_filter=4, no_bias=True)
    bound = net.bind(mx.cpu(), {"data": mx.nd.ones((1, 3, 3, 3)), "w": mx.nd.array(np.ones((4, 3, 3, 3)))})
    for _ in range(2):
        answer(bound)
    assert packed_weights.packed_bytes() > 0


def module(for_training=True, contexts=None, batch=4):
    x = S.Convolution(S.Variable("data"), kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True, name="c")
    x = S.relu(S.BatchNorm(x, fix_gamma=False, name="n"))
    net = S.SoftmaxOutput(S.FullyConnected(x, num_hidden=3, name="fc"), name="softmax")
    made = mx.mod.Module(net, context=contexts or mx.cpu())
    made.bind([("data", (batch, 3, 6, 6))], [("softmax_label", (batch,))], for_training=for_training)
    mx.random.seed(1)
    made.init_params(mx.init.Uniform(0.5))
    return made


def batches(batch=4, count=3):
    rng = np.random.RandomState(0)
    data, label = rng.uniform(-1, 1, (batch * count, 3, 6, 6)), rng.randint(0, 3, batch * count)
    return mx.io.NDArrayIter(data.astype(np.float32), label.astype(np.float32), batch)


def predicted_plainly(made):
    with executor.disabled(NAME):
        other = mx.mod.Module(made.symbol, context=mx.cpu())
        other.bind(made.data_shapes, made.label_shapes, for_training=False)
        other.set_params(*made.get_params())
        return other.predict(batches()).asnumpy()


def check(made):
    for _ in range(3):
        assert_close([made.predict(batches()).asnumpy()], [predicted_plainly(made)])


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "torch"])
def test_modules_between_updates(optimizer, tmp_path):
    made = module()
    check(made)
    assert packed_weights.packed_bytes() > 0
    options = {"learning_rate": 0.5}
    if optimizer == "torch":
        optimizer = mx.optimizer.TorchOptimizer(torch.optim.SGD, lr=0.5, fused=True, rescale_grad=0.25)
        options = {}
    made.init_optimizer(optimizer=optimizer, optimizer_params=options)
    for batch in batches():
        made.forward_backward(batch)
        made.update()
        check(made)
    made.save_checkpoint(str(tmp_path / "net"), 0)
    made.set_params({k: v * 0.5 for k, v in made.get_params()[0].items()}, made.get_params()[1])
    check(made)
    _, args, aux = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
    made.set_params(args, aux)
    check(made)
    made.init_params(mx.init.Uniform(0.1), force_init=True)
    check(made)
    made.reshape([("data", (2, 3, 6, 6))], [("softmax_label", (2,))])
    check(made)


def test_several_contexts_give_what_one_gives():
    made = module(contexts=[mx.cpu(0), mx.cpu(1)])
    check(made)
    made.fit(batches(), num_epoch=2, optimizer_params={"learning_rate": 0.1})
    check(made)


def test_shared_memory_is_never_packed():
    made = module()
    made.group.store.share_memory()
    check(made)
    assert packed_weights.packed_bytes() == 0
    store = made.group.store
    store.array("c_weight", 0).tensor.data.mul_(2)  # as another process does
    check(made)


def test_marks_of_memory():
    own = torch.ones(3)
    assert write_tracking.writes_are_counted(own)
    now = write_tracking.epoch()
    write_tracking.expose(own[1:])
    assert not write_tracking.writes_are_counted(own)
    later = write_tracking.epoch()
    assert later != now
    write_tracking.expose(own)
    assert write_tracking.epoch() == later
    array = torch.from_numpy(np.ones(3))
    assert not write_tracking.writes_are_counted(array)
    assert write_tracking.writes_are_counted(write_tracking.mark_owned(array).view(3))
    assert not write_tracking.writes_are_counted(torch.ones(3).share_memory_())
    write_tracking.expose(None)
