"""Compress 8x8 digits to 10 numbers and back with an autoencoder, and use its encoder alone.

Two graphs share the parameters: the whole network, and the encoder, which is extracted with `get_internals`.

Figure: share of the variance explained, at least 0.78; 0.6 with --smoke.
Time: 5 s; 4 s with --smoke.
Run: python examples/autoencoder.py [--smoke] [--picture FILE]
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from sklearn.datasets import load_digits

import dpmodule as mx


def network(code_size: int) -> mx.sym.Symbol:
    """Return the graph: 64 -> 48 -> code -> 48 -> 64, trained to reproduce its input."""
    data = mx.sym.Variable("data")
    net = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=48, name="encode1"), act_type="tanh")
    code = mx.sym.FullyConnected(net, num_hidden=code_size, name="code")
    net = mx.sym.Activation(mx.sym.FullyConnected(code, num_hidden=48, name="decode1"), act_type="tanh")
    net = mx.sym.FullyConnected(net, num_hidden=64, name="decode2")
    return mx.sym.LinearRegressionOutput(net, mx.sym.Variable("target"), name="image")


def draw(path: str, images: np.ndarray) -> None:
    """Draw two rows of digits, one above the other, as a picture.

    Shape:
        images: (2, N, 64).
    """
    from matplotlib.image import imsave

    tiles = np.pad(images.reshape(2, -1, 8, 8), ((0, 0), (0, 0), (1, 1), (1, 1)))
    imsave(path, np.kron(np.block([[*row] for row in tiles]), np.ones((6, 6))), cmap="gray_r")


def main() -> int:
    """Train and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    parser.add_argument("--picture", metavar="FILE", help="draw digits and their reconstructions into a file")
    args = parser.parse_args()
    num_epoch, target = (10, 0.6) if args.smoke else (60, 0.78)

    mx.random.seed(0)
    images = load_digits().data.astype(np.float32) / 16
    mean = images.mean(axis=0)
    images -= mean
    batches = mx.io.NDArrayIter({"data": images}, {"target": images}, batch_size=64, shuffle=True)
    module = mx.mod.Module(network(code_size=10), data_names=["data"], label_names=["target"])
    module.fit(
        batches,
        eval_metric="mse",
        optimizer="adam",
        optimizer_params={"learning_rate": 0.003},
        initializer=mx.init.Xavier(),
        num_epoch=num_epoch,
    )
    batches = mx.io.NDArrayIter({"data": images}, {"target": images}, 64)
    (_, error), *_ = module.score(batches, "mse")
    restored = module.predict(batches).asnumpy()
    explained = 1 - error / float((images**2).mean())

    encoder = mx.mod.Module(module.symbol.get_internals()["code_output"], label_names=None)
    encoder.bind(data_shapes=[("data", (64, 64))], for_training=False)
    encoder.set_params(*module.get_params(), allow_extra=True)
    codes = encoder.predict(mx.io.NDArrayIter(images, batch_size=64))
    print(f"{len(images)} images of {images.shape[1]} numbers became codes of shape {codes.shape}")
    if args.picture:
        draw(args.picture, np.stack([images, restored])[:, :12] + mean)
    print(f"share of the variance explained: {explained:.4f}, target at least {target}")
    return 0 if explained >= target and codes.shape == (len(images), 10) else 1


if __name__ == "__main__":
    sys.exit(main())
