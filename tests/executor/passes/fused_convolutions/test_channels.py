import numpy as np
import pytest

import dpmodule as mx
from dpmodule import executor
from dpmodule.executor.passes.fused_convolutions import ImageRun
from dpmodule.ops.nn.linear import kernels

S = mx.sym
needs_kernel = pytest.mark.skipif(
    getattr(kernels(), "convolution_block", lambda filters: 0)(16) == 0, reason="there is no such kernel"
)
SPLIT, BACK = ({"shape": shape} for shape in ((0, -4, 2, -1, 0, 0), (0, -3, 0, 0)))


def conv(x, name, size=3, groups=1, count=16):
    attrs = {"kernel": (size, size), "pad": (size // 2,) * 2, "num_filter": count, "num_group": groups}
    return S.relu(S.Convolution(x, name=name, **attrs))


def unit(x, name, halves, exchange):
    """Return a unit of ShuffleNet v2."""
    left, right = halves(x)
    right = conv(conv(conv(right, f"{name}a", 1, count=8), f"{name}b", 3, 8, 8), f"{name}c", 1, count=8)
    return S.reshape(exchange(S.reshape(S.Concat(left, right, dim=1), **SPLIT)), **BACK)


HALVES = {
    "SliceChannel": lambda x: S.SliceChannel(x, num_outputs=2),
    "slice_axis": lambda x: [
        S.slice_axis(x, axis=1, begin=0, end=8),
        S.slice_axis(x, axis=-3, begin=-8, end=None),
    ],
    "slice": lambda x: [
        S.slice(x, begin=(None, 0), end=(None, 8)),
        S.slice(x, begin=(None, 8), end=(None, 16)),
    ],
    "split_v2": lambda x: S.split_v2(x, (8,), axis=1),
}
EXCHANGES = {
    "swapaxes": lambda x: S.swapaxes(x, dim1=1, dim2=2),
    "transpose": lambda x: S.transpose(x, axes=(0, 2, 1, 3, 4)),
}
OTHERS = {
    "images and pixels": lambda x: S.transpose(x, axes=(0, 2, 1, 4, 3)),
    "nothing": lambda x: S.transpose(x, axes=(0, 1, 2, 3, 4)),
}


def answers(net, shape=(2, 3, 9, 9)):
    """Return the results with the pass and without it."""
    found = []
    for off in ((), ("fused_convolutions",)):
        with executor.disabled(*off):
            bound = net.simple_bind(mx.cpu(), data=shape)
            bound.program(False)
        rng = np.random.RandomState(0)
        for array in bound.arg_dict.values():
            array[:] = mx.nd.array(rng.uniform(-1, 1, array.shape))
        found.append(bound.forward(is_train=False)[0].asnumpy())
    return found


@pytest.fixture
def by_torch(monkeypatch):
    """Return the kinds of the layers that the extension leaves to torch, in each run."""
    left, run = [], ImageRun._planned

    def planned(self, *given):
        plan = run(self, *given)
        left.append([part.kind for part in plan.parts if not isinstance(part, bytes)])
        return plan

    monkeypatch.setattr(ImageRun, "_planned", planned)
    return left


def shuffle_net(halves, exchange):
    x = unit(unit(conv(S.Variable("data"), "stem"), "u", halves, exchange), "v", halves, exchange)
    return conv(conv(x, "grouped", groups=4), "doubled", groups=16, count=32)


@needs_kernel
@pytest.mark.parametrize("halves", HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
def test_parts_shuffles_and_groups_are_in_one_call(halves, exchange, by_torch):
    got, want = answers(shuffle_net(halves, exchange))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert by_torch == [[]]


@needs_kernel
@pytest.mark.parametrize("exchange", OTHERS.values(), ids=OTHERS)
def test_what_only_looks_like_a_shuffle_runs_unchanged(exchange, by_torch):
    got, want = answers(shuffle_net(HALVES["SliceChannel"], exchange))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert by_torch == [["shuffle"] * 2]


@needs_kernel
def test_parts_of_pixels_are_left_to_torch(by_torch):
    x = S.slice(conv(S.Variable("data"), "stem"), begin=(None, None, 1), end=(None, None, None))
    got, want = answers(conv(x, "c"))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert by_torch == [["part"]]


def test_a_shuffle_that_does_not_divide_the_channels_is_an_error():
    x = S.reshape(conv(S.Variable("data"), "stem", count=15), **SPLIT)
    net = conv(S.reshape(S.swapaxes(x, dim1=1, dim2=2), **BACK), "c")
    with pytest.raises(mx.base.MXNetError):
        answers(net)


def rows(x, axes=(0, 2, 3, 1), flatten=S.Flatten):
    return flatten(S.transpose(x, axes=axes))


def heads(x, make=rows):
    """Return the results of convolutions over smaller and smaller images, each a row for each image, joined."""
    found = []
    for level, size in enumerate((3, 1, 3)):
        x = conv(S.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max"), f"s{level}")
        found.append(make(S.Convolution(x, name=f"h{level}", kernel=(size, size), num_filter=5 + level)))
    return S.Concat(*found, dim=1)


def part_and_whole(x):
    x = conv(x, "a")
    left = S.slice_axis(x, axis=1, begin=0, end=5)
    return S.Concat(rows(left), rows(conv(S.Concat(left, conv(x, "b"), dim=1), "c")), dim=1)


def also_joined(x):
    x = conv(x, "a")
    return S.Concat(rows(x), S.Flatten(conv(S.Concat(x, conv(x, "b"), dim=1), "c")), dim=1)


ROWS = {
    "flatten": (heads, []),
    "reshape": (lambda x: heads(x, lambda y: rows(y, flatten=lambda z: S.reshape(z, shape=(0, -1)))), []),
    "dense": (lambda x: S.FullyConnected(heads(x), num_hidden=3, name="last"), []),
    "pixel": (lambda x: rows(S.Pooling(conv(x, "a"), global_pool=True, pool_type="avg")), []),
    "part": (part_and_whole, []),
    "also joined": (also_joined, ["flat"]),
    "other order": (lambda x: rows(conv(conv(x, "a"), "b"), (0, 3, 2, 1)), []),
    "joined images": (lambda x: rows(conv(x, "a"), flatten=lambda y: S.reshape(y, shape=(-1, 8))), ["rows"]),
    "of the data": (lambda x: S.Concat(rows(x), rows(conv(x, "a")), dim=1), []),
}


@needs_kernel
@pytest.mark.parametrize(("network", "left"), ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("shape", [(1, 3, 32, 40), (3, 2, 33, 32)])
def test_pixels_become_rows_in_the_same_call(network, left, shape, by_torch):
    got, want = answers(network(S.Variable("data")), shape)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert by_torch == [left]
