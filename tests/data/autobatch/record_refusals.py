"""Record which calls DyNet takes and which it refuses.

Run in an environment with DyNet (pip install dyNET38 "numpy<1.24", Python 3.8), from the folder of this file:

    python record_refusals.py

It writes refusals.json: for every call below, in the words of tests/helpers/misuse.py, the type of the error that DyNet
raises when the call is made or its value asked for, "" for none. Every call runs in a process of its own, because DyNet
ends the process on some errors.
"""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "helpers"))

CALLS = """
dy.pickneglogsoftmax(X(3, n=2), 1)
dy.pickneglogsoftmax(X(3, n=1), 1)
dy.pickneglogsoftmax(X(3, 1), 1)
dy.pickneglogsoftmax(X(3, 4), 1)
dy.pickneglogsoftmax(X(3), 3)
dy.pickneglogsoftmax(X(3), -1)
dy.pickneglogsoftmax(X(3), 1.5)
dy.pickneglogsoftmax_batch(X(3), [1])
dy.pickneglogsoftmax_batch(X(3), [1, 0])
dy.pickneglogsoftmax_batch(X(3, n=2), [1])
dy.pickneglogsoftmax_batch(X(3, n=2), [1, 0])
dy.pickneglogsoftmax_batch(X(3, n=2), [1, 0, 2])
dy.pickneglogsoftmax_batch(X(3, n=2), [1, 3])
dy.pickneglogsoftmax_batch(X(3, n=2), [])
dy.hinge(X(3, n=2), 1)
dy.hinge(X(3), 1, 0.0)
dy.hinge(X(3), 1, -1.0)
dy.hinge(X(3), 1, float('nan'))
dy.hinge_batch(X(3), [1])
dy.hinge_batch(X(3), [1, 0])
dy.hinge_batch(X(3, n=2), [1])
dy.hinge_batch(X(3, n=2), [1, 0], -1.0)
dy.hinge_dim(X(3, 4), [0, 1, 2, 0])
dy.hinge_dim(X(3, 4), [0])
dy.hinge_dim(X(3, 4), [0, 1, 2, 0], 0, -1.0)
dy.hinge_dim(X(3, 4, n=2), [0, 1, 2, 0, 0, 1, 2, 0])
dy.pick(X(3), 1.5)
dy.pick(X(3), 3)
dy.pick(X(3, n=2), 1)
dy.pick(X(3, 4), 1, 2)
dy.pick_batch(X(3), [1])
dy.pick_batch(X(3), [1, 0])
dy.pick_batch(X(3, n=2), [1])
dy.pick_batch(X(3, n=3), [1, 0])
dy.pick_batch_elem(X(3), 0)
dy.pick_batch_elem(X(3), 1)
dy.pick_batch_elems(X(3), [0, 0])
dy.lookup_batch(T(5, 3), [1.5])
dy.sum_dim(X(3, 4), [])
dy.sum_dim(X(3, 4), [2])
dy.moment_elems(X(3), 0)
dy.moment_elems(X(3), -1)
dy.moment_batches(X(3, n=2), 0)
dy.moment_dim(X(3, 4), [0], 0, False)
dy.mean_dim(X(3, 4), [0], False, -1)
dy.std_dim(X(3, 4), [0], False, -1)
dy.squared_distance(X(3, 1), X(3))
dy.squared_distance(X(3), X(3, 1))
dy.squared_distance(X(3, 1), X(1, 3))
dy.l1_distance(X(3, 1), X(3))
dy.huber_distance(X(3, 1), X(3))
dy.dot_product(X(3), X(4))
dy.logsumexp([X(3, 1), X(3)])
dy.logsumexp([X(3), X(4)])
dy.layer_norm(X(3, 1), X(3), X(3))
dy.layer_norm(X(3), X(3), X(4))
dy.bmax(X(3, 1), X(3))
dy.esum([X(3), X(3, 1)])
dy.esum([X(3), X(4)])
dy.esum([])
dy.esum(X(3))
dy.esum((X(3), X(3)))
dy.average([X(3), X(3), X(3, 1)])
dy.average(X(3))
dy.concatenate(X(3))
dy.concatenate([X(3, 4), X(4, 3)])
dy.concatenate_to_batch([X(3), X(3, 1)])
dy.argmax(X(3, 4), 'zero_gradient')
dy.colwise_add(X(3), X(3))
dy.colwise_add(X(3, 4), X(4))
dy.circ_conv(X(3), X(4))
dy.cdiv(X(3), X(4))
dy.poisson_loss(X(1), -1)
dy.poisson_loss(X(1), LARGE)
dy.one_hot(3, -1)
dy.one_hot(2, [1, 3])
dy.dropout(X(3), 2.0)
dy.noise(X(3), float('nan'))
dy.bmax(S(), X(3))
dy.kmh_ngram(X(3, 4), 0)
dy.kmax_pooling(X(3, 4), 5)
dy.fold_rows(X(3, 4), 2)
dy.vecInput('')
dy.vecInput(None)
dy.vanilla_lstm_c(X(3), X(12))
dy.vanilla_lstm_c(X(3, 1), X(12))
dy.vanilla_lstm_c(X(3), X(13))
dy.vanilla_lstm_h(X(3), X(9))
dy.vanilla_lstm_gates(X(2), X(3), X(12, 2), X(12, 3), X(12))
dy.vanilla_lstm_gates(X(2, 1), X(3), X(12, 2), X(12, 3), X(12))
dy.vanilla_lstm_gates(X(2), X(3), X(12, 3), X(12, 3), X(12))
dy.vanilla_lstm_gates(X(2), X(3), X(12, 2), X(12, 3), X(11))
X(3, 4) * X(3)
X(3)[3]
X(3) + X(4)
X(3) + 'a'
"""


def outcome(runner, call):
    """Run a call in a process of its own."""
    reading, writing = os.pipe()
    if not os.fork():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(writing, runner.run(call)[0].encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as source:
        text = source.read()
    _, status = os.wait()
    return "crash" if status else text.partition(":")[0]


def main():
    import dynet
    from misuse import Runner

    runner = Runner(dynet)
    found = {call: outcome(runner, call) for call in CALLS.strip().splitlines()}
    with open(os.path.join(HERE, "refusals.json"), "w") as target:
        json.dump(found, target, indent=0)
        target.write("\n")


if __name__ == "__main__":
    main()
