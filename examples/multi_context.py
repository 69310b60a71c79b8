"""Train one network on one and on two devices, evenly and with workloads 1:3, and compare the parameters.

Each batch is split over the devices, gradients are added up, and every device applies the same update: the result is
that of one device, except for the rounding of sums in another order. (The network is smooth on purpose: with ReLU and
max pooling, rounding errors grow from step to step, on any number of devices.) Two CPU contexts replace two GPUs: if
you have GPUs, write mx.gpu(0), mx.gpu(1).

Figure: largest difference between parameters, at most 1e-05.
Time: 4 s; 3 s with --smoke.
Run: python examples/multi_context.py [--smoke]
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from sklearn.datasets import load_digits

import dpmodule as mx

PLANS = {
    "cpu(0)": {"context": [mx.cpu(0)]},
    "cpu(0), cpu(1)": {"context": [mx.cpu(0), mx.cpu(1)]},
    "cpu(0), cpu(1), workload 1:3": {"context": [mx.cpu(0), mx.cpu(1)], "work_load_list": [1, 3]},
}


def network() -> mx.sym.Symbol:
    """Return a small convolutional network for (1, 8, 8) images."""
    net = mx.sym.Variable("data")
    net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=8, name="conv")
    net = mx.sym.Activation(net, act_type="tanh", name="tanh")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="avg", name="pool")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=10, name="scores")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def digits(batch_size: int) -> mx.io.NDArrayIter:
    """Return an iterator over all 1797 images, in their own order."""
    data = load_digits()
    images = data.images[:, None].astype(np.float32) / 16
    return mx.io.NDArrayIter(images, data.target.astype(np.float32), batch_size)


def train(plan: dict[str, list[object]], num_epoch: int) -> tuple[dict[str, np.ndarray], float]:
    """Train under one plan; return the parameters and the training accuracy."""
    mx.random.seed(0)
    batches = digits(batch_size=64)
    module = mx.mod.Module(network(), **plan)
    metric = mx.metric.Accuracy()
    module.fit(
        batches,
        eval_metric=metric,
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9},
        initializer=mx.init.Xavier(),
        num_epoch=num_epoch,
    )
    arg_params, _ = module.get_params()
    return {name: array.asnumpy() for name, array in arg_params.items()}, metric.get()[1]


def main() -> int:
    """Train under each plan and compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="one epoch")
    args = parser.parse_args()

    results = {name: train(plan, num_epoch=1 if args.smoke else 5) for name, plan in PLANS.items()}
    target = 1e-05
    reference, _ = results["cpu(0)"]
    worst = 0.0
    for name, (params, accuracy) in results.items():
        difference = max(float(np.abs(params[key] - reference[key]).max()) for key in reference)
        worst = max(worst, difference)
        print(f"{name:30} accuracy {accuracy:.4f}, largest difference {difference:.1e}")
    print(f"largest difference between parameters: {worst:.1e}, target at most {target}")
    return 0 if worst <= target else 1


if __name__ == "__main__":
    sys.exit(main())
