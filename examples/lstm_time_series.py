"""Predict a time series: an LSTM reads a window of it and predicts the next value.

The series is the product of two waves of different lengths, which grows and fades, and noise. The network gets 24
values and predicts the next one. The baseline repeats the last value.

Figure: error, as a share of that of the last value repeated, at most 0.4; 0.6 with --smoke.
Time: 3 s; 2 s with --smoke.
Run: python examples/lstm_time_series.py [--smoke] [--picture FILE]
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import dpmodule as mx

WINDOW, BATCH = 24, 64


def series(length: int) -> np.ndarray:
    """Return the series."""
    time = np.arange(length)
    waves = np.sin(2 * np.pi * time / 17) * (1 + 0.5 * np.sin(2 * np.pi * time / 60))
    return (waves + 0.05 * np.random.RandomState(0).normal(size=length)).astype("float32")


def network(hidden: int) -> mx.sym.Symbol:
    """Return the graph: an LSTM over the window, and a linear layer on its last output."""
    cell = mx.rnn.FusedRNNCell(hidden, mode="lstm", prefix="lstm_")
    steps = mx.sym.expand_dims(mx.sym.Variable("data"), axis=2)
    outputs, _ = cell.unroll(WINDOW, steps, merge_outputs=True, layout="NTC")
    last = mx.sym.Reshape(
        mx.sym.slice_axis(outputs, axis=1, begin=WINDOW - 1, end=WINDOW), shape=(-1, hidden)
    )
    guess = mx.sym.FullyConnected(last, num_hidden=1, name="guess")
    return mx.sym.LinearRegressionOutput(guess, mx.sym.Variable("next"), name="output")


def draw(path: str, true: np.ndarray, guesses: np.ndarray) -> None:
    """Draw values and their predictions from the previous values."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(6, 2.5), layout="constrained")
    axes.plot(true, ".", label="value", color="gray")
    axes.plot(guesses, label="predicted")
    axes.set_xlabel("step")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    plt.savefig(path)


def main() -> int:
    """Train and compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a shorter series and a lower target")
    parser.add_argument("--picture", metavar="FILE", help="draw the series and the predictions into a file")
    args = parser.parse_args()
    length, epochs, target = (1200, 6, 0.6) if args.smoke else (4000, 12, 0.4)

    mx.random.seed(0)
    values = series(length)
    windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW + 1)
    cut = len(windows) * 4 // 5
    train, test = (
        mx.io.NDArrayIter(part[:, :-1].copy(), {"next": part[:, -1:].copy()}, BATCH, shuffle=shuffle)
        for part, shuffle in ((windows[:cut], True), (windows[cut:], False))
    )
    module = mx.mod.Module(network(32), label_names=["next"])
    history = module.fit(
        train,
        eval_metric="rmse",
        num_epoch=epochs,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.01},
        initializer=mx.init.Xavier(),
        clip_global_norm=1.0,
    )
    guesses = module.predict(test).asnumpy()[:, 0]
    true, before = windows[cut:, -1], windows[cut:, -2]
    error, repeated = (float(np.sqrt(np.square(each - true).mean())) for each in (guesses, before))
    print(f"error in training {', '.join(f'{each:.3f}' for each in history['train-rmse'])}")
    print(f"root mean square error {error:.3f}, of the last value repeated {repeated:.3f}")
    if args.picture:
        draw(args.picture, true[:200], guesses[:200])
    print(
        f"error, as a share of that of the last value repeated: {error / repeated:.3f}, target at most {target}"
    )
    return 0 if error <= target * repeated else 1


if __name__ == "__main__":
    sys.exit(main())
