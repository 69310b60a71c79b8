"""Train a PyTorch module between two symbolic ones on handwritten digits, and use it in plain PyTorch.

`SequentialModule` passes outputs forward and gradients backward: a convolution as a symbol, residual dense layers as a
`torch.nn.Module`, a classifier as a symbol. The trained PyTorch module then does the same in plain PyTorch.

Figure: accuracy on images not trained on, at least 0.97; 0.88 with --smoke.
Time: 7 s; 6 s with --smoke.
Run: python examples/chained_modules.py [--smoke]
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import torch
from sklearn.datasets import load_digits

import dpmodule as mx


class Residual(torch.nn.Module):
    """Two dense layers with a shortcut, as in plain PyTorch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x with the layers' result added."""
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def chain(body: torch.nn.Module, width: int) -> mx.mod.SequentialModule:
    """Return symbol (convolution) -> torch module -> symbol (classifier)."""
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=16, name="conv")
    net = mx.sym.Pooling(
        mx.sym.Activation(net, act_type="relu"), kernel=(2, 2), stride=(2, 2), pool_type="max"
    )
    net = mx.sym.FullyConnected(net, num_hidden=width, name="into")
    top = mx.sym.FullyConnected(mx.sym.Variable("features"), num_hidden=10, name="scores")
    top = mx.sym.SoftmaxOutput(top, name="softmax")

    modules = mx.mod.SequentialModule()
    modules.add(mx.mod.Module(net, label_names=None))
    modules.add(mx.mod.TorchModule(body, name="body"), auto_wiring=True)
    modules.add(mx.mod.Module(top, data_names=["features"]), auto_wiring=True, take_labels=True)
    return modules


def digits(batch_size: int) -> tuple[mx.io.NDArrayIter, mx.io.NDArrayIter]:
    """Return iterators over 1437 training and 360 validation images of 1x8x8 pixels."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(labels))
    x, y = images[order].reshape(-1, 1, 8, 8).astype(np.float32) / 16, labels[order].astype(np.float32)
    train = mx.io.NDArrayIter(x[360:], y[360:], batch_size, shuffle=True)
    return train, mx.io.NDArrayIter(x[:360], y[:360], batch_size)


def in_pytorch(modules: mx.mod.SequentialModule, body: torch.nn.Module, data: mx.io.NDArrayIter) -> float:
    """Return the accuracy of the same network written in PyTorch, with the module that was trained in the chain."""
    args = {name: value.torch() for name, value in modules.get_params()[0].items()}
    body.eval()
    right = 0
    data.reset()
    with torch.no_grad():
        for batch in data:
            x, y = batch.data[0].torch(), batch.label[0].torch()
            x = torch.relu(torch.nn.functional.conv2d(x, args["conv_weight"], args["conv_bias"]))
            x = torch.nn.functional.max_pool2d(x, 2).flatten(1) @ args["into_weight"].T + args["into_bias"]
            classes = (body(x) @ args["scores_weight"].T + args["scores_bias"]).argmax(1)
            right += int((classes == y)[: len(y) - batch.pad].sum())
    return right / data.num_data


def main() -> int:
    """Train and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    args = parser.parse_args()
    num_epoch, target = (3, 0.88) if args.smoke else (20, 0.97)

    mx.random.seed(0)
    torch.manual_seed(0)
    train, validation = digits(batch_size=64)
    body = Residual(32)
    modules = chain(body, 32)
    modules.fit(
        train,
        eval_data=validation,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.003},
        initializer=mx.init.Xavier(),
        num_epoch=num_epoch,
    )

    accuracy = dict(modules.score(validation, "acc"))["accuracy"]
    same = abs(accuracy - in_pytorch(modules, body, validation)) < 1e-6
    print(f"the same accuracy in PyTorch: {same}")
    print(f"accuracy on images not trained on: {accuracy:.4f}, target at least {target}")
    return 0 if same and accuracy >= target else 1


if __name__ == "__main__":
    sys.exit(main())
