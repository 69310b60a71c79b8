"""Train on handwritten digits, save a folder that others can load, and use it in another process.

The folder has the graph, the weights as safetensors, the preprocessing of images, and a model card. The process that
loads it knows only its name.

Figure: accuracy of the loaded network on images not trained on, at least 0.97; 0.85 with --smoke.
Time: 7 s; 8 s with --smoke.
Run: python examples/interop/pretrained_folder.py [--smoke]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import dpmodule as mx

HELD = 360
"""Number of validation images."""


def network() -> mx.sym.Symbol:
    """Return the graph: a convolution, a batch normalization, and ten classes."""
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=16, name="conv")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, fix_gamma=False, name="norm"), act_type="relu", name="relu")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    net = mx.sym.FullyConnected(net, num_hidden=10, name="scores")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return images (N, 1, 8, 8) with values from 0 to 16, and labels (N,), in a random order."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(labels))
    return images[order].reshape(-1, 1, 8, 8).astype("float32"), labels[order].astype("float32")


def train(folder: str, num_epoch: int) -> float:
    """Train, save the folder, and return the accuracy on validation images."""
    images, labels = digits()
    preprocessor = {"mean": 8, "scale": 0.125, "size": [8, 8], "labels": [str(digit) for digit in range(10)]}
    images = (images - preprocessor["mean"]) * preprocessor["scale"]
    module = mx.mod.Module(network())
    module.fit(
        mx.io.NDArrayIter(images[HELD:], labels[HELD:], 64, shuffle=True),
        optimizer="adam",
        optimizer_params={"learning_rate": 0.003},
        initializer=mx.init.Xavier(),
        num_epoch=num_epoch,
    )
    module.save_pretrained(folder, preprocessor=preprocessor)
    return module.score(mx.io.NDArrayIter(images[:HELD], labels[:HELD], 64), "acc")[0][1]


def use(folder: str) -> float:
    """Load the folder and return the accuracy on validation images."""
    images, labels = digits()
    loaded = mx.interop.load_pretrained(folder)
    images = (images - loaded.preprocessor["mean"]) * loaded.preprocessor["scale"]
    validation = mx.io.NDArrayIter(images[:HELD], labels[:HELD], 64)
    return mx.mod.Module.from_pretrained(folder).score(validation, "acc")[0][1]


def main() -> int:
    """Train here, load in another process, and compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    parser.add_argument("--use", metavar="FOLDER", help="folder to load and evaluate, for the other process")
    args = parser.parse_args()
    if args.use:
        print(use(args.use))
        return 0
    num_epoch, target = (3, 0.85) if args.smoke else (15, 0.97)

    mx.random.seed(0)
    with tempfile.TemporaryDirectory() as parent:
        folder = str(Path(parent, "digits"))
        accuracy = train(folder, num_epoch)
        for path in sorted(Path(folder).iterdir()):
            print(f"{path.name:20} {path.stat().st_size:6} bytes")
        done = subprocess.run(
            [sys.executable, __file__, "--use", folder], check=True, capture_output=True, text=True
        )
    again = float(done.stdout)
    print(f"trained here: {accuracy:.4f}, loaded in another process: {again:.4f}")
    print(f"accuracy of the loaded network on images not trained on: {again:.4f}, target at least {target}")
    return 0 if again >= target and again == accuracy else 1


if __name__ == "__main__":
    sys.exit(main())
