"""The features of `mx.runtime`."""

import dpmodule as mx


def test_features_list_and_text():
    listed = mx.runtime.feature_list()
    assert ([f.name for f in listed], len(listed)) == (list(mx.runtime.Features()), 32)
    assert "✔ INT64_TENSOR_SIZE" in str(mx.runtime.Features())
    assert "✖ CAFFE" in repr(listed)
