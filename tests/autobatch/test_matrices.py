"""A decoder with attention: nodes that the native engine fuses away have their values and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy

EXAMPLES = [[1, 2, 3], [4, 5, 6, 7, 8], [3, 1, 2], [5, 5], [6], [7, 1, 1, 2, 8, 3, 4]]


class Attention:
    """A decoder that looks at the columns of a matrix, one example of which is a list of numbers."""

    def __init__(self):
        draw, self.m = np.random.RandomState(3), dy.ParameterCollection()
        shapes = {"w1": (6, 5), "w2": (6, 5), "v": (1, 6), "u": (5, 10), "o": (4, 5)}
        self.p = {n: self.m.parameters_from_numpy(draw.uniform(-1, 1, shape)) for n, shape in shapes.items()}
        self.words = self.m.lookup_parameters_from_numpy(draw.uniform(-1, 1, (9, 5)))
        self.inner = []

    def loss(self, example):
        p = self.p
        states = dy.concatenate_cols([self.words[i] for i in example])
        keys, state, losses = p["w1"] * states, self.words[0], []
        for i in example[:4]:
            mixed = dy.tanh(dy.colwise_add(keys, p["w2"] * state))
            scores = p["v"] * mixed
            share = dy.softmax(dy.transpose(scores))
            context = states * share
            state = dy.tanh(p["u"] * dy.concatenate([context, self.words[i]]))
            losses.append(dy.pickneglogsoftmax(p["o"] * state, i % 4))
            self.inner += [mixed, scores, share, context]
        return dy.esum(losses)

    def gradients(self):
        return [p.grad_as_array() for p in (*self.m.parameters_list(), self.words)]


def close(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("asked", ["before", "after", "reverted"])
def test_attention(asked, setting):
    """Values of inner nodes are asked for before the rest is computed, or after it; or some are taken back."""
    dy.configure(engine="python", autobatch=False, dtype="float64")
    right = Attention()
    wanted = dy.esum([right.loss(each) for each in EXAMPLES])
    wanted.backward(full=True)
    values, inner = dy.npvalues([wanted, *right.inner]), [x.gradient() for x in right.inner]
    dy.configure(engine=setting[0], autobatch=setting[1], dtype="float32")
    net, losses = Attention(), []
    for example in EXAMPLES:
        losses.append(net.loss(example))
        if asked == "before":
            net.inner[-4].value()
        if asked == "reverted":
            dy.cg_checkpoint()
            count = len(net.inner)
            net.loss([8, 8, 8, 8]).value()
            del net.inner[count:]
            dy.cg_revert()
    loss = dy.esum(losses)
    if asked == "after":
        close(dy.npvalues([loss, *net.inner]), values)
    loss.backward(full=True)
    close([x.gradient() for x in net.inner], inner)
    close(net.gradients(), right.gradients())


def test_matrices_of_attention_need_no_calls():
    dy.configure(engine="auto", autobatch=True)
    net = Attention()
    dy.esum([net.loss(each) for each in EXAMPLES]).value()
    found = dy.explain()
    if found.engine == "native":
        operations = [dy.cg().operation(each) for kinds, *_ in dy.cg().machine.batches() for each in kinds]
        assert not [each.name for each in operations if each.call is not None], "these run in torch"
        assert "colwise_add + tanh + multiply" in {row.operation for row in found.rows}
