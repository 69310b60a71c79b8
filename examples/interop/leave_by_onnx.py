"""Train on handwritten digits, export to ONNX, and predict with ONNX Runtime.

`Module.to_onnx` writes a file with a dynamic batch. The predictions of ONNX Runtime are compared with the module's.
Without ONNX Runtime (`pip install onnxruntime`), the slow reference evaluator of the package onnx predicts.

Figure: largest difference between both predictions, at most 0.0001.
Time: 5 s; 4 s with --smoke.
Run: python examples/interop/leave_by_onnx.py [--smoke]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import dpmodule as mx


def network() -> mx.sym.Symbol:
    """Return a small convolutional network for images of 8x8 pixels."""
    net = mx.sym.Variable("data")
    for number, channels in enumerate((16, 32), 1):
        net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=channels, name=f"conv{number}")
        net = mx.sym.BatchNorm(net, fix_gamma=False, name=f"bn{number}")
        net = mx.sym.Activation(net, act_type="relu", name=f"relu{number}")
        net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name=f"pool{number}")
    net = mx.sym.FullyConnected(mx.sym.Dropout(net, p=0.2), num_hidden=10, name="scores")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def trained(images: np.ndarray, labels: np.ndarray, num_epoch: int) -> mx.mod.Module:
    """Return a module trained in batches of 64."""
    module = mx.mod.Module(network())
    module.fit(
        mx.io.NDArrayIter(images, labels, 64, shuffle=True),
        optimizer="adam",
        optimizer_params={"learning_rate": 0.003},
        initializer=mx.init.Xavier(),
        num_epoch=num_epoch,
    )
    return module


def predicted(path: str, images: np.ndarray) -> np.ndarray:
    """Return the class probabilities that another program predicts with the file."""
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(path).run(None, {"data": images})[0]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"data": images})[0]


def main() -> int:
    """Train, export, compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run")
    args = parser.parse_args()

    mx.random.seed(0)
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(labels))
    images = images[order].reshape(-1, 1, 8, 8).astype(np.float32) / 16
    labels = labels[order].astype(np.float32)
    module = trained(images[360:], labels[360:], num_epoch=2 if args.smoke else 15)

    with tempfile.TemporaryDirectory() as folder:
        # the batch is dynamic, so the file takes any number of images
        path = module.to_onnx(Path(folder) / "digits.onnx")
        theirs = predicted(path, images[:360])
    ours = module.predict(mx.io.NDArrayIter(images[:360], batch_size=60)).asnumpy()

    accuracy = float((theirs.argmax(1) == labels[:360]).mean())
    difference = float(np.abs(theirs - ours).max())
    same = bool((theirs.argmax(1) == ours.argmax(1)).all())
    target = 1e-4
    print(f"accuracy of the file on 360 images not trained on: {accuracy:.4f}")
    print(f"largest difference between both predictions: {difference:.1e}, target at most {target}")
    return 0 if same and difference <= target else 1


if __name__ == "__main__":
    sys.exit(main())
