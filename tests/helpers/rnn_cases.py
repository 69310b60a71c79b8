"""Recurrent networks to build with any package that has MXNet's interface; also read by the recipe of the goldens."""

STEPS, ROWS, FEATURES, UNITS = 3, 2, 5, 4


def cell_of(mx, kind, prefix):
    """Make one cell by the short name of its kind."""
    rnn = mx.rnn
    if kind == "rnn_relu":
        return rnn.RNNCell(UNITS, activation="relu", prefix=prefix)
    if kind == "rnn_tanh":
        return rnn.RNNCell(UNITS, prefix=prefix)
    if kind == "lstm":
        return rnn.LSTMCell(UNITS, prefix=prefix)
    return rnn.GRUCell(UNITS, prefix=prefix)


def sequential(mx, *cells):
    stack = mx.rnn.SequentialRNNCell()
    for cell in cells:
        stack.add(cell)
    return stack


def stacks(mx):
    """Return functions that make cells, by case name."""
    rnn = mx.rnn
    found = {
        kind: lambda kind=kind: cell_of(mx, kind, kind + "_")
        for kind in ("rnn_tanh", "rnn_relu", "lstm", "gru")
    }
    found["default_prefixes"] = lambda: sequential(
        mx, rnn.RNNCell(UNITS), rnn.LSTMCell(UNITS), rnn.GRUCell(UNITS)
    )
    found["forget_bias"] = lambda: rnn.LSTMCell(UNITS, prefix="l_", forget_bias=2.5)
    found["shared_params"] = lambda: _shared(mx)
    found["stack"] = lambda: sequential(mx, cell_of(mx, "lstm", "a_"), cell_of(mx, "gru", "b_"))
    found["nested"] = lambda: sequential(
        mx, cell_of(mx, "gru", "a_"), sequential(mx, cell_of(mx, "lstm", "b_"), cell_of(mx, "rnn_tanh", "c_"))
    )
    found["stack_dropout"] = lambda: sequential(
        mx, cell_of(mx, "lstm", "a_"), rnn.DropoutCell(0.5, prefix="d_"), cell_of(mx, "gru", "b_")
    )
    found["dropout_default"] = lambda: sequential(mx, cell_of(mx, "lstm", "a_"), rnn.DropoutCell(0.5))
    found["no_dropout"] = lambda: sequential(mx, cell_of(mx, "lstm", "a_"), rnn.DropoutCell(0.0))
    found["bidirectional"] = lambda: rnn.BidirectionalCell(
        cell_of(mx, "lstm", "l_"), cell_of(mx, "gru", "r_")
    )
    found["bidirectional_prefix"] = lambda: rnn.BidirectionalCell(
        cell_of(mx, "gru", "l_"), cell_of(mx, "gru", "r_"), output_prefix="both_"
    )
    found["bidirectional_stack"] = lambda: sequential(
        mx,
        rnn.BidirectionalCell(cell_of(mx, "gru", "l0_"), cell_of(mx, "gru", "r0_"), output_prefix="b0_"),
        rnn.BidirectionalCell(cell_of(mx, "gru", "l1_"), cell_of(mx, "gru", "r1_"), output_prefix="b1_"),
    )
    found["zoneout"] = lambda: rnn.ZoneoutCell(cell_of(mx, "lstm", "z_"), 0.3, 0.2)
    found["zoneout_outputs"] = lambda: rnn.ZoneoutCell(cell_of(mx, "rnn_tanh", "z_"), zoneout_outputs=0.3)
    found["zoneout_states"] = lambda: rnn.ZoneoutCell(cell_of(mx, "gru", "z_"), zoneout_states=0.2)
    found["residual_stack"] = lambda: sequential(
        mx, cell_of(mx, "gru", "a_"), rnn.ResidualCell(cell_of(mx, "gru", "b_"))
    )
    found["residual_bidirectional"] = lambda: sequential(
        mx,
        rnn.BidirectionalCell(cell_of(mx, "gru", "l0_"), cell_of(mx, "gru", "r0_"), output_prefix="b0_"),
        rnn.ResidualCell(
            rnn.BidirectionalCell(cell_of(mx, "gru", "l1_"), cell_of(mx, "gru", "r1_"), output_prefix="b1_")
        ),
    )
    found["residual_only"] = lambda: rnn.ResidualCell(
        rnn.BidirectionalCell(cell_of(mx, "gru", "l_"), cell_of(mx, "gru", "r_"))
    )
    for mode in ("rnn_relu", "rnn_tanh", "lstm", "gru"):
        found["fused_" + mode] = lambda mode=mode: rnn.FusedRNNCell(UNITS, mode=mode)
        found["unfused_" + mode] = lambda mode=mode: rnn.FusedRNNCell(
            UNITS, 2, mode, bidirectional=True, dropout=0.4, prefix="f_"
        ).unfuse()
    found["fused_states"] = lambda: rnn.FusedRNNCell(
        UNITS, 2, "lstm", True, 0.5, get_next_state=True, prefix="f_"
    )
    found["fused_gru_states"] = lambda: rnn.FusedRNNCell(
        UNITS, 2, "gru", get_next_state=True, forget_bias=3.0
    )
    found["fused_stack"] = lambda: sequential(
        mx,
        rnn.FusedRNNCell(UNITS, mode="gru", prefix="g_"),
        rnn.FusedRNNCell(UNITS, mode="lstm", prefix="m_"),
    )
    found["unfused_plain"] = lambda: rnn.FusedRNNCell(UNITS, 2, "gru", prefix="f_").unfuse()
    return found


