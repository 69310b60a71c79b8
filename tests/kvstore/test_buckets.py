"""Tensors in buckets, and their sums over processes, which begin before all of them are there."""

from functools import partial

import pytest
import torch

import dpmodule as mx
from dpmodule.kvstore.buckets import Sums, buckets_of, planned


def test_buckets_hold_one_type_each():
    tensors = [torch.ones(2, 3), torch.ones(4, dtype=torch.float64), torch.zeros(()), torch.ones(7_000_000)]
    buckets = buckets_of([*tensors, torch.full((2,), 3.0)])
    assert [list(bucket.places) for bucket in buckets] == [[1], [0, 2, 3], [4]]
    assert [part.shape for part in buckets[1].parts()] == [(2, 3), (), (7_000_000,)]
    assert buckets[2].parts()[0].tolist() == [3, 3]


def test_a_plan_keeps_the_last_tensor_last():
    tensors = [torch.ones(2), torch.ones(3, dtype=torch.float64), torch.ones(4)]
    assert planned(tensors) == [[1], [0, 2]]
    assert planned(tensors, limit=8) == [[1], [0], [2]]
    assert planned([]) == []


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


def sums_of(others, sizes=(1, 2, 3, 4, 5), order=(4, 3, 2, 1, 0), limit=16):
    tensors = [torch.full((size,), float(size)) for size in sizes]
    return Sums(tensors, list(order), limit, others), tensors


def test_full_buckets_go_at_once_in_their_order():
    others = Others()
    sums, tensors = sums_of(others)
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
        assert others.sizes == [5, 4, 6]
        assert others.waits == 3
        tensors[4] -= 9
        assert [one.tolist() for one in found] == [(2 * one).tolist() for one in tensors]


@pytest.mark.parametrize("early", [(), (4,), (2, 3), (0, 1, 2, 3, 4)])
def test_the_same_buckets_go_whatever_has_come_before(early):
    others = Others()
    sums, tensors = sums_of(others)
    for place in early:
        sums.put(place, tensors[place])
    found = sums.finish(tensors)
    assert others.sizes == [5, 4, 6]
    assert [one.tolist() for one in found] == [(2 * one).tolist() for one in tensors]


def test_tensors_of_other_kinds_wait_for_the_end():
    others = Others()
    sums, tensors = sums_of(others)
    sums.put(4, None)
    sums.put(4, tensors[4].double())
    sums.put(4, torch.ones(1))
    assert others.sizes == []
    assert sums.finish(tensors)[4].tolist() == [10] * 5
    assert sums.fits(tensors[1:])
    assert not sums.fits([each.double() for each in tensors[1:]])


def test_a_last_tensor_gets_no_message_of_its_own():
    others = Others()
    assert not Sums([torch.ones(1), torch.ones(9)], [1, 0], 4, others).is_split
    assert Sums([torch.ones(1), torch.ones(9).double()], [1, 0], 4, others).is_split


def test_errors_come_when_sums_are_asked_for():
    others = Others(fails=True)
    sums, tensors = sums_of(others)
    for place in (4, 3, 2, 1):
        sums.put(place, tensors[place])
    with pytest.raises(RuntimeError, match="gone"):
        sums.finish(tensors)
    others.fails = False
    assert sums.finish(tensors)[1].tolist() == [4, 4]


def note(told, name, grad):
    told.append((name, grad.clone()))


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
        told = []
        executor.forward(is_train=True)
        executor.backward(listener=partial(note, told) if listens else None)
        names = [name for name, _ in told]
        assert sorted(names) == (
            ["factor", "fc0_bias", "fc0_weight", "fc2_bias", "fc2_weight"] if listens else []
        )
        assert not listens or names.index("fc2_weight") < names.index("fc0_weight")
        for name, grad in told:
            assert torch.equal(executor.grad_dict[name].tensor, grad)
