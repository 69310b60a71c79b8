"""Generate handwritten digits with two convolutional networks, trained against each other (DCGAN).

The generator turns noise into images by transposed convolutions; the discriminator classifies images as generated or
real. The generator learns from the discriminator's gradient with respect to the image. `gan.py` has the same loop for
single numbers.

Source: Radford, Metz, Chintala, "Unsupervised representation learning with deep convolutional generative adversarial
networks", 2016; the figure is Heusel et al.'s Frechet distance (2017), of pixels in place of features.

Figure: Frechet distance, as a share of that before training, at most 0.1; 0.4 with --smoke.
Time: 12 s; 4 s with --smoke.
Run: python examples/dcgan.py [--smoke] [--picture FILE]
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from sklearn.datasets import load_digits

import dpmodule as mx

BATCH, NOISE = 64, 16
ADAM = {"optimizer": "adam", "optimizer_params": {"learning_rate": 0.002, "beta1": 0.5}}


def maker(width: int) -> mx.sym.Symbol:
    """Return the graph from noise, (N, NOISE, 1, 1), to images, (N, 1, 8, 8), of -1 to 1."""
    net = mx.sym.Deconvolution(mx.sym.Variable("noise"), kernel=(4, 4), num_filter=2 * width, name="make1")
    net = mx.sym.relu(mx.sym.BatchNorm(net, fix_gamma=False, name="norm1"))
    net = mx.sym.Deconvolution(net, kernel=(4, 4), stride=(2, 2), pad=(1, 1), num_filter=width, name="make2")
    net = mx.sym.relu(mx.sym.BatchNorm(net, fix_gamma=False, name="norm2"))
    return mx.sym.tanh(mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=1, name="make3"))


def judge(width: int) -> mx.sym.Symbol:
    """Return the graph from images to the probability that they are real."""
    net = mx.sym.Variable("image")
    for number, size in enumerate((width, 2 * width), 1):
        net = mx.sym.Convolution(
            net, kernel=(4, 4), stride=(2, 2), pad=(1, 1), num_filter=size, name=f"judge{number}"
        )
        net = mx.sym.LeakyReLU(net, act_type="leaky", slope=0.2)
    scores = mx.sym.FullyConnected(net, num_hidden=1, name="score")
    return mx.sym.LogisticRegressionOutput(scores, mx.sym.Variable("real"), name="chance")


def ready(net: mx.sym.Symbol, shape: tuple[int, ...], label: list[str] | None) -> mx.mod.Module:
    """Return a module to train step by step, with gradients of its input."""
    name = net.list_arguments()[0]
    module = mx.mod.Module(net, [name], label)
    module.bind([(name, shape)], label and [(label[0], (BATCH, 1))], inputs_need_grad=True)
    module.init_params(mx.init.Normal(0.1))
    module.init_optimizer(**ADAM)
    return module


def made(module: mx.mod.Module, train: bool) -> mx.nd.NDArray:
    """Return images generated from new noise."""
    noise = mx.nd.random.normal(shape=(BATCH, NOISE, 1, 1))
    module.forward(mx.io.DataBatch([noise]), is_train=train)
    return module.get_outputs()[0].copy()


def distance(one: np.ndarray, two: np.ndarray) -> float:
    """Return the Frechet distance between normal distributions fitted to two sets of images."""
    means, both = zip(*((each.mean(0), np.cov(each.T)) for each in (one, two)))
    roots = np.sqrt(np.maximum(np.linalg.eigvals(both[0] @ both[1]).real, 0))
    return float(((means[0] - means[1]) ** 2).sum() + np.trace(both[0] + both[1]) - 2 * roots.sum())


def shown(images: np.ndarray) -> str:
    """Return six images, (N, 64), side by side as text."""
    shades = np.array(list(" .:-=+*#%@"))[np.clip((images[:6] + 1) * 5, 0, 9).astype(int)].reshape(-1, 8, 8)
    return "\n".join("   ".join("".join(row) for row in rows) for rows in shades.transpose(1, 0, 2))


def draw(path: str, images: np.ndarray) -> None:
    """Draw forty-eight images in four rows.

    Shape:
        images: (48, 64).
    """
    from matplotlib.image import imsave

    frame = (0, 0), (0, 0), (1, 1), (1, 1)
    tiles = np.pad(images.reshape(4, 12, 8, 8), frame, constant_values=-1)
    imsave(path, np.kron(np.block([[*row] for row in tiles]), np.ones((6, 6))), cmap="gray_r")


def main() -> int:
    """Train and compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="fewer epochs and a lower target")
    parser.add_argument("--picture", metavar="FILE", help="draw some of the digits into a file")
    args = parser.parse_args()
    width, epochs, target = (8, 3, 0.4) if args.smoke else (16, 30, 0.1)

    mx.random.seed(0)
    real = (load_digits().data / 8 - 1).astype("float32")
    making = ready(maker(width), (BATCH, NOISE, 1, 1), None)
    judging = ready(judge(width), (BATCH, 1, 8, 8), ["real"])
    ones, zeros = mx.nd.ones((BATCH, 1)), mx.nd.zeros((BATCH, 1))

    def far() -> tuple[float, np.ndarray]:
        images = np.concatenate([made(making, False).asnumpy().reshape(BATCH, 64) for _ in range(16)])
        return distance(images, real), images

    before, _ = far()
    for _ in range(epochs):
        for batch in mx.io.NDArrayIter(real.reshape(-1, 1, 8, 8), None, BATCH, True, "discard"):
            drawn = made(making, True)
            for image, label in ((batch.data[0], ones), (drawn, zeros)):
                judging.forward_backward(mx.io.DataBatch([image], [label]))
                judging.update()
            judging.forward_backward(mx.io.DataBatch([drawn], [ones]))  # the generator wants it to be wrong
            making.backward(judging.get_input_grads())
            making.update()
    after, images = far()
    print(shown(images))
    print(
        f"distance {before:.2f} before, {after:.2f} after; half of the real images from the other half, ",
        end="",
    )
    print(f"{distance(*np.array_split(real, 2)):.2f}")
    if args.picture:
        draw(args.picture, images[:48])
    print(
        f"Frechet distance, as a share of that before training: {after / before:.3f}, target at most {target}"
    )
    return 0 if after <= target * before else 1


if __name__ == "__main__":
    sys.exit(main())
