"""Train a character model on running text, its state carried from batch to batch (truncated backpropagation).

The text of Python's own documentation is split into streams that are read in parallel, some characters at a time. The
LSTM's state at the end of a batch is the initial state of the next one; gradients stop there.

Figure: perplexity of a character of unseen text, at most 4.5; 11.0 with --smoke.
Time: 15 s; 3 s with --smoke.
Run: python examples/stateful_lstm.py [--smoke]
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pydoc_data.topics import topics

import numpy as np

import dpmodule as mx

STREAMS, STEPS = 32, 16


def text(length: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return training and validation text as numbers, and the number of different characters."""
    whole = " ".join(" ".join(topics[name] for name in sorted(topics)).lower().split())[:length]
    letters = sorted(set(whole))
    numbers = np.array([letters.index(letter) for letter in whole], dtype=np.float32)
    cut = length * 9 // 10
    return numbers[:cut], numbers[cut:], len(letters)


def batches(numbers: np.ndarray) -> Iterator[mx.io.DataBatch]:
    """Yield batches of STREAMS x STEPS characters with the next characters; each continues the previous one."""
    length = (len(numbers) - 1) // STREAMS
    data, label = (numbers[start : start + STREAMS * length].reshape(STREAMS, length) for start in (0, 1))
    for at in range(0, length - STEPS + 1, STEPS):
        part = slice(at, at + STEPS)
        yield mx.io.DataBatch([mx.nd.array(data[:, part])], [mx.nd.array(label[:, part])])


def network(letters: int, hidden: int) -> tuple[mx.sym.Symbol, list[str]]:
    """Return the graph, whose further outputs are the state after the batch, and the names of the state before it."""
    cell = mx.rnn.FusedRNNCell(hidden, mode="lstm", prefix="lstm_", get_next_state=True)
    begin = cell.begin_state(func=mx.sym.Variable)
    embedded = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=letters, output_dim=32, name="embed")
    output, states = cell.unroll(STEPS, embedded, begin_state=begin, merge_outputs=True, layout="NTC")
    scores = mx.sym.FullyConnected(
        mx.sym.Reshape(output, shape=(-1, hidden)), num_hidden=letters, name="scores"
    )
    label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    loss = mx.sym.SoftmaxOutput(scores, label, normalization="batch", name="softmax")
    return mx.sym.Group([loss, *(mx.sym.BlockGrad(state) for state in states)]), [
        state.name for state in begin
    ]


def train(module: mx.mod.Module, numbers: np.ndarray) -> None:
    """Read the text once."""
    module.set_states(value=0)
    for batch in batches(numbers):
        module.forward_backward(batch)
        module.update()
        module.set_states(states=module.get_outputs(merge_multi_context=False)[1:])


def perplexity(module: mx.mod.Module, numbers: np.ndarray, carry: bool) -> float:
    """Return the perplexity of every character, with the state carried on or forgotten after each batch."""
    module.set_states(value=0)
    total = count = 0
    for batch in batches(numbers):
        module.forward(batch, is_train=False)
        chances = mx.nd.pick(module.get_outputs()[0], batch.label[0].reshape((-1,)))
        total -= float(mx.nd.log(chances).sum().asscalar())
        count += STREAMS * STEPS
        if carry:
            module.set_states(states=module.get_outputs(merge_multi_context=False)[1:])
    return math.exp(total / count)


def main() -> int:
    """Train and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    args = parser.parse_args()
    length, hidden, epochs, target = (80_000, 64, 2, 11.0) if args.smoke else (400_000, 128, 4, 4.5)

    mx.random.seed(0)
    training, validation, letters = text(length)
    net, states = network(letters, hidden)
    module = mx.mod.Module(net, state_names=states)
    module.bind([("data", (STREAMS, STEPS))], [("softmax_label", (STREAMS, STEPS))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.005, "rescale_grad": 1.0})
    for _ in range(epochs):
        train(module, training)

    carried, forgotten = (perplexity(module, validation, carry) for carry in (True, False))
    print(f"perplexity {forgotten:.3f} if the state is forgotten every {STEPS} characters")
    print(f"perplexity of a character of unseen text: {carried:.3f}, target at most {target}")
    return 0 if carried <= target and carried < forgotten else 1


if __name__ == "__main__":
    sys.exit(main())
