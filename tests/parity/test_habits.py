"""MXNet habits that are not obvious, each seen on MXNet 1.9.1; what files hold byte by byte is in test_formats.py."""

import json
import pickle
import struct

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import MXNetError
from dpmodule.executor_manager import _split_input_slice

S = mx.sym


def mlp():
    net = S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc")
    return S.SoftmaxOutput(net, name="softmax")


def bound_module(contexts=None, **options):
    module = mx.mod.Module(mlp(), context=contexts or mx.cpu())
    module.bind([("data", (4, 5))], [("softmax_label", (4,))], **options)
    module.init_params(mx.init.Xavier())
    return module


def batch(rows=4):
    return mx.io.DataBatch([mx.nd.ones((rows, 5))], [mx.nd.zeros((rows,))])


class TestSplittingABatch:
    @pytest.mark.parametrize(
        ("size", "loads", "sizes"),
        [(5, [1, 1], [2, 3]), (7, [1, 1], [4, 3]), (10, [1, 1, 1], [3, 3, 4]), (8, [3, 1], [6, 2])],
    )
    def test_shares_are_rounded_half_to_even(self, size, loads, sizes):
        cut = _split_input_slice(size, loads)
        assert [s.stop - s.start for s in cut] == sizes
        assert [s.start for s in cut] == [sum(sizes[:i]) for i in range(len(sizes))]

    @pytest.mark.parametrize(("size", "count"), [(6, 4), (3, 4)])
    def test_empty_shares_are_refused(self, size, count):
        with pytest.raises(ValueError, match="nothing|empty"):
            _split_input_slice(size, [1] * count)

    def test_the_batch_axis_is_where_the_layout_has_n(self):
        axis = mx.io.DataDesc.get_batch_axis
        assert (axis("NCHW"), axis("TNC"), axis(None), axis("CHW")) == (0, 1, 0, -1)

    def test_inputs_are_copied_not_borrowed(self):
        module, data = bound_module(), batch()
        module.forward(data)
        before = module.get_outputs()[0].asnumpy()
        data.data[0][:] = 7
        np.testing.assert_array_equal(module.get_outputs()[0].asnumpy(), before)

    def test_labels_may_be_missing_in_prediction(self):
        module = bound_module()
        module.forward(mx.io.DataBatch([mx.nd.ones((4, 5))]), is_train=False)
        assert module.get_outputs()[0].shape == (4, 3)


class TestMergingOutputs:
    def test_two_contexts_are_joined_or_listed(self):
        module = bound_module([mx.cpu(0), mx.cpu(1)])
        module.forward(batch(), is_train=False)
        assert module.get_outputs()[0].shape == (4, 3)
        parts = module.get_outputs(merge_multi_context=False)
        assert [[p.shape for p in each] for each in parts] == [[(2, 3), (2, 3)]]

    def test_parameters_are_means_over_contexts(self):
        module = bound_module([mx.cpu(0), mx.cpu(1)])
        for i, array in enumerate(module._exec_group.param_arrays[0]):
            array[:] = 2 + 2 * i
        module._params_dirty = True
        assert set(module.get_params()[0]["fc_weight"].asnumpy().ravel()) == {3.0}

    def test_metrics_see_each_context(self):
        module, seen = bound_module([mx.cpu(0), mx.cpu(1)]), []
        module.forward(batch(), is_train=True)
        metric = mx.metric.CustomMetric(lambda label, pred: seen.append(pred.shape) or 0.0)
        module.update_metric(metric, batch().label)
        assert seen == [(2, 3), (2, 3)]


