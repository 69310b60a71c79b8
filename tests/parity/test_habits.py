"""MXNet habits that are not obvious, each seen on MXNet 1.9.1; what files hold byte by byte is in test_formats.py."""

import json
import pickle
import pickletools
import struct

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import MXNetError
from dpmodule.executor_manager import _split_input_slice

S, nd = mx.sym, mx.nd
X = S.Variable("x")
TWO = [mx.cpu(0), mx.cpu(1)]


def mlp():
    return S.SoftmaxOutput(S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc"), name="softmax")


def bound_module(contexts=None, **options):
    module = mx.mod.Module(mlp(), context=contexts or mx.cpu())
    module.bind([("data", (4, 5))], [("softmax_label", (4,))], **options)
    module.init_params(mx.init.Xavier())
    return module


def batch(rows=4):
    return mx.io.DataBatch([nd.ones((rows, 5))], [nd.zeros((rows,))])


def step(module):
    module.forward(batch(), is_train=True)
    module.backward()
    module.update()


def gradient(net, req="write", heads=None, **values):
    """Return the gradient of x after a step in training; its array begins with ones."""
    values = {name: nd.array(value) for name, value in values.items()}
    bound = net.bind(mx.cpu(), values, {"x": nd.ones(values["x"].shape)}, req)
    bound.forward(is_train=True)
    bound.backward(heads)
    return bound.grad_dict["x"].asnumpy()


# splitting a batch, merging outputs


@pytest.mark.parametrize(
    ("size", "loads", "sizes"),
    [(5, [1, 1], [2, 3]), (7, [1, 1], [4, 3]), (10, [1, 1, 1], [3, 3, 4]), (8, [3, 1], [6, 2])],
)
def test_shares_are_rounded_half_to_even(size, loads, sizes):
    cut = _split_input_slice(size, loads)
    assert [s.stop - s.start for s in cut] == sizes
    assert [s.start for s in cut] == [sum(sizes[:i]) for i in range(len(sizes))]


def test_the_batch_axis_is_where_the_layout_has_n():
    axis = mx.io.DataDesc.get_batch_axis
    assert (axis("NCHW"), axis("TNC"), axis(None), axis("CHW")) == (0, 1, 0, -1)


def test_inputs_are_copied_and_labels_may_be_missing_in_prediction():
    module, data = bound_module(), batch()
    module.forward(data)
    before = module.get_outputs()[0].asnumpy()
    data.data[0][:] = 7
    np.testing.assert_array_equal(module.get_outputs()[0].asnumpy(), before)
    module.forward(mx.io.DataBatch([nd.ones((4, 5))]), is_train=False)
    assert module.get_outputs()[0].shape == (4, 3)


def test_two_contexts_are_joined_or_listed():
    module, seen = bound_module(TWO), []
    module.forward(batch(), is_train=True)
    assert module.get_outputs()[0].shape == (4, 3)
    parts = module.get_outputs(merge_multi_context=False)
    assert [[p.shape for p in each] for each in parts] == [[(2, 3), (2, 3)]]
    metric = mx.metric.CustomMetric(lambda label, pred: seen.append(pred.shape) or 0.0)
    module.update_metric(metric, batch().label)  # metrics see each context
    assert seen == [(2, 3), (2, 3)]
    for i, array in enumerate(module._exec_group.param_arrays[0]):  # parameters are means over contexts
        array[:] = 2 + 2 * i
    module._params_dirty = True
    assert set(module.get_params()[0]["fc_weight"].asnumpy().ravel()) == {3.0}


# gradients


def test_null_leaves_the_array_alone():
    assert gradient(X * 2, "null", nd.ones(3), x=[1, 2, 3]).tolist() == [1, 1, 1]
    assert set(bound_module(for_training=False)._exec_group.grad_req.values()) == {"null"}


def test_add_never_zeroes():
    x, grad = nd.ones(3), nd.ones(3)
    bound = (X * 2).bind(mx.cpu(), [x], [grad], "add")
    for _ in range(3):
        bound.forward(is_train=True)
        bound.backward(nd.ones(3))
    assert grad.asnumpy().tolist() == [7, 7, 7]


def test_missing_head_gradient_is_an_error_but_for_losses():
    with pytest.raises(MXNetError):
        gradient(X * 2, x=[[1.0, 2.0, 3.0]])
    assert gradient(S.make_loss(X), x=[[1.0, 2.0, 3.0]]).tolist() == [[1, 1, 1]]


LOGITS = np.array([[1.0, 2.0, 3.0], [0.0, 0.5, -1.0]])
P_MINUS_ONEHOT = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True) - np.eye(3)[[0, 1]]
LABEL = S.Variable("l")
VALID = {"normalization": "valid", "use_ignore": True, "ignore_label": 1}


