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
KINDS = {"sum": lambda n: 1, "mean": lambda n: 1 / n, "sqrt": lambda n: n**-0.5}


def table(name="table", weight=None, width=WIDTH):
    """Look words up; in a table called sparse with a sparse gradient."""
    sparse = "sparse" in name
    return S.Embedding(X, weight, input_dim=WORDS, output_dim=width, sparse_grad=sparse, name=name)


def pooled(value=None, kind="sum", name="pool"):
    return S.sequence_pool(table() if value is None else value, pool_type=kind, name=name)


def words(lengths=LENGTHS, dtype="int64", seed=0, trailing=()):
    values = np.random.RandomState(seed).randint(0, WORDS, (sum(lengths), *trailing))
    return mx.nd.ragged_array(values, np.cumsum([0, *lengths]), dtype=dtype)


def bound(net, x=None, dtype="float32", stype="default", grad_req="write"):
    """Bind a net; parameters are drawn."""
    x, rng = words() if x is None else x, np.random.RandomState(1)
    shapes = dict(zip(net.list_arguments(), net.infer_shape(x=x.shape)[0]))
    args = {k: x if k == "x" else mx.nd.array(rng.randn(*s), dtype=dtype) for k, s in shapes.items()}
    stypes = {k: "row_sparse" if "sparse" in k else None for k in args if k != "x"}
    places = {k: mx.nd.zeros(args[k].shape, dtype=dtype, stype=each) for k, each in stypes.items()}
    args = {k: v.tostype(stype) if k.endswith("_weight") else v for k, v in args.items()}
    return net.bind(mx.cpu(), args, places, {"x": "null", **dict.fromkeys(places, grad_req)})


def fired(one, is_train=True):
    return one.program(is_train).low.fired.get(NAME, 0)


def results(net, **options):
    """Return what two training steps and a prediction leave."""
    one, found = bound(net, **options), {}
    for turn in range(2):
        outputs = one.forward(is_train=True)
        rng = np.random.RandomState(2)
        one.backward([mx.nd.array(rng.randn(*out.shape), dtype=out.dtype) for out in outputs])
        arrays = [*outputs, *(grad for grad in one.grad_dict.values() if grad is not None), *one.forward()]
        found |= {f"{turn} {i}": array.asnumpy() for i, array in enumerate(arrays)}
    return found, fired(one)


ROWS = {
    "long": (pooled(kind="mean"), {"x": words([200, 0])}),
    "float16": (pooled(kind="mean"), {"dtype": "float16"}),
    "sparse table": (pooled(table("sparse"), "mean"), {"stype": "row_sparse"}),
    "more axes": (pooled(kind="mean"), {"x": words(trailing=(2,))}),
    "a computed table": (pooled(table("sparse", weight=S.Variable("w") * 2), "mean"), {}),
    "added": (pooled(table("table"), "sqrt"), {"grad_req": "add"}),
}


@pytest.mark.parametrize(("net", "options"), ROWS.values(), ids=ROWS)
def test_it_gives_the_same(net, options):
    with executor.disabled(NAME):
        want, without = results(net, **options)
    got, count = results(net, **options)
    assert (count, without) == (1, 0)
    assert_same(got, want, 1e-6)


def test_lookups_that_are_read_elsewhere_or_otherwise_are_left_alone():
    looked = table()
    others = [looked, pooled(looked, "mean", "other"), S.square(looked)]
    nets = [S.Group([pooled(looked), other]) for other in others]
    for net in (*nets, pooled(S.tanh(looked)), pooled(looked, "max"), pooled(looked, "first")):
        assert [fired(bound(net), is_train) for is_train in (True, False)] == [0, 0]


@pytest.mark.parametrize("name", ["table", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_by_formula(kind, name):
    """One program for batches of any lengths; numbers outside of the table take the row at its end."""
    one = bound(pooled(table(name), kind), dtype="float64")
    weight, heads = one.arg_dict[f"{name}_weight"].asnumpy(), np.random.RandomState(4).randn(5, WIDTH)
    outside = mx.nd.ragged_array([[-4, 3], [WORDS + 7, 2], [], [], [1]], dtype="int64")
    for x in (words(), words([0] * 5), words([9, 0, 0, 0, 1], seed=2), outside):
        counts = np.zeros((5, WORDS))
        for i, row in enumerate(x.tolist()):
            at = np.clip(np.asarray(row, dtype=int), 0, WORDS - 1)
            np.add.at(counts[i], at, KINDS[kind](len(row) or 1))
        out = one.forward(is_train=True, x=x)[0].asnumpy()
        one.backward(mx.nd.array(heads, dtype="float64"))
        np.testing.assert_allclose(out, counts @ weight, rtol=1e-12, atol=1e-12)
        grad = one.grad_dict[f"{name}_weight"].asnumpy()
        np.testing.assert_allclose(grad, counts.T @ heads, rtol=1e-12, atol=1e-12)


def test_rows_of_words_and_their_gradients_are_never_written_one_by_one():
    def largest(*off):
        with executor.disabled(*off):
            one = bound(pooled(table("sparse", width=64)), words([1000] * 5))
            kinds = [torch.profiler.ProfilerActivity.CPU]
            with torch.profiler.profile(activities=kinds, profile_memory=True) as seen:
                one.forward(is_train=True)
                one.backward(mx.nd.ones((5, 64)))
        events = seen.profiler.kineto_results.events()
        return max(event.nbytes() for event in events if event.name() == "[memory]")

    assert largest() < 5000 * 64 < 5000 * 64 * 4 <= largest(NAME)


# rows of equal numbers


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12), ("float16", 2e-2)])
def test_rows_of_equal_numbers_add_up_alike_with_and_without_the_extension(monkeypatch, dtype, tolerance):
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
        np.testing.assert_allclose(found[1].double(), torch.stack(wanted), atol=tolerance, rtol=tolerance)
