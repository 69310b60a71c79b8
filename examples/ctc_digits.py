"""Read rows of digits without their positions: connectionist temporal classification (CTC).

A strip has three to five handwritten digits with gaps of any width. The network predicts a digit, or none, for each
column of the strip; the label has only the digits in order. CTCLoss sums over all alignments of columns and label. The
prediction is the likeliest class of each column, without repetitions and "none".

Source: Graves et al., "Connectionist temporal classification", 2006.

Figure: strips of which every digit is right, at least 0.8; 0.5 with --smoke.
Time: 7 s; 4 s with --smoke.
Run: python examples/ctc_digits.py [--smoke] [--picture FILE]
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from sklearn.datasets import load_digits

import dpmodule as mx

WIDTH, MOST, NONE, BATCH = 52, 5, 0, 32


def strips(images: np.ndarray, digits: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return strips, (count, 1, 8, WIDTH), and their digits as classes 1 to 10, padded with NONE."""
    rng = np.random.RandomState(seed)
    data, label = np.zeros((count, 1, 8, WIDTH), "float32"), np.full((count, MOST), NONE, "float32")
    for strip, classes in zip(data, label):
        at = 0
        for place, number in enumerate(rng.randint(0, len(images), rng.randint(3, MOST + 1))):
            at += rng.randint(0, 3)
            strip[0, :, at : at + 8] = images[number]
            classes[place] = digits[number] + 1
            at += 8
    return data, label


def network() -> mx.sym.Symbol:
    """Return the loss, and the scores of the classes in each of 26 columns, (26, N, 11)."""
    net = mx.sym.Variable("data")
    for number, width in enumerate((16, 32)):
        net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=width, name=f"conv{number}")
        net = mx.sym.relu(mx.sym.BatchNorm(net, fix_gamma=False, name=f"norm{number}"))
        pool = (2, 2) if number == 0 else (2, 1)
        net = mx.sym.Pooling(net, kernel=pool, stride=pool, pool_type="max")
    net = mx.sym.Convolution(net, kernel=(2, 5), pad=(0, 2), num_filter=64, name="conv2")
    net = mx.sym.Convolution(mx.sym.relu(net), kernel=(1, 1), num_filter=11, name="scores")
    scores = mx.sym.transpose(mx.sym.Reshape(net, shape=(0, 11, -1)), axes=(2, 0, 1))
    loss = mx.sym.CTCLoss(scores, mx.sym.Variable("label"), name="ctc")
    return mx.sym.Group([mx.sym.MakeLoss(loss, name="loss"), mx.sym.BlockGrad(scores, name="read")])


def read(scores: np.ndarray) -> list[list[int]]:
    """Return the decoded classes of each strip for scores (columns, N, 11)."""
    decoded = []
    for row in scores.argmax(2).T:
        changes = row[np.insert(row[1:] != row[:-1], 0, True)]
        decoded.append(changes[changes != NONE].tolist())
    return decoded


def distance(one: list[int], two: list[int]) -> int:
    """Return the edit distance of two sequences of digits."""
    row = list(range(len(two) + 1))
    for i, a in enumerate(one, 1):
        before, row = row, [i]
        for j, b in enumerate(two, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
    return row[-1]


def draw(path: str, strips: np.ndarray, said: list[list[int]]) -> None:
    """Draw ten strips, (10, 8, WIDTH), each below its prediction."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(5, 2, figsize=(6, 5), layout="constrained")
    for axis, strip, classes in zip(axes.flat, strips, said):
        axis.imshow(strip, cmap="gray_r")
        axis.set_title(" ".join(str(each - 1) for each in classes))
        axis.set_axis_off()
    plt.savefig(path)


def main() -> int:
    """Train and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="fewer strips, and a lower target")
    parser.add_argument(
        "--picture", metavar="FILE", help="draw some strips and their predictions into a file"
    )
    args = parser.parse_args()
    count, epochs, target = (1280, 4, 0.5) if args.smoke else (3200, 6, 0.8)

    mx.random.seed(0)
    images, digits = load_digits().images / 16, load_digits().target
    train = mx.io.NDArrayIter(
        *strips(images[:1400], digits[:1400], count, 0), BATCH, True, label_name="label"
    )
    data, label = strips(images[1400:], digits[1400:], 320, 1)
    module = mx.mod.Module(network(), label_names=["label"])
    history = module.fit(
        train,
        eval_metric=mx.metric.Loss(output_names=["loss_output"], label_names=[]),
        num_epoch=epochs,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.01},
        initializer=mx.init.Xavier(),
    )
    print(f"loss after each epoch {', '.join(f'{each:.2f}' for each in history['train-loss'])}")
    test = mx.io.NDArrayIter(data, label, BATCH, label_name="label")
    said = [line for [_, scores], _, _ in module.iter_predict(test) for line in read(scores.asnumpy())]
    wanted = [row[row != NONE].astype(int).tolist() for row in label]
    wrong = sum(map(distance, said, wanted)) / sum(map(len, wanted))
    whole = float(np.mean([a == b for a, b in zip(said, wanted)]))
    print(f"digits right {1 - wrong:.3f}")
    if args.picture:
        draw(args.picture, data[:10, 0], said)
    print(f"strips of which every digit is right: {whole:.3f}, target at least {target}")
    return 0 if whole >= target else 1


if __name__ == "__main__":
    sys.exit(main())
