import logging
import mmap
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import DTypeError
from dpmodule.executor import allocate, from_pool
from dpmodule.executor.memory import reusable

CPU = mx.cpu()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "bfloat16"])
def test_new_arrays_are_zeros(dtype):
    array = allocate((2, 3), mx.cpu(1), dtype)
    assert array.shape == (2, 3)
    assert array.context == mx.cpu(1)
    assert not array.asnumpy().any()
    assert not array.pinned
    array[:] = 1
    assert array.asnumpy().all()


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5, 7), (300, 300)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "uint8"])
def test_new_arrays_fill_aligned_memory_of_their_own(shape, dtype):
    first, second = allocate(shape, CPU, dtype).tensor, allocate(shape, CPU, dtype).tensor
    assert tuple(first.shape) == shape
    assert first.is_contiguous()
    assert first.untyped_storage().nbytes() == first.nbytes
    if first.numel():
        assert first.data_ptr() % 64 == 0
        first.fill_(1)
        assert not second.any()


def test_large_arrays_take_no_memory_before_they_are_written():
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    array = allocate((64, 1024, 1024), CPU, "float32")
    touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert touched < array.tensor.nbytes // resource.getpagesize() // 100


def test_small_arrays_take_no_memory_before_they_are_written():
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [allocate((16384,), CPU, "float32") for _ in range(1000)]
    touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert touched < sum(array.tensor.nbytes for array in arrays) // resource.getpagesize() // 4


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


def test_a_pool_keeps_what_it_made_and_lends_its_head():
    pool = {}
    large = from_pool(pool, "data", (4, 3), CPU, "float32")
    assert from_pool(pool, "data", (4, 3), CPU, "float32") is large
    small = from_pool(pool, "data", (2, 2), CPU, "float32")
    small[:] = 7
    assert large.asnumpy().reshape(-1).tolist() == [7] * 4 + [0] * 8
    assert pool["data"] is large


def test_a_pool_grows_with_a_warning(caplog):
    pool = {}
    small = from_pool(pool, "data", (2,), CPU, "float32")
    with caplog.at_level(logging.WARNING):
        large = from_pool(pool, "data", (5,), CPU, "float32")
    assert "does not fit into the memory of shape (2,)" in caplog.text
    assert pool["data"] is large is not small


def test_another_type_is_refused():
    pool = {}
    from_pool(pool, "data", (2,), CPU, "float32")
    with pytest.raises(DTypeError, match="data: the shared array is float32, this executor needs int32"):
        from_pool(pool, "data", (2,), CPU, "int32")


def test_lent_memory_is_never_replaced_by_a_gradient():
    net = mx.sym.square(mx.sym.Variable("x"))
    pool = {}
    large = net.simple_bind(CPU, x=(4,), shared_buffer=pool)
    small = net.simple_bind(CPU, x=(2,), shared_buffer=pool)
    small.forward(is_train=True, x=np.array([1.0, 2.0]))
    small.backward(mx.nd.ones((2,)))
    assert large.grad_dict["x"].asnumpy().tolist() == [2, 4, 0, 0]


def test_what_no_gradient_reaches_counts_as_in_prediction():
    def allocated(symbol, **options):
        text = symbol.simple_bind(mx.cpu(), data=(4, 3, 256, 256), **options).debug_str()
        return int(re.search(r"Total (\d+) MB allocated", text).group(1))

    net = mx.sym.Variable("data")
    for _ in range(6):
        net = net * net
    assert allocated(net) > allocated(mx.sym.BlockGrad(net)) == allocated(net, grad_req="null")


def test_memory_that_nobody_else_holds_is_used_again():
    array = mx.nd.ones((300, 300))
    assert reusable(array) is array.tensor


def test_small_memory_in_use_is_not_replaced():
    array = mx.nd.ones((3,))
    array.torch()
    assert reusable(array) is None


def test_large_memory_in_use_is_replaced_by_new_pages():
    array = mx.nd.ones((600, 600))
    held = array.tensor.view(-1)
    found = reusable(array)
    assert found.shape == (600, 600)
    assert found.data_ptr() != held.data_ptr()
    assert not found.any()
    del held, found
    assert reusable(array) is array.tensor


def test_an_expanded_tensor_is_no_memory_to_write_in():
    array = mx.nd.NDArray(mx.nd.zeros((1,)).tensor.expand(4, 4), CPU)
    assert reusable(array) is None