@pytest.mark.parametrize(
    ("net", "values", "wanted"),
    [
        *[
            (S.SoftmaxOutput(X, LABEL, normalization=kind), {"x": LOGITS, "l": [0, 1]}, P_MINUS_ONEHOT / divisor)
            for kind, divisor in (("null", 1), ("batch", 2))
        ],
        (S.SoftmaxOutput(X, LABEL, **VALID), {"x": LOGITS, "l": [0, 1]}, P_MINUS_ONEHOT * [[1], [0]]),
        # smoothing spreads over the other classes
        (S.SoftmaxOutput(X, LABEL, smooth_alpha=0.3), {"x": np.zeros((1, 4)), "l": [2]}, [[0.15, 0.15, -0.45, 0.15]]),
        # divided by outputs, not by the batch
        (S.LinearRegressionOutput(X, LABEL, grad_scale=3), {"x": np.ones((2, 4)), "l": np.zeros((2, 4))}, 0.75),
        (S.MakeLoss(X, grad_scale=3, normalization="batch"), {"x": np.ones((2, 2))}, np.full((2, 2), 1.5)),
    ],
)  # fmt: skip
def test_gradients_of_losses(net, values, wanted):
    np.testing.assert_allclose(
        gradient(net, {"x": "write", "l": "null"} if "l" in values else "write", **values), wanted, atol=1e-6
    )


def test_batchnorm_writes_gamma_and_moves_its_statistics_in_backward():
    bound = S.BatchNorm(X, name="bn").simple_bind(mx.cpu(), x=(4, 2))
    bound.arg_dict["bn_gamma"][:] = 5
    bound.forward(is_train=True, x=nd.arange(8).reshape((4, 2)))
    assert bound.arg_dict["bn_gamma"].asnumpy().tolist() == [1, 1]
    assert bound.aux_dict["bn_moving_mean"].asnumpy().tolist() == [0, 0]
    bound.backward(nd.ones((4, 2)))
    np.testing.assert_allclose(bound.aux_dict["bn_moving_mean"].asnumpy(), [0.3, 0.4], rtol=1e-6)
    np.testing.assert_allclose(bound.aux_dict["bn_moving_var"].asnumpy(), [0.5, 0.5], rtol=1e-6)
    assert bound.grad_dict["bn_gamma"].asnumpy().tolist() == [0, 0]


# sharing


def test_buckets_use_the_same_parameters_and_input_memory():
    def sym_gen(key):
        net = S.FullyConnected(S.sum(S.Variable("data"), axis=1), num_hidden=3, name="fc")
        return S.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(sym_gen, default_bucket_key=8)
    module.bind([("data", (2, 8, 4))], [("softmax_label", (2,))])
    module.init_params()
    first = module._curr_module._exec_group
    module.switch_bucket(5, [("data", (2, 5, 4))], [("softmax_label", (2,))])
    second = module._curr_module._exec_group
    assert second is not first
    assert second.param_arrays[0][0] is first.param_arrays[0][0]
    assert second.shared_data_arrays[0] is first.shared_data_arrays[0]
    first.param_arrays[0][0][:] = 4
    assert set(second.param_arrays[0][0].asnumpy().ravel()) == {4.0}


def test_a_batch_of_another_size_reshapes_and_comes_back():
    module = bound_module()
    weight = module._exec_group.param_arrays[0][0]
    for rows in (2, 4):
        module.forward(batch(rows), is_train=False)
        assert module.get_outputs()[0].shape == (rows, 3)
    assert module._exec_group.param_arrays[0][0] is weight


# optimizers


def test_named_optimizers_rescale_by_the_batch_and_spare_biases():
    module = bound_module()
    module.init_optimizer(optimizer="sgd", optimizer_params={"wd": 0.1})
    assert module._optimizer.rescale_grad == 1 / 4
    assert module._optimizer.wd_mult["fc_bias"] == 0
    assert "fc_weight" not in module._optimizer.wd_mult


