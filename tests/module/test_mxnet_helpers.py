"""What modules and groups written by users import from `module` and `model` under names with an underscore."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import nd
from dpmodule.io import DataBatch, DataDesc
from dpmodule.model import _create_kvstore, _initialize_kvstore, _update_params, _update_params_on_kvstore
from dpmodule.module.base_module import _check_input_names, _check_names_match, _parse_data_desc
from dpmodule.module.executor_group import _load_data, _load_general, _load_label


def test_contrib_operators_and_symbol_doc():
    anchors = mx.contrib.symbol.MultiBoxPrior(mx.sym.Variable("data"), sizes=(0.5,))
    assert anchors.infer_shape(data=(1, 3, 2, 2))[1] == [(1, 4, 4)]
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    assert mx.symbol_doc.SymbolDoc.get_output_shape(net, data=(2, 5)) == {"fc_output": (2, 3)}


def test_names_and_descriptions_are_checked():
    net = mx.sym.FullyConnected(mx.sym.Variable("picture"), num_hidden=3, name="fc")
    _check_input_names(net, ["picture"], "data", True)
    with pytest.warns(UserWarning, match="label_names"):
        _check_input_names(net, ["label"], "label", False)
    _check_names_match(["a", "b"], [("b", 1), ("a", 2)], "data", True)
    given = [("b", (2, 3)), DataDesc("a", (2,))], [("y", (2,), np.int32)]
    data, label = _parse_data_desc(["a", "b"], ["y"], *given)
    assert [d.name for d in data] == ["b", "a"]
    assert (data[0].shape, label[0].dtype) == ((2, 3), np.int32)
    assert _parse_data_desc(["a"], [], [("a", (1,))], None)[1] is None
    with pytest.warns(UserWarning, match="label_shapes"):
        _parse_data_desc(["a"], ["y"], [("a", (1,))], None)


def test_loading_takes_arrays_lists_and_slices():
    whole = nd.array(np.arange(12).reshape(4, 3))
    one, own, parts = nd.zeros((4, 3)), [nd.zeros((4, 3))] * 2, [nd.zeros((1, 3)), nd.zeros((3, 3))]
    cut = [(slice(0, 1), parts[0]), (slice(1, 4), parts[1])]
    _load_general([whole, [whole, whole + 1], whole], [one, own, cut], [0, 0, 0])
    np.testing.assert_array_equal(one.asnumpy(), whole.asnumpy())
    np.testing.assert_array_equal(own[1].asnumpy(), whole.asnumpy() + 1)
    np.testing.assert_array_equal(np.concatenate([p.asnumpy() for p in parts]), whole.asnumpy())
    columns, copied = [nd.zeros((4, 1)), nd.zeros((4, 2))], nd.zeros((4, 3))
    targets = [[(slice(0, 1), columns[0]), (slice(1, 3), columns[1])], [(slice(0, 1), copied)]]
    _load_data(DataBatch([whole, whole]), targets, [1, -1])  # along the batch axis
    np.testing.assert_array_equal(columns[1].asnumpy(), whole.asnumpy()[:, 1:])
    np.testing.assert_array_equal(copied.asnumpy(), whole.asnumpy())


def test_loading_takes_a_list_of_batches():
    batches = [DataBatch([nd.ones((1, 2)) * k], [nd.ones((1,)) * (k + 5)]) for k in range(2)]
    data, label = [nd.zeros((1, 2)) for _ in range(2)], [nd.zeros((1,)) for _ in range(2)]
    _load_data(batches, [[(slice(k, k + 1), data[k]) for k in range(2)]], [0])
    _load_label(batches, [[(slice(k, k + 1), label[k]) for k in range(2)]], [0])
    assert ([d.asnumpy().max() for d in data], [each.asscalar() for each in label]) == ([0, 1], [5, 6])


def arrays(*numbers):
    return [nd.array([n]) for n in numbers]


def test_updates_inside_a_store():
    assert _create_kvstore("device", 1, {}) == _create_kvstore(None, 4, {}) == (None, False)
    store, on_store = _create_kvstore("local", 2, {"w": nd.ones((2,))})
    assert (store.type, on_store) == ("local", True)
    assert _create_kvstore(store, 1, {}) == (store, True)
    weights, grads = [arrays(1, 1), arrays(5, 5)], [arrays(1, 2), [None, None]]
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1))
    _initialize_kvstore(store, weights, {"a": nd.array([2]), "b": nd.array([7])}, ["a", "b"], True)
    assert [w.asscalar() for w in weights[0]] == [2, 2]
    _update_params_on_kvstore(weights, grads, store, ["a", "b"])
    found = [w.asscalar() for w in (*weights[0], *weights[1])]
    np.testing.assert_allclose(found, [1.7, 1.7, 7, 7], rtol=1e-6)


@pytest.mark.parametrize("kind", [None, "local"])
def test_updates_device_by_device(kind):
    weights = [arrays(1, 1), arrays(5, 5), arrays(0, 0)]
    grads, seen, store = [arrays(1, 2), [None, None], arrays(3, 4)], [], kind and mx.kv.create(kind)
    if store:
        _initialize_kvstore(store, weights, dict(zip("abc", (w[0] for w in weights))), "abc", False)

    def updater(index, grad, weight):
        seen.append((list(index), [g.asscalar() for g in grad], [w.asscalar() for w in weight]))

    _update_params(weights, grads, updater, 2, store, "abc")
    sums = [[3, 7], [3, 7]] if store else [[1, 3], [2, 4]]
    assert seen == [([0, 4], sums[0], [1, 0]), ([1, 5], sums[1], [1, 0])]
    _update_params([arrays(1)], [[None]], None, 1)  # nothing needs no call
