"""ONNX files come in as symbols that give the same results, at other batch sizes too, train, and are saved."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import dpmodule as mx
from helpers import onnx_files as files
from helpers import onnx_graphs as hand
from helpers.torch_nets import NETS
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
    options.add_session_config_entry("session.x64quantprecision", "1")  # exact products without VNNI, too
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, batch)


def same(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected):
        other = np.asarray(other)
        assert (one.shape, one.dtype) == (other.shape or (1,), other.dtype)
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


QUICK = ("resnet", "bilstm", "bigru", "causal_attention", "ssd", "odd", "gpt_block")


SLOW = [name for name in NETS if name not in QUICK]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_files_of_torch(name, tmp_path):
    for is_new in (False,) if name in QUICK else files.exporters(name):
        agrees(files.from_torch(name, tmp_path, is_new))


@pytest.mark.parametrize("name", ["scaled", "logistic_two", pytest.param("others", marks=pytest.mark.slow)])
def test_files_of_sklearn(name, tmp_path):
    others = "mlp_classifier", "mlp_two", "mlp_regressor", "logistic", "linear", "ridge", "normalized"
    for each in others if name == "others" else [name]:
        agrees(files.from_sklearn(each, tmp_path))


def saved(tmp_path, model):
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    return path


def imported(tmp_path, text, **options):
    return mx.onnx.import_model(saved(tmp_path, hand.model_of(text, **options)))


def dense(tmp_path, shape="[n,3]"):
    """Write a dense layer with a batch normalization; return the file."""
    text = f"""(float{shape} x) => (float[n,4] y) {{
        h = Gemm<transB = 1>(x, w, b)  y = BatchNormalization(h, g, s, m, v)
    }}"""
    arrays = {"w": hand.draw(4, 3), **{name: hand.draw(4) for name in "bgsm"}, "v": np.ones(4, np.float32)}
    return saved(tmp_path, hand.model_of(text, **arrays))


def test_names_and_metadata_of_the_file(tmp_path):
    path = dense(tmp_path)
    symbol, arg_params, aux_params = mx.onnx.import_model(path)
    assert (symbol.list_arguments(), symbol.list_outputs()) == (["x", "w", "b", "g", "s"], ["y_output"])
    assert (sorted(arg_params), sorted(aux_params)) == (["b", "g", "s", "w"], ["m", "v"])
    found = mx.onnx.get_model_metadata(str(path))
    assert found == {"input_tensor_data": [("x", (0, 3))], "output_tensor_data": [("y", (0, 4))]}
    assert mx.mod.Module.from_onnx(dense(tmp_path, "[]"), shapes={"x": (5, 3)}).output_shapes[0][1] == (5, 4)


class TestTraining:
    def test_constants_stay_as_they_are(self, tmp_path):
        text = "(float[n,3] x) => (float[n,2] y) { t = Gather<axis = 1>(x, places)  y = MatMul(t, w) }"
        arrays = {"places": np.array([2, 0, 1]), "w": hand.draw(3, 2)}
        symbol, arg_params, aux_params = imported(tmp_path, text, **arrays)
        module = mx.mod.Module(mx.sym.LinearRegressionOutput(symbol, name="out"), ["x"], ["out_label"])
        data = mx.io.NDArrayIter({"x": hand.draw(8, 3)}, {"out_label": hand.draw(8, 2)}, 4)
        module.fit(data, num_epoch=2, arg_params=arg_params, aux_params=aux_params, eval_metric="mse")
        after = module.get_params()[0]
        assert after["places"].asnumpy().tolist() == [2, 0, 1]
        assert np.abs(after["w"].asnumpy() - arrays["w"]).max() > 1e-4


def code_of(array):
    return helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)


def type_of(array):
    name = TensorProto.DataType.Name(code_of(array)).lower()
    return f"{name}[{','.join(map(str, array.shape))}]"


def results(tmp_path, nodes, inputs, outputs, **options):
    """Import a graph of some nodes, and return its results; `outputs` are "type name"."""
    given = ", ".join(f"{type_of(array)} {name}" for name, array in inputs.items())
    text = f"({given}) => ({', '.join(outputs)}) {{ {nodes} }}"
    return run(*imported(tmp_path, text, **{"opset": 21, **options}), inputs)


class TestElementTypes:
    @pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
    def test_unsigned_integers_are_those_of_numpy(self, tmp_path, dtype):
        limits, bits = np.iinfo(dtype), np.iinfo(dtype).bits
        a = np.array([[0, 1, limits.max], [limits.max // 2 + 1, 200, 7]], dtype)
        b = np.array([[limits.max, 3, limits.max], [2, limits.max // 2, 7]], dtype)
        by = np.array([[0, 1, bits - 1], [1, 4, bits // 2]], dtype)
        pairs = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum}
        pairs |= {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}
        pairs |= {} if dtype == "uint64" else {"Div": np.floor_divide, "Mod": np.mod}
        pairs |= {"Less": np.less, "GreaterOrEqual": np.greater_equal, "Equal": np.equal}
        casts = ["float32", "float64", "int8", "uint8", "int32", "int64", "uint16", "uint32", "uint64"]
        with np.errstate(over="ignore"):
            expected = {f"{kind}(a, b)": function(a, b) for kind, function in pairs.items()} | {
                'BitShift<direction = "LEFT">(a, by)': np.left_shift(a, by),
                'BitShift<direction = "RIGHT">(a, by)': np.right_shift(a, by),
                **{f"Cast<to = {code_of(np.zeros(0, to))}>(a)": a.astype(to) for to in casts},
                **{"BitwiseNot(a)": ~a, "ReduceMax(a, axis)": a.max(1, keepdims=True)},
                "ReduceSum(a, axis)": a.sum(1, keepdims=True, dtype=dtype),
                **{"Sub(a, three)": a - np.array(3, dtype), "Sum(a, b, a)": a + b + a},
                "MatMul(a, turned)": (a @ b.T).astype(dtype),
            }
        arrays = {"axis": np.array([1]), "three": np.array(3, dtype), "turned": b.T.copy()}
        nodes = " ".join(f"y{i} = {call}" for i, call in enumerate(expected))
        outputs = [f"{type_of(array)} y{i}" for i, array in enumerate(expected.values())]
        found = results(tmp_path, nodes, {"a": a, "b": b, "by": by}, outputs, **arrays)
        for (call, array), got in zip(expected.items(), found, strict=True):
            assert got.dtype == array.dtype, call
            np.testing.assert_array_equal(got, array, call)

    def test_inputs_of_a_module_keep_the_types_of_the_file(self, tmp_path):
        text = "(uint32[n,2] x) => (uint32[n,2] y) { y = Add(x, w) }"
        path = saved(tmp_path, hand.model_of(text, w=np.array([2**32 - 1, 5], "u4")))
        module = mx.mod.Module.from_onnx(path)
        assert module.output_names == ["y_output"]
        data = mx.nd.array([[3, 2**32 - 1]] * 4, dtype="uint32")
        got = module.predict(mx.io.NDArrayIter(data, batch_size=2)).asnumpy()
        assert (got.dtype, got.tolist()) == (np.uint32, [[2, 4]] * 4)

    def test_types_of_few_bits_round_and_saturate(self, tmp_path):
        for kind, saturate, values in (
            ("FLOAT8E4M3FN", 1, [0.3125, -18, 18, 448, -448, 3.75]),
            ("FLOAT8E4M3FN", 0, [0.3125, -18, 18, np.nan, np.nan, 3.75]),
            ("FLOAT8E4M3FNUZ", 1, [0.3125, -18, 18, 240, -240, 3.75]),
            ("FLOAT8E5M2", 1, [0.3125, -16, 20, 57344, -57344, 3.5]),
            ("FLOAT8E5M2", 0, [0.3125, -16, 20, np.inf, -np.inf, 3.5]),
        ):
            x, code = np.array([0.3, -17.5, 18.5, 1e6, -np.inf, 3.7], "f4"), TensorProto.DataType.Value(kind)
            nodes = f"""few = Cast<to = {code}>(one)
                a = Cast<to = {code}, saturate = {saturate}>(x)
                b = CastLike<saturate = {saturate}>(x, few)
                c = QuantizeLinear<output_dtype = {code}, saturate = {saturate}>(x, one)
                aa = Cast<to = 1>(a)  bb = Cast<to = 1>(b)  cc = Cast<to = 1>(c)"""
            outputs = ["float[6] aa", "float[6] bb", "float[6] cc"]
            for got in results(tmp_path, nodes, {"x": x}, outputs, one=np.array([1], "f4")):
                np.testing.assert_array_equal(got, np.array(values, "f4"), kind)

    @pytest.mark.parametrize(
        ("kind", "low", "high", "wrapped"),
        [("UINT4", 0, 15, [3, 15, 2]), ("INT4", -8, 7, [3, -1, 2]), ("UINT16", 0, 65535, [3, 65535, 98])],
    )
    def test_integers_are_cut_off_by_cast_and_saturate_by_quantize(self, tmp_path, kind, low, high, wrapped):
        code, inputs = TensorProto.DataType.Value(kind), {"x": np.array([3, -1, 98], "i4")}
        inputs["wide"] = np.array([2.5, 1e9, -1e9, np.inf, 3.5], "f4")
        nodes = f"""a = Cast<to = {code}>(x)  b = QuantizeLinear<output_dtype = {code}>(wide, one)
            aa = Cast<to = 6>(a)  bb = Cast<to = 6>(b)"""
        outputs = ["int32[3] aa", "int32[5] bb"]
        got, quantized = results(tmp_path, nodes, inputs, outputs, one=np.array([1], "f4"))
        assert (got.tolist(), quantized.tolist()) == (wrapped, [2, high, low, high, 4])

    def test_functions_of_special_numbers_are_those_of_numpy(self, tmp_path):
        special = np.array(
            [0.0, -0.0, 0.5, -0.5, 2.5, -2.5, 3.5, -7.25, 1e-8, 3e8, -3e8, np.inf, -np.inf, np.nan]
        )
        a, b = (each.ravel().astype("f4") for each in np.meshgrid(special, special))
        pairs = {
            **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide},
            "Mod<fmod = 1>": np.fmod,
        }
        pairs |= {
            "Mod<fmod = 0>": np.mod,
            "Pow": np.power,
            "Less": np.less,
        }
        pairs |= {"LessOrEqual": np.less_equal, "Greater": np.greater, "Equal": np.equal}
        each = "Abs Ceil Floor Neg=negative Round=rint Sqrt Exp Log Sin Cos Tan Tanh Sinh Cosh IsNaN IsInf Reciprocal"
        names = [word.partition("=")[::2] for word in each.split()]
        with np.errstate(all="ignore"):
            expected = {f"{kind}(a, b)": function(a, b) for kind, function in pairs.items()}
            expected |= {f"{n}(a)": getattr(np, other or n.lower())(a) for n, other in names}
        nodes = " ".join(f"y{i} = {call}" for i, call in enumerate(expected))
        outputs = [f"{type_of(array)} y{i}" for i, array in enumerate(expected.values())]
        found = results(tmp_path, nodes, {"a": a, "b": b}, outputs)
        for (call, array), got in zip(expected.items(), found, strict=True):
            assert got.dtype == array.dtype, call
            np.testing.assert_allclose(got, array, 1e-5, err_msg=call)
            if array.dtype.kind == "f":
                zeros = array == 0
                np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(array[zeros]), call)

    def test_bfloat16_comes_in(self, tmp_path):
        raw = torch.tensor([1.5, -2.25, 3.0], dtype=torch.bfloat16).view(torch.int16).numpy().tobytes()
        model = hand.model_of("(float[n,3] x) => (float[n,3] y) { f = Cast<to = 1>(w)  y = Add(x, f) }")
        model.graph.initializer.append(helper.make_tensor("w", TensorProto.BFLOAT16, [3], raw, raw=True))
        got = run(*mx.onnx.import_model(saved(tmp_path, model)), {"x": np.zeros((2, 3), np.float32)})
        assert got[0].tolist() == [[1.5, -2.25, 3.0]] * 2


DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
OLD = "converted/test_PReLU_2d_multiparam", "converted/test_BatchNorm2d_eval", "operator/test_operator_addmm"


def check_old(folder):
    model = onnx.load(folder / "model.onnx")
    assert model.opset_import[0].version < 7
    paths = (sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb")) for kind in ("input", "output"))
    inputs, outputs = ([numpy_helper.to_array(onnx.load_tensor(path)) for path in each] for each in paths)
    names = [value.name for value in model.graph.input]
    got = run(*mx.onnx.import_model(folder / "model.onnx"), dict(zip(names, inputs)))
    for one, other in zip(got, outputs, strict=True):
        np.testing.assert_allclose(one.reshape(other.shape), other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", OLD)
def test_old_files_are_upgraded(name):
    check_old(DATA / f"pytorch-{name}")


@pytest.mark.slow
def test_all_old_files_of_the_package():
    too_wide = {"test_MaxPool1d_stride_padding_dilation", "test_MaxPool2d_stride_padding_dilation"}
    folders = [path.parent for path in DATA.glob("pytorch-[co]*/*/model.onnx")]
    old = [folder for folder in folders if onnx.load(folder / "model.onnx").opset_import[0].version < 7]
    assert len(old) > 100
    for folder in old:
        if folder.name not in too_wide:
            check_old(folder)


class TestLimits:
    @pytest.mark.timeout(20)
    def test_loops_in_loops_are_translated_a_few_times_each(self, tmp_path):
        inner = "o18 = Relu(s18)"
        for level in range(18, -1, -1):
            inputs = f"int64 i{level}, bool c{level}, float[2] s{level}"
            body = f"""body = b{level} ({inputs}) => (bool d{level}, float[2] o{level}) {{
                {inner}  r{level} = ReduceSum<keepdims = 0>(s{level})  d{level} = Greater(r{level}, zero)
            }}"""
            state, out = (f"s{level - 1}", f"o{level - 1}") if level else ("x", "y")
            inner = f"{out} = Loop<{body}>(count, yes, {state})"
        arrays = {"count": np.array(2), "yes": np.array(True), "zero": np.array(0, np.float32)}
        symbol, params, _ = imported(tmp_path, f"(float[2] x) => (float[2] y) {{ {inner} }}", **arrays)
        symbol.infer_shape_partial()
        assert symbol.to_torch(params)(torch.tensor([1.0, -2.0])).tolist() == [1, 0]

    def test_lengths_that_a_file_only_states_take_no_memory(self, tmp_path):
        text = """(float[2] x) => (float[2] y) { y = Loop<
            body = b (int64 i, bool c, float[2] s) => (bool d, float[2] o) { o = Add(s, s)  d = Identity(c) }
        >(count, yes, x) }"""
        for count in (10**9, 10**11):
            imported(tmp_path, text, count=np.array(count), yes=np.array(True))

    def test_an_output_that_nobody_reads_need_not_be_made(self, tmp_path):
        text = "(float[2] x) => (float[2] y) { a, mask = Dropout(x)  y = Relu(a) }"
        path, x = saved(tmp_path, hand.model_of(text)), hand.draw(2)
        same(run(*mx.onnx.import_model(path), {"x": x}), wanted(path, {"x": x}))


def test_external_data_is_read_from_the_folder_of_the_file(tmp_path):
    made, array = files.with_external(tmp_path)
    _, arg_params, _ = mx.onnx.import_model(saved(tmp_path, made))
    np.testing.assert_array_equal(arg_params["w"].asnumpy(), array)
