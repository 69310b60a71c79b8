"""Recurrent networks to build with any package that has MXNet's interface; also read by the recipe of the goldens."""

import json
import random

import numpy as np

STEPS, ROWS, FEATURES, UNITS = 3, 2, 5, 4


def stacks(mx):
    """Return functions that make cells, by case name."""
    rnn, fused = mx.rnn, mx.rnn.FusedRNNCell

    def cell(kind, prefix):
        if kind == "rnn_relu":
            return rnn.RNNCell(UNITS, activation="relu", prefix=prefix)
        made = {"rnn_tanh": rnn.RNNCell, "lstm": rnn.LSTMCell, "gru": rnn.GRUCell}[kind]
        return made(UNITS, prefix=prefix)

    def stack(*cells):
        made = rnn.SequentialRNNCell()
        for each in cells:
            made.add(each)
        return made

    def both(kind="gru", number="", **options):
        halves = cell(kind, f"l{number}_"), cell("gru", f"r{number}_")
        options.update({"output_prefix": f"b{number}_"} if number != "" else {})
        return rnn.BidirectionalCell(*halves, **options)

    def shared():
        params = rnn.RNNParams("tied_")
        return stack(rnn.GRUCell(UNITS, prefix="a_", params=params), rnn.RNNCell(UNITS, prefix="b_"))

    found = {
        **{k: lambda k=k: cell(k, k + "_") for k in ("rnn_tanh", "rnn_relu", "lstm", "gru")},
        "default_prefixes": lambda: stack(rnn.RNNCell(UNITS), rnn.LSTMCell(UNITS), rnn.GRUCell(UNITS)),
        "forget_bias": lambda: rnn.LSTMCell(UNITS, prefix="l_", forget_bias=2.5),
        "shared_params": shared,
        "stack": lambda: stack(cell("lstm", "a_"), cell("gru", "b_")),
        "nested": lambda: stack(cell("gru", "a_"), stack(cell("lstm", "b_"), cell("rnn_tanh", "c_"))),
        "stack_dropout": lambda: stack(cell("lstm", "a_"), rnn.DropoutCell(0.5, "d_"), cell("gru", "b_")),
        "dropout_default": lambda: stack(cell("lstm", "a_"), rnn.DropoutCell(0.5)),
        "no_dropout": lambda: stack(cell("lstm", "a_"), rnn.DropoutCell(0.0)),
        "bidirectional": lambda: both("lstm"),
        "bidirectional_prefix": lambda: both(output_prefix="both_"),
        "bidirectional_stack": lambda: stack(both(number=0), both(number=1)),
        "zoneout": lambda: rnn.ZoneoutCell(cell("lstm", "z_"), 0.3, 0.2),
        "zoneout_outputs": lambda: rnn.ZoneoutCell(cell("rnn_tanh", "z_"), zoneout_outputs=0.3),
        "zoneout_states": lambda: rnn.ZoneoutCell(cell("gru", "z_"), zoneout_states=0.2),
        "residual_stack": lambda: stack(cell("gru", "a_"), rnn.ResidualCell(cell("gru", "b_"))),
        "residual_bidirectional": lambda: stack(both(number=0), rnn.ResidualCell(both(number=1))),
        "residual_only": lambda: rnn.ResidualCell(both()),
        "fused_states": lambda: fused(UNITS, 2, "lstm", True, 0.5, get_next_state=True, prefix="f_"),
        "fused_gru_states": lambda: fused(UNITS, 2, "gru", get_next_state=True, forget_bias=3.0),
        "fused_stack": lambda: stack(fused(UNITS, 1, "gru", prefix="g_"), fused(UNITS, 1, prefix="m_")),
        "unfused_plain": lambda: fused(UNITS, 2, "gru", prefix="f_").unfuse(),
    }
    options = {"bidirectional": True, "dropout": 0.4, "prefix": "f_"}
    for mode in ("rnn_relu", "rnn_tanh", "lstm", "gru"):
        found["fused_" + mode] = lambda mode=mode: fused(UNITS, mode=mode)
        found["unfused_" + mode] = lambda mode=mode: fused(UNITS, 2, mode, **options).unfuse()
    return found


