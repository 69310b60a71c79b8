"""Metrics against MXNet's recorded values, against NumPy, and with wrong input."""

import copy
import itertools
import json
import math
from collections import OrderedDict
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import metric
from dpmodule.base import StateError
from dpmodule.metric import classification
from dpmodule.metric.base import registry
from helpers.walk import walks

DATA = Path(__file__).parents[1] / "data" / "goldens" / "misc"
CASES = {case["name"]: case for case in json.loads((DATA / "metrics.json").read_text())}
ARRAYS = dict(np.load(DATA / "metrics.npz"))
FUNCTIONS = {
    "worst": lambda label, pred: float(np.abs(label - pred).max()),
    "sum_and_size": lambda label, pred: (float(np.abs(label - pred).sum()), label.size),
}


def make(case):
    if isinstance(case["metric"], str) and case["metric"] in FUNCTIONS:
        return metric.CustomMetric(FUNCTIONS[case["metric"]], **case["kwargs"])
    return metric.create(case["metric"], **case["kwargs"])


def same(found, recorded):
    name, value = found
    assert name == recorded[0]
    for one in value if isinstance(value, list) else [value]:
        assert type(one) in (float, int)
    np.testing.assert_allclose(value, recorded[1], rtol=3e-7)


@walks(itertools.product(CASES, ["ndarray", "numpy", "torch"]))
def test_values_are_mxnets(name, kind):
    """Results wait as tensors: whether they are read after every batch or at the end, or copied half way."""
    case = CASES[name]
    convert = {"ndarray": mx.nd.array, "numpy": np.asarray, "torch": torch.tensor}[kind]
    one, late = make(case), make(case)
    for i in range(3):
        label, pred = (convert(ARRAYS[f"{case['data']}/{what}{i}"]) for what in ("label", "pred"))
        for each in (one, late):
            each.update([label], [pred])
        same(one.get(), case["local"][i])
        if not (case["metric"] == "pearsonr" and case["kwargs"]):  # there MXNet's global value is always 0
            same(one.get_global(), case["global"][i])
        late = copy.deepcopy(late)
        if i in case["resets"]:
            one.reset_local()
            assert all(math.isnan(value) for _, value in one.get_name_value())
    np.testing.assert_allclose(late.get_global()[1], one.get_global()[1], rtol=1e-12)
    one.reset()
    assert all(math.isnan(value) for _, value in one.get_name_value() + one.get_global_name_value())


def test_create():
    config = {"metric": "Accuracy", "name": "accuracy", "output_names": None, "label_names": None, "axis": 1}
    assert metric.create("ACC").get_config() == config
    one = metric.create(metric.Accuracy)
    assert metric.create(one) is one
    assert metric.create('["acc", {"axis": 2}]').axis == 2
    both = metric.create(["acc", lambda a, b: 1.0, metric.MAE()])
    assert both.get() == (["accuracy", "custom(<lambda>)", "mae"], pytest.approx([math.nan] * 3, nan_ok=True))
    assert metric.create(("acc", "ce")).get()[0] == ["accuracy", "cross-entropy"]
    shown = ElementTree.fromstring(both._repr_html_())
    assert "".join(shown.itertext()).startswith("metricvalueaccuracy")


def test_registering():
    @metric.register
    class Mine(metric.EvalMetric):
        def __init__(self):
            super().__init__("mine")

    longer = metric.alias("shorter")(type("Longer", (Mine,), {}))
    assert metric.register(Mine, "ours") is Mine
    made = [type(metric.create(name)) for name in ("mine", "ours", "shorter", "longer")]
    assert made == [Mine, Mine, longer, longer]
    for name in ("mine", "ours", "longer", "shorter"):
        registry._classes.pop(name)


@pytest.mark.parametrize("options", [{"average": "micro"}, {}])
def test_configurations_make_the_metric_again(options):
    one = metric.create(["acc", metric.create("f1", **options)])
    for again in (metric.create(one.get_config()), metric.create(json.dumps(one.get_config()))):
        assert again.get_config() == one.get_config()


def test_names_and_extra_outputs_of_functions():
    def foo(label, pred):
        return 1.0

    assert metric.np(foo).name == metric.CustomMetric(foo).name == "foo"
    for kind in (StateError, NotImplementedError):
        with pytest.raises(kind, match="foo"):
            metric.np(foo).get_config()
    one = metric.np(foo, allow_extra_outputs=True)
    one.update([mx.nd.ones(1)], [mx.nd.ones(1), mx.nd.ones(1)])
    assert one.num_inst == 1


