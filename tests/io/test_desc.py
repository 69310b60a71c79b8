"""DataDesc and DataBatch."""

import copy
import pickle

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError


def test_desc_is_a_pair_with_more():
    desc = mx.io.DataDesc("data", [4, 2], "float16", "NC")
    name, shape = desc
    assert (name, shape) == ("data", (4, 2)) == desc
    assert desc == mx.io.DataDesc("data", (4, 2))
    assert len(desc) == 2
    assert (desc.dtype, desc.layout) == (np.float16, "NC")
    assert repr(mx.io.DataDesc("d", (4,))) == "DataDesc[d,(4,),<class 'numpy.float32'>,NCHW]"


@pytest.mark.parametrize("dtype", ["int8", np.int8, np.dtype("int8"), torch.int8])
def test_desc_takes_every_way_to_write_a_dtype(dtype):
    assert mx.io.DataDesc("x", (1,), dtype).dtype is np.int8


def test_desc_refuses_an_unknown_dtype():
    with pytest.raises(DTypeError, match="float99"):
        mx.io.DataDesc("x", (1,), "float99")


def test_copies_of_a_desc_keep_dtype_and_layout():
    desc = mx.io.DataDesc("x", (1, 2), "int8", "TN")
    for made in (
        pickle.loads(pickle.dumps(desc)),
        copy.copy(desc),
        copy.deepcopy(desc),
        desc._replace(name="x"),
    ):
        assert (made.name, made.shape, made.dtype, made.layout) == ("x", (1, 2), np.int8, "TN")
    assert desc._replace(shape=(3,), layout="N") == ("x", (3,))


def test_batch_axis():
    axis = mx.io.DataDesc.get_batch_axis
    assert [axis(layout) for layout in (None, "NCHW", "TNC", "TC")] == [0, 0, 1, -1]


def test_get_list():
    plain = mx.io.DataDesc.get_list([("a", (1, 2)), ("b", (3,))])
    assert [(d.name, d.dtype) for d in plain] == [("a", np.float32), ("b", np.float32)]
    typed = mx.io.DataDesc.get_list(iter([("a", (1, 2))]), [("a", "float16")])
    assert typed[0].dtype is np.float16
    with pytest.raises(ArgumentError, match=r"no entry for \['a'\]"):
        mx.io.DataDesc.get_list([("a", (1, 2))], [("b", "float16")])


def test_batch_text_and_attributes():
    batch = mx.io.DataBatch([mx.nd.zeros((2, 3))], [mx.nd.zeros((2,))])
    assert str(batch) == "DataBatch: data shapes: [(2, 3)] label shapes: [(2,)]"
    assert (
        str(mx.io.DataBatch([mx.nd.zeros((2, 3))])) == "DataBatch: data shapes: [(2, 3)] label shapes: None"
    )
    assert vars(mx.io.DataBatch([])) == {
        "data": [],
        "label": None,
        "pad": None,
        "index": None,
        "bucket_key": None,
        "provide_data": None,
        "provide_label": None,
    }


def test_padding_is_what_must_not_be_counted():
    assert mx.io.DataBatch([]).num_padding == 0
    batch = mx.io.DataBatch([], pad=3)
    assert batch.num_padding == 3
    batch.rolled_over = True
    assert batch.num_padding == 0


@pytest.mark.parametrize("which", ["data", "label"])
def test_batch_wants_lists(which):
    with pytest.raises(ArgumentError, match=rf"{which} is NDArray of shape \(2, 3\).*write \[{which}\]"):
        mx.io.DataBatch(**{"data": [], which: mx.nd.zeros((2, 3))})
