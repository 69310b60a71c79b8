"""Tensors in buckets, and their sums over processes, which begin before all of them are there."""

from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.kvstore.transfer import BucketReducer, quantize, to_buckets
from helpers.small_fits import TWO, blobs, classifier
from helpers.walk import walks


def test_buckets_hold_one_type_each():
    tensors = [torch.ones(2, 3), torch.ones(4, dtype=torch.float64), torch.zeros(()), torch.ones(7_000_000)]
    buckets = to_buckets([*tensors, torch.full((2,), 3.0)])
    assert [list(bucket.positions) for bucket in buckets] == [[1], [0, 2, 3], [4]]
    assert [part.shape for part in buckets[1].parts()] == [(2, 3), (), (7_000_000,)]
    assert buckets[2].parts()[0].tolist() == [3, 3]


class Others:
    """Stands for another process, which has the same numbers; notes what is sent, and what is waited for."""

    def __init__(self, fails=False):
        self.sizes, self.waits, self.fails = [], 0, fails

    def __call__(self, flat):
        if self.fails:
            raise RuntimeError("gone")
        self.sizes.append(flat.numel())
        flat *= 2
        return self

    def wait(self):
        self.waits += 1


def reducer_for(others, sizes=(1, 2, 3, 4, 5), order=(4, 3, 2, 1, 0), limit=16):
    tensors = [torch.full((size,), float(size)) for size in sizes]
    return BucketReducer(tensors, list(order), limit, others), tensors


def test_full_buckets_go_at_once_in_their_order():
    others = Others()
    sums, tensors = reducer_for(others)
    assert sums.is_split
    for _ in range(2):
        others.sizes, others.waits = [], 0
        sums.put(3, tensors[3])
        assert others.sizes == []  # waits for the one before it
        sums.put(4, tensors[4])
        assert others.sizes == [5, 4]
        tensors[4] += 9  # has gone
        sums.put(1, tensors[1])
        found = sums.finish(tensors)
        assert (others.sizes, others.waits) == ([5, 4, 6], 3)
        tensors[4] -= 9
        assert [one.tolist() for one in found] == [(2 * one).tolist() for one in tensors]


@pytest.mark.parametrize("early", [(), (4,), (2, 3), (0, 1, 2, 3, 4), "other kinds"])
def test_the_same_buckets_go_whatever_has_come_before(early):
    others = Others()
    sums, tensors = reducer_for(others)
    if early == "other kinds":
        for other in (None, tensors[4].double(), torch.ones(1)):
            sums.put(4, other)
        assert others.sizes == []
        assert sums.fits(tensors[1:])
        assert not sums.fits([each.double() for each in tensors[1:]])
    else:
        for place in early:
            sums.put(place, tensors[place])
    found = sums.finish(tensors)
    assert others.sizes == [5, 4, 6]
    assert [one.tolist() for one in found] == [(2 * one).tolist() for one in tensors]


def test_a_last_tensor_gets_no_message_of_its_own():
    others = Others()
    assert not BucketReducer([torch.ones(1), torch.ones(9)], [1, 0], 4, others).is_split
    assert BucketReducer([torch.ones(1), torch.ones(9).double()], [1, 0], 4, others).is_split


def test_errors_come_when_sums_are_asked_for():
    others = Others(fails=True)
    sums, tensors = reducer_for(others)
    for place in (4, 3, 2, 1):
        sums.put(place, tensors[place])
    with pytest.raises(RuntimeError, match="gone"):
        sums.finish(tensors)
    others.fails = False
    assert sums.finish(tensors)[1].tolist() == [4, 4]


def test_gradients_are_told_while_backward_runs():
    net = mx.sym.Variable("data")
    for i in range(3):
        net = mx.sym.FullyConnected(net, num_hidden=4, name=f"fc{i}")
    net = mx.sym.broadcast_mul(net, mx.sym.Variable("factor", shape=(1, 4)))
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    req = dict.fromkeys(net.list_arguments(), "write")
    req |= {"data": "null", "softmax_label": "null", "fc1_bias": "add", "fc1_weight": "null"}
    executor = net.simple_bind(mx.cpu(), grad_req=req, data=(2, 4))
    for name, array in executor.arg_dict.items():
        array[:] = mx.nd.random.uniform(shape=array.shape) if name != "softmax_label" else 1
    for listens in (True, False, True):
        seen = {}
        executor.forward(is_train=True)
        executor.backward(listener=(lambda n, g, seen=seen: seen.update({n: g.clone()})) if listens else None)
        wanted = ["factor", "fc0_bias", "fc0_weight", "fc2_bias", "fc2_weight"] if listens else []
        assert sorted(seen) == wanted
        assert not listens or [*seen].index("fc2_weight") < [*seen].index("fc0_weight")
        assert all(torch.equal(executor.grad_dict[name].tensor, grad) for name, grad in seen.items())