def convolutional(mx):
    """Return functions that make convolutional cells, by case name."""
    rnn, common = mx.rnn, {"input_shape": (1, 3, 6, 5), "num_hidden": 2}
    wide = {"h2h_kernel": (3, 5), "h2h_dilate": (1, 2), "i2h_kernel": (3, 1), "i2h_pad": (1, 0)}
    ones = {"i2h_weight_initializer": "one", "h2h_bias_initializer": "one", "i2h_pad": (0, 0)}
    return {
        "conv_rnn": lambda: rnn.ConvRNNCell(**common),
        "conv_lstm": lambda: rnn.ConvLSTMCell(**common, prefix="c_", activation="tanh"),
        "conv_gru": lambda: rnn.ConvGRUCell(**common, **wide),
        "conv_init": lambda: rnn.ConvLSTMCell(**common, **ones),
        "conv_stride": lambda: rnn.ConvLSTMCell(**common, i2h_stride=(2, 2), i2h_dilate=(2, 1)),
    }


def ways(mx, make):
    """Return symbols that unroll new cells of `make` in every way, by name; None for what is refused."""

    steps = [mx.sym.Variable(f"t{i}_data") for i in range(STEPS)]
    data = mx.sym.Variable("data")
    calls = {
        "steps": lambda c: c.unroll(STEPS, steps),
        "steps_merged": lambda c: c.unroll(STEPS, steps, merge_outputs=True),
        "steps_tnc": lambda c: c.unroll(STEPS, steps, layout="TNC", merge_outputs=True),
        "ntc": lambda c: c.unroll(STEPS, data),
        "ntc_merged": lambda c: c.unroll(STEPS, data, merge_outputs=True),
        "ntc_split": lambda c: c.unroll(STEPS, data, merge_outputs=False),
        "tnc_merged": lambda c: c.unroll(STEPS, data, layout="TNC", merge_outputs=True),
        "given_states": lambda c: c.unroll(STEPS, data, c.begin_state(func=mx.sym.Variable), "NTC", True),
        "call": lambda c: c(data, c.begin_state()),
        "again": lambda c: (c.unroll(2, data), c.reset(), c.unroll(2, data))[2],
    }
    found = {}
    for name, call in calls.items():
        with mx.name.NameManager():
            try:
                outputs, states = call(make())
            except (NotImplementedError, AssertionError, ValueError, TypeError):
                found[name] = None
                continue
            outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            found[name] = mx.sym.Group(outputs + flat(states))
    return found


def flat(states):
    """Return nested lists of symbols as one list; a bidirectional cell nests the states of its halves."""
    if not isinstance(states, (list, tuple)):
        return [states]
    return [one for each in states for one in flat(each)]


def shapes_of(symbol, way):
    """Return the shapes of the inputs among a symbol's arguments."""
    arguments = symbol.list_arguments()
    data = (STEPS, ROWS, FEATURES) if way.startswith("tnc") else (ROWS, STEPS, FEATURES)
    if way == "call":
        data = (ROWS, FEATURES)
    if way == "again":
        data = (ROWS, 2, FEATURES)
    shapes = {name: (ROWS, FEATURES) for name in arguments if name.endswith("_data")}
    if "data" in arguments:
        shapes["data"] = data
    return shapes


def values(mx, name, shape):
    """Return numbers that depend on a name alone."""
    seed = sum(ord(letter) * (i + 1) for i, letter in enumerate(name)) % 2**31
    return mx.nd.array(np.random.RandomState(seed).uniform(-0.7, 0.7, shape))


def nodes(symbol):
    """Return the nodes of a saved graph without what tells of the version."""
    found = json.loads(symbol.tojson())["nodes"]
    return [[n["op"], n["name"], n.get("attrs", {}), n["inputs"]] for n in found]


def batches(mx, sentences, words):
    """Return two epochs of sentences in buckets from seeds of 11, by layout, and encoded words."""
    found = {}
    for layout in ("NT", "TN"):
        random.seed(11)
        np.random.seed(11)
        it = mx.rnn.BucketSentenceIter(sentences, 4, buckets=[4, 8, 10], invalid_label=0, layout=layout)
        epochs = []
        for _ in range(2):
            arrays = [[b.bucket_key, *(a.asnumpy().tolist() for a in (*b.data, *b.label)), b.pad] for b in it]
            epochs.append(arrays)
            it.reset()
        describe = [[d.name, list(d.shape), d.layout] for d in it.provide_data + it.provide_label]
        found[layout] = {"epochs": epochs, "default_bucket_key": it.default_bucket_key, "describe": describe}
    it = mx.rnn.BucketSentenceIter(sentences, 4)
    found["buckets_found"] = [list(map(int, it.buckets)), it.default_bucket_key]
    found["encoded"] = list(mx.rnn.encode_sentences(words, invalid_label=0, start_label=1))
    found["encoded_minus_one"] = list(mx.rnn.encode_sentences(words))
    return found