def _shared(mx):
    params = mx.rnn.RNNParams("tied_")
    return sequential(
        mx, mx.rnn.GRUCell(UNITS, prefix="a_", params=params), mx.rnn.RNNCell(UNITS, prefix="b_")
    )


def convolutional(mx):
    """Return functions that make convolutional cells, by case name."""
    rnn = mx.rnn
    shape = (1, 3, 6, 5)
    return {
        "conv_rnn": lambda: rnn.ConvRNNCell(input_shape=shape, num_hidden=2),
        "conv_lstm": lambda: rnn.ConvLSTMCell(
            input_shape=shape, num_hidden=2, prefix="c_", activation="tanh"
        ),
        "conv_gru": lambda: rnn.ConvGRUCell(
            input_shape=shape,
            num_hidden=2,
            h2h_kernel=(3, 5),
            h2h_dilate=(1, 2),
            i2h_kernel=(3, 1),
            i2h_pad=(1, 0),
        ),
        "conv_init": lambda: rnn.ConvLSTMCell(
            input_shape=shape,
            num_hidden=2,
            i2h_weight_initializer="one",
            h2h_bias_initializer="one",
            i2h_pad=(0, 0),
        ),
        "conv_stride": lambda: rnn.ConvLSTMCell(
            input_shape=shape, num_hidden=2, i2h_stride=(2, 2), i2h_dilate=(2, 1)
        ),
    }


def ways(mx, make):
    """Return symbols that unroll new cells of `make` in every way, by name; None for what is refused."""

    def steps():
        return [mx.sym.Variable(f"t{i}_data") for i in range(STEPS)]

    calls = {
        "steps": lambda c: c.unroll(STEPS, steps()),
        "steps_merged": lambda c: c.unroll(STEPS, steps(), merge_outputs=True),
        "steps_tnc": lambda c: c.unroll(STEPS, steps(), layout="TNC", merge_outputs=True),
        "ntc": lambda c: c.unroll(STEPS, mx.sym.Variable("data")),
        "ntc_merged": lambda c: c.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True),
        "ntc_split": lambda c: c.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=False),
        "tnc_merged": lambda c: c.unroll(STEPS, mx.sym.Variable("data"), layout="TNC", merge_outputs=True),
        "given_states": lambda c: c.unroll(
            STEPS,
            mx.sym.Variable("data"),
            begin_state=c.begin_state(func=mx.sym.Variable),
            merge_outputs=True,
        ),
        "call": lambda c: c(mx.sym.Variable("data"), c.begin_state()),
        "again": lambda c: (
            c.unroll(2, mx.sym.Variable("data")),
            c.reset(),
            c.unroll(2, mx.sym.Variable("data")),
        )[2],
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
