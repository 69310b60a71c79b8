"""Random unrolled networks, with chains found and not, and any other passes on or off."""

import numpy as np

import dpmodule as mx
from dpmodule import executor
from dpmodule.executor.lowering import lower
from dpmodule.executor.passes import PASSES
from dpmodule.executor.passes.rnn_chains import rnn_chains
from helpers.unrolled import FEATURES, ROWS, UNITS, Run, close, lstm_step, slices, weights_of
from helpers.walk import walks

S = mx.sym
BASIC = {
    "lstm": mx.rnn.LSTMCell,
    "gru": mx.rnn.GRUCell,
    "tanh": mx.rnn.RNNCell,
    "relu": lambda units, prefix: mx.rnn.RNNCell(units, activation="relu", prefix=prefix),
}
JOINS = (
    lambda o: S.Concat(*o, dim=0),
    lambda o: S.Reshape(S.Concat(*o, dim=1), shape=(-1, 1)),
    lambda o: S.stack(*o, axis=1),
)


class Maker:
    """Draws a network; the same seed draws the same one again."""

    def __init__(self, seed, dtype):
        self.rng, self.dtype = np.random.RandomState(seed), dtype
        self.shapes, self.count = {}, 0

    def pick(self, *choices):
        return choices[self.rng.randint(len(choices))]

    def chance(self, share):
        return bool(self.rng.uniform() < share)

    def basic(self):
        self.count += 1
        return BASIC[self.pick("lstm", "gru", "tanh", "relu")](UNITS, prefix=f"c{self.count}_")

    def cell(self, width):
        """Return a cell and how wide its outputs are."""
        if self.chance(0.25):
            prefix = f"bi{self.count}_"
            return mx.rnn.BidirectionalCell(self.basic(), self.basic(), output_prefix=prefix), 2 * UNITS
        cell = self.basic()
        if self.chance(0.15):
            cell = mx.rnn.ZoneoutCell(cell, self.pick(0.0, 0.3), self.pick(0.0, 0.3))
        elif width == UNITS and self.chance(0.4):
            cell = mx.rnn.ResidualCell(cell)
        return cell, UNITS

    def stack(self):
        found, width = mx.rnn.SequentialRNNCell(), FEATURES
        for _ in range(self.rng.randint(1, 4)):
            if self.chance(0.3):
                found.add(mx.rnn.DropoutCell(0.4))
            cell, width = self.cell(width)
            found.add(cell)
        return found

    def begin(self, cell):
        states = cell.begin_state(dtype=self.dtype)
        for i in range(len(states)):
            if self.chance(0.4):
                self.shapes[f"begin{i}"] = (ROWS, UNITS)
                states[i] = S.Variable(f"begin{i}")
        return states

    def cells(self, steps):
        cell, layout, data = self.stack(), self.pick("NTC", "TNC"), S.Variable("data")
        self.shapes["data"] = (ROWS, steps, FEATURES) if layout == "NTC" else (steps, ROWS, FEATURES)
        options = {"layout": layout, "merge_outputs": self.pick(True, False, None)}
        if self.chance(0.3):
            options["valid_length"] = S.Variable("lengths")
            self.shapes["lengths"] = (ROWS,)
        if self.chance(0.3):
            data = slices(data, steps, layout.index("T"))
        outputs, states = cell.unroll(steps, data, self.begin(cell), **options)
        return (list(outputs) if isinstance(outputs, list) else [outputs]), flat(states)

    def by_hand(self, steps):
        layers, seen, outputs = self.rng.randint(1, 4), [], []
        weights = [weights_of(f"l{i}") for i in range(layers)]
        states = [(S.Variable(f"h{i}"), S.Variable(f"c{i}")) for i in range(layers)]
        self.shapes["data"] = (ROWS, steps, UNITS)
        self.shapes.update({f"{k}{i}": (ROWS, UNITS) for k in "hc" for i in range(layers)})
        gates, drops = self.pick("ifgo", "igfo"), [self.pick(0, 0, 0.5) for _ in range(layers + 1)]
        for x in slices(S.Variable("data"), steps):
            for i in range(layers):
                x = S.Dropout(x, p=drops[i]) if drops[i] else x
                if i and self.chance(0.1):
                    x = x + states[i][0]  # reads its own state: no chain
                states[i] = lstm_step(x, states[i], weights[i], gates)
                seen += states[i]
                x = states[i][0]
            outputs.append(S.Dropout(x, p=drops[-1]) if drops[-1] else x)
        return outputs, seen

    def net(self):
        steps = int(self.rng.randint(2, 7))
        outputs, states = (self.by_hand if self.chance(0.4) else self.cells)(steps)
        form = self.rng.randint(5)
        if len(outputs) > 1 and form < 3:
            outputs = [JOINS[form](outputs)]
        states = [s for s in states if self.chance(0.3)]
        return S.Group([S.sigmoid(head) if self.chance(0.3) else head for head in outputs + states])


def flat(states):
    return [each for s in states for each in (flat(s) if isinstance(s, list) else [s])]


@walks(range(60))
def test_random_networks(seed):
    dtype, tolerance = ("float64", 1e-10) if seed % 4 else ("float32", 5e-5)
    maker = Maker(seed, dtype)
    net = maker.net()
    lengths = [1 + maker.rng.randint(2) for _ in range(ROWS)]
    options = {"is_train": maker.chance(0.8), "values": {"lengths": lengths}}
    if maker.chance(0.3):
        options["grad_req"] = {n: maker.pick("write", "add", "null") for n in net.list_arguments()}
    with executor.disabled("rnn_chains"):
        wanted = Run(net, maker.shapes, dtype, **options)
    others = [each.name for each in PASSES if each.name != "rnn_chains" and maker.chance(0.3)]
    with executor.disabled(*others):
        close(Run(net, maker.shapes, dtype, **options), wanted, tolerance)


def test_most_of_them_have_chains():
    counts = [rnn_chains(lower(Maker(seed, "float32").net().graph, True)) for seed in range(60)]
    assert sum(map(bool, counts)) > 30
    assert max(counts) > 3
