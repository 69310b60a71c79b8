"""ONNX files come in as symbols that give the same results, at other batch sizes too, train, and are saved."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import dpmodule as mx
from dpmodule.base import FileError, FileFormatError
from dpmodule.onnx.from_onnx import check
from helpers import onnx_files as files
from helpers import onnx_graphs as hand
from helpers.walk import walks


def bound(symbol, arg_params, aux_params, batch, **options):
    given = {name: np.asarray(a) for name, a in batch.items() if name in symbol.list_arguments()}
    types = {name: a.dtype for name, a in given.items()}
    shapes = {name: a.shape for name, a in given.items()}
    executor = symbol.simple_bind(mx.cpu(), type_dict=types, **{"grad_req": "null", **options}, **shapes)
    executor.copy_params_from(arg_params, aux_params)
    return executor, {name: mx.nd.array(a, dtype=a.dtype) for name, a in given.items()}


def run(symbol, arg_params, aux_params, batch):
    executor, given = bound(symbol, arg_params, aux_params, batch)
    return [out.asnumpy() for out in executor.forward(is_train=False, **given)]


def wanted(path, batch):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, batch)


def same(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected):
        other = np.asarray(other)
        assert one.shape == (other.shape or (1,))
        assert one.dtype == other.dtype
        size = max(1.0, float(np.abs(other.astype(np.float64)).max(initial=0)))
        np.testing.assert_allclose(one, other.reshape(one.shape), rtol=1e-4, atol=1e-5 * size)


def agrees(made):
    """Import a file and compare it with ONNX Runtime on every batch; the saved graph gives the same."""
    symbol, arg_params, aux_params = mx.onnx.import_model(made.path)
    again = mx.sym.load_json(symbol.tojson())
    for batch in made.batches:
        got = run(symbol, arg_params, aux_params, batch)
        same(got, wanted(made.path, batch))
    for one, other in zip(got, run(again, arg_params, aux_params, batch)):
        np.testing.assert_array_equal(one, other)


@walks([(name,) for name in hand.GRAPHS], family=lambda name: "graphs")
def test_graphs_by_hand(name, tmp_path):
    agrees(files.by_hand(name, tmp_path))


@walks([(name,) for name in files.nets.QUICK], family=lambda name: "nets")
def test_files_of_torch(name, tmp_path):
    agrees(files.from_torch(name, tmp_path, False))


def test_files_of_sklearn(tmp_path):
    agrees(files.from_sklearn("mlp_classifier", tmp_path))
    agrees(files.from_sklearn("scaled", tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_file(tmp_path):
    for name in files.names()["from_sklearn"]:
        agrees(files.from_sklearn(name, tmp_path))
    count = 0
    for name in files.nets.MODELS:
        for is_new in files.exporters(name):
            agrees(files.from_torch(name, tmp_path, is_new))
            count += 1
    assert count >= 60


def saved(tmp_path, model, name="net.onnx"):
    path = tmp_path / name
    onnx.save(model, path)
    return path


def dense(tmp_path, shape=("n", 3)):
    """Write a dense layer with a batch normalization; return the file."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        helper.make_node("BatchNormalization", ["h", "g", "s", "m", "v"], ["y"]),
    ]
    arrays = {"w": hand.draw(4, 3), "b": hand.draw(4), "g": hand.draw(4), "s": hand.draw(4)}
    arrays |= {"m": hand.draw(4), "v": np.ones(4, np.float32)}
    return saved(
        tmp_path, hand.model_of(nodes, [hand.value("x", shape)], [hand.value("y", ["n", 4])], arrays)
    )


class TestNames:
    def test_variables_keep_the_names_of_the_file_by_their_role(self, tmp_path):
        symbol, arg_params, aux_params = mx.onnx.import_model(dense(tmp_path))
        assert symbol.list_arguments() == ["x", "w", "b", "g", "s"]
        assert symbol.list_outputs() == ["y_output"]
        assert sorted(arg_params) == ["b", "g", "s", "w"]
        assert sorted(aux_params) == ["m", "v"]

    def test_metadata_lists_inputs_and_outputs(self, tmp_path):
        found = mx.onnx.get_model_metadata(str(dense(tmp_path)))
        assert found == {"input_tensor_data": [("x", (0, 3))], "output_tensor_data": [("y", (0, 4))]}

    def test_contrib_has_the_same_functions(self):
        from dpmodule.contrib.onnx.onnx2mx.import_model import get_model_metadata, import_model

        assert mx.contrib.onnx.import_model is mx.onnx.import_model is import_model
        assert mx.contrib.onnx.get_model_metadata is mx.onnx.get_model_metadata is get_model_metadata