def test_update_dict_picks_names():
    labels = OrderedDict(a=mx.nd.array([0, 1]), b=mx.nd.array([1, 1]))
    preds = OrderedDict(x=mx.nd.array([[1, 0], [1, 0]]), y=mx.nd.array([[0, 1], [0, 1]]))
    chosen = {"output_names": ["y"], "label_names": ["b"]}
    both = [metric.Accuracy(name="p", **chosen), metric.Accuracy(name="q")]
    for one, want in (
        (metric.Accuracy(), 0.75),
        (metric.Accuracy(**chosen), 1.0),
        (metric.CompositeEvalMetric(both), [1.0, 0.75]),
        (metric.CompositeEvalMetric([metric.Accuracy()], **chosen), [1.0]),
    ):
        one.update_dict(labels, preds)
        assert one.get()[1] == want
    with pytest.raises(KeyError, match="b"):
        metric.CompositeEvalMetric([metric.Accuracy(**chosen)], label_names=["a"]).update_dict(labels, preds)


def test_composite():
    both = metric.CompositeEvalMetric(["acc"])
    both.add("ce")
    assert type(both.get_metric(1)) is metric.CrossEntropy
    assert [part["metric"] for part in both.get_config()["metrics"]] == ["Accuracy", "CrossEntropy"]
    assert str(both) == "EvalMetric: {'accuracy': nan, 'cross-entropy': nan}"
    both.update([mx.nd.array([0])], [mx.nd.array([[0.5, 0.5]])])
    assert both.get_name_value() == [("accuracy", 1.0), ("cross-entropy", pytest.approx(math.log(2)))]
    both.reset_local()
    assert math.isnan(both.get()[1][0])
    assert both.get_global_name_value()[0] == ("accuracy", 1.0)


def test_own_metric_adds_to_the_sums():
    class Mine(metric.EvalMetric):
        def update(self, labels, preds):
            for label in labels:
                self.sum_metric += label.asnumpy().sum()
                self.num_inst += label.size

    class Old(Mine):
        """Metrics written before there were global sums reset only what they know."""

        def reset(self):
            self.num_inst = 0
            self.sum_metric = 0.0

    for one in (Mine("mine"), Old("mine")):
        one.update([mx.nd.array([1, 2, 3])], None)
        assert one.get_global() == one.get() == ("mine", 2.0)
        assert one.global_sum_metric == 0.0  # as in MXNet, `get_global` then has the local sums
        one.reset()
        assert (one.sum_metric, one.num_inst) == (0.0, 0)

    one = metric.Accuracy()
    for _ in range(2):
        one.update([mx.nd.array([0])], [mx.nd.array([[1.0, 0.0]])])
        one.sum_metric *= 2
        one.global_sum_metric += 1
    assert (one.sum_metric, one.global_sum_metric, one.num_inst) == (6.0, 4.0, 2)


SCORES = {
    "plain": [[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]],
    "nan": [[float("nan"), 0.9], [0.8, float("nan")], [float("nan")] * 2],
    "infinite": [[float("-inf")] * 2, [float("inf")] * 2, [0.0, float("inf")]],
}
LABELS = {"classes": [1, 0, 1], "fractions": [1.7, -0.5, 0.9], "none": [2, -1, 5], "odd": [math.nan] * 3}
KNOWN_TO_NUMPY = classification._NUMPY_DTYPES
INTEGERS = [("int32", "plain", "classes"), ("int64", "plain", "none")]


@walks(
    (*row, axis)
    for row in [*itertools.product(("float32", "float64", "float16"), SCORES, LABELS), *INTEGERS]
    for axis in (1, -1)
)
def test_hits_are_counted_by_numpy_as_by_torch(dtype, scores, labels, axis, monkeypatch):
    label = torch.tensor(LABELS[labels]).to(getattr(torch, dtype))
    pred, found = torch.tensor(SCORES[scores]).to(getattr(torch, dtype)), []
    for known in (KNOWN_TO_NUMPY, frozenset()):
        monkeypatch.setattr(classification, "_NUMPY_DTYPES", known)
        one = metric.Accuracy(axis=axis)
        one.update([label], [pred])
        one.update([label.repeat(2)], [pred.repeat(2, 1)])
        found.append((one.sum_metric, one.num_inst, one.global_sum_metric, one.get()))
    assert (found[0], found[0][1]) == (found[1], 9)


def test_many_results_wait():
    one, values = metric.Loss(), np.random.RandomState(0).rand(600, 3)
    one.update(None, [torch.ones(2)])
    one.reset()  # discards what waits
    for row in values:
        one.update(None, [torch.from_numpy(row)])
    assert one.get()[1] == pytest.approx(values.mean(), rel=1e-12)