class TestGradientRequirements:
    def test_add_never_zeroes(self):
        x, grad = mx.nd.ones(3), mx.nd.ones(3)
        bound = (S.Variable("x") * 2).bind(mx.cpu(), [x], [grad], "add")
        for _ in range(3):
            bound.forward(is_train=True)
            bound.backward(mx.nd.ones(3))
        assert grad.asnumpy().tolist() == [7, 7, 7]

    def test_null_leaves_the_array_alone(self):
        x, grad = mx.nd.ones(3), mx.nd.full(3, 5)
        bound = (S.Variable("x") * 2).bind(mx.cpu(), [x], [grad], "null")
        bound.forward(is_train=True)
        assert bound.grad_dict["x"] is grad
        assert grad.asnumpy().tolist() == [5, 5, 5]

    def test_prediction_asks_for_no_gradient(self):
        module = bound_module(for_training=False)
        assert set(module._exec_group.grad_req.values()) == {"null"}

    def test_missing_head_gradient_is_an_error_but_for_losses(self):
        x = mx.nd.array([[1.0, 2.0, 3.0]])
        plain = (S.Variable("x") * 2).bind(mx.cpu(), [x], [mx.nd.zeros((1, 3))])
        plain.forward(is_train=True)
        with pytest.raises(MXNetError):
            plain.backward()
        loss = S.make_loss(S.Variable("x")).bind(mx.cpu(), [x], [mx.nd.zeros((1, 3))])
        loss.forward(is_train=True)
        loss.backward()
        assert loss.grad_arrays[0].asnumpy().tolist() == [[1, 1, 1]]

    @pytest.mark.parametrize(("normalization", "divisor"), [("null", 1), ("batch", 2), ("valid", 1)])
    def test_softmax_gradient_is_p_minus_onehot(self, normalization, divisor):
        options = {"use_ignore": True, "ignore_label": 1} if normalization == "valid" else {}
        net = S.SoftmaxOutput(S.Variable("x"), S.Variable("l"), normalization=normalization, **options)
        x, label = np.array([[1.0, 2.0, 3.0], [0.0, 0.5, -1.0]], "f"), np.array([0, 1], "f")
        bound = net.bind(mx.cpu(), {"x": mx.nd.array(x), "l": mx.nd.array(label)}, {"x": mx.nd.zeros((2, 3))})
        p = bound.forward(is_train=True)[0].asnumpy()
        bound.backward()
        expected = p - np.eye(3)[[0, 1]]
        if options:
            expected[1] = 0
        np.testing.assert_allclose(bound.grad_dict["x"].asnumpy(), expected / divisor, atol=1e-6)

    def test_smooth_alpha_spreads_over_the_other_classes(self):
        net = S.SoftmaxOutput(S.Variable("x"), S.Variable("l"), smooth_alpha=0.3)
        bound = net.bind(
            mx.cpu(), {"x": mx.nd.zeros((1, 4)), "l": mx.nd.array([2])}, {"x": mx.nd.zeros((1, 4))}
        )
        bound.forward(is_train=True)
        bound.backward()
        target = np.array([[0.1, 0.1, 0.7, 0.1]])
        np.testing.assert_allclose(bound.grad_dict["x"].asnumpy(), 0.25 - target, atol=1e-6)

    def test_regression_is_divided_by_outputs_not_by_the_batch(self):
        net = S.LinearRegressionOutput(S.Variable("x"), S.Variable("l"), grad_scale=3)
        bound = net.bind(
            mx.cpu(), {"x": mx.nd.ones((2, 4)), "l": mx.nd.zeros((2, 4))}, {"x": mx.nd.zeros((2, 4))}
        )
        bound.forward(is_train=True)
        bound.backward()
        assert set(bound.grad_dict["x"].asnumpy().ravel()) == {0.75}

    def test_make_loss_normalized_by_the_batch(self):
        net = S.MakeLoss(S.Variable("x"), grad_scale=3, normalization="batch")
        bound = net.bind(mx.cpu(), [mx.nd.ones((2, 2))], [mx.nd.zeros((2, 2))])
        bound.forward(is_train=True)
        bound.backward()
        assert set(bound.grad_arrays[0].asnumpy().ravel()) == {1.5}

    def test_batchnorm_writes_gamma_and_moves_its_statistics_in_backward(self):
        net = S.BatchNorm(S.Variable("x"), name="bn")
        bound = net.simple_bind(mx.cpu(), x=(4, 2))
        bound.arg_dict["x"][:] = mx.nd.array([[0, 1], [2, 3], [4, 5], [6, 7]])
        bound.arg_dict["bn_gamma"][:] = 5
        bound.forward(is_train=True)
        assert bound.arg_dict["bn_gamma"].asnumpy().tolist() == [1, 1]
        assert bound.aux_dict["bn_moving_mean"].asnumpy().tolist() == [0, 0]
        bound.backward(mx.nd.ones((4, 2)))
        np.testing.assert_allclose(bound.aux_dict["bn_moving_mean"].asnumpy(), [0.3, 0.4], rtol=1e-6)
        np.testing.assert_allclose(bound.aux_dict["bn_moving_var"].asnumpy(), [0.5, 0.5], rtol=1e-6)
        assert bound.grad_dict["bn_gamma"].asnumpy().tolist() == [0, 0]