class TestModule:
    def test_is_ready_to_predict_batches_of_any_size(self, tmp_path):
        path = dense(tmp_path)
        module = mx.mod.Module.from_onnx(path)
        assert module.data_shapes[0].shape == (1, 3)
        for size in (4, 7):
            x = hand.draw(size, 3)
            got = module.predict(mx.io.NDArrayIter({"x": x}, batch_size=size)).asnumpy()
            np.testing.assert_allclose(got, wanted(path, {"x": x})[0], rtol=1e-5, atol=1e-6)

    def test_inputs_have_the_types_of_the_file(self, tmp_path):
        made = files.from_torch("tagger", tmp_path, False)
        module = mx.mod.Module.from_onnx(made.path)
        batch = mx.io.DataBatch([mx.nd.array(made.batches[1]["x0"], dtype="int64")])
        module.forward(batch, is_train=False)
        same([module.get_outputs()[0].asnumpy()], wanted(made.path, made.batches[1]))

    def test_given_shapes_come_in_place_of_those_in_the_file(self, tmp_path):
        module = mx.mod.Module.from_onnx(dense(tmp_path, None), shapes={"x": (5, 3)})
        assert module.output_shapes[0][1] == (5, 4)


class TestTraining:
    def test_a_loss_on_top_trains_the_weights(self, tmp_path):
        made = files.from_torch("resnet", tmp_path, False)
        symbol, arg_params, aux_params = mx.onnx.import_model(made.path)
        rng = np.random.default_rng(0)
        label = rng.integers(0, 2, 32)
        data = rng.standard_normal((32, 3, 16, 16)).astype(np.float32) + label[:, None, None, None]
        train = mx.io.NDArrayIter({"x0": data}, {"softmax_label": label.astype(np.float32)}, 16)
        module = mx.mod.Module(mx.sym.SoftmaxOutput(symbol, name="softmax"), data_names=["x0"])
        options = {"learning_rate": 0.1, "momentum": 0.9}
        module.fit(
            train, num_epoch=12, arg_params=arg_params, aux_params=aux_params, optimizer_params=options
        )
        assert module.score(train, "acc")[0][1] > 0.9

    def test_recurrent_weights_have_the_gradients_of_the_formula(self, tmp_path):
        made = files.by_hand("lstm_reverse", tmp_path)
        symbol, arg_params, aux_params = mx.onnx.import_model(made.path)
        executor, given = bound(symbol, arg_params, aux_params, made.batches[0], grad_req="write")
        outs = executor.forward(is_train=True, **given)
        executor.backward([mx.nd.ones(out.shape) for out in outs])
        gradient = executor.grad_dict["w"].asnumpy()
        step, place = 1e-2, np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        sums = []
        for sign in (1, -1):
            weight = arg_params["w"].asnumpy()
            weight[place] += sign * step
            changed = {**arg_params, "w": mx.nd.array(weight)}
            sums.append(sum(out.sum() for out in run(symbol, changed, aux_params, made.batches[0])))
        assert abs((sums[0] - sums[1]) / (2 * step) - gradient[place]) < 1e-2 * abs(gradient[place])

    def test_constants_stay_as_they_are(self, tmp_path):
        nodes = [
            helper.make_node("Gather", ["x", "places"], ["t"], axis=1),
            helper.make_node("MatMul", ["t", "w"], ["y"]),
        ]
        arrays = {"places": np.array([2, 0, 1]), "w": hand.draw(3, 2)}
        model = hand.model_of(nodes, [hand.value("x", ["n", 3])], [hand.value("y", ["n", 2])], arrays)
        symbol, arg_params, aux_params = mx.onnx.import_model(saved(tmp_path, model))
        module = mx.mod.Module(mx.sym.LinearRegressionOutput(symbol, name="out"), ["x"], ["out_label"])
        data = mx.io.NDArrayIter({"x": hand.draw(8, 3)}, {"out_label": hand.draw(8, 2)}, 4)
        module.fit(data, num_epoch=2, arg_params=arg_params, aux_params=aux_params, eval_metric="mse")
        after = module.get_params()[0]
        assert after["places"].asnumpy().tolist() == [2, 0, 1]
        assert np.abs(after["w"].asnumpy() - arrays["w"]).max() > 1e-4

    def test_goes_through_a_checkpoint(self, tmp_path):
        made = files.by_hand("detection", tmp_path)
        symbol, arg_params, aux_params = mx.onnx.import_model(made.path)
        mx.model.save_checkpoint(str(tmp_path / "net"), 3, symbol, arg_params, aux_params)
        loaded = mx.model.load_checkpoint(str(tmp_path / "net"), 3)
        same(run(*loaded, made.batches[1]), wanted(made.path, made.batches[1]))


