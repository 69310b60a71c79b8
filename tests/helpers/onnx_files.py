"""ONNX files to import: of torch's two exporters, of skl2onnx, and written by hand."""

import contextlib
import io
import logging
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch

from . import onnx_graphs as hand
from . import torch_nets as nets


@dataclass
class File:
    """A file, and batches to run it on: that of the export, and others where sizes are open."""

    path: Path
    batches: list[dict[str, np.ndarray]]


def by_hand(name, folder):
    """Write a graph of `onnx_graphs.py`."""
    model, *shapes = hand.made(name)
    path = Path(folder) / f"{name}.onnx"
    onnx.save(model, path)
    rng = np.random.default_rng(1)
    first = model.graph.input[0].name
    return File(path, [{first: rng.standard_normal(s).astype(np.float32)} for s in shapes])


def from_torch(name, folder, is_new):
    """Export a network of `torch_nets.py` with an open batch size, by torch's new exporter or its old one."""
    make, inputs = nets.NETS[name]
    torch.manual_seed(0)
    module, example, other = make().eval(), inputs(2), inputs(5)
    labels = [f"x{i}" for i in range(len(example))]
    path = Path(folder) / f"{name}_{'new' if is_new else 'old'}.onnx"
    options = {"dynamo": is_new, "verbose": False, "input_names": labels}
    if is_new:
        options["dynamic_shapes"] = tuple({0: torch.export.Dim.DYNAMIC} for _ in labels)
    else:
        options |= {"dynamic_axes": {label: {0: "batch"} for label in labels}, "opset_version": 17}
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(module, example, path, **options)
    finally:
        logging.disable(logging.NOTSET)
    return File(path, [dict(zip(labels, (t.numpy() for t in batch))) for batch in (example, other)])


NEW_ONLY = ("encoder_layer", "encoder", "decoder_layer", "transformer", "llama_block")


def exporters(name):
    """Return which of torch's exporters write a network: False the old one, True the new one."""
    return (True,) if name in NEW_ONLY else (False, True)


def _sklearn_models():
    from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    small = {"hidden_layer_sizes": (6,), "max_iter": 20, "random_state": 0}
    return {
        "mlp_classifier": (MLPClassifier(**small), 3), "mlp_two": (MLPClassifier(activation="tanh", **small), 2),
        "mlp_regressor": (MLPRegressor(**small), 0), "logistic": (LogisticRegression(), 3),
        "logistic_two": (LogisticRegression(), 2), "linear": (LinearRegression(), 0), "ridge": (Ridge(), 0),
        "scaled": (make_pipeline(StandardScaler(), LogisticRegression()), 3),
        "normalized": (make_pipeline(MinMaxScaler(), Normalizer(), LinearRegression()), 0),
        "tree": (DecisionTreeClassifier(max_depth=2), 2),
    }  # fmt: skip


def from_sklearn(name, folder):
    """Write a model of scikit-learn."""
    from skl2onnx import to_onnx

    model, classes = _sklearn_models()[name]
    data = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    target = np.digitize(data[:, 0], [-0.4, 0.4][: classes - 1]) if classes else data @ np.arange(4) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data, target)
        options = {id(model): {"zipmap": False}} if classes else None
        made = to_onnx(model, data[:1], options=options, target_opset={"": 17, "ai.onnx.ml": 3})
    path = Path(folder) / f"{name}.onnx"
    onnx.save(made, path)
    return File(path, [{"X": data[:2]}, {"X": data[:9]}])


def with_external(folder, **entries):
    """Return a model that adds an array which lies in another file of the folder, and the array."""
    array = hand.draw(4)
    (folder / "net.data").write_bytes(b"abcd" + array.tobytes())
    model = hand.model_of("(float[n,4] x) => (float[n,4] y) { y = Add(x, w) }", w=array)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, text in {"location": "net.data", "offset": "4", "length": "16", **entries}.items():
        tensor.external_data.add(key=key, value=text)
    return model, array