def expected(gradient, residual, threshold):
    """The rule element by element: what is sent, and what is left."""
    total = residual + gradient
    sent = np.where(total >= threshold, threshold, np.where(total <= -threshold, -threshold, 0))
    return sent.astype("f4"), (total - sent).astype("f4")


@walks(product([1, 3, 8, 33, 40], [0.25, 0.5, 1.0, 4.0]))
def test_the_rule(size, threshold):
    # multiples of 1/64, so that sums are exact and the threshold is met exactly at times
    rng, residual = np.random.RandomState(size), np.zeros(size, "f4")
    owed = torch.zeros(size)
    for _ in range(4):
        gradient = (rng.randint(-200, 200, size) / 64).astype("f4")
        sent = quantize(torch.from_numpy(gradient), owed, threshold)
        want, residual = expected(gradient, residual, threshold)
        np.testing.assert_array_equal(sent.numpy(), want)
        np.testing.assert_array_equal(owed.numpy(), residual)


def test_a_store_keeps_a_residual_for_each_key_and_device():
    store = mx.kv.create("device")
    store.set_gradient_compression({"type": "2bit", "threshold": "0.5"})
    store.init(["a", "b"], [mx.nd.full((3,), 0.3)] * 2)
    store.pull("a", out := mx.nd.zeros((3,)))
    np.testing.assert_allclose(out.asnumpy(), 0.3, rtol=1e-6)  # what is stored first is not compressed
    rng, residuals = np.random.RandomState(0), np.zeros((2, 2, 3), "f4")
    for _ in range(6):
        grads = (rng.randint(-64, 64, (2, 2, 3)) / 64).astype("f4")
        given = [[mx.nd.array(g, ctx=c) for g, c in zip(one, TWO)] for one in grads]
        store.push(["a", "b"], given)
        store.pull(["a", "b"], outs := [mx.nd.zeros((3,)), mx.nd.zeros((3,))])
        for k in range(2):
            sent, residuals[k] = expected(grads[k], residuals[k], 0.5)
            np.testing.assert_array_equal(outs[k].asnumpy(), sent.sum(0))
        np.testing.assert_array_equal(given[1][1].asnumpy(), grads[1, 1])


def test_row_sparse_gradients_are_left_alone():
    store = mx.kv.create("device")
    store.set_gradient_compression({"type": "2bit"})
    store.init("r", mx.nd.zeros((3, 1), stype="row_sparse"))
    store.push("r", mx.nd.array([[0.1], [0], [3]]).tostype("row_sparse"))
    store.pull("r", out := mx.nd.zeros((3, 1)))
    np.testing.assert_allclose(out.asnumpy(), [[0.1], [0], [3]], rtol=1e-6)


@pytest.mark.parametrize(("contexts", "kvstore"), [([mx.cpu()], "device"), (TWO, None)])
def test_a_module_says_where_compression_does_not_work(contexts, kvstore):
    mod = mx.mod.Module(classifier(), context=contexts, compression_params={"type": "2bit"})
    with pytest.warns(UserWarning, match="no effect"):
        mod.fit(blobs(), num_epoch=1, kvstore=kvstore)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["device", "local_allreduce_device"])
def test_types_and_the_default_threshold(kind, dtype):
    store = mx.kv.create(kind)
    store.set_gradient_compression({"type": "2bit"})
    store.init(1, mx.nd.zeros((4,), dtype=dtype))
    for want in ([0.5, -0.5, 0, 0.5], [0.5, -0.5, 0.5, 0.5]):
        store.push(1, mx.nd.array([0.5, -0.5, 0.3, 1.7], dtype=dtype))
        store.pull(1, out := mx.nd.zeros((4,), dtype=dtype))
        assert out.asnumpy().tolist() == want
