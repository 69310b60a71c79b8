"""Networks written as ONNX, run by ONNX Runtime, and compared with our own executor."""

from itertools import product

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

import dpmodule as mx
from dpmodule.onnx.export import make_model
from dpmodule.onnx.prediction import describe_inputs, input_names

_OLD = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24)
"""Whether it is a version for Python 3.10, which lacks kernels for some types that later ones have."""


def in_single(array):
    """Return float64 elements as float32: ONNX Runtime has few operators in double precision."""
    array = np.asarray(array)
    return array.astype("float32") if array.dtype == np.float64 else array


def exported(symbol, arrays, params=(), opset=17, dynamic=False, **options):
    """Return the checked ONNX model of a symbol.

    Args:
        symbol: the network.
        arrays: values of all its variables by name (NumPy).
        params: names of those that are parameters; the rest are inputs.
        opset: version of ONNX's operators.
        dynamic: as `mx.onnx.export_model` takes it.
    """
    known = {name: mx.nd.array(arrays[name], dtype=arrays[name].dtype) for name in params}
    names = input_names(symbol, known)
    shapes = {name: arrays[name].shape for name in names}
    inputs = describe_inputs(symbol, known, shapes, [arrays[n].dtype for n in names], dynamic)
    model = make_model(symbol, known, inputs, opset, **options)
    onnx.checker.check_model(model, full_check=True)
    return model


def runtime_outputs(model, arrays):
    """Return what ONNX Runtime computes on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")  # exact products without VNNI, too
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except NoKernel as error:
        if _OLD:
            pytest.skip(f"ONNX Runtime {onnxruntime.__version__}: {error}")
        raise
    return session.run(None, {each.name: arrays[each.name] for each in session.get_inputs()})


def our_outputs(symbol, arrays):
    """Return what our own executor computes in prediction."""
    known = {name: mx.nd.array(value, dtype=value.dtype) for name, value in arrays.items()}
    args = {name: known[name] for name in symbol.list_arguments()}
    aux = {name: known[name] for name in symbol.list_auxiliary_states()}
    bound = symbol.bind(mx.cpu(), args, aux_states=aux or None)
    return [out.asnumpy() for out in bound.forward(is_train=False)]


def compare(symbol, model, arrays, rtol=1e-4, atol=1e-5):
    """Check that a symbol and a model compute the same, types included."""
    wanted, found = our_outputs(symbol, arrays), runtime_outputs(model, arrays)
    for name, ours, theirs in zip(symbol.list_outputs(), wanted, found, strict=True):
        assert (theirs.dtype, theirs.shape) == (ours.dtype, ours.shape), name
        np.testing.assert_allclose(theirs, ours, rtol, atol, err_msg=name)


def check_same(symbol, arrays, params=(), rtol=1e-4, atol=1e-5, **options):
    """Check that a symbol and its ONNX model compute the same, names and types included; return the model."""
    model = exported(symbol, arrays, params, **options)
    assert [out.name for out in model.graph.output] == symbol.list_outputs()
    compare(symbol, model, arrays, rtol, atol)
    return model


def check_dynamic(symbol, arrays, other, dynamic, params=(), rtol=1e-4, atol=1e-5, **options):
    """Check that a model made for some arrays computes the same for others, of other lengths; return the model.

    Args:
        symbol: the network.
        arrays: values of all its variables by name (NumPy), for which the model is made.
        other: further values of those that are inputs.
        dynamic: the lengths that differ, as `mx.onnx.export_model` takes it.
        params: names of those that are parameters.
        rtol: relative tolerance.
        atol: absolute tolerance.
        options: as `exported` takes them.
    """
    model = exported(symbol, arrays, params, dynamic=dynamic, **options)
    for values in (arrays, {**arrays, **other}):
        compare(symbol, model, values, rtol, atol)
    return model


def again(model, folder):
    """Return what an ONNX model is when it has come in: the symbol, its parameters and its auxiliary states."""
    path = folder / "again.onnx"
    path.write_bytes(model.SerializeToString())
    return mx.onnx.import_model(path)


def symbol_of(name, count, attrs):
    """Return an operator on variables x0, x1, ..."""
    inputs = [mx.sym.Variable(f"x{i}") for i in range(count)]
    return mx.symbol.symbol.op_function(name)(*inputs, name="op", **attrs)


def _each(name, inputs, types, attrs):
    """Yield an operator and its arrays, for every type and every value of the attributes that are lists."""
    lists = [value if isinstance(value, list) else [value] for value in attrs.values()]
    for dtype, chosen in product(types, product(*lists)):
        cast = [np.asarray(each) if dtype is None else np.asarray(each).astype(dtype) for each in inputs]
        symbol = symbol_of(name, len(inputs), dict(zip(attrs, chosen)))
        yield symbol, {f"x{i}": each for i, each in enumerate(cast)}


def check_op(name, *inputs, types=(None,), rtol=1e-4, atol=1e-5, opset=17, **attrs):
    """Check that an operator and its ONNX model compute the same.

    Args:
        name: the operator.
        inputs: arrays.
        types: element types, in each of which the inputs are given.
        rtol: relative tolerance.
        atol: absolute tolerance.
        opset: version of ONNX's operators.
        attrs: attributes; of a list, every value is checked.

    Returns:
        the last model.
    """
    for symbol, arrays in _each(name, inputs, types, attrs):
        found = check_same(symbol, arrays, (), rtol, atol, opset=opset)
    return found


def check_sizes(name, *inputs, changing=None, types=(None,), opset=17, **attrs):
    """Check that one model of an operator is right for several lengths of axis 0; the arguments are `check_op`'s.

    Args:
        name: the operator.
        inputs: arrays.
        changing: which inputs have the dynamic axis; default: all.
        types: element types.
        opset: version of ONNX's operators.
        attrs: attributes.
    """
    changing = [f"x{i}" for i in (range(len(inputs)) if changing is None else changing)]
    for symbol, arrays in _each(name, inputs, types, attrs):
        model = exported(symbol, arrays, opset=opset, dynamic={key: {0: "batch"} for key in changing})
        for times in (1, 2, 3):
            sized = {k: np.concatenate([v] * times) if k in changing else v for k, v in arrays.items()}
            compare(symbol, model, sized)
