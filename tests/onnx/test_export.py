"""`export_model`: forms of its arguments, files, and what it refuses."""

import logging
import re

import numpy as np
import onnx
import onnxruntime
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, FileError, ShapeError
from helpers.models import CHECKPOINTS, DATA, model
from helpers.onnx_runs import our_outputs, runtime_outputs

S = mx.sym


def network():
    hidden = S.Activation(
        S.FullyConnected(S.Variable("data"), num_hidden=4, name="fc1"), act_type="relu", name="act"
    )
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
    params = parameters() if params is None else params
    options = {"onnx_file_path": "net.onnx", **options}
    path = mx.onnx.export_model(
        network() if sym is None else sym, params, list(in_shapes) if in_shapes else None, **options
    )
    assert path == "net.onnx"
    found = onnx.load(path)
    onnx.checker.check_model(path, full_check=True)
    return found


def dims(value):
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def results(found, size=3, rows=2):
    """Return what the runtime and what our own executor compute."""
    x = np.random.RandomState(1).rand(rows, size).astype("float32")
    arrays = {"data": x, "softmax_label": np.zeros(rows, "float32")}
    arrays |= {name: value.asnumpy() for name, value in parameters(size).items()}
    return runtime_outputs(found, {"data": x})[0], our_outputs(network(), arrays)[0]


# forms of arguments


def test_names_are_kept():
    found = export()
    assert [each.name for each in found.graph.input] == ["data"]
    assert [each.name for each in found.graph.output] == ["softmax_output"]
    assert sorted(each.name for each in found.graph.initializer) == sorted(parameters())
    assert found.opset_import[0].version == 17
    np.testing.assert_allclose(*results(found), rtol=1e-5)


def test_parameters_come_marked_or_apart():
    wanted = export().SerializeToString()
    marked = {f"arg:{name}": value for name, value in parameters().items()}
    assert export(params=marked).SerializeToString() == wanted
    assert export(params=[parameters(), {}]).SerializeToString() == wanted
    assert export(params={**parameters(), "of_another": mx.nd.ones((2,))}).SerializeToString() == wanted


def test_shapes_by_position_by_name_and_under_their_old_name():
    wanted = export().SerializeToString()
    assert export(in_shapes=None, input_shape=[(2, 3)]).SerializeToString() == wanted
    mx.onnx.export_model(network(), parameters(), {"data": (2, 3)}, onnx_file_path="named.onnx")
    assert onnx.load("named.onnx").SerializeToString() == wanted


@pytest.mark.parametrize("types", [np.float32, "float32", [np.float32], ["float32"], np.dtype("float32")])
def test_forms_of_types(types):
    wanted = export().SerializeToString()
    assert export(in_types=types).SerializeToString() == wanted
    assert export(input_type=types).SerializeToString() == wanted


def test_several_inputs_have_types_of_their_own():
    net = S.take(S.Variable("table"), S.Variable("index"), name="rows")
    found = export(net, {}, [(5, 2), (3,)], in_types=["float64", "int32"])
    index = np.array([0, 4, 9], "int32")
    table = np.arange(10.0).reshape(5, 2)
    (rows,) = runtime_outputs(found, {"table": table, "index": index})
    assert np.array_equal(rows, table[[0, 4, 4]])
    assert rows.dtype == "float64"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"dynamic": True}, "batch"),
        ({"dynamic": {"data": {0: "rows"}}}, "rows"),
        ({"dynamic": {"data": {-2: "rows"}}}, "rows"),
        ({"dynamic": {"data": [0]}}, "data_0"),
        ({"dynamic": True, "dynamic_input_shapes": [(None, 3)]}, "batch"),
        ({"dynamic": True, "dynamic_input_shapes": [("N", 3)]}, "N"),
        ({"in_shapes": [("N", 3)]}, "N"),
        ({"in_shapes": [(None, 3)]}, "batch"),
    ],
)
def test_forms_of_dynamic_lengths(options, name):
    found = export(**options)
    assert dims(found.graph.input[0]) == [name, 3]
    assert dims(found.graph.output[0]) == [name, 2]
    for rows in (1, 7):
        np.testing.assert_allclose(*results(found, rows=rows), rtol=1e-5)


def test_lengths_of_one_name_are_one_length():
    net = S.broadcast_add(S.Variable("a"), S.Variable("b"), name="sum")
    found = export(net, {}, [("n", 3), ("n", 1)])
    assert dims(found.graph.output[0]) == ["n", 3]


