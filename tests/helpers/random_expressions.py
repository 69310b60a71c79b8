"""Random graphs of expressions, with minibatches of several sizes: the same graph from the same seed."""

import numpy as np

import dpmodule.autobatch as dy

WORDS = 6
BUILDERS = [f"{x}Builder" for x in ["VanillaLSTM", "CompactVanillaLSTM", "CoupledLSTM", "GRU", "SimpleRNN"]]


def model(size=3):
    """Return parameters of vectors of `size`, a table and recurrent networks by name; "all" is their collection."""
    m, draw = dy.ParameterCollection(), np.random.RandomState(7)

    def drawn(bound, *shape):  # the same numbers in float32 and in float64
        return draw.uniform(-bound, bound, shape).astype(np.float32)

    bound = 1.2 / size**0.5
    shapes = {"W": (size, size), "V": (size, size), "U": (size, 2 * size), "b": (size,)}
    found = {name: m.parameters_from_numpy(drawn(bound, *shape)) for name, shape in shapes.items()}
    found["table"] = m.lookup_parameters_from_numpy(drawn(1, WORDS, size))
    for name in BUILDERS:
        found[name] = getattr(dy, name)(1, size, size, m)
        for p in found[name].param_collection().parameters_list():
            p.set_value(drawn(bound, *p.shape()))
    found["all"] = m
    return found


def as_vector(x):
    """Take a dimension of 1 away."""
    d, batch = x.dim()
    return x if len(d) == 1 else dy.reshape(x, (max(d),), batch)


class Maker:
    """Makes one random graph, whose nodes are vectors.

    Args:
        m: what `model` returns.
        seed: of the graph.
    """

    def __init__(self, m, seed):
        self.draw = np.random.RandomState(seed)
        self.m = m
        (self.size,) = m["b"].shape()
        self.batches = self.draw.choice([2, 3, 5, 17], 2).tolist()
        self.builder = self.one_of(BUILDERS)

    def one_of(self, nodes):
        return nodes[self.draw.randint(len(nodes))]

    def places(self, count, most):
        return self.draw.randint(0, most, count).tolist()

    def leaf(self):
        kind, batch = self.draw.randint(5), self.one_of(self.batches)
        if kind < 2:
            array = self.draw.uniform(-1, 1, (self.size, *[batch] * kind)).astype(np.float32)
            return dy.inputTensor(array, batched=kind == 1)
        if kind == 2:
            return dy.lookup_batch(self.m["table"], self.places(batch, WORDS))
        return self.m["b"] + 0.0 if kind == 3 else self.m["table"][int(self.draw.randint(WORDS))]

    def unary(self, x):
        number, place = float(self.draw.uniform(0.2, 1.5)), int(self.draw.randint(self.size))
        m, batch = self.m, x.dim()[1]
        labels, some = self.places(batch, self.size), self.places(self.draw.randint(1, 4), batch)
        options = [
            *(lambda: dy.tanh(x), lambda: dy.rectify(x), lambda: x * number, lambda: dy.softmax(x)),
            *(lambda: dy.concatenate([x[1:], x[:1]]), lambda: m["W"] * x, lambda: dy.cmult(x, m["b"])),
            *(lambda: dy.affine_transform([m["b"], m["W"], x]), lambda: dy.cmult(x, dy.pick(x, place))),
            *(lambda: dy.layer_norm(x, m["b"], m["b"]), lambda: dy.nobackprop(x), lambda: dy.sparsemax(x)),
            lambda: dy.pickneglogsoftmax(x, place if batch == 1 else labels) + x,
            lambda: dy.pickneglogsoftmax_batch(m["W"] * x, labels) - x,
            *(lambda: dy.cmult(dy.pick_batch(x, labels), x), lambda: dy.pick_batch_elems(x, some)),
            lambda: dy.concatenate_to_batch([x, dy.tanh(x)]) if batch < 40 else dy.mean_batches(x),
            lambda: dy.strided_select(dy.concatenate_cols([x, m["b"]]), [1, 2]),
            lambda: dy.cdiv(x, dy.squared_norm(x) + 1),
            lambda: dy.select_rows(x, [2, 0, 2, *range(3, self.size)]),
        ]
        return as_vector(self.one_of(options)())

    def joined(self, xs):
        m, (x, y) = self.m, xs[:2]
        axis = int(self.draw.randint(2))
        options = [
            *(lambda: x + y, lambda: x - y, lambda: dy.cmult(x, y), lambda: dy.esum(xs)),
            *(lambda: dy.average(xs), lambda: m["U"] * dy.concatenate([x, y])),
            lambda: dy.concatenate_cols([x, y]) * dy.softmax(dy.concatenate([x[:1], y[1:2]])),
            lambda: dy.affine_transform([m["b"], m["W"], x, m["V"], y]),
            lambda: dy.pick(m["W"] * dy.concatenate_cols(xs), 0, 1),
            lambda: dy.sum_dim(dy.tanh(dy.colwise_add(dy.concatenate_cols(xs), y)), [1]),
            *(lambda: dy.logsumexp_dim(dy.concatenate_cols(xs), 1), lambda: dy.logsumexp(xs)),
            lambda: dy.mean_dim(dy.concatenate_cols(xs), [1], bool(axis)),
            lambda: dy.pick(dy.softmax(dy.concatenate_cols([x, y, x * 0.5]), axis), 1, 1),
        ]
        return as_vector(self.one_of(options)())

    def some_of(self, nodes, most):
        """Return some nodes whose minibatches go together."""
        found = [self.one_of(nodes)]
        batch = found[0].dim()[1]
        while len(found) < most:
            other = self.one_of(nodes)
            found.append(other if other.dim()[1] in (1, batch) or batch == 1 else found[0])
            batch = max(batch, found[-1].dim()[1])
        return found

    def step(self, states, nodes):
        """Go on from some state of the recurrent network, or begin."""
        before, x = self.one_of(states), self.one_of(nodes)
        if before is None or before.output().dim()[1] not in (1, x.dim()[1]):
            before = self.m[self.builder].initial_state()
        return before.add_input(x)

    def make(self, count):
        """Return the nodes of a graph of about `count` operations."""
        nodes, states = [self.leaf() for _ in range(4)], [None]
        for _ in range(count):
            what = self.draw.randint(10)
            if what == 9:
                states.append(self.step(states, nodes))
                nodes.append(states[-1].output())
            elif what < 2:
                nodes.append(self.leaf())
            elif what < 6:
                nodes.append(self.unary(self.one_of(nodes)))
            else:
                nodes.append(self.joined(self.some_of(nodes, self.draw.randint(2, 7))))
        return nodes
