"""Record unrolled recurrent networks on MXNet 1.9.1; writes one JSON file for each beside this one.

A file has the symbol as MXNet saves it, the inputs, the gradients of the outputs, the outputs, and the gradients.
"""

import json
import os

import mxnet as mx
import numpy as np

STEPS, ROWS, FEATURES, UNITS = 4, 2, 3, 2
S = mx.sym


def flat(states):
    return [each for s in states for each in (flat(s) if isinstance(s, list) else [s])]


def cells():
    """Cells of mx.rnn in a stack, with both directions."""
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.LSTMCell(UNITS, prefix="lstm_"))
    both = mx.rnn.GRUCell(UNITS, prefix="gru_"), mx.rnn.RNNCell(UNITS, prefix="rnn_")
    stack.add(mx.rnn.BidirectionalCell(*both, output_prefix="bi_"))
    begin = stack.begin_state(func=S.Variable)
    outputs, states = stack.unroll(STEPS, S.Variable("data"), begin_state=begin, merge_outputs=True)
    return S.Group([outputs] + flat(states))


def by_hand():
    """Two layers without any cell, step by step, the gates in another order."""
    x = S.SliceChannel(S.Variable("data"), num_outputs=STEPS, squeeze_axis=1, axis=1)
    names = "i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias", "init_c", "init_h"
    params = [{k: S.Variable("l{}_{}".format(i, k)) for k in names} for i in range(2)]
    last = [(p["init_c"], p["init_h"]) for p in params]
    hidden = []
    for t in range(STEPS):
        h = x[t]
        for i, p in enumerate(params):
            i2h = S.FullyConnected(h, p["i2h_weight"], p["i2h_bias"], num_hidden=4 * UNITS)
            h2h = S.FullyConnected(last[i][1], p["h2h_weight"], p["h2h_bias"], num_hidden=4 * UNITS)
            s = S.SliceChannel(i2h + h2h, num_outputs=4)
            enter, forget, leave = (S.Activation(s[k], act_type="sigmoid") for k in (0, 2, 3))
            c = forget * last[i][0] + enter * S.Activation(s[1], act_type="tanh")
            h = leave * S.Activation(c, act_type="tanh")
            last[i] = c, h
        hidden.append(h)
    return S.Concat(*hidden, dim=0)


def gluon():
    """Cells of gluon with lengths, time first."""
    cell = mx.gluon.rnn.HybridSequentialRNNCell()
    cell.add(mx.gluon.rnn.GRUCell(UNITS, prefix="gru_", input_size=FEATURES))
    cell.add(mx.gluon.rnn.LSTMCell(UNITS, prefix="lstm_", input_size=UNITS))
    begin = [S.Variable("begin{}".format(i)) for i in range(3)]
    outputs, states = cell.unroll(
        STEPS,
        S.Variable("data"),
        begin_state=begin,
        merge_outputs=True,
        layout="TNC",
        valid_length=S.Variable("lengths"),
    )
    return S.Group([outputs] + states)


def numbers(array):
    return array.asnumpy().astype(np.float64).round(7).tolist()


def record(net, time_first):
    shapes = {"data": (STEPS, ROWS, FEATURES) if time_first else (ROWS, STEPS, FEATURES)}
    for name in net.list_arguments():
        if "begin" in name or "init" in name:
            shapes[name] = (ROWS, UNITS)
    bound = net.simple_bind(mx.cpu(), **shapes)
    rng = np.random.RandomState(1)
    inputs = {}
    for name, array in bound.arg_dict.items():
        value = np.array([2.0, 4.0]) if name == "lengths" else rng.uniform(-1, 1, array.shape).round(3)
        inputs[name] = value.tolist()
        array[:] = mx.nd.array(value)
    outputs = bound.forward(is_train=True)
    heads = [rng.uniform(-1, 1, out.shape).round(3) for out in outputs]
    bound.backward([mx.nd.array(head) for head in heads])
    return {
        "symbol": json.loads(net.tojson()),
        "inputs": inputs,
        "heads": [head.tolist() for head in heads],
        "outputs": [numbers(out) for out in outputs],
        "gradients": {k: numbers(v) for k, v in bound.grad_dict.items() if k != "lengths"},
    }


for make in (cells, by_hand, gluon):
    with mx.name.NameManager():
        made = make()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), make.__name__ + ".json")
    with open(path, "w") as file:
        json.dump(record(made, make is gluon), file, separators=(",", ":"))