def test_verbose_says_what_was_written(caplog):
    with caplog.at_level(logging.INFO):
        export(verbose=True)
    assert "net.onnx: 4 operators, 4 parameters" in caplog.text


def test_shapes_of_all_values_are_written_on_request():
    found = export(run_shape_inference=True, dynamic=True)
    shapes = {each.name: dims(each) for each in found.graph.value_info}
    assert shapes["fc1_output"] == ["batch", 4]


@pytest.mark.parametrize("opset", range(13, 22))
def test_versions(opset):
    found = export(opset=opset)
    assert found.opset_import[0].version == opset
    np.testing.assert_allclose(*results(found), rtol=1e-5)


def test_the_module_of_mxnet_has_it_too():
    assert mx.contrib.onnx.export_model is mx.onnx.export_model


# files


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_published_files_of_every_version(name):
    folder, net = DATA / "checkpoints" / name, model(name)
    (symbol,), (params,) = folder.glob("*-symbol.json"), folder.glob("*.params")
    shapes = {each: net.arrays[each].shape for each in net.inputs}
    mx.onnx.export_model(symbol, str(params), shapes, onnx_file_path="net.onnx")
    found = runtime_outputs(onnx.load("net.onnx"), {each: net.arrays[each] for each in net.inputs})
    for one, other in zip(found, our_outputs(net.symbol, net.arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_the_oldest_graph_by_its_file():
    file, net = DATA / "checkpoints" / "mxnet_legacy" / "save_000800.json", model("save_000800")
    mx.nd.save("old.params", {name: mx.nd.array(net.arrays[name]) for name in net.params})
    mx.onnx.export_model(str(file), "old.params", [net.arrays["data"].shape], onnx_file_path="net.onnx")
    (found,) = runtime_outputs(onnx.load("net.onnx"), {"data": net.arrays["data"]})
    np.testing.assert_allclose(found, our_outputs(net.symbol, net.arrays)[0], rtol=1e-4, atol=1e-6)


def test_large_models_keep_parameters_beside(tmp_path):
    export(params=parameters(300), in_shapes=[(2, 300)], large_model=True)
    beside = tmp_path / "net.onnx.data"
    assert beside.stat().st_size == 4 * 4 * 300  # small ones stay in the model
    assert (tmp_path / "net.onnx").stat().st_size < 2000
    session = onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
    x = np.random.RandomState(1).rand(2, 300).astype("float32")
    np.testing.assert_allclose(
        session.run(None, {"data": x})[0], results(onnx.load("net.onnx"), 300)[1], rtol=1e-5
    )
    beside.rename(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="net.onnx.data"):
        onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])


def test_models_over_the_limit_keep_parameters_beside_by_themselves(monkeypatch, tmp_path):
    monkeypatch.setattr("dpmodule.onnx.export.EXTERNAL_BYTES", 4000)
    export(params=parameters(300), in_shapes=[(2, 300)])
    assert (tmp_path / "net.onnx.data").exists()


def test_an_older_file_is_replaced_or_stays_as_it_is(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"old")
    with pytest.raises(ArgumentError):
        export(S.linalg.syevd(S.Variable("m"))[0], {}, [(3, 3)])
    assert (tmp_path / "net.onnx").read_bytes() == b"old"
    export()
    assert [each.name for each in tmp_path.iterdir()] == ["net.onnx"]


# what is refused


class Doubled(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 2)


@mx.operator.register("doubled_for_onnx")
class DoubledProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Doubled()


def test_all_operators_that_onnx_lacks_come_in_one_error(tmp_path):
    own = S.Custom(S.Variable("data"), op_type="doubled_for_onnx", name="own")
    step = S.sgd_update(S.Variable("w"), S.Variable("g"), lr=0.1, name="step")
    spectrum = S.linalg.syevd(S.Variable("m"), name="spectrum")[0]
    large = S.linalg.inverse(S.Variable("n"), name="large")
    net = S.Group([S.relu(own), step, spectrum, large])
    with pytest.raises(ArgumentError) as error:
        export(net, {}, [(2,), (2,), (2,), (3, 3), (9, 9)])
    lines = str(error.value).splitlines()
    assert len(lines) == 4
    for line, (name, why) in zip(
        lines,
        [
            ("Custom 'own'", "runs user-defined Python code"),
            ("sgd_update 'step'", "an optimizer's step"),
            ("_linalg_syevd 'spectrum'", "computes eigenvalues"),
            ("_linalg_inverse 'large'", "the matrices have 9 rows"),
        ],
        strict=True,
    ):
        assert line.startswith(name)
        assert why in line
    assert not list(tmp_path.iterdir())


