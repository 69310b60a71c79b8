"""`pooled_lookups`: one step gives what the lookup and the pooling give one after the other."""

import itertools

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import executor, native
from dpmodule.ops.sparse import gradients
from helpers.switched import assert_same

S = mx.sym
NAME = "pooled_lookups"
WORDS, WIDTH = 11, 3
LENGTHS = [3, 0, 1, 6, 0]
X = S.Variable("x", stype="ragged")
KINDS = ("sum", "mean", "sqrt")


def table(data=X, name="table", sparse=False, weight=None, **attrs):
    return S.Embedding(
        data, weight, input_dim=WORDS, output_dim=WIDTH, sparse_grad=sparse, name=name, **attrs
    )


def pooled(value=None, kind="sum", name="pool"):
    return S.sequence_pool(table() if value is None else value, pool_type=kind, name=name)


def numbers(lengths=LENGTHS, dtype="int64", seed=0, trailing=()):
    values = np.random.RandomState(seed).randint(0, WORDS, (sum(lengths), *trailing))
    return mx.nd.ragged_array(values, np.cumsum([0, *lengths]), dtype=dtype)


def bound(net, x=None, dtype="float32", stype="default", grad_req="write", seed=1):
    """Bind a net; parameters are drawn."""
    x = numbers() if x is None else x
    shapes = net.infer_shape(x=x.shape)[0]
    rng = np.random.RandomState(seed)
    args = {
        name: x if name == "x" else mx.nd.array(rng.randn(*shape), dtype=dtype)
        for name, shape in zip(net.list_arguments(), shapes)
    }
    if stype != "default":
        args["table_weight"] = args["table_weight"].tostype(stype)
    sparse = {name for name in args if "sparse" in name}
    places = {
        name: mx.nd.zeros(array.shape, dtype=dtype, stype="row_sparse" if name in sparse else None)
        for name, array in args.items()
        if name != "x"
    }
    return net.bind(mx.cpu(), args, places, {"x": "null", **dict.fromkeys(places, grad_req)})


def results(net, off=(), **options):
    """Return what a training step, a second one and a prediction leave, and in how many places the pass fired."""
    with executor.disabled(*off):
        one = bound(net, **options)
        found = {}
        for turn in range(2):
            outputs = one.forward(is_train=True)
            found.update({f"{turn} output {i}": out.asnumpy() for i, out in enumerate(outputs)})
            rng = np.random.RandomState(2)
            one.backward([mx.nd.array(rng.randn(*out.shape), dtype=out.dtype) for out in outputs])
            grads = {k: g for k, g in one.grad_dict.items() if g is not None}
            found.update({f"{turn} gradient of {k}": g.asnumpy() for k, g in grads.items()})
        found.update({f"prediction {i}": out.asnumpy() for i, out in enumerate(one.forward())})
        return found, one.program(True).low.fired.get(NAME, 0)


def same(net, rtol=1e-6, **options):
    """Run with and without the pass, and return how often it fired."""
    got, count = results(net, **options)
    want, without = results(net, (NAME,), **options)
    assert not without
    assert_same(got, want, rtol)
    return count