def relu(**changes):
    """Return a small model, and what `changes` says about its one node."""
    made = helper.make_node("Relu", ["x"], ["y"], name="n")
    for key, value in changes.items():
        setattr(made, key, value)
    return hand.model_of([made], [hand.value("x", ["n", 2])], [hand.value("y", ["n", 2])])


def refusal(tmp_path, model):
    with pytest.raises(FileFormatError) as error:
        mx.onnx.import_model(saved(tmp_path, model))
    return str(error.value)


DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def results(tmp_path, nodes, inputs, outputs, arrays=(), opset=21):
    """Import a graph, and return its results for some inputs; `outputs` are names and element types."""
    values = [hand.value(name, list(array.shape), code_of(array)) for name, array in inputs.items()]
    ends = [hand.value(name, None, code) for name, code in outputs]
    model = hand.model_of(nodes, values, ends, dict(arrays), opset=opset)
    return run(*mx.onnx.import_model(saved(tmp_path, model)), inputs)


def code_of(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


class TestElementTypes:
    @pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
    def test_unsigned_integers_are_those_of_numpy(self, tmp_path, dtype):
        limits, bits = np.iinfo(dtype), np.iinfo(dtype).bits
        a = np.array([[0, 1, limits.max], [limits.max // 2 + 1, 200, 7]], dtype)
        b = np.array([[limits.max, 3, limits.max], [2, limits.max // 2, 7]], dtype)
        by = np.array([[0, 1, bits - 1], [1, 4, bits // 2]], dtype)
        shifts = {"LEFT": np.left_shift, "RIGHT": np.right_shift}
        pairs = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum}
        pairs |= {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}
        pairs |= {} if dtype == "uint64" else {"Div": np.floor_divide, "Mod": np.mod}
        tests = {"Less": np.less, "GreaterOrEqual": np.greater_equal, "Equal": np.equal}
        casts = ["float32", "float64", "int8", "uint8", "int32", "int64", "uint16", "uint32", "uint64"]
        nodes = [helper.make_node(kind, ["a", "b"], [kind]) for kind in (*pairs, *tests)]
        nodes += [helper.make_node("BitShift", ["a", "by"], [way], direction=way) for way in shifts]
        nodes += [
            helper.make_node("Cast", ["a"], [to], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
            for to in casts
        ]
        nodes += [
            helper.make_node("BitwiseNot", ["a"], ["not"]),
            helper.make_node("ReduceMax", ["a", "axis"], ["highest"]),
        ]
        nodes += [
            helper.make_node("ReduceSum", ["a", "axis"], ["total"]),
            helper.make_node("Sub", ["a", "three"], ["less"]),
        ]
        nodes += [
            helper.make_node("Sum", ["a", "b", "a"], ["sum"]),
            helper.make_node("MatMul", ["a", "turned"], ["product"]),
        ]
        with np.errstate(over="ignore"):
            expected = {kind: function(a, b) for kind, function in {**pairs, **tests}.items()}
            expected |= {way: function(a, by) for way, function in shifts.items()}
            expected |= {to: a.astype(to) for to in casts} | {"not": ~a, "highest": a.max(1, keepdims=True)}
            expected |= {"total": a.sum(1, keepdims=True, dtype=dtype), "less": a - np.array(3, dtype)}
            expected |= {"sum": a + b + a, "product": (a @ b.T).astype(dtype)}
        arrays = {"axis": np.array([1]), "three": np.array(3, dtype), "turned": b.T.copy()}
        outputs = [(name, code_of(array)) for name, array in expected.items()]
        inputs = {"a": a, "b": b, "by": by}
        for (name, array), got in zip(expected.items(), results(tmp_path, nodes, inputs, outputs, arrays)):
            assert got.dtype == array.dtype, name
            np.testing.assert_array_equal(got, array, name)

    def test_unsigned_arithmetic_that_torch_lacks_is_refused(self, tmp_path):
        x = np.array([1, 2], "u8")
        with pytest.raises(
            FileFormatError, match=r"\(Div\): Div of uint64; .* cast to int64 or a float first"
        ):
            results(
                tmp_path, [helper.make_node("Div", ["x", "x"], ["y"])], {"x": x}, [("y", TensorProto.UINT64)]
            )

    def test_inputs_of_a_module_keep_the_types_of_the_file(self, tmp_path):
        model = hand.model_of(
            [helper.make_node("Add", ["x", "w"], ["y"])],
            [hand.value("x", ["n", 2], TensorProto.UINT32)],
            [hand.value("y", ["n", 2], TensorProto.UINT32)],
            {"w": np.array([2**32 - 1, 5], "u4")},
        )
        module = mx.mod.Module.from_onnx(saved(tmp_path, model))
        assert module.output_names == ["y_output"]
        data = mx.nd.array([[3, 2**32 - 1]] * 4, dtype="uint32")
        got = module.predict(mx.io.NDArrayIter(data, batch_size=2)).asnumpy()
        assert got.dtype == np.uint32
        assert got.tolist() == [[2, 4]] * 4

    def test_loops_and_branches_keep_the_types(self, tmp_path):
        kind, flag = TensorProto.UINT32, TensorProto.BOOL
        steps = [helper.make_node("Add", ["s", "x"], ["s2"]), helper.make_node("Identity", ["c"], ["c2"])]
        ends = [hand.value("c2", [], flag), hand.value("s2", [2], kind)]
        start = [
            hand.value("i", [], TensorProto.INT64),
            hand.value("c", [], flag),
            hand.value("s", [2], kind),
        ]
        body = helper.make_graph(steps, "body", start, ends)
        nodes = [
            helper.make_node("Loop", ["n", "on", "x"], ["f"], body=body),
            helper.make_node("Add", ["f", "f"], ["y"]),
        ]
        x = np.array([2**31, 2**32 - 1], "u4")
        arrays = {"n": np.array(2), "on": np.array(True)}
        (got,) = results(tmp_path, nodes, {"x": x}, [("y", kind)], arrays)
        np.testing.assert_array_equal(got, x * np.uint32(6))

    def test_types_of_few_bits_round_and_saturate(self, tmp_path):
        x = np.array([0.3, -17.5, 18.5, 1e6, -np.inf, 3.7], "f4")
        rows = {
            ("FLOAT8E4M3FN", 1): [0.3125, -18, 18, 448, -448, 3.75],
            ("FLOAT8E4M3FN", 0): [0.3125, -18, 18, np.nan, np.nan, 3.75],
            ("FLOAT8E4M3FNUZ", 1): [0.3125, -18, 18, 240, -240, 3.75],
            ("FLOAT8E5M2", 1): [0.3125, -16, 20, 57344, -57344, 3.5],
            ("FLOAT8E5M2", 0): [0.3125, -16, 20, np.inf, -np.inf, 3.5],
            ("FLOAT8E5M2FNUZ", 1): [0.3125, -16, 20, 57344, -57344, 3.5],
        }
        for (kind, saturate), values in rows.items():
            code = TensorProto.DataType.Value(kind)
            one, few = np.array([1], "f4"), helper.make_tensor("few", code, [1], [1])
            nodes = [
                helper.make_node("Constant", [], ["few"], value=few),
                helper.make_node("Cast", ["x"], ["a"], to=code, saturate=saturate),
                helper.make_node("CastLike", ["x", "few"], ["b"], saturate=saturate),
                helper.make_node("QuantizeLinear", ["x", "one"], ["c"], output_dtype=code, saturate=saturate),
                *(helper.make_node("Cast", [name], [name * 2], to=TensorProto.FLOAT) for name in "abc"),
            ]
            outputs = [(name, TensorProto.FLOAT) for name in ("aa", "bb", "cc")]
            for got in results(tmp_path, nodes, {"x": x}, outputs, {"one": one}):
                np.testing.assert_array_equal(got, np.array(values, "f4"), kind)

    @pytest.mark.parametrize(
        ("kind", "low", "high", "wrapped"),
        [
            ("UINT4", 0, 15, [3, 15, 2]),
            ("INT4", -8, 7, [3, -1, 2]),
            ("UINT16", 0, 65535, [3, 65535, 98]),
            ("INT16", -32768, 32767, [3, -1, 98]),
        ],
    )
    def test_integers_are_cut_off_by_cast_and_saturate_by_quantize(self, tmp_path, kind, low, high, wrapped):
        x, code = np.array([3, -1, 98], "i4"), TensorProto.DataType.Value(kind)
        wide = np.array([2.5, 1e9, -1e9, np.inf, 3.5], "f4")
        nodes = [
            helper.make_node("Cast", ["x"], ["a"], to=code),
            helper.make_node("QuantizeLinear", ["wide", "one"], ["b"], output_dtype=code),
            *(helper.make_node("Cast", [name], [name * 2], to=TensorProto.INT32) for name in "ab"),
        ]
        outputs = [(name, TensorProto.INT32) for name in ("aa", "bb")]
        got, quantized = results(
            tmp_path, nodes, {"x": x, "wide": wide}, outputs, {"one": np.array([1], "f4")}
        )
        assert got.tolist() == wrapped
        assert quantized.tolist() == [2, high, low, high, 4]

    def test_mod_and_round_at_infinities_and_zeros(self, tmp_path):
        x = np.array([-0.0, 3.5, -3.5, 3.5, np.inf, 2.5, -7.25], "f4")
        y = np.array([2.0, np.inf, np.inf, 0.0, 2.0, -np.inf, 2.5], "f4")
        nodes = [helper.make_node("Mod", ["x", "y"], [name], fmod=i) for i, name in enumerate("ab")]
        nodes.append(helper.make_node("Round", ["x"], ["c"]))
        floor, cut, rounded = results(
            tmp_path, nodes, {"x": x, "y": y}, [(name, 1) for name in "abc"], opset=21
        )
        expected = np.array([0.0, 3.5, np.inf, np.nan, np.nan, -np.inf, 0.25], "f4")
        np.testing.assert_array_equal(floor, expected)
        np.testing.assert_array_equal(np.signbit(floor[:3]), [False, False, False])
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(cut, np.fmod(x, y))
        np.testing.assert_array_equal(rounded, np.rint(x))


class TestOldOpsets:
    def check(self, folder, tmp_path):
        model = onnx.load(folder / "model.onnx")
        assert model.opset_import[0].version < 7
        read = [
            [
                numpy_helper.to_array(onnx.load_tensor(path))
                for path in sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"))
            ]
            for kind in ("input", "output")
        ]
        names = [value.name for value in model.graph.input]
        got = run(*mx.onnx.import_model(folder / "model.onnx"), dict(zip(names, read[0])))
        for one, other in zip(got, read[1], strict=True):
            np.testing.assert_allclose(one.reshape(other.shape), other, rtol=1e-3, atol=1e-5)

    @pytest.mark.parametrize(
        "name",
        [
            "pytorch-converted/test_PReLU_2d_multiparam",
            "pytorch-converted/test_BatchNorm2d_eval",
            "pytorch-operator/test_operator_addmm",
        ],
    )
    def test_files_are_upgraded(self, name, tmp_path):
        self.check(DATA / name, tmp_path)

    @pytest.mark.slow
    def test_all_old_files_of_the_package(self, tmp_path):
        too_wide = {"test_MaxPool1d_stride_padding_dilation", "test_MaxPool2d_stride_padding_dilation"}
        folders = [
            path.parent
            for kind in ("pytorch-converted", "pytorch-operator")
            for path in (DATA / kind).glob("*/model.onnx")
        ]
        old = [folder for folder in folders if onnx.load(folder / "model.onnx").opset_import[0].version < 7]
        assert len(old) > 100
        for folder in old:
            if folder.name not in too_wide:
                self.check(folder, tmp_path)

    def test_what_the_converter_cannot_upgrade_is_told(self, tmp_path, monkeypatch):
        def refuse(model, version):
            raise RuntimeError("No Adapter From Version 5\nfor Bend")

        monkeypatch.setattr("onnx.version_converter.convert_version", refuse)
        model = relu()
        model.opset_import[0].version = 5
        assert "opset 5, which the package onnx cannot upgrade to 7: No Adapter From Version 5" in refusal(
            tmp_path, model
        )

    def test_an_output_that_nobody_reads_need_not_be_made(self, tmp_path):
        nodes = [helper.make_node("Dropout", ["x"], ["a", "mask"]), helper.make_node("Relu", ["a"], ["y"])]
        model = hand.model_of(nodes, [hand.value("x", [2])], [hand.value("y", [2])])
        path, x = saved(tmp_path, model), hand.draw(2)
        same(run(*mx.onnx.import_model(path), {"x": x}), wanted(path, {"x": x}))


class TestBadFiles:
    def test_everything_wrong_comes_in_one_error(self, tmp_path):
        model = hand.model_of(
            [
                helper.make_node("Relu", ["x"], ["a"], name="one", alpha=1.0),
                helper.make_node("Bend", ["a"], ["b"], name="two"),
                helper.make_node("Fold", ["b"], ["c"], name="three", domain="com.example"),
                helper.make_node("MaxUnpool", ["c", "nowhere"], ["y"], name="four", kernel_shape=[2]),
            ],
            [hand.value("x", ["n"])],
            [hand.value("y", ["n"])],
        )
        text = refusal(tmp_path, model)
        for part in (
            "node 'one' (Relu): unknown attribute 'alpha'",
            "node 'two' (Bend): opset 17 of ai.onnx has no operator 'Bend'",
            "node 'three' (com.example.Fold): unknown domain 'com.example'",
            "node 'four' (MaxUnpool): MaxUnpool cannot be expressed",
            "node 'four' (MaxUnpool): reads 'nowhere', which is not defined",
        ):
            assert part in text

    @pytest.mark.parametrize("opset", [0, 99])
    def test_unknown_opsets(self, tmp_path, opset):
        model = relu()
        model.opset_import[0].version = opset
        assert f"opset {opset} of ai.onnx, expected 7 to" in refusal(tmp_path, model)

    def test_a_cycle_names_its_nodes(self, tmp_path):
        nodes = [
            helper.make_node("Add", ["x", "b"], ["a"], name="first"),
            helper.make_node("Relu", ["a"], ["b"], name="second"),
        ]
        model = hand.model_of(nodes, [hand.value("x", ["n"])], [hand.value("b", ["n"])])
        assert "a cycle: these nodes wait for each other: node 'first' (Add), node 'second'" in refusal(
            tmp_path, model
        )

    def test_no_outputs(self, tmp_path):
        model = relu()
        del model.graph.output[:]
        assert "it has no outputs" in refusal(tmp_path, model)

    def test_trees_are_refused_by_name(self, tmp_path):
        with pytest.raises(FileFormatError, match="TreeEnsembleClassifier cannot be expressed"):
            mx.onnx.import_model(files.from_sklearn("tree", tmp_path).path)

    def test_truncated_and_foreign_files(self, tmp_path):
        whole = dense(tmp_path).read_bytes()
        for data in (
            whole[: len(whole) // 2],
            b"",
            b"\x89PNG\r\n\x1a\n" + bytes(40),
            json.dumps({"a": 1}).encode(),
        ):
            (tmp_path / "bad.onnx").write_bytes(data)
            with pytest.raises(FileFormatError, match=r"bad\.onnx.*" + ("" if data else "the file is empty")):
                mx.onnx.import_model(tmp_path / "bad.onnx")
        with pytest.raises(FileError):
            mx.onnx.import_model(tmp_path / "none.onnx")

    def test_an_array_of_another_size_than_it_says(self, tmp_path):
        model = hand.model_of(
            [helper.make_node("Add", ["x", "w"], ["y"])], [hand.value("x", ["n", 2])], [hand.value("y", ["n", 2])],
            {"w": hand.draw(2)},
        )  # fmt: skip
        model.graph.initializer[0].dims[0] = 2**40
        assert "initializer 'w': 8 bytes for (1099511627776,)" in refusal(tmp_path, model)

    def test_an_input_without_a_shape_has_to_be_given_one(self, tmp_path):
        text = refusal(tmp_path, hand.model_of([], [hand.value("x", None)], [hand.value("x", None)]))
        assert "input 'x': the file does not declare its shape; give shapes={'x': (...)}" in text

    def test_functions_that_call_themselves(self, tmp_path):
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        call = helper.make_node("again", ["a"], ["b"], domain="own")
        made = helper.make_function("own", "again", ["a"], ["b"], [call], opsets)
        outer = helper.make_node("again", ["x"], ["y"], domain="own", name="outer")
        model = hand.model_of(
            [outer], [hand.value("x", [2])], [hand.value("y", [2])], functions=[made], own=1
        )
        assert "functions call each other too deeply, or recursively" in refusal(tmp_path, model)

    def test_functions_that_double_their_nodes_at_every_level(self, tmp_path):
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]

        def model(levels):
            functions = [
                helper.make_function(
                    "own",
                    f"f{i}",
                    ["a"],
                    ["b"],
                    [
                        helper.make_node(f"f{i + 1}", [x], [y], domain="own")
                        for x, y in (("a", "t"), ("t", "b"))
                    ],
                    opsets,
                )
                for i in range(levels)
            ]
            last = helper.make_node("Relu", ["a"], ["b"])
            functions.append(helper.make_function("own", f"f{levels}", ["a"], ["b"], [last], opsets))
            call = helper.make_node("f0", ["x"], ["y"], domain="own")
            ends = [hand.value("x", [2])], [hand.value("y", [2])]
            return hand.model_of([call], *ends, functions=functions, own=1)

        symbol, _, _ = mx.onnx.import_model(saved(tmp_path, model(4)))
        assert symbol.tojson().count('"op": "Activation"') + symbol.tojson().count('"op": "relu"') == 16
        text = "more than 250000 nodes after expanding functions"
        assert text in refusal(tmp_path, model(30))
        assert "functions call each other too deeply" in refusal(tmp_path, model(100))

    @pytest.mark.timeout(20)
    def test_loops_in_loops_are_translated_a_few_times_each(self, tmp_path):
        def body(level):
            kinds = ((TensorProto.INT64, "i"), (TensorProto.BOOL, "c"), (TensorProto.FLOAT, "s"))
            ends = [
                helper.make_tensor_value_info(f"{name}{level}", kind, [2] if name == "s" else [])
                for kind, name in kinds
            ]
            state, out = f"s{level}", f"o{level}"
            inner = helper.make_node("Relu", [state], [out])
            if level < 18:
                inner = helper.make_node("Loop", ["count", "yes", state], [out], body=body(level + 1))
            nodes = [
                inner,
                helper.make_node("ReduceSum", [state], [f"r{level}"], keepdims=0),
                helper.make_node("Greater", [f"r{level}", "zero"], [f"d{level}"]),
            ]
            names = (TensorProto.BOOL, f"d{level}", []), (TensorProto.FLOAT, out, [2])
            outs = [helper.make_tensor_value_info(name, kind, shape) for kind, name, shape in names]
            return helper.make_graph(nodes, f"b{level}", ends, outs)

        loop = helper.make_node("Loop", ["count", "yes", "x"], ["y"], body=body(0))
        arrays = {"count": np.array(2), "yes": np.array(True), "zero": np.array(0, np.float32)}
        model = hand.model_of([loop], [hand.value("x", [2])], [hand.value("y", [2])], arrays)
        symbol, params, _ = mx.onnx.import_model(saved(tmp_path, model))
        symbol.infer_shape_partial()
        network = symbol.to_torch(params)
        assert network(torch.tensor([1.0, -2.0])).tolist() == [1, 0]

    @pytest.mark.timeout(20)
    def test_a_number_that_is_reached_in_many_ways_is_looked_for_once(self, tmp_path):
        nodes = [helper.make_node("Expand", ["w", "size"], ["t0"])]
        nodes += [helper.make_node("Add", [f"t{i}", f"t{i}"], [f"t{i + 1}"]) for i in range(60)]
        nodes += [
            helper.make_node("ReduceSum", ["t60"], ["sum"]),
            helper.make_node("Cast", ["sum"], ["shape"], to=TensorProto.INT64),
            helper.make_node("Reshape", ["x", "shape"], ["y"]),
        ]
        arrays = {"w": np.ones(1, np.float32), "size": np.array([10**9])}
        model = hand.model_of(nodes, [hand.value("x", [2])], [hand.value("y", None)], arrays)
        assert "node 'y' (Reshape): shape depends on the data" in refusal(tmp_path, model)

    def test_lengths_that_a_file_only_states_take_no_memory(self, tmp_path):
        state = helper.make_tensor_value_info("s", TensorProto.FLOAT, [2])
        number = helper.make_tensor_value_info("i", TensorProto.INT64, [])
        flag = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
        nodes = [helper.make_node("Add", ["s", "s"], ["o"]), helper.make_node("Identity", ["c"], ["d"])]
        outs = [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("o", TensorProto.FLOAT, [2]),
        ]
        body = helper.make_graph(nodes, "body", [number, flag, state], outs)
        loop = helper.make_node("Loop", ["count", "yes", "x"], ["y"], body=body)
        ends = [hand.value("x", [2])], [hand.value("y", [2])]
        for count in (10**9, 10**11):
            arrays = {"count": np.array(count), "yes": np.array(True)}
            mx.onnx.import_model(saved(tmp_path, hand.model_of([loop], *ends, arrays)))
        parts = helper.make_node("SplitToSequence", ["x"], ["parts"])
        first = helper.make_node("SequenceAt", ["parts", "zero"], ["y"])
        ends = [hand.value("x", [2**30])], [hand.value("y", None)]
        model = hand.model_of([parts, first], *ends, {"zero": np.array(0)})
        assert "a sequence of 1073741824 arrays" in refusal(tmp_path, model)

    def test_constants_that_would_be_huge_are_not_computed(self, tmp_path):
        nodes = [
            helper.make_node("Expand", ["one", "shape"], ["wide"]),
            helper.make_node("Expand", ["wide", "shape"], ["wider"]),
            helper.make_node("Add", ["x", "wider"], ["y"]),
        ]
        arrays = {"one": np.ones(1, np.float32), "shape": np.array([2**20, 2**20])}
        model = hand.model_of(nodes, [hand.value("x", [1, 1])], [hand.value("y", None)], arrays)
        symbol, _, _ = mx.onnx.import_model(saved(tmp_path, model))
        assert symbol.infer_shape(x=(1, 1))[1] == [(2**20, 2**20)]

    def test_many_nodes_are_refused_at_once(self, tmp_path, monkeypatch):
        assert check._MAX_NODES == 250_000
        monkeypatch.setattr(check, "_MAX_NODES", 2_500)
        graph = helper.make_graph([], "g", [hand.value("x", [2])], [hand.value("y", [2])])
        for i in range(2_501):
            made = graph.node.add()
            made.op_type = "Relu"
            made.input.append(f"t{i}" if i else "x")
            made.output.append(f"t{i + 1}")
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        assert "more than 2500 nodes" in refusal(tmp_path, model)


class TestExternalData:
    def model(self, tmp_path, **entries):
        array = hand.draw(4)
        (tmp_path / "net.data").write_bytes(b"abcd" + array.tobytes())
        nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
        made = hand.model_of(nodes, [hand.value("x", ["n", 4])], [hand.value("y", ["n", 4])], {"w": array})
        proto = made.graph.initializer[0]
        proto.ClearField("raw_data")
        proto.data_location = TensorProto.EXTERNAL
        for key, text in {"location": "net.data", "offset": "4", "length": "16", **entries}.items():
            proto.external_data.add(key=key, value=text)
        return made, array

    def test_is_read_from_the_folder_of_the_file(self, tmp_path):
        made, array = self.model(tmp_path)
        _, arg_params, _ = mx.onnx.import_model(saved(tmp_path, made))
        np.testing.assert_array_equal(arg_params["w"].asnumpy(), array)

    @pytest.mark.parametrize(
        ("entries", "text"),
        [
            ({"location": "none.data"}, "there is no such file"),
            ({"location": "../net.data"}, "expected a file in the model's own folder"),
            ({"location": "/etc/hostname"}, "expected a file in the model's own folder"),
            ({"offset": "8"}, "expected bytes 8 to 24"),
            ({"offset": "-4"}, "expected bytes -4 to 12"),
            ({"length": "12"}, "12 bytes for"),
            ({"length": "many"}, "offset or length is not a number"),
        ],
    )
    def test_is_refused_where_it_does_not_fit(self, tmp_path, entries, text):
        assert text in refusal(tmp_path, self.model(tmp_path, **entries)[0])

    def test_a_link_out_of_the_folder_is_refused(self, tmp_path):
        inner = tmp_path / "inner"
        inner.mkdir()
        made, _ = self.model(tmp_path)
        (inner / "net.data").symlink_to(tmp_path / "net.data")
        assert "leads out of the model's own folder" in refusal(inner, made)


def test_types_that_numpy_lacks_come_in(tmp_path):
    import torch

    values = torch.tensor([1.5, -2.25, 3.0], dtype=torch.bfloat16)
    raw = values.view(torch.int16).numpy().tobytes()
    proto = helper.make_tensor("w", TensorProto.BFLOAT16, [3], raw, raw=True)
    nodes = [
        helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    model = hand.model_of(nodes, [hand.value("x", ["n", 3])], [hand.value("y", ["n", 3])])
    model.graph.initializer.append(proto)
    symbol, arg_params, aux_params = mx.onnx.import_model(saved(tmp_path, model))
    got = run(symbol, arg_params, aux_params, {"x": np.zeros((2, 3), np.float32)})
    assert got[0].tolist() == [[1.5, -2.25, 3.0]] * 2
    assert numpy_helper.to_array(proto).shape == (3,)


def test_inputs_have_their_type_where_operators_would_guess_another(tmp_path):
    symbol, args, _ = mx.onnx.import_model(files.from_torch("attention", tmp_path, False).path)
    net = mx.sym.load_json(symbol.tojson())
    assert dict(zip(net.list_arguments(), net.infer_type()[0], strict=True))["x0"] is np.float32
    executor = net.simple_bind(mx.cpu(), grad_req="null", x0=(2, 6, 16))
    executor.copy_params_from(args)
    assert executor.forward(x0=mx.nd.ones((2, 6, 16)))[0].shape == (2, 6, 16)
