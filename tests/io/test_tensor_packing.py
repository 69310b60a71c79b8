"""Objects taken apart into tensors and a pickle, and put together again."""

import dataclasses

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.io.tensor_packing import join, split


@dataclasses.dataclass
class Example:
    name: str
    values: object


ARRAYS = [
    np.arange(6.0).reshape(2, 3),
    np.arange(6).reshape(2, 3).T,
    np.arange(6, dtype=np.float16)[::-1],
    np.arange(12, dtype=np.int16)[::2],
    np.zeros((0, 3), np.bool_),
    np.float32([[1, 2], [3, 4]])[:, ::-1],
    np.frombuffer(b"abcd", np.uint8),
    np.array(5.0),
    np.array([1 + 2j]),
    np.arange(3, dtype=">i4"),
    np.array(["text"]),
    np.arange(3, dtype=np.uint64),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.strides}")
def test_arrays(array):
    data, tensors = split({"a": array})
    found = join(data, tensors)["a"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_tensors_are_taken_out_once_and_lie_in_the_given_memory():
    shared = torch.ones(1000, requires_grad=True)
    value = [shared, Example("x", (shared, torch.zeros(2, dtype=torch.bfloat16))), None, "text"]
    data, tensors = split(value)
    assert len(tensors) == 2
    assert len(data) < 500
    assert tensors[0].data_ptr() == shared.data_ptr()
    found = join(data, tensors)
    assert found[0] is found[1].values[0]
    assert found[0].data_ptr() == shared.data_ptr()
    assert found[1].values[1].dtype == torch.bfloat16


def test_ndarrays_lie_in_the_given_memory():
    value = mx.io.DataBatch([mx.nd.ones((3, 4))], [mx.nd.array([1, 2, 3], dtype="int32")], pad=1)
    data, tensors = split(value)
    found = join(data, tensors)
    assert found.data[0].tensor.data_ptr() == tensors[0].data_ptr()
    assert found.label[0].dtype == np.int32
    assert found.pad == 1


class Made:
    """Makes arrays for its pickle only."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return made, (torch.full((3,), float(self.number)), np.full(3, float(self.number))[::-1])


def made(tensor, array):
    assert tensor.tolist() == array.tolist()
    return tensor.tolist()


def test_arrays_that_are_made_for_the_pickle():
    data, tensors = split([Made(number) for number in range(20)])
    assert join(data, tensors) == [[number] * 3 for number in range(20)]


def test_sparse_tensors_go_as_their_parts():
    data, tensors = split(torch.eye(3).to_sparse())
    assert len(tensors) == 2
    assert torch.equal(join(data, tensors).to_dense(), torch.eye(3))
