"""NDArray: sharing memory, copies between places, shapes, conversion to Python and NumPy, pickling."""

import ctypes
import pickle
import struct

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import NDArrayHandle
from helpers.programs import run_program

nd = mx.nd
TYPES = "float32 float64 float16 uint8 int8 int16 int32 int64 bool uint16 uint32 uint64 bfloat16"


def counted(*shape, dtype=None):
    return nd.array(np.arange(int(np.prod(shape))).reshape(shape), dtype=dtype)


def test_torch_shares_memory_both_ways():
    tensor = torch.zeros(2, 3)
    array = nd.from_torch(tensor)
    array[0] = 5
    tensor[1, 1] = 7
    np.testing.assert_array_equal(array.asnumpy(), [[5, 5, 5], [0, 7, 0]])
    assert array.pinned
    fresh = nd.zeros((2,))
    assert not fresh.pinned
    fresh.torch()[0] = 3
    assert (fresh.pinned, fresh[0].asscalar()) == (True, 3)


def test_numpy_shares_memory_through_the_array_protocol():
    array = nd.zeros((2, 2))
    seen = np.asarray(array)
    seen[0, 0] = 4
    assert (array.pinned, array[0, 0].asscalar()) == (True, 4)
    assert not np.shares_memory(np.array(array), seen)
    assert np.asarray(array, dtype="float64").dtype == np.float64


def test_dlpack_both_ways():
    array = nd.array([1, 2, 3])
    seen = np.from_dlpack(array)
    (seen if seen.flags.writeable else array)[0] = 9  # NumPy 1 only reads such memory
    torch.from_dlpack(array)[1] = 8
    nd.from_dlpack(array.to_dlpack_for_write())[2] = 7
    np.testing.assert_array_equal(array.asnumpy(), [9, 8, 7])
    np.testing.assert_array_equal(seen, [9, 8, 7])
    assert array.pinned
    assert nd.from_dlpack(nd.to_dlpack_for_read(array)).shape == (3,)


def test_from_numpy():
    host = np.arange(4)
    shared = nd.from_numpy(host)
    shared[0] = 5
    assert (host[0], shared.dtype) == (5, np.int64)
    nd.from_numpy(host, zero_copy=False)[0] = 6
    nd.from_numpy(host)[1] = 8
    assert host.tolist() == [5, 8, 2, 3]
    assert nd.from_numpy(np.arange(6).reshape(2, 3).T, zero_copy=False).shape == (3, 2)
    with pytest.raises(ValueError, match="read-only"):
        host[0] = 7


def test_views_pin_both_sides():
    for view in (
        *(lambda a: a[0], lambda a: a[0:1], lambda a: a.reshape((4,)), lambda a: a.detach()),
        *(lambda a: a.head_view((3,)), lambda a: a.expand_dims(0, inplace=True)),
        *(lambda a: a.flatten(inplace=True), lambda a: a.squeeze(inplace=True)),
    ):
        array = counted(2, 2)
        part = view(array)
        assert (array.pinned, part.pinned) == (True, True)
        part[:] = 9
        assert array[0, 0].asscalar() == 9


COPIES = """
a.T; a[:, 0]; a[::-1]; a.copy(); a.flatten(); a.squeeze(); a.expand_dims(0); a.broadcast_to((2, 2)); a.swapaxes(0, 0)
a.astype("float32"); nd.reshape(a, shape=(4,)); nd.slice_axis(a, axis=0, begin=0, end=2); nd.identity(a); a.split_v2(1)
nd.Flatten(a); nd.BlockGrad(a); nd.transpose(a); nd.slice(a, begin=(0, 0), end=(1, 2)); nd.expand_dims(a, axis=0)
nd.Dropout(a, p=0.5); nd.cast(a, dtype="float32"); nd.split(a, num_outputs=2, axis=1)[1]
"""


@pytest.mark.parametrize("text", COPIES.strip().replace("\n", "; ").split("; "))
def test_other_results_are_copies(text):
    array = counted(2, 2)
    result = eval(text, {"a": array, "nd": nd})
    result[:] = 9
    np.testing.assert_array_equal(array.asnumpy(), [[0, 1], [2, 3]])
    assert not array.pinned
    assert result.tensor.is_contiguous()


def test_results_live_where_the_first_input_does():
    left, right = nd.ones((2,), ctx=mx.cpu(1)), nd.ones((2,), ctx=mx.cpu(2))
    with mx.cpu(3):
        made = left + right, nd.relu(right), right[0], left * 2, nd.array(left), nd.from_torch(torch.zeros(1))
    assert [array.context.device_id for array in made] == [1, 2, 2, 1, 3, 3]


def test_copyto():
    array, whole = counted(3), nd.zeros((3,), dtype="int32")
    assert array.copyto(whole) is whole
    np.testing.assert_array_equal(whole.asnumpy(), [0, 1, 2])
    assert array.copyto(mx.cpu(1)).context == mx.cpu(1)
    with pytest.warns(RuntimeWarning, match="are the same array"):
        assert array.copyto(array) is False


@pytest.mark.gpu
def test_gpu_round_trip():
    array = counted(2, 3).as_in_context(mx.gpu(0))
    assert array.tensor.is_cuda
    np.testing.assert_array_equal((array + 1).asnumpy(), [[1, 2, 3], [4, 5, 6]])
    array.wait_to_read()
    assert array.as_in_context(mx.cpu()).context == mx.cpu()


