"""The features of `mx.runtime`."""

import torch

import dpmodule as mx


def test_features_say_what_torch_has():
    features = mx.runtime.Features()
    assert features.is_enabled("cuda") == (torch.version.cuda is not None)
    assert features.is_enabled("MKLDNN") == torch.backends.mkldnn.is_available()
    assert not features.is_enabled("TVM_OP")
    assert mx.runtime.Features() is mx.runtime.Features() is mx.runtime.Features.instance


def test_features_list_and_text():
    listed = mx.runtime.feature_list()
    assert [f.name for f in listed] == list(mx.runtime.Features())
    assert len(listed) == 32
    assert "✔ INT64_TENSOR_SIZE" in str(mx.runtime.Features())
    assert "✖ CAFFE" in repr(listed)