def test_states_are_a_pickle_by_index(tmp_path):
    module, path = bound_module(), tmp_path / "a.states"
    module.init_optimizer(optimizer="sgd", optimizer_params={"momentum": 0.9})
    step(module)
    module.save_optimizer_states(str(path))
    assert {op.name for op, *_ in pickletools.genops(path.read_bytes())} & {"GLOBAL", "STACK_GLOBAL"}
    module.load_optimizer_states(str(path))


def test_fixed_parameters_stay():
    module = mx.mod.Module(mlp(), fixed_param_names=["fc_weight"])
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params(mx.init.One())
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 1.0})
    step(module)
    params = module.get_params()[0]
    assert set(params["fc_weight"].asnumpy().ravel()) == {1.0}
    assert len(set(params["fc_bias"].asnumpy().ravel())) > 1


# initializers


def test_a_variables_own_initializer_wins():
    weight = S.Variable("fc_weight", init=mx.init.Constant(3))
    module = mx.mod.Module(
        S.FullyConnected(S.Variable("data"), weight, num_hidden=2, name="fc"), label_names=None
    )
    module.bind([("data", (1, 2))])
    module.init_params(mx.init.Zero())
    assert set(module.get_params()[0]["fc_weight"].asnumpy().ravel()) == {3.0}


@pytest.mark.parametrize(
    ("name", "value"), [("a_bias", 0), ("a_gamma", 1), ("a_beta", 0), ("a_min", 0), ("a_max", 1)]
)
def test_names_decide(name, value):
    array = nd.full((2,), 9)
    mx.init.Uniform()(mx.init.InitDesc(name), array)
    assert array.asnumpy().tolist() == [value] * 2
    with pytest.raises(ValueError, match="odd"):
        mx.init.Uniform()(mx.init.InitDesc("odd"), nd.zeros(2))
    with pytest.warns(DeprecationWarning, match="plain string"):
        mx.init.Uniform()("x_moving_var", array)
    assert array.asnumpy().tolist() == [1, 1]


# symbols


def test_only_given_attributes_are_written_as_text():
    rows = json.loads(S.Pooling(X, kernel=(2, 2), name="p").tojson())["nodes"]
    assert rows[1]["attrs"] == {"kernel": "(2, 2)"}
    assert "attrs" not in rows[0]


def test_automatic_variables_inherit_attributes_and_free_keywords_need_underscores():
    with mx.AttrScope(lr_mult="2"):
        net = S.FullyConnected(X, num_hidden=2, name="fc")
    attrs = net.attr_dict()["fc_weight"]
    assert attrs["__lr_mult__"] == attrs["lr_mult"] == "2"
    with pytest.raises(ValueError, match="odd"):
        S.Variable("x", odd="1")
    assert S.Variable("x", __odd__="1").attr("__odd__") == "1"


def test_states_have_version_one_and_counts_include_hidden_outputs():
    text = json.loads(S.BatchNorm(X, name="bn").tojson())
    row = next(r for r in text["nodes"] if r["op"] == "BatchNorm")
    assert [version for _, _, version in row["inputs"]] == [0, 0, 0, 1, 1]
    assert text["node_row_ptr"] == [0, 1, 2, 3, 4, 5, 8]
    assert text["attrs"] == {"mxnet_version": ["int", 10901]}


def test_arithmetic_has_mxnets_operators_and_names():
    a, b = S.Variable("a"), S.Variable("b")
    with mx.name.NameManager():
        made = [a + b, a + 1, 1 - a, 1 / a, 2**a, -a, a == 1, a > b, a % b, a**b]
        ops = [json.loads(m.tojson())["nodes"][-1]["op"] for m in made]
    scalars = [f"_{name}_scalar" for name in ("plus", "rminus", "rdiv", "rpower", "mul", "equal")]
    assert ops == ["elemwise_add", *scalars, "_greater", "_mod", "_power"]
    assert made[0].name == "_plus0"
    with pytest.raises(MXNetError):  # symbols do not broadcast but arrays do
        (a + b).infer_shape(a=(2, 3), b=(1, 3))
    assert (nd.ones((2, 3)) + nd.ones((1, 3))).shape == (2, 3)
    assert (a + b).infer_shape(a=(2,))[0] == [(2,), (2,)]
    with pytest.warns(UserWarning, match="shape|infer"):
        assert S.FullyConnected(X, num_hidden=2).infer_shape() == (None, None, None)