def test_all_parameters_that_do_not_fit_come_in_one_error():
    wrong = {**parameters(), "fc1_weight": mx.nd.ones((4, 5)), "fc2_bias": mx.nd.ones((3,))}
    with pytest.raises(ArgumentError) as error:
        export(params=wrong)
    assert str(error.value).splitlines() == [
        "params has 'fc1_weight' of shape (4, 5), but the symbol expects (4, 3)",
        "params has 'fc2_bias' of shape (3,), but the symbol expects (2,)",
    ]


FULLY = parameters()
MISTAKES = [
    ({"opset": 12}, ArgumentError, "opset is 12, expected one from 13 to 21"),
    ({"opset": 22}, ArgumentError, "opset is 22"),
    ({"opset": "17"}, ArgumentError, "opset is '17'"),
    (
        {"params": {k: v for k, v in FULLY.items() if k != "fc1_bias"}},
        ArgumentError,
        "'fc1_bias'.*missing there",
    ),
    ({"params": {k: v.asnumpy() for k, v in FULLY.items()}}, ArgumentError, "'fc1_weight' of ndarray"),
    ({"params": [1, 2]}, ArgumentError, "params is list, expected arrays by name"),
    ({"params": 5}, ArgumentError, "params is int"),
    ({"params": "nowhere.params"}, FileError, "nowhere.params"),
    ({"sym": "nowhere-symbol.json"}, FileError, "nowhere-symbol.json"),
    ({"sym": 5}, ArgumentError, "sym is int"),
    ({"in_shapes": None}, ArgumentError, "got none, expected a shape for each of the inputs ['data']"),
    ({"in_shapes": [(2, 3), (2,)]}, ArgumentError, "got 2, expected a shape for each of the inputs ['data']"),
    ({"in_shapes": (2,)}, ArgumentError, "expected a list of shapes"),
    ({"in_shapes": [(0, 3)]}, ArgumentError, "expected lengths of at least 1"),
    ({"in_shapes": [(2, 4)]}, ArgumentError, "'fc1_weight' of shape (4, 3), but the symbol expects (4, 4)"),
    (
        {"dynamic": {"dat": {0: "batch"}}},
        ArgumentError,
        "dynamic names 'dat'; the inputs are ['data']; did you mean data?",
    ),
    ({"dynamic": {"data": {2: "batch"}}}, ArgumentError, "names axis 2, the shape is (2, 3)"),
    ({"dynamic": {"data": {0: 5}}}, ArgumentError, "dynamic['data'][0] is 5, expected a name"),
    ({"dynamic": "data"}, ArgumentError, "dynamic is 'data'"),
    ({"dynamic": {"data": {1: "width"}}}, ArgumentError, "the length 'width' cannot be dynamic"),
    (
        {"dynamic": True, "dynamic_input_shapes": [("N", 3, 1)]},
        ArgumentError,
        "dynamic_input_shapes has ('N', 3, 1)",
    ),
    (
        {"dynamic": True, "dynamic_input_shapes": [("N", 5)]},
        ArgumentError,
        "dynamic_input_shapes has ('N', 5)",
    ),
    ({"in_types": ["float32", "int32"]}, ArgumentError, "in_types has 2 types"),
    ({"in_types": "float31"}, DTypeError, "float31"),
    ({"in_types": "float16"}, DTypeError, "takes inputs of one type, got data float16, fc1_weight float32"),
    ({"onnx_file_path": ""}, ArgumentError, "expected the name of a file"),
    ({"onnx_file_path": "."}, ArgumentError, "expected the name of a file"),
    ({"onnx_file_path": "nowhere/net.onnx"}, FileError, "nowhere"),
]


@pytest.mark.parametrize(("options", "kind", "text"), MISTAKES)
def test_mistakes(options, kind, text, tmp_path):
    given = {
        "sym": network(),
        "params": parameters(),
        "in_shapes": [(2, 3)],
        "onnx_file_path": "net.onnx",
        **options,
    }
    with pytest.raises(kind, match=".*".join(re.escape(part) for part in text.split(".*"))):
        mx.onnx.export_model(**given)
    assert not list(tmp_path.iterdir())


def test_inputs_that_do_not_fit_by_themselves():
    with pytest.raises((ShapeError, ArgumentError)):
        export(
            S.Convolution(S.Variable("x"), kernel=(3, 3), num_filter=2, no_bias=True, name="conv"),
            {},
            [(2, 3), (2,)],
        )
