"""Programs that write MXNet's files, recognized by the names of files and nodes.

Source: the names of Gluon's and gluoncv's blocks, insightface's networks, the artifacts of Amazon SageMaker's
algorithms and of GluonTS, archives of mxnet-model-server, and Wolfram Language's ``Export[..., "MXNet"]``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from .._files import regular_file

_MAX_BYTES = 1 << 20
"""Most bytes of a file that describes a model."""

_GLUON_OPERATOR = re.compile(r".*_fwd\d*", re.DOTALL)
_GLUONCV = re.compile(
    r"(ssd|yolov3|fasterrcnn|maskrcnn|fcn|pspnet|deeplabv3(plus|b_plus)?|icnet|danet|fastscnn|centernet|"
    r"simplepose\w*?|alphapose\w*?|hrnet\w*?|resnetv1[bcds]|resnest|resnext|se_?resnext|se_?resnet|senet|"
    r"mobilenetv3\w*?|cifar\w+?|dla\w*?|googlenet|nasnet|xception|residualattention\w*?)\d*_"
)
_MODEL_SERVER = ("MAR-INF", "MANIFEST.json")
_SAGEMAKER_NUMBERED = re.compile(r"model_algo[-_]\d+")


def describe_graph(path: str) -> str:
    """Return the producer and version of MXNet of a graph's file, "" if it cannot be read.

    Args:
        path: the file; files next to it count as well.
    """
    root = _read_json(path, None)
    rows = root.get("nodes") if isinstance(root, dict) else None
    if not isinstance(rows, list):
        return ""
    rows = [row for row in rows if isinstance(row, dict)]
    return f"{_producer(path, rows)}, {_version(root, rows)}"


def describe_arrays(path: str, names: Collection[str]) -> str:
    """Return the producer of a file of arrays without a graph, "" if it is unknown."""
    siblings = set(os.listdir(os.path.dirname(path) or "."))
    stem = os.path.splitext(os.path.basename(path))[0]
    if "hyperparams.json" in siblings and (_SAGEMAKER_NUMBERED.fullmatch(stem) or stem == "model_best"):
        return "SageMaker semantic segmentation, or another algorithm that saves only parameters"
    if _SAGEMAKER_NUMBERED.fullmatch(stem):
        return (
            "SageMaker PCA"
            if {"mean", "v"} <= set(names)
            else "SageMaker k-means"
            if not names
            else "SageMaker"
        )
    if any("." in name for name in names):
        return "save_parameters of Gluon"
    return ""


def saved_shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs that files next to a graph declare, the batch as 1.

    SageMaker writes ``model-shapes.json`` and ``hyperparams.json``, mxnet-model-server ``signature.json``.
    """
    folder = os.path.dirname(path)
    found: dict[str, tuple[int, ...]] = {}
    shapes = _read_json(os.path.join(folder, "model-shapes.json"))
    signature = _read_json(os.path.join(folder, "signature.json"))
    inputs = signature.get("inputs") if isinstance(signature, dict) else None
    for rows, name, shape in ((shapes, "name", "shape"), (inputs, "data_name", "data_shape")):
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and isinstance(row.get(name), str) and _is_shape(row.get(shape)):
                found.setdefault(row[name], (1, *row[shape][1:]))
    options = _read_json(os.path.join(folder, "hyperparams.json"))
    text = options.get("image_shape") if isinstance(options, dict) else None
    if isinstance(text, (str, int)) and re.fullmatch(r"\d{1,5}(,\d{1,5}){0,2}", str(text)):
        sizes = tuple(map(int, str(text).split(",")))
        found.setdefault("data", (1, *(sizes if len(sizes) == 3 else (3, sizes[0], sizes[-1]))))
    return found


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(type(d) is int and d >= 0 for d in value)
        and all(value[1:])
    )


def _read_json(path: str, limit: int | None = _MAX_BYTES) -> Any:
    """Return the content of a JSON file, None if there is none."""
    try:
        if limit is not None and os.path.getsize(path) > limit:
            return None
        with open(path, "rb", opener=regular_file) as file:
            return json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None


def _version(root: Mapping[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return the version of MXNet that wrote a graph."""
    about = root.get("attrs")
    pair = about.get("mxnet_version") if isinstance(about, dict) else None
    if isinstance(pair, list) and pair and type(pair[-1]) is int:
        number = pair[-1]
        return f"MXNet {number // 10000}.{number // 100 % 100}.{number % 100}"
    return "MXNet 0.8 or earlier" if any("param" in row for row in rows) else "MXNet 0.9 or another program"


def _producer(path: str, rows: list[dict[str, Any]]) -> str:
    packed = any((Path(path).parent / name).exists() for name in _MODEL_SERVER)
    producer = _sagemaker(path, rows) or next(_by_nodes(rows))
    return f"{producer} in an archive of mxnet-model-server" if packed else producer


def _sagemaker(path: str, rows: list[dict[str, Any]]) -> str:
    """Return the algorithm of SageMaker, or its library of forecasts, that wrote a graph, "" if none did."""
    name = os.path.basename(path)
    siblings = set(os.listdir(os.path.dirname(path) or "."))
    nodes = {row.get("name") for row in rows}
    if name == "prediction_net-symbol.json":
        return "GluonTS (DeepAR and others)"
    if name == "image-classification-symbol.json":
        return "SageMaker image classification"
    if name == "mx-mod-symbol.json" and siblings & {"additional-params.json", "manifest.json"}:
        return "SageMaker linear learner"
    if name == "symbol.json" and {"params", "meta.json"} <= siblings:
        factors = "v" in nodes and nodes & {"w1_weight", "Linear_Plus_Bias_weight"}
        return "SageMaker " + (
            "NTM" if "projection_weight" in nodes else "factorization machines" if factors else "algorithm"
        )
    if _SAGEMAKER_NUMBERED.match(name):
        is_detector = any("MultiBox" in str(row.get("op")) for row in rows)
        return f"SageMaker {'object detection (SSD)' if is_detector else 'algorithm'}"
    return "SageMaker's container of MXNet" if "model-shapes.json" in siblings else ""


def _by_nodes(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the producers that the names of nodes show, the most specific first."""
    nodes = [str(row.get("name")) for row in rows]
    operators = [str(row.get("name")) for row in rows if row.get("op") != "null"]
    is_gluon = any(map(_GLUON_OPERATOR.fullmatch, operators))
    if any("$" in name for name in nodes):
        yield "Wolfram Language"
    if is_gluon and any(map(_GLUONCV.match, nodes)):
        yield "gluoncv"
    if any(name.startswith("face_rpn_") for name in nodes):
        yield "insightface (detection)"
    if {"pre_fc1", "fc1"} <= set(operators):
        yield "insightface (recognition)"
    if is_gluon or any(str(row.get("op")).startswith(("_npx_", "_npi_")) for row in rows):
        yield "Gluon export"
    yield "Module"