class TestSharing:
    def buckets(self):
        def sym_gen(key):
            net = S.FullyConnected(S.sum(S.Variable("data"), axis=1), num_hidden=3, name="fc")
            return S.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)

        module = mx.mod.BucketingModule(sym_gen, default_bucket_key=8)
        module.bind([("data", (2, 8, 4))], [("softmax_label", (2,))])
        module.init_params()
        return module

    def test_buckets_use_the_same_parameters_and_input_memory(self):
        module = self.buckets()
        first = module._curr_module._exec_group
        module.switch_bucket(5, [("data", (2, 5, 4))], [("softmax_label", (2,))])
        second = module._curr_module._exec_group
        assert second is not first
        assert second.param_arrays[0][0] is first.param_arrays[0][0]
        assert second.shared_data_arrays[0] is first.shared_data_arrays[0]
        first.param_arrays[0][0][:] = 4
        assert set(second.param_arrays[0][0].asnumpy().ravel()) == {4.0}

    def test_a_batch_of_another_size_reshapes_and_comes_back(self):
        module = bound_module()
        weight = module._exec_group.param_arrays[0][0]
        for rows in (2, 4):
            module.forward(batch(rows), is_train=False)
            assert module.get_outputs()[0].shape == (rows, 3)
        assert module._exec_group.param_arrays[0][0] is weight


class TestOptimizerWiring:
    def test_rescale_is_one_over_the_batch_for_named_optimizers(self):
        module = bound_module()
        module.init_optimizer(optimizer="sgd")
        assert module._optimizer.rescale_grad == 1 / 4

    def test_biases_get_no_weight_decay(self):
        module = bound_module()
        module.init_optimizer(optimizer="sgd", optimizer_params={"wd": 0.1})
        assert module._optimizer.wd_mult["fc_bias"] == 0
        assert "fc_weight" not in module._optimizer.wd_mult

    def test_states_are_a_pickle_by_index(self, tmp_path):
        module = bound_module()
        module.init_optimizer(optimizer="sgd", optimizer_params={"momentum": 0.9})
        module.forward(batch(), is_train=True)
        module.backward()
        module.update()
        module.save_optimizer_states(str(tmp_path / "a.states"))
        names = {name for _, name, *_ in _pickled_globals((tmp_path / "a.states").read_bytes())}
        assert names
        module.load_optimizer_states(str(tmp_path / "a.states"))

    def test_fixed_parameters_stay(self):
        module = mx.mod.Module(mlp(), fixed_param_names=["fc_weight"])
        module.bind([("data", (4, 5))], [("softmax_label", (4,))])
        module.init_params(mx.init.One())
        module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 1.0})
        module.forward(batch(), is_train=True)
        module.backward()
        module.update()
        params = module.get_params()[0]
        assert set(params["fc_weight"].asnumpy().ravel()) == {1.0}
        assert len(set(params["fc_bias"].asnumpy().ravel())) > 1


def _pickled_globals(data):
    import pickletools

    strings = []
    for op, value, _ in pickletools.genops(data):
        if isinstance(value, str):
            strings.append(value)
        if op.name in ("GLOBAL", "STACK_GLOBAL"):
            yield ("", value if op.name == "GLOBAL" else strings[-1])


class TestInitializers:
    def test_a_variables_own_initializer_wins(self):
        net = S.FullyConnected(
            S.Variable("data"), S.Variable("fc_weight", init=mx.init.Constant(3)), num_hidden=2, name="fc"
        )
        module = mx.mod.Module(net, label_names=None)
        module.bind([("data", (1, 2))])
        module.init_params(mx.init.Zero())
        assert set(module.get_params()[0]["fc_weight"].asnumpy().ravel()) == {3.0}

    @pytest.mark.parametrize(
        ("name", "value"), [("a_bias", 0), ("a_gamma", 1), ("a_beta", 0), ("a_min", 0), ("a_max", 1)]
    )
    def test_names_decide(self, name, value):
        array = mx.nd.full((2,), 9)
        mx.init.Uniform()(mx.init.InitDesc(name), array)
        assert array.asnumpy().tolist() == [value] * 2

    def test_other_names_are_refused(self):
        with pytest.raises(ValueError, match="odd"):
            mx.init.Uniform()(mx.init.InitDesc("odd"), mx.nd.zeros(2))

    def test_legacy_rules_for_plain_strings(self):
        array = mx.nd.zeros((2,))
        with pytest.warns(DeprecationWarning, match="plain string"):
            mx.init.Uniform()("x_moving_var", array)
        assert array.asnumpy().tolist() == [1, 1]