def test_the_oldest_dialect_is_read():
    attr = {"lr_mult": "2", "gamma_lr_mult": "3"}
    data = {"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1}
    norm = {"op": "BatchNorm", "param": {"eps": "0.001"}, "name": "bn", "inputs": [[0, 0]], "attr": attr}
    old = {"nodes": [data, {**norm, "backward_source_id": -1}], "arg_nodes": [0], "heads": [[1, 0]]}
    net = S.load_json(json.dumps(old))
    assert net.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    assert net.attr_dict()["bn"]["__lr_mult__"] == "2"


def test_storage_types():
    empty, csr = nd.sparse.zeros("row_sparse", (4, 2)), nd.array([[0, 1], [2, 0]]).tostype("csr")
    assert (empty.stype, empty.indices.shape) == ("row_sparse", (0,))
    assert csr.indices.dtype == csr.indptr.dtype == np.int64
    assert S.Variable("x", stype="csr").attr("__storage_type__") == "2"


# records


MAGIC = struct.pack("<I", 0xCED7230A)


@pytest.mark.parametrize(
    ("payload", "parts"),
    [
        (b"abcde", [struct.pack("<I", 5) + b"abcde\0\0\0"]),
        (MAGIC * 2, [struct.pack("<I", n << 29) for n in (1, 2, 3)]),
    ],
)
def test_records_are_padded_and_the_magic_inside_is_cut_out(tmp_path, payload, parts):
    path = tmp_path / "a.rec"
    with mx.recordio.MXRecordIO(str(path), "w") as record:
        record.write(payload)
    assert path.read_bytes() == b"".join(MAGIC + part for part in parts)
    with mx.recordio.MXRecordIO(str(path), "r") as record:
        assert [record.read(), record.read()] == [payload, None]


def test_headers_of_records():
    one = mx.recordio.pack(mx.recordio.IRHeader(0, 4.0, 7, 0), b"x")
    assert one == struct.pack("<IfQQ", 0, 4.0, 7, 0) + b"x"
    several = mx.recordio.pack(mx.recordio.IRHeader(0, [1.0, 2.0, 3.0], 1, 0), b"yz")
    header, rest = mx.recordio.unpack(several)
    assert (header.flag, list(header.label), rest) == (3, [1.0, 2.0, 3.0], b"yz")


# iterators


@pytest.mark.parametrize(
    ("handling", "epochs"),
    [
        ("roll_over", [[[0, 1], [2, 3]], [[4, 0], [1, 2], [3, 4]], [[0, 1], [2, 3]]]),
        ("pad", [[[0, 1], [2, 3], [4, 0]]]),
        ("discard", [[[0, 1], [2, 3]]]),
    ],
)
def test_last_batches(handling, epochs):
    batches = mx.io.NDArrayIter(np.arange(5.0), batch_size=2, last_batch_handle=handling)
    for epoch in epochs:
        assert [b.data[0].asnumpy().astype(int).tolist() for b in batches] == epoch
        batches.reset()


def test_descriptions_are_pairs_and_predict_cuts_padding():
    desc = mx.io.DataDesc("x", (2, 3), np.float16, "TNC")
    assert tuple(desc) == ("x", (2, 3)) == desc
    assert mx.io.NDArrayIter({"b": np.ones(2), "a": np.ones(2)}).provide_data[0].name == "a"
    assert bound_module().predict(mx.io.NDArrayIter(np.ones((6, 5)), batch_size=4)).shape == (6, 3)


# arrays


def test_types_of_arrays_and_answers():
    assert nd.array(np.arange(3)).dtype == nd.array(np.ones(2)).dtype == np.float32
    assert nd.array(nd.ones(2, dtype="int32")).dtype == np.int32
    assert (nd.array([1, 2], dtype="int32") == 1).dtype == np.int32
    assert (nd.array([7], dtype="int32") / 2).asnumpy().tolist() == [3]
    for op in (nd.argmax, nd.argmin, nd.argsort):
        assert op(nd.array([3, 1, 2]), axis=0).dtype == np.float32
    assert nd.ones((2, 3)).sum().shape == nd.ones(3)[0].shape == (1,)  # nothing has no axes
    with pytest.raises(ValueError, match="truth|ambiguous|element"):
        bool(nd.ones(2))


def test_slices_and_reshapes_are_views_and_lists_copy():
    a = nd.zeros((4, 3))
    a[1:3][:] = 1
    a.reshape((12,))[0:1] = 5
    a[[0, 1]][:] = 9
    assert a.asnumpy().ravel().tolist() == [5, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0]
    assert nd.zeros((10, 5, 4)).reshape((-1, 0), reverse=True).shape == (50, 4)


@pytest.mark.parametrize("ctx", ["all", mx.cpu(1)])
def test_seeds_repeat_per_context(ctx):
    found = []
    for _ in range(2):
        mx.random.seed(5, ctx=ctx)
        found.append(nd.random.uniform(shape=3, ctx=mx.cpu(1)).asnumpy().tolist())
    assert found[0] == found[1]
    nd.waitall()


# recurrent networks, metrics


def test_the_packed_lstm_has_weights_first():
    cell = mx.rnn.FusedRNNCell(3, num_layers=2, bidirectional=True, mode="lstm", prefix="x_")
    unpacked = cell.unpack_weights({"x_parameters": nd.arange(504)})
    assert unpacked["x_l0_i2h_i_weight"].shape == (3, 5)
    assert unpacked["x_l1_i2h_i_weight"].shape == (3, 6)
    assert unpacked["x_l0_i2h_i_weight"].asnumpy().ravel()[0] == 0
    assert unpacked["x_l0_i2h_i_bias"].asnumpy()[0] == 408
    assert (cell.pack_weights(unpacked)["x_parameters"].asnumpy() == np.arange(504)).all()


def test_states_begin_as_zeros_of_unknown_batch():
    cell = mx.rnn.LSTMCell(4, prefix="l_")
    outputs, _ = cell.unroll(1, [X])
    assert outputs[0].name == "l_t0_out"
    assert outputs[0].infer_shape(x=(6, 5))[1] == [(6, 4)]
    assert set(cell.params._params) >= {"l_i2h_weight", "l_i2h_bias", "l_h2h_weight", "l_h2h_bias"}


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("acc", "accuracy"),
        ("ce", "cross-entropy"),
        (mx.metric.TopKAccuracy(2), "top_k_accuracy_2"),
        (mx.metric.Perplexity(None), "perplexity"),
    ],
)
def test_names_and_nan_before_any_update(metric, name):
    found, value = mx.metric.create(metric).get()
    assert found == name
    assert np.isnan(value)


