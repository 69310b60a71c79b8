"""The program that wrote a file, recognized by the names of nodes and of files next to it."""

import json

import pytest

import dpmodule as mx
from dpmodule.cli import origins

GLUON = ["dense0_fwd"]
ROWS = {
    "Module, MXNet 1.9.1": ("net-symbol.json", ["fc1"], []),
    "Gluon export, MXNet 1.9.1": ("net-symbol.json", ["hybridsequential0_dense0_fwd"], []),
    "gluoncv, MXNet 1.9.1": ("net-symbol.json", ["ssd0_resnetv10_conv0_fwd"], []),
    "gluoncv, MXNet 1.9.1 ": ("net-symbol.json", ["resnetv1d_conv0_fwd"], []),
    "Gluon export, MXNet 1.9.1 ": ("net-symbol.json", ["resnetv10_conv0_fwd"], []),
    "insightface (recognition), MXNet 1.9.1": ("model-symbol.json", ["pre_fc1", "fc1"], []),
    "insightface (detection), MXNet 1.9.1": ("model-symbol.json", ["face_rpn_cls_prob_stride32"], []),
    "Wolfram Language, MXNet 1.9.1": ("net.json", ["1$0"], []),
    "SageMaker image classification, MXNet 1.9.1": ("image-classification-symbol.json", ["fc1"], []),
    "GluonTS (DeepAR and others), MXNet 1.9.1": ("prediction_net-symbol.json", ["input_0"], []),
    "SageMaker linear learner, MXNet 1.9.1": ("mx-mod-symbol.json", ["fc1"], ["manifest.json"]),
    "SageMaker NTM, MXNet 1.9.1": ("symbol.json", ["projection_weight"], ["params", "meta.json"]),
    "SageMaker factorization machines, MXNet 1.9.1": (
        "symbol.json",
        ["v", "w1_weight"],
        ["params", "meta.json"],
    ),
    "SageMaker algorithm, MXNet 1.9.1": ("symbol.json", ["x"], ["params", "meta.json"]),
    "SageMaker algorithm, MXNet 1.9.1 ": ("model_algo_1-symbol.json", ["x"], ["hyperparams.json"]),
    "SageMaker's container of MXNet, MXNet 1.9.1": ("model-symbol.json", ["x"], ["model-shapes.json"]),
    "Gluon export in an archive of mxnet-model-server, MXNet 1.9.1": (
        "m-symbol.json",
        GLUON,
        ["MANIFEST.json"],
    ),
}


@pytest.mark.parametrize("said", ROWS)
def test_producers(said, tmp_path):
    name, nodes, others = ROWS[said]
    rows = [{"op": "relu", "name": node, "inputs": []} for node in nodes]
    (tmp_path / name).write_text(json.dumps({"nodes": rows, "attrs": {"mxnet_version": ["int", 10901]}}))
    for other in others:
        (tmp_path / other).write_text("{}")
    assert origins.describe_graph(str(tmp_path / name)) == said.strip()


def test_detector_of_sagemaker(tmp_path):
    path = tmp_path / "model_algo_1-symbol.json"
    box = mx.sym.contrib.MultiBoxPrior(mx.sym.Variable("data"), sizes=(0.5,), ratios=(1,))
    box.save(str(path))
    assert origins.describe_graph(str(path)) == "SageMaker object detection (SSD), MXNet 1.9.1"


@pytest.mark.parametrize(
    ("attrs", "row", "version"),
    [
        ({"mxnet_version": ["int", 904]}, {}, "MXNet 0.9.4"),
        ({"mxnet_version": ["int", 20000]}, {}, "MXNet 2.0.0"),
        ({}, {"param": {}}, "MXNet 0.8 or earlier"),
        ({}, {"attr": {}}, "MXNet 0.9 or another program"),
        ({"mxnet_version": "odd"}, {}, "MXNet 0.9 or another program"),
    ],
)
def test_versions(attrs, row, version, tmp_path):
    (tmp_path / "a.json").write_text(
        json.dumps({"nodes": [{"op": "relu", "name": "x", **row}, 3], "attrs": attrs})
    )
    assert origins.describe_graph(str(tmp_path / "a.json")) == f"Module, {version}"


def test_unreadable_files(tmp_path):
    for content in ("", "[" * 100_000, "[]", '{"nodes": 3}'):
        (tmp_path / "a.json").write_text(content)
        assert origins.describe_graph(str(tmp_path / "a.json")) == ""
    assert origins.describe_graph(str(tmp_path / "none.json")) == ""


def test_arrays(tmp_path):
    def told(name, *names):
        return origins.describe_arrays(str(tmp_path / name), names)

    assert told("model_algo-1", "mean", "s", "v") == "SageMaker PCA"
    assert told("model_algo-1") == "SageMaker k-means"
    assert told("net.params", "0.weight") == "save_parameters of Gluon"
    assert told("net.params", "arg:fc_weight") == ""
    (tmp_path / "hyperparams.json").write_text("{}")
    for name in ("model_best.params", "model_algo-1"):
        assert told(name, "a").startswith("SageMaker semantic segmentation")
