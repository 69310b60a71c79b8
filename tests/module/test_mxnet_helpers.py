"""What modules and groups written by users import from `module` and `model` under names with an underscore."""

import importlib

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import nd
from dpmodule.base import ArgumentError
from dpmodule.io import DataBatch, DataDesc
from dpmodule.model import _create_kvstore, _initialize_kvstore, _update_params, _update_params_on_kvstore
from dpmodule.module.base_module import _check_input_names, _check_names_match, _parse_data_desc
from dpmodule.module.executor_group import _load_data, _load_general, _load_label, _merge_multi_context


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("module.base_module", "BaseModule _as_list _check_input_names _check_names_match _parse_data_desc"),
        (
            "module.executor_group",
            "_load_data _load_general _load_label _merge_multi_context _split_input_slice",
        ),
        ("model", "_create_kvstore _initialize_kvstore _update_params _update_params_on_kvstore"),
        ("contrib.symbol", "Proposal MultiBoxPrior DeformableConvolution"),
        ("contrib.ndarray", "MultiBoxDetection PSROIPooling"),
        ("symbol_doc", "SymbolDoc"),
    ],
)
def test_old_import_paths(path, names):
    module = importlib.import_module(f"dpmodule.{path}")
    assert [n for n in names.split() if not hasattr(module, n)] == []


def test_contrib_operators_are_those_of_the_namespaces():
    anchors = mx.contrib.symbol.MultiBoxPrior(mx.sym.Variable("data"), sizes=(0.5,))
    assert anchors.infer_shape(data=(1, 3, 2, 2))[1] == [(1, 4, 4)]
    assert "MultiBoxPrior" in dir(mx.contrib.ndarray)
    with pytest.raises(AttributeError):
        mx.contrib.symbol.NoSuchOperator  # noqa: B018  looking it up is the test


def test_symbol_doc_tells_shapes_of_outputs():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    assert mx.symbol_doc.SymbolDoc.get_output_shape(net, data=(2, 5)) == {"fc_output": (2, 3)}


def test_input_names_are_checked_against_the_symbol():
    net = mx.sym.FullyConnected(mx.sym.Variable("picture"), num_hidden=3, name="fc")
    _check_input_names(net, ["picture"], "data", True)
    with pytest.raises(ValueError, match=r"data_names.*'data'.*picture"):
        _check_input_names(net, ["data"], "data", True)
    with pytest.warns(UserWarning, match="label_names"):
        _check_input_names(net, ["label"], "label", False)


def test_descriptions_become_records():
    data, label = _parse_data_desc(
        ["a", "b"], ["y"], [("b", (2, 3)), DataDesc("a", (2,))], [("y", (2,), np.int32)]
    )
    assert [d.name for d in data] == ["b", "a"]
    assert data[0].shape == (2, 3)
    assert label[0].dtype == np.int32
    assert _parse_data_desc(["a"], [], [("a", (1,))], None)[1] is None
    with pytest.raises(ArgumentError, match="data_shapes"):
        _parse_data_desc(["a"], [], [("b", (1,))], None)
    with pytest.warns(UserWarning, match="label_shapes"):
        _parse_data_desc(["a"], ["y"], [("a", (1,))], None)


def test_names_match_in_any_order():
    _check_names_match(["a", "b"], [("b", 1), ("a", 2)], "data", True)
    with pytest.raises(ArgumentError, match="nothing"):
        _check_names_match(["a"], [], "data", True)


def test_loading_takes_arrays_lists_and_slices():
    whole = nd.array(np.arange(12).reshape(4, 3))
    one, own, parts = (
        nd.zeros((4, 3)),
        [nd.zeros((4, 3)), nd.zeros((4, 3))],
        [nd.zeros((1, 3)), nd.zeros((3, 3))],
    )
    cut = [(slice(0, 1), parts[0]), (slice(1, 4), parts[1])]
    _load_general([whole, [whole, whole + 1], whole], [one, own, cut], [0, 0, 0])
    np.testing.assert_array_equal(one.asnumpy(), whole.asnumpy())
    np.testing.assert_array_equal(own[1].asnumpy(), whole.asnumpy() + 1)
    np.testing.assert_array_equal(np.concatenate([p.asnumpy() for p in parts]), whole.asnumpy())