def test_results_are_not_the_users_memory():
    pred, one = mx.nd.array([2.0]), metric.Loss()
    one.update(None, [pred])
    pred[:] = 100.0
    assert one.get()[1] == 2.0


def test_perplexity_over_other_axes():
    pred = np.random.RandomState(0).dirichlet(np.ones(4), (2, 3)).astype(np.float32)
    label = np.array([[0, 3, 1], [2, 9, -1]])
    chosen = np.take_along_axis(pred, np.clip(label, 0, 3)[..., None], 2)
    expected = np.exp(-np.log(chosen).mean())
    for axis, given_ in ((-1, pred), (2, pred), (1, pred.transpose(0, 2, 1)), (-1, pred.reshape(6, 4))):
        one = metric.Perplexity(None, axis=axis)
        one.update([label], [given_])
        assert one.get()[1] == pytest.approx(expected, rel=1e-5)


def test_perplexity_ignores_only_the_exact_label():
    one = metric.Perplexity(ignore_label=0)
    pred = mx.nd.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
    one.update([mx.nd.array([0.7, 1, 2])], [pred])
    assert one.get()[1] == pytest.approx(1.8420157)  # of MXNet 1.9.1


def test_limits_of_the_formulas():
    one = metric.Perplexity(None)
    one.update([mx.nd.array([0])], [mx.nd.array([[0.0, 1.0]])])
    assert one.get()[1] == pytest.approx(1e10, rel=1e-5)
    one.sum_metric = 1e6
    assert one.get()[1] == math.inf
    one = metric.PearsonCorrelation()
    one.update([mx.nd.ones((3,))], [mx.nd.array([1, 2, 3])])
    assert math.isnan(one.get()[1])
    assert metric.PCC().get()[1] is math.nan
    one = metric.TopKAccuracy(top_k=9)  # more than there are classes
    one.update([mx.nd.array([0, 2])], [mx.nd.array([[0.6, 0.4], [0.7, 0.3]])])
    assert one.get() == ("top_k_accuracy_9", 0.5)


def test_pcc_of_several_labels_per_example():
    label, scores = np.array([[0, 0, 1], [2, 2, 2]]), np.random.RandomState(3).rand(2, 3, 3)
    whole, flat = metric.PCC(), metric.PCC()
    whole.update([mx.nd.array(label)], [mx.nd.array(scores)])
    flat.update([mx.nd.array(label.ravel())], [mx.nd.array(scores.transpose(0, 2, 1).reshape(6, 3))])
    assert whole.get() == flat.get()


def test_check_label_shapes():
    pair = metric.check_label_shapes(mx.nd.ones(2), mx.nd.ones(2), wrap=True)
    assert list(map(type, pair)) == [list, list]


@pytest.mark.parametrize(("name", "score"), [("f1", 2 / 3), ("mcc", 2 / math.sqrt(12))])
def test_macro_scores_count_calls_not_arrays(name, score):
    labels = [mx.nd.array([1, 0]), mx.nd.array([1, 0])]
    preds = [mx.nd.array([[0.1, 0.9], [0.5, 0.5]]), mx.nd.array([[0.85, 0.15], [1.0, 0.0]])]
    macro, micro = metric.create(name), metric.create(name, average="micro")
    for each in (macro, micro):
        each.update(labels, preds)
        assert each.get()[1] == pytest.approx(score)
    assert (macro.num_inst, micro.num_inst) == (1, 4)


def test_micro_correlation_is_numpys_over_all_examples():
    """MXNet's `get_global` of the micro form is 0; here it is the correlation since the last reset."""
    one = metric.PearsonCorrelation(average="micro")
    labels, preds = (np.random.RandomState(i).randn(4, 6, 2) for i in range(2))
    for i in range(4):
        one.update([labels[i]], [preds[i]])
        if i == 1:
            one.reset_local()
    assert one.get()[1] == pytest.approx(np.corrcoef(labels[2:].ravel(), preds[2:].ravel())[0, 1])
    assert one.get_global()[1] == pytest.approx(np.corrcoef(labels.ravel(), preds.ravel())[0, 1])


@pytest.mark.gpu
@walks(CASES)
def test_gpu_equals_cpu(name):
    case, results = CASES[name], []
    for device in ("cpu", "cuda"):
        one = make(case)
        for i in range(3):
            label, pred = (torch.tensor(ARRAYS[f"{case['data']}/{what}{i}"]) for what in ("label", "pred"))
            one.update([label], [pred.to(device)])
        results.append(one.get()[1])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)