def test_local_and_global_sums_and_named_outputs():
    metric = mx.metric.Accuracy()
    for label in (0, 1):
        metric.update([nd.array([label])], [nd.array([[0.9, 0.1]])])
        metric.reset_local() if label == 0 else None
    assert (metric.get()[1], metric.get_global()[1]) == (0.0, 0.5)
    assert type(metric.get()[1]) is float
    named = mx.metric.Accuracy(output_names=["b"], label_names=["l"])
    with pytest.raises(KeyError):
        named.update_dict({"l": nd.zeros(1)}, {"a": nd.ones((1, 2))})


def test_todays_numpy():
    sizes = (np.int64(4), np.int64(7))
    assert "np.int64" not in S.zeros(shape=sizes).tojson()
    assert nd.zeros(sizes).shape == (4, 7)
    assert bool(np.all(nd.ones(3) == 1))
    assert np.asarray(nd.ones(3)).tolist() == [1, 1, 1]
    assert pickle.loads(pickle.dumps(nd.array([1, 2]))).asnumpy().tolist() == [1, 2]


KINDS = {
    "MXNetError": RuntimeError,
    "ArgumentError": ValueError,
    "OpError": ValueError,
    "BoundsError": IndexError,
    "ShapeError": ValueError,
    "DTypeError": TypeError,
    "StateError": AssertionError,
    "FileError": OSError,
    "FileFormatError": ValueError,
    "MissingPackageError": ImportError,
    "NonFiniteError": ArithmeticError,
}


@pytest.mark.parametrize("name", KINDS)
def test_errors_keep_their_builtin_types(name):
    assert issubclass(getattr(mx.base, name), KINDS[name])
    assert issubclass(getattr(mx.base, name), MXNetError)