def test_loading_cuts_along_the_batch_axis():
    whole, columns, copies = (
        nd.array(np.arange(6).reshape(2, 3)),
        [nd.zeros((2, 1)), nd.zeros((2, 2))],
        [nd.zeros((2, 3))],
    )
    targets = [[(slice(0, 1), columns[0]), (slice(1, 3), columns[1])], [(slice(0, 1), copies[0])]]
    _load_data(DataBatch([whole, whole]), targets, [1, -1])
    np.testing.assert_array_equal(columns[1].asnumpy(), [[1, 2], [4, 5]])
    np.testing.assert_array_equal(copies[0].asnumpy(), whole.asnumpy())


def test_loading_takes_a_list_of_batches():
    batches = [DataBatch([nd.ones((1, 2)) * k], [nd.ones((1,)) * (k + 5)]) for k in range(2)]
    data, label = [nd.zeros((1, 2)) for _ in range(2)], [nd.zeros((1,)) for _ in range(2)]
    _load_data(batches, [[(slice(k, k + 1), data[k]) for k in range(2)]], [0])
    _load_label(batches, [[(slice(k, k + 1), label[k]) for k in range(2)]], [0])
    assert [d.asnumpy().max() for d in data] == [0, 1]
    assert [each.asscalar() for each in label] == [5, 6]


def test_merging_joins_along_the_batch_axis():
    parts = [nd.ones((2, 1)), nd.zeros((2, 2))]
    merged = _merge_multi_context([parts, parts, parts[:1]], [1, -1, 0])
    assert [m.shape for m in merged] == [(2, 3), (2, 1), (2, 1)]
    assert merged[1] is parts[0]


def test_which_store():
    params = {"w": nd.ones((2,))}
    assert _create_kvstore("device", 1, params) == (None, False)
    assert _create_kvstore(None, 4, params) == (None, False)
    store, on_store = _create_kvstore("local", 2, params)
    assert (store.type, on_store) == ("local", True)
    assert _create_kvstore(store, 1, params) == (store, True)
    with pytest.raises(ArgumentError, match="kvstore"):
        _create_kvstore(3, 2, params)


def arrays(*numbers):
    return [nd.array([n]) for n in numbers]


def test_updates_inside_a_store():
    weights, grads = [arrays(1, 1), arrays(5, 5)], [arrays(1, 2), [None, None]]
    store, _ = _create_kvstore("device", 2, {})
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1))
    _initialize_kvstore(store, weights, {"a": nd.array([2]), "b": nd.array([7])}, ["a", "b"], True)
    assert [w.asscalar() for w in weights[0]] == [2, 2]
    _update_params_on_kvstore(weights, grads, store, ["a", "b"])
    np.testing.assert_allclose([w.asscalar() for w in weights[0]], 1.7, rtol=1e-6)
    assert [w.asscalar() for w in weights[1]] == [7, 7]


@pytest.mark.parametrize("kind", [None, "local"])
def test_updates_device_by_device(kind):
    weights, grads, seen = (
        [arrays(1, 1), arrays(5, 5), arrays(0, 0)],
        [arrays(1, 2), [None, None], arrays(3, 4)],
        [],
    )
    store = kind and mx.kv.create(kind)
    if store:
        _initialize_kvstore(store, weights, dict(zip("abc", (w[0] for w in weights))), "abc", False)

    def updater(index, grad, weight):
        seen.append((list(index), [g.asscalar() for g in grad], [w.asscalar() for w in weight]))

    _update_params(weights, grads, updater, 2, store, "abc")
    sums = [[3, 7], [3, 7]] if store else [[1, 3], [2, 4]]
    assert seen == [([0, 4], sums[0], [1, 0]), ([1, 5], sums[1], [1, 0])]


def test_a_store_needs_names_and_nothing_needs_no_call():
    with pytest.raises(ArgumentError, match="param_names"):
        _update_params([arrays(1)], [arrays(1)], None, 1, mx.kv.create("local"))
    _update_params([arrays(1)], [[None]], None, 1)
