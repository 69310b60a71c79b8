"""Every ONNX operator by the cases that the package onnx brings: equal to what it says, or refused."""

import collections
import warnings

import numpy as np
import onnx
import pytest

import dpmodule as mx
from dpmodule.base import FileFormatError

_ODD = (
    *("bernoulli", "empty_set", "_zero"),  # draws, or arrays without elements, which MXNet does not have
    "downsample_scales_linear_align_corners",  # ONNX Runtime rounds the size first, as here
    "downsample_scales_cubic_align_corners",
    *("training", "optional", "string", "sequence_map"),  # among them batch statistics outside of training
)
_CONSTANT = ("roi", "scales", "ratio", "t", "k", "depth", "values", "pads", "axis", "axes", "iou_threshold")


def cases():
    """Return the package's cases, those with attributes as inputs made constant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    return [c for c in found if c.data_sets and not any(odd in c.name for odd in _ODD)]


def with_constants(case):
    """Return the case's model with small integers and the like as initializers."""
    model = case.model
    for value, data in zip(model.graph.input, case.data_sets[0][0]):
        if not isinstance(data, np.ndarray) or len(model.graph.input) < 2:
            continue
        is_small = data.dtype.kind == "i" and data.size < 10 and data.ndim < 2
        if is_small or data.ndim == 0 or value.name in _CONSTANT or value.name.startswith("max_output"):
            model.graph.initializer.append(onnx.numpy_helper.from_array(data, value.name))
    return model


def outputs(path, case, inputs):
    symbol, arg_params, aux_params = mx.onnx.import_model(path)
    names = [value.name for value in case.model.graph.input]
    given = {n: as_plain(d) for n, d in zip(names, inputs) if n in symbol.list_arguments()}
    given = {n: d.reshape(d.shape or (1,)) for n, d in given.items() if n not in arg_params}
    types = {n: mx.base.dtype_from_code(int(symbol.attr_dict()[n].get("__dtype__", 0))) for n in given}
    shapes = {n: d.shape for n, d in given.items()}
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", type_dict=types, **shapes)
    executor.copy_params_from(arg_params, aux_params)
    made = executor.forward(is_train=False, **{n: mx.nd.array(d, dtype=types[n]) for n, d in given.items()})
    return [out.asnumpy() for out in made]


def as_plain(data):
    """Return an array of a type that NumPy has; those of few bits, which onnx brings, as float32."""
    data = np.asarray(onnx.numpy_helper.to_array(data) if isinstance(data, onnx.TensorProto) else data)
    return data if data.dtype.isbuiltin == 1 else data.astype(np.float32)


def compare(case, path):
    """Return "equal", "refused", or what is wrong."""
    onnx.save(with_constants(case), path)
    inputs, expected = case.data_sets[0]
    if not all(isinstance(d, (np.ndarray, onnx.TensorProto)) or np.isscalar(d) for d in (*inputs, *expected)):
        return "refused"  # sequences
    is_half = any(str(np.asarray(d).dtype) in ("bfloat16", "float16") for d in (*inputs, *expected))
    tolerance = 2e-2 if is_half else 1e-3
    try:
        got = outputs(path, case, inputs)
    except FileFormatError:
        return "refused"
    for one, other in zip(got, expected):
        other = as_plain(other).astype(np.float64)
        if one.shape != (other.shape or (1,)):
            return f"shape {one.shape}, expected {other.shape}"
        with np.errstate(invalid="ignore"):
            one = one.astype(np.float64).reshape(other.shape)
        if not np.allclose(one, other, tolerance, tolerance / 100, equal_nan=True):
            return "other values"
    return "equal"


@pytest.mark.slow
def test_every_case_of_the_package_is_equal_or_refused(tmp_path):
    found = {case.name: compare(case, tmp_path / "case.onnx") for case in cases()}
    wrong = {name: each for name, each in found.items() if each not in ("equal", "refused")}
    assert wrong == {}
    counts = collections.Counter(found.values())
    assert counts["equal"] > 1400
    assert counts["refused"] < 0.3 * counts["equal"]