def test_reshape_forms():
    array = counted(2, 3)
    forms = ((3, 2), ((3, 2),), ([3, 2],), (np.array([3, 2]),), (np.int64(3), -1))
    assert {array.reshape(*form).shape for form in forms} == {array.reshape(shape=(3, 2)).shape} == {(3, 2)}
    assert array.reshape(np.int32(-1)).shape == (6,)
    tensor = torch.arange(6.0).reshape(2, 3).t()
    np.testing.assert_array_equal(nd.from_torch(tensor).reshape(-1).asnumpy(), [0, 3, 1, 4, 2, 5])


def test_other_shapes():
    array = counted(2, 1, 3)
    made = [array.T, array.squeeze(), array.flatten(), array.squeeze(axis=1), nd.zeros((1, 1)).squeeze()]
    assert [each.shape for each in made] == [(3, 1, 2), (2, 3), (2, 3), (2, 3), (1,)]
    wide = nd.zeros((2, 2, 3))
    made = array.expand_dims(-1), array.broadcast_to((4, 2, 5, 3)), array.broadcast_like(wide)
    assert [each.shape for each in made] == [(2, 1, 3, 1), (4, 2, 5, 3), (2, 2, 3)]


def test_a_0_keeps_an_axis_that_is_broadcast():
    assert nd.ones((1, 4, 1, 2)).broadcast_to((3, 4, 0, 2)).shape == (3, 4, 1, 2)
    assert nd.ones((1, 1)).broadcast_to((0, 3)).shape == (1, 3)


def test_split_v2():
    array = counted(2, 6)
    for parts, want in ((3, 3), ((1, 3), (1, 3)), ((-1,), (-1,)), ((4, 2), (4, 2)), ((9,), (9,))):
        got = nd.split_v2(array, parts, axis=1)
        for mine, numpys in zip(got, np.split(array.asnumpy(), want, axis=1), strict=True):
            np.testing.assert_array_equal(mine.asnumpy(), numpys)
    assert [p.shape for p in array.split_v2(2, squeeze_axis=True)] == [(6,), (6,)]
    assert array.split_v2(1).shape == (2, 6)


def test_scalars():
    one = nd.array([3.5])
    assert type(one.asscalar()) is np.float32
    assert (one.item(), float(one), int(one), nd.array([[1, 2]]).tolist()) == (3.5, 3.5, 3, [[1, 2]])
    assert (bool(nd.array([2])), bool(nd.zeros((1,))), bool(nd.empty((0,)))) == (True, False, False)
    scalar = nd.array(np.float32(3))
    scalar[:] = np.ones(())
    assert (scalar.shape, scalar.asscalar()) == ((), 1)


def test_properties():
    array = counted(2, 3)
    assert (array.shape, array.ndim, array.size, array.stype) == ((2, 3), 2, 6, "default")
    assert hash(array) != hash(array.copy())
    assert {array: 1}[array] == 1
    assert array.tostype("default") is array.as_nd_ndarray() is array
    nd.waitall()


@pytest.mark.parametrize("dtype", TYPES.split())
def test_pickle(dtype):
    array = nd.array([[0, 1], [2, 3]], ctx=mx.cpu(1), dtype=dtype)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(array, protocol))
        assert (back.context, back.dtype, back.shape) == (array.context, array.dtype, array.shape)
        np.testing.assert_array_equal(back.asnumpy(), array.asnumpy())
        back[:] = 0
    assert array.asnumpy().any()


def test_what_mxnet_pickled_is_taken_over():
    record = struct.pack("<IiiqiiifI", 0xF993FAC9, 0, 1, 1, 2, 0, 0, 2.5, 0)[:-4]
    array = nd.arange(3)
    array.__setstate__({"handle": bytearray(record)})  # on gpu(0) when it was pickled
    assert (array.shape, array.context, array.asscalar()) == ((1,), mx.cpu(0), 2.5)
    array.__setstate__({"handle": None})
    assert array.size == 0
    code = f"import dpmodule as mx; x = mx.nd.zeros(1); x.__setstate__({{'handle': {record!r}}}); print(x.asscalar())"
    done = run_program(code)  # before any file is read
    assert done.stdout.strip() == "2.5", done.stderr


def test_mxnets_paths_of_functions():
    module = mx.ndarray.ndarray
    assert (module.array, mx.symbol.symbol.zeros) == (nd.array, mx.sym.zeros)
    assert module._DTYPE_NP_TO_MX[np.int64] == 6
    assert not hasattr(module, "relu")
    made = nd.utils.array(nd.sparse.zeros("csr", (2, 2))), nd.utils.array([1, 2])
    made += (nd.utils.zeros((2, 2), stype="row_sparse"),)
    assert [each.stype for each in made] == ["csr", "default", "row_sparse"]


def test_a_cast_handle_makes_an_array_of_the_same_memory():
    array = counted(2, 3)
    mx.nd.NDArray(ctypes.cast(array, NDArrayHandle), writable=False)[0] = 9
    assert array.asnumpy()[0].tolist() == [9, 9, 9]


def test_an_array_of_a_number_shares_its_memory_for_good():
    turned = mx.sym.transpose(mx.sym.Variable("x")).bind(mx.cpu(), {"x": mx.nd.ones((2, 3))}).forward()[0]
    same = mx.nd.NDArray(turned._as_parameter_)
    turned.torch()[:] = 5
    turned[:] = 7
    assert (same.asnumpy() == 7).all()


def test_messages_name_bfloat16():
    with pytest.raises(ValueError, match=r"a bfloat16 array of shape \(2,\) on cpu\(0\) cannot"):
        mx.nd.zeros((2,), dtype="bfloat16").__array__(copy=False)
