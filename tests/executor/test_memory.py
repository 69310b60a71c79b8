import logging
import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.executor import allocate, from_pool
from dpmodule.executor.memory import reusable

CPU = mx.cpu()


@pytest.mark.parametrize(("shape", "dtype"), [((), "float64"), ((0, 3), "bool"), ((300, 300), "bfloat16")])
def test_new_arrays_are_zeros_in_aligned_memory_of_their_own(shape, dtype):
    array, other = allocate(shape, mx.cpu(1), dtype), allocate(shape, CPU, dtype)
    first = array.tensor
    assert (array.context, array.pinned, tuple(first.shape)) == (mx.cpu(1), False, shape)
    assert first.is_contiguous()
    assert first.untyped_storage().nbytes() == first.nbytes
    assert not first.any()
    assert not first.numel() or first.data_ptr() % 64 == 0
    first.fill_(1)
    assert not other.tensor.any()


def test_arrays_take_no_memory_before_they_are_written():
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    array = allocate((2**26,), CPU, "float32")
    touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert touched < array.tensor.nbytes // resource.getpagesize() // 100


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what memory a process has")
def test_memory_of_small_arrays_goes_with_the_last_of_them():
    def mapped():
        return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE

    before = mapped()
    arrays = [allocate((2**17,), CPU, "float32") for _ in range(200)]
    assert mapped() - before >= 100 * 2**19  # not all: there may have been a slab
    last = arrays[-1]
    del arrays
    assert mapped() - before <= 20 * 2**19
    last[:] = 1
    assert last.asnumpy().all()


def test_a_pool_keeps_what_it_made_and_lends_its_head(caplog):
    pool = {}
    large = from_pool(pool, "data", (4, 3), CPU, "float32")
    assert from_pool(pool, "data", (4, 3), CPU, "float32") is large
    from_pool(pool, "data", (2, 2), CPU, "float32")[:] = 7
    assert large.asnumpy().reshape(-1).tolist() == [7] * 4 + [0] * 8
    assert pool["data"] is large
    with caplog.at_level(logging.WARNING):
        larger = from_pool(pool, "data", (5, 3), CPU, "float32")
    assert "does not fit into the memory of shape (4, 3)" in caplog.text
    assert pool["data"] is larger is not large


def test_lent_memory_is_never_replaced_by_a_gradient():
    net, pool = mx.sym.square(mx.sym.Variable("x")), {}
    large, small = (net.simple_bind(CPU, x=(size,), shared_buffer=pool) for size in (4, 2))
    small.forward(is_train=True, x=np.array([1.0, 2.0]))
    small.backward(mx.nd.ones((2,)))
    assert large.grad_dict["x"].asnumpy().tolist() == [2, 4, 0, 0]


def test_memory_that_nobody_else_holds_is_used_again():
    array = mx.nd.ones((300, 300))
    assert reusable(array) is array.tensor
    small = mx.nd.ones((3,))
    small.torch()
    assert reusable(small) is None
    expanded = mx.nd.NDArray(mx.nd.zeros((1,)).tensor.expand(4, 4), CPU)  # no memory to write in
    assert reusable(expanded) is None