class TestSymbolFiles:
    def test_only_given_attributes_are_written_as_text(self):
        rows = json.loads(S.Pooling(S.Variable("x"), kernel=(2, 2), name="p").tojson())["nodes"]
        assert rows[1]["attrs"] == {"kernel": "(2, 2)"}
        assert "attrs" not in rows[0]

    def test_automatic_variables_inherit_attributes(self):
        with mx.AttrScope(lr_mult="2"):
            net = S.FullyConnected(S.Variable("x"), num_hidden=2, name="fc")
        attrs = net.attr_dict()["fc_weight"]
        assert attrs["__lr_mult__"] == attrs["lr_mult"] == "2"

    def test_free_keywords_need_underscores(self):
        with pytest.raises(ValueError, match="odd"):
            S.Variable("x", odd="1")
        assert S.Variable("x", __odd__="1").attr("__odd__") == "1"

    def test_states_have_version_one_and_counts_include_hidden_outputs(self):
        text = json.loads(S.BatchNorm(S.Variable("x"), name="bn").tojson())
        row = next(r for r in text["nodes"] if r["op"] == "BatchNorm")
        assert [version for _, _, version in row["inputs"]] == [0, 0, 0, 1, 1]
        assert text["node_row_ptr"] == [0, 1, 2, 3, 4, 5, 8]
        assert text["attrs"] == {"mxnet_version": ["int", 10901]}

    def test_arithmetic_has_mxnets_operators_and_names(self):
        a, b = S.Variable("a"), S.Variable("b")
        with mx.name.NameManager():
            made = [a + b, a + 1, 1 - a, 1 / a, 2**a, -a, a == 1, a > b, a % b, a**b]
            ops = [json.loads(m.tojson())["nodes"][-1]["op"] for m in made]
        assert ops == [
            "elemwise_add",
            "_plus_scalar",
            "_rminus_scalar",
            "_rdiv_scalar",
            "_rpower_scalar",
            "_mul_scalar",
            "_equal_scalar",
            "_greater",
            "_mod",
            "_power",
        ]
        assert made[0].name == "_plus0"

    def test_symbols_do_not_broadcast_but_arrays_do(self):
        with pytest.raises(MXNetError):
            (S.Variable("a") + S.Variable("b")).infer_shape(a=(2, 3), b=(1, 3))
        assert (mx.nd.ones((2, 3)) + mx.nd.ones((1, 3))).shape == (2, 3)

    def test_inference_says_when_it_cannot(self):
        net = S.FullyConnected(S.Variable("x"), num_hidden=2)
        with pytest.warns(UserWarning, match="shape|infer"):
            assert net.infer_shape() == (None, None, None)
        with pytest.raises(MXNetError):
            S.elemwise_add(S.Variable("a"), S.Variable("b")).infer_shape(a=(2,), b=(3,))
        shapes, _, _ = S.elemwise_add(S.Variable("a"), S.Variable("b")).infer_shape(a=(2,))
        assert shapes == [(2,), (2,)]

    def test_the_oldest_dialect_is_read(self):
        old = {
            "nodes": [
                {"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1},
                {
                    "op": "BatchNorm",
                    "param": {"eps": "0.001"},
                    "name": "bn",
                    "inputs": [[0, 0]],
                    "attr": {"lr_mult": "2", "gamma_lr_mult": "3"},
                    "backward_source_id": -1,
                },
            ],
            "arg_nodes": [0],
            "heads": [[1, 0]],
        }
        net = S.load_json(json.dumps(old))
        assert net.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
        assert net.attr_dict()["bn"]["__lr_mult__"] == "2"


class TestStorageTypes:
    def test_row_sparse_starts_without_rows(self):
        empty = mx.nd.sparse.zeros("row_sparse", (4, 2))
        assert empty.stype == "row_sparse"
        assert empty.indices.shape == (0,)

    def test_indices_are_int64_and_variables_carry_the_type(self):
        csr = mx.nd.array([[0, 1], [2, 0]]).tostype("csr")
        assert csr.indices.dtype == csr.indptr.dtype == np.int64
        assert S.Variable("x", stype="csr").attr("__storage_type__") == "2"


class TestRecords:
    MAGIC = struct.pack("<I", 0xCED7230A)

    def written(self, tmp_path, *payloads):
        path = str(tmp_path / "a.rec")
        record = mx.recordio.MXRecordIO(path, "w")
        for each in payloads:
            record.write(each)
        record.close()
        return path, (tmp_path / "a.rec").read_bytes()

    def test_layout_with_padding(self, tmp_path):
        _, data = self.written(tmp_path, b"abcde")
        assert data == self.MAGIC + struct.pack("<I", 5) + b"abcde\0\0\0"

    def test_the_magic_inside_is_cut_out(self, tmp_path):
        path, data = self.written(tmp_path, self.MAGIC * 2)
        parts = [(1 << 29), (2 << 29), (3 << 29)]
        assert data == b"".join(self.MAGIC + struct.pack("<I", p) for p in parts)
        record = mx.recordio.MXRecordIO(path, "r")
        assert record.read() == self.MAGIC * 2
        assert record.read() is None
        record.close()

    def test_headers(self):
        one = mx.recordio.pack(mx.recordio.IRHeader(0, 4.0, 7, 0), b"x")
        assert one == struct.pack("<IfQQ", 0, 4.0, 7, 0) + b"x"
        header, rest = mx.recordio.unpack(
            mx.recordio.pack(mx.recordio.IRHeader(0, [1.0, 2.0, 3.0], 1, 0), b"yz")
        )
        assert (header.flag, list(header.label), rest) == (3, [1.0, 2.0, 3.0], b"yz")


class TestIterators:
    def order(self, handling, epochs=3):
        batches = mx.io.NDArrayIter(np.arange(5.0), batch_size=2, last_batch_handle=handling)
        seen = []
        for _ in range(epochs):
            seen.append([b.data[0].asnumpy().astype(int).tolist() for b in batches])
            batches.reset()
        return seen

    def test_roll_over_keeps_the_rest(self):
        assert self.order("roll_over") == [[[0, 1], [2, 3]], [[4, 0], [1, 2], [3, 4]], [[0, 1], [2, 3]]]

    def test_pad_and_discard(self):
        assert self.order("pad", 1) == [[[0, 1], [2, 3], [4, 0]]]
        assert self.order("discard", 1) == [[[0, 1], [2, 3]]]

    def test_descriptions_are_pairs(self):
        desc = mx.io.DataDesc("x", (2, 3), np.float16, "TNC")
        name, shape = desc
        assert (name, shape) == ("x", (2, 3))
        assert desc == ("x", (2, 3))
        assert mx.io.NDArrayIter({"b": np.ones(2), "a": np.ones(2)}).provide_data[0].name == "a"

    def test_predict_cuts_padding(self):
        module = bound_module()
        assert module.predict(mx.io.NDArrayIter(np.ones((6, 5)), batch_size=4)).shape == (6, 3)


class TestArrays:
    def test_arrays_are_float32_unless_made_from_arrays(self):
        assert mx.nd.array(np.arange(3)).dtype == mx.nd.array(np.ones(2)).dtype == np.float32
        assert mx.nd.array(mx.nd.ones(2, dtype="int32")).dtype == np.int32

    def test_answers_come_in_the_operands_type(self):
        a = mx.nd.array([1, 2], dtype="int32")
        assert (a == 1).dtype == np.int32
        assert (mx.nd.array([7], dtype="int32") / 2).asnumpy().tolist() == [3]
        for op in (mx.nd.argmax, mx.nd.argmin, mx.nd.argsort):
            assert op(mx.nd.array([3, 1, 2]), axis=0).dtype == np.float32

    def test_nothing_has_no_axes(self):
        assert mx.nd.ones((2, 3)).sum().shape == mx.nd.ones(3)[0].shape == (1,)
        with pytest.raises(ValueError, match="truth|ambiguous|element"):
            bool(mx.nd.ones(2))

    def test_slices_and_reshapes_are_views_and_lists_copy(self):
        a = mx.nd.zeros((4, 3))
        a[1:3][:] = 1
        a.reshape((12,))[0:1] = 5
        a[[0, 1]][:] = 9
        assert a.asnumpy().ravel().tolist() == [5, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0]

    @pytest.mark.parametrize(
        ("code", "shape"),
        [((0, -1), (2, 12)), ((-2,), (2, 3, 4)), ((-3, 4), (6, 4)), ((-4, 1, 2, -2), (1, 2, 3, 4))],
    )
    def test_reshape_codes(self, code, shape):
        assert mx.nd.zeros((2, 3, 4)).reshape(code).shape == shape

    def test_reshape_from_the_right(self):
        assert mx.nd.zeros((10, 5, 4)).reshape((-1, 0), reverse=True).shape == (50, 4)

    def test_seeds_repeat_per_context(self):
        for ctx in ("all", mx.cpu(1)):
            mx.random.seed(5, ctx=ctx)
            first = mx.nd.random.uniform(shape=3, ctx=mx.cpu(1)).asnumpy()
            mx.random.seed(5, ctx=ctx)
            assert (mx.nd.random.uniform(shape=3, ctx=mx.cpu(1)).asnumpy() == first).all()
        mx.nd.waitall()


class TestRnnParameters:
    def test_the_packed_lstm_has_weights_first(self):
        cell = mx.rnn.FusedRNNCell(3, num_layers=2, bidirectional=True, mode="lstm", prefix="x_")
        args = {"x_parameters": mx.nd.arange(504)}
        unpacked = cell.unpack_weights(args)
        assert unpacked["x_l0_i2h_i_weight"].shape == (3, 5)
        assert unpacked["x_l1_i2h_i_weight"].shape == (3, 6)
        assert unpacked["x_l0_i2h_i_weight"].asnumpy().ravel()[0] == 0
        assert unpacked["x_l0_i2h_i_bias"].asnumpy()[0] == 408
        assert (cell.pack_weights(unpacked)["x_parameters"].asnumpy() == np.arange(504)).all()

    def test_states_begin_as_zeros_of_unknown_batch(self):
        cell = mx.rnn.LSTMCell(4, prefix="l_")
        outputs, _ = cell.unroll(1, [S.Variable("x")])
        assert outputs[0].name == "l_t0_out"
        assert outputs[0].infer_shape(x=(6, 5))[1] == [(6, 4)]
        assert set(cell.params._params) >= {"l_i2h_weight", "l_i2h_bias", "l_h2h_weight", "l_h2h_bias"}


class TestMetrics:
    @pytest.mark.parametrize(
        ("metric", "name"),
        [
            ("acc", "accuracy"),
            ("ce", "cross-entropy"),
            (mx.metric.TopKAccuracy(2), "top_k_accuracy_2"),
            (mx.metric.Perplexity(None), "perplexity"),
        ],
    )
    def test_names_and_nan_before_any_update(self, metric, name):
        found, value = mx.metric.create(metric).get()
        assert found == name
        assert np.isnan(value)

    def test_local_and_global_sums(self):
        metric = mx.metric.Accuracy()
        for label in (0, 1):
            metric.update([mx.nd.array([label])], [mx.nd.array([[0.9, 0.1]])])
            metric.reset_local() if label == 0 else None
        assert metric.get()[1] == 0.0
        assert metric.get_global()[1] == 0.5
        assert type(metric.get()[1]) is float

    def test_named_outputs_are_taken_in_order(self):
        metric = mx.metric.Accuracy(output_names=["b"], label_names=["l"])
        with pytest.raises(KeyError):
            metric.update_dict({"l": mx.nd.zeros(1)}, {"a": mx.nd.ones((1, 2))})


class TestTodaysNumpy:
    def test_numpy_numbers_become_plain_text(self):
        sizes = (np.int64(4), np.int64(7))
        assert "np.int64" not in S.zeros(shape=sizes).tojson()
        assert mx.nd.zeros(sizes).shape == (4, 7)

    def test_numpy_functions_take_arrays(self):
        assert bool(np.all(mx.nd.ones(3) == 1))
        assert np.asarray(mx.nd.ones(3)).tolist() == [1, 1, 1]

    def test_arrays_pickle(self):
        again = pickle.loads(pickle.dumps(mx.nd.array([1, 2])))
        assert again.asnumpy().tolist() == [1, 2]


def test_errors_keep_their_builtin_types():
    for name, kind in {
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
    }.items():
        error = getattr(mx.base, name)
        assert issubclass(error, kind), name
        assert issubclass(error, MXNetError), name
