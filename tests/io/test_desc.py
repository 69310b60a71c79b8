"""DataDesc and DataBatch."""

import numpy as np
import torch

import dpmodule as mx

DataDesc = mx.io.DataDesc


def test_a_desc_is_a_pair_with_dtype_and_layout():
    desc = DataDesc("data", [4, 2], "float16", "NC")
    name, shape = desc
    assert (name, shape) == ("data", (4, 2)) == desc == DataDesc("data", (4, 2))
    assert len(desc) == 2
    assert (desc.dtype, desc.layout) == (np.float16, "NC")
    assert repr(DataDesc("d", (4,))) == "DataDesc[d,(4,),<class 'numpy.float32'>,NCHW]"
    for dtype in ("int8", np.int8, np.dtype("int8"), torch.int8):
        assert DataDesc("x", (1,), dtype).dtype is np.int8
    assert [DataDesc.get_batch_axis(layout) for layout in (None, "NCHW", "TNC", "TC")] == [0, 0, 1, -1]


def test_get_list():
    plain = DataDesc.get_list([("a", (1, 2)), ("b", (3,))])
    assert [(d.name, d.dtype) for d in plain] == [("a", np.float32), ("b", np.float32)]
    typed = DataDesc.get_list(iter([("a", (1, 2))]), [("a", "float16")])
    assert typed[0].dtype is np.float16


def test_text_and_attributes_of_a_batch():
    data, label = [mx.nd.zeros((2, 3))], [mx.nd.zeros((2,))]
    assert str(mx.io.DataBatch(data, label)) == "DataBatch: data shapes: [(2, 3)] label shapes: [(2,)]"
    assert str(mx.io.DataBatch(data)) == "DataBatch: data shapes: [(2, 3)] label shapes: None"
    names = ["label", "pad", "index", "bucket_key", "provide_data", "provide_label"]
    batch = mx.io.DataBatch([])
    assert vars(batch) == {"data": [], **dict.fromkeys(names)}
    assert batch.num_padding == 0
    batch.pad = 3
    assert batch.num_padding == 3  # what rolled over is none, see test_parts.py
