"""`export_model`: forms of its arguments, and files."""

import logging

import numpy as np
import onnx
import onnxruntime
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.models import CHECKPOINTS, DATA, model
from helpers.onnx_runs import our_outputs, runtime_outputs

S = mx.sym


def network():
    hidden = S.FullyConnected(S.Variable("data"), num_hidden=4, name="fc1")
    hidden = S.Activation(hidden, act_type="relu", name="act")
    return S.SoftmaxOutput(S.FullyConnected(hidden, num_hidden=2, name="fc2"), name="softmax")


def parameters(size=3):
    draw = np.random.RandomState(0)
    shapes = {"fc1_weight": (4, size), "fc1_bias": (4,), "fc2_weight": (2, 4), "fc2_bias": (2,)}
    return {name: mx.nd.array(draw.uniform(-1, 1, shape)) for name, shape in shapes.items()}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def export(sym=None, params=None, in_shapes=((2, 3),), **options):
    """Export the network, or another one, and return the model."""
    options = {"onnx_file_path": "net.onnx", **options}
    given = network() if sym is None else sym, parameters() if params is None else params
    assert mx.onnx.export_model(*given, in_shapes and list(in_shapes), **options) == "net.onnx"
    onnx.checker.check_model("net.onnx", full_check=True)
    return onnx.load("net.onnx")


def dims(value):
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def results(found, size=3, rows=2):
    """Return what the runtime and what our own executor compute."""
    x = np.random.RandomState(1).rand(rows, size).astype("float32")
    arrays = {"data": x, "softmax_label": np.zeros(rows, "float32")}
    arrays |= {name: value.asnumpy() for name, value in parameters(size).items()}
    return runtime_outputs(found, {"data": x})[0], our_outputs(network(), arrays)[0]


# forms of arguments


def test_forms_of_arguments():
    for options in (
        {"params": {f"arg:{name}": value for name, value in parameters().items()}},
        *({"params": [parameters(), {}]}, {"params": {**parameters(), "of_another": mx.nd.ones((2,))}}),
        {"in_shapes": None, "input_shape": [(2, 3)]},
        *[{"in_types": types} for types in (np.float32, [np.float32], ["float32"])],
        {"input_type": np.dtype("float32")},
    ):
        assert export(**options) == export()


def test_forms_of_dynamic_lengths():
    for options, name in (
        *(({"dynamic": True}, "batch"), ({"dynamic": {"data": {-2: "rows"}}}, "rows")),
        ({"dynamic": {"data": [0]}}, "data_0"),
        *(({"dynamic": True, "dynamic_input_shapes": [("N", 3)]}, "N"), ({"in_shapes": [("N", 3)]}, "N")),
        ({"in_shapes": [(None, 3)]}, "batch"),
    ):
        found = export(**options)
        assert (dims(found.graph.input[0]), dims(found.graph.output[0])) == ([name, 3], [name, 2])
        for rows in (1, 7):
            np.testing.assert_allclose(*results(found, rows=rows), rtol=1e-5)


@pytest.mark.parametrize("layout", ["TNC", "NTC"])
def test_dynamic_batch_of_recurrent_layers(layout, tmp_path):
    data, state, cell, weight = map(mx.sym.var, ("data", "state", "cell", "weight"))
    found = mx.sym.RNN(
        mx.sym.swapaxes(data, dim1=0, dim2=1) if layout == "NTC" else data,
        *(weight, state, cell),
        **{"state_size": 4, "num_layers": 1, "mode": "lstm", "state_outputs": True},
    )
    shapes = {"data": (2, 5, 3) if layout == "NTC" else (5, 2, 3), "state": (1, 2, 4), "cell": (1, 2, 4)}
    params = {"weight": mx.nd.ones(144)}
    path = str(tmp_path / "net.onnx")
    mx.onnx.export_model(found, params, shapes, onnx_file_path=path, dynamic=True)
    for each in onnx.load(path).graph.input:
        axis = layout.index("N") if each.name == "data" else 1
        assert dims(each)[axis] == "batch"
        assert dims(each).count("batch") == 1


def test_verbose_and_shapes_of_all_values(caplog):
    with caplog.at_level(logging.INFO):
        found = export(verbose=True, run_shape_inference=True, dynamic=True)
    assert "net.onnx: 4 operators, 4 parameters" in caplog.text
    shapes = {each.name: dims(each) for each in found.graph.value_info}
    assert shapes["fc1_output"] == ["batch", 4]


# files


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_published_files(name):
    net, folder = model(name), DATA / "checkpoints" / name
    (symbol,), (params,) = folder.glob("*-symbol.json"), folder.glob("*.params")
    shapes = {each: net.arrays[each].shape for each in net.inputs}
    mx.onnx.export_model(symbol, str(params), shapes, onnx_file_path="net.onnx")
    found = runtime_outputs(onnx.load("net.onnx"), {each: net.arrays[each] for each in net.inputs})
    for one, other in zip(found, our_outputs(net.symbol, net.arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_large_models_keep_parameters_beside(tmp_path, monkeypatch):
    export(params=parameters(300), in_shapes=[(2, 300)], large_model=True)
    beside = tmp_path / "net.onnx.data"
    assert beside.stat().st_size == 4 * 4 * 300  # small ones stay in the model
    assert (tmp_path / "net.onnx").stat().st_size < 2000
    session = onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
    x = np.random.RandomState(1).rand(2, 300).astype("float32")
    wanted = results(onnx.load("net.onnx"), 300)[1]
    np.testing.assert_allclose(session.run(None, {"data": x})[0], wanted, rtol=1e-5)
    beside.unlink()
    monkeypatch.setattr("dpmodule.onnx.export.EXTERNAL_BYTES", 4000)
    export(params=parameters(300), in_shapes=[(2, 300)])
    assert beside.exists()


def test_all_operators_that_onnx_lacks_and_all_misfits_come_in_one_error():
    step = S.sgd_update(S.Variable("w"), S.Variable("g"), lr=0.1, name="step")
    spectrum, large = S.linalg.syevd(S.Variable("m"), name="m")[0], S.linalg.inverse(S.var("n"), name="n")
    own = S.Custom(S.Variable("data"), op_type="of_onnx", name="own")
    wanted = "Custom 'own'.*user-defined Python code", "sgd_update 'step'.*an optimizer's step"
    wanted += "_linalg_syevd 'm'.*computes eigenvalues", "_linalg_inverse 'n'.*the matrices have 9 rows"
    with pytest.raises(ArgumentError, match=".*\n".join(wanted)):
        export(S.Group([S.relu(own), step, spectrum, large]), {}, [(2,), (2,), (2,), (3, 3), (9, 9)])
    with pytest.raises(ArgumentError) as error:
        export(params={**parameters(), "fc1_weight": mx.nd.ones((4, 5)), "fc2_bias": mx.nd.ones((3,))})
    assert str(error.value).splitlines() == [
        "params has 'fc1_weight' of shape (4, 5), but the symbol expects (4, 3)",
        "params has 'fc2_bias' of shape (3,), but the symbol expects (2,)",
    ]


@mx.operator.register("of_onnx")
class OwnOperator(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return mx.operator.CustomOp()