@pytest.mark.parametrize("grad_req", ["write", "add"])
@pytest.mark.parametrize("name", ["table", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_and_gradients(kind, name, grad_req):
    assert same(pooled(table(name=name, sparse=name == "sparse"), kind), grad_req=grad_req) == 1


@pytest.mark.parametrize("name", ["table", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_against_the_formula_and_finite_differences(kind, name):
    net, x = pooled(table(name=name, sparse=name == "sparse"), kind), numbers()
    one = bound(net, x, "float64")
    weight = one.arg_dict[f"{name}_weight"]
    heads = np.random.RandomState(4).randn(len(LENGTHS), WIDTH)

    def rows():
        found = [weight.asnumpy()[np.asarray(row, dtype=int)] for row in x.tolist()]
        scale = {"sum": lambda n: 1, "mean": lambda n: 1 / n, "sqrt": lambda n: n**-0.5}[kind]
        return np.stack([row.sum(0) * scale(max(len(row), 1)) for row in found])

    np.testing.assert_allclose(one.forward(is_train=True)[0].asnumpy(), rows(), rtol=1e-12)
    one.backward(mx.nd.array(heads, dtype="float64"))
    got = one.grad_dict[f"{name}_weight"].asnumpy()
    start = weight.asnumpy()
    for place in np.ndindex(*start.shape):
        ends = []
        for step in (1e-5, -1e-5):
            changed = start.copy()
            changed[place] += step
            weight[:] = mx.nd.array(changed, dtype="float64")
            ends.append((one.forward()[0].asnumpy() * heads).sum())
        assert got[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-7), place


def test_random_graphs():
    """Lengths, kinds, types, shared tables and what reads the result, drawn at random."""
    source = np.random.RandomState(0)
    for seed in range(80):
        lengths = source.randint(0, 6, source.randint(1, 8)).tolist()
        shared = S.Variable("w") if source.rand() < 0.5 else None
        parts = []
        for i in range(source.randint(1, 4)):
            one = table(name=f"table{i}", sparse=bool(source.rand() < 0.5), weight=shared)
            parts.append(S.tanh(pooled(one, source.choice(KINDS), f"pool{i}")) * (i + 1))
        net = S.concat(*parts, dim=1) if source.rand() < 0.5 else S.Group(parts)
        dtype = source.choice(["float32", "float64"])
        x = numbers(lengths, source.choice(["int64", "int32", "float32"]), seed)
        count = same(net, 2e-6, x=x, dtype=dtype)
        assert 1 <= count <= len(parts), seed  # equal ones are one


@pytest.mark.parametrize("lengths", [[0], [0, 0, 0], [1], [200, 0]])
def test_rows_that_are_all_empty_or_long(lengths):
    assert same(pooled(S.Group([table()])[0], "mean"), x=numbers(lengths)) == 1


def test_numbers_outside_of_the_table_take_the_row_at_its_end():
    x = mx.nd.ragged_array([[-4, 3], [WORDS + 7, 2.9]], dtype="float32")
    assert same(pooled(), x=x) == 1
    one = bound(pooled(), x)
    weight = one.arg_dict["table_weight"].asnumpy()
    wanted = [weight[0] + weight[3], weight[-1] + weight[2]]
    np.testing.assert_allclose(one.forward()[0].asnumpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float16"},
        {"stype": "row_sparse"},
        {"x": numbers(trailing=(2,))},
    ],
)
def test_what_there_are_no_kernels_for_goes_the_plain_way(options):
    assert same(pooled(table(sparse=options.get("stype") is not None), "mean"), **options) == 1


def test_a_table_that_is_computed_gets_a_dense_gradient():
    net = pooled(table(name="t", sparse=True, weight=S.Variable("w") * 2), "mean")
    assert same(net) == 1


READ_ELSEWHERE = {
    "an output": lambda one: S.Group([pooled(one), one]),
    "two poolings": lambda one: pooled(one) + pooled(one, "mean", "other"),
    "another operator": lambda one: pooled(one) + pooled(S.square(one), name="other"),
    "something between": lambda one: pooled(S.tanh(one)),
    "the largest": lambda one: pooled(one, "max"),
    "the first": lambda one: pooled(one, "first"),
}


@pytest.mark.parametrize("case", READ_ELSEWHERE)
def test_lookups_that_are_read_elsewhere_or_otherwise_are_left_alone(case):
    net = READ_ELSEWHERE[case](table())
    assert bound(net).program(True).low.fired.get(NAME, 0) == 0
    assert bound(net).program(False).low.fired.get(NAME, 0) == 0


def test_a_monitor_sees_the_rows():
    seen = {}
    one = bound(pooled())
    one.set_monitor_callback(lambda name, value: seen.setdefault(name, value.stype))
    one.forward(is_train=True)
    assert seen == {"table_output": "ragged", "pool_output": "default"}


def test_explain_tells_both_nodes():
    found = bound(S.MakeLoss(pooled())).explain(times=True)
    assert NAME in str(found)
    (step,) = (step for step in found.steps if step.name == "pool")
    assert "table" in str(found)
    assert step.operator


def test_batches_of_other_lengths_pass_through_one_program():
    one = bound(pooled())
    for seed, lengths in enumerate([[1, 2, 3, 4, 5], [0, 0, 0, 0, 0], [9, 0, 0, 0, 1]]):
        x = numbers(lengths, seed=seed)
        out = one.forward(is_train=True, x=x)[0].asnumpy()
        weight = one.arg_dict["table_weight"].asnumpy()
        wanted = [weight[np.asarray(row, dtype=int)].sum(0) for row in x.tolist()]
        np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)
        one.backward(mx.nd.ones((5, WIDTH)))
        counts = np.bincount(np.concatenate([[], *x.tolist()]).astype(int), minlength=WORDS)
        np.testing.assert_allclose(
            one.grad_dict["table_weight"].asnumpy(), np.repeat(counts[:, None], WIDTH, 1)
        )


def test_modules_over_two_contexts_agree_with_one():
    found = []
    for contexts in ([mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]):
        net = S.SoftmaxOutput(S.FullyConnected(pooled(table(sparse=True)), num_hidden=2, name="fc"), name="p")
        module = mx.mod.Module(net, ["x"], ["p_label"], context=contexts)
        module.bind([mx.io.DataDesc("x", (5,), "int64", stype="ragged")], [("p_label", (5,))])
        mx.random.seed(0)
        module.init_params(mx.init.Uniform(0.5))
        module.init_optimizer(optimizer="adagrad")
        module.forward_backward(mx.io.DataBatch([numbers()], [mx.nd.array([0, 1, 0, 1, 1])]))
        module.update()
        found.append({f"gradient {k}": v.asnumpy() for k, v in module.get_params()[0].items()})
    assert_same(*found, 1e-6)


def test_rows_of_words_and_their_gradients_are_never_written_one_by_one():
    width, words = 64, numbers([1000] * 5)
    found = S.Embedding(X, input_dim=WORDS, output_dim=width, sparse_grad=True, name="sparse")

    def largest(*off):
        with executor.disabled(*off):
            one = bound(pooled(found), words)
            kinds = [torch.profiler.ProfilerActivity.CPU]
            with torch.profiler.profile(activities=kinds, profile_memory=True) as seen:
                one.forward(is_train=True)
                one.backward(mx.nd.ones((5, width)))
        events = seen.profiler.kineto_results.events()
        return max(event.nbytes() for event in events if event.name() == "[memory]")

    every = 5000 * width * 4
    assert largest() < every / 4
    assert largest(NAME) >= every


# rows of equal numbers


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_rows_of_equal_numbers_add_up_alike_with_and_without_the_extension(monkeypatch, dtype):
    rng = np.random.RandomState(0)
    tops = [1, 2, 50, 3000, 2**22, 2**31, 2**40, 2**62]
    for count, top, offset in itertools.product((1, 2, 17, 500), tops, (0, -9)):
        few = rng.randint(0, top, max(1, count // 3))
        given = torch.from_numpy(rng.choice(few, count).astype(np.int64) + offset)
        values = torch.from_numpy(rng.randn(8, 2).astype(dtype))
        places = torch.from_numpy(rng.randint(0, 8, count))
        found = gradients.sum_rows_by_index(given, values, places)
        with monkeypatch.context() as patch:
            patch.setattr(native, "core", None)
            plain = gradients.sum_rows_by_index(given, values, places)
        assert all(map(torch.equal, found, plain))
        assert found[0].tolist() == sorted(set(given.tolist()))
        wanted = [values.double()[places[given == number]].sum(0) for number in found[0]]
        tolerance = {"float16": 2e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
        np.testing.assert_allclose(found[1].double(), torch.stack(wanted), atol=tolerance, rtol=tolerance)


def test_the_native_grouping_refuses_other_arguments():
    if native.core is None:
        pytest.skip("there is no extension")
    with pytest.raises(TypeError, match="expected 6 arguments"):
        native.core.group_numbers(1, 2)
