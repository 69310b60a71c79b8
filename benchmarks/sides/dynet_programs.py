"""DyNet's side of the comparison of programs for one example: those of `torch_programs` that it can express.

Run as ``python -m benchmarks.sides.dynet_programs``, also under Python 3.8. Weights and examples come from a file that
the side "loop" writes. A program that reads a value computes it without the other examples.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from .serve import serve, time_of

__all__ = ["prepare"]

LAYERS, MOST_STEPS, END = 6, 8, 0


class Net:
    """The layers of `torch_programs.Net` in DyNet.

    Args:
        dy: the package.
        arrays: the weights by name, as in torch.
    """

    def __init__(self, dy: Any, arrays: Any) -> None:
        self.dy, self.collection = dy, dy.ParameterCollection()
        self.table = self.collection.lookup_parameters_from_numpy(arrays["embed.weight"])
        self.weights = {
            name: self.collection.parameters_from_numpy(array)
            for name, array in arrays.items()
            if name != "embed.weight"
        }
        self.size = len(arrays["query"])

    def linear(self, name: str, x: Any) -> Any:
        return self.dy.affine_transform([self.weights[f"{name}.bias"], self.weights[f"{name}.weight"], x])

    def columns(self, name: str, x: Any) -> Any:
        """Return a linear layer of every column."""
        return self.dy.colwise_add(self.weights[f"{name}.weight"] * x, self.weights[f"{name}.bias"])

    def parts(self, x: Any, count: int) -> list[Any]:
        return [self.dy.pick_range(x, k * self.size, (k + 1) * self.size) for k in range(count)]

    def gru(self, x: Any, h: Any) -> Any:
        dy, w = self.dy, self.weights
        inner = dy.affine_transform([w["gru.bias_ih"], w["gru.weight_ih"], x])
        outer = dy.affine_transform([w["gru.bias_hh"], w["gru.weight_hh"], h])
        (ir, iz, i), (hr, hz, o) = self.parts(inner, 3), self.parts(outer, 3)
        r, z = dy.logistic(ir + hr), dy.logistic(iz + hz)
        new = dy.tanh(i + dy.cmult(r, o))
        return new + dy.cmult(z, h - new)

    def loss(self, hidden: Any, label: int) -> Any:
        return self.dy.pickneglogsoftmax(self.linear("score", hidden), label)


def tree_lstm(net: Net, e: Any) -> Any:
    dy = net.dy

    def node(tree: Any) -> Any:
        if isinstance(tree, int):
            i, o, u = net.parts(net.linear("leaf", net.table[e["words"][tree]]), 3)
            c = dy.cmult(dy.logistic(i), dy.tanh(u))
        else:
            children = [node(child) for child in tree]
            i, o, u = net.parts(net.linear("iou", dy.esum([h for h, _ in children])), 3)
            c = dy.cmult(dy.logistic(i), dy.tanh(u))
            for h, memory in children:
                c = c + dy.cmult(dy.logistic(net.linear("forget", h)), memory)
        return dy.cmult(dy.logistic(o), dy.tanh(c)), c

    return net.loss(node(e["tree"])[0], e["label"])


def lattice(net: Net, e: Any) -> Any:
    x, states = [net.table[word] for word in e["words"]], [net.weights["query"]]
    for k in range(len(x)):
        ways = [net.gru(x[k], states[k])]
        if k:
            ways.append(net.gru(x[k - 1] + x[k], states[k - 1]))
        states.append(net.dy.average(ways))
    return net.loss(states[-1], e["label"])


def attention(net: Net, e: Any) -> Any:
    dy = net.dy
    x = dy.concatenate_cols([net.table[word] for word in e["words"]])
    weights = dy.softmax(dy.transpose(dy.tanh(net.columns("keys", x))) * net.weights["query"])
    return net.loss(x * weights, e["label"])


def graph(net: Net, e: Any) -> Any:
    dy = net.dy
    x, (source, target) = dy.inputTensor(np.array(e["rows"]).T), e["edges"]
    to = np.zeros((len(target), len(e["rows"])))
    to[range(len(target)), target] = 1
    for _ in range(2):
        received = dy.select_cols(net.columns("message", x), source) * dy.inputTensor(to)
        x = dy.tanh(net.columns("own", x) + received)
    return net.loss(dy.sum_dim(x, [1]), e["label"])


def set_encoder(net: Net, e: Any) -> Any:
    dy = net.dy
    x = dy.inputTensor(np.array(e["rows"]).T)
    x = dy.rectify(net.columns("layers.1", dy.rectify(net.columns("layers.0", x))))
    return net.loss(dy.rectify(net.linear("keys", dy.sum_dim(x, [1]))), e["label"])


def pointer(net: Net, e: Any) -> Any:
    dy = net.dy
    keys, h, losses = net.columns("keys", dy.inputTensor(np.array(e["rows"]).T)), net.weights["query"], []
    for place in e["order"]:
        scores = dy.transpose(dy.tanh(dy.colwise_add(keys, net.linear("own", h)))) * net.weights["query"]
        losses.append(dy.pickneglogsoftmax(scores, place))
        h = net.gru(dy.inputVector(e["rows"][place]), h)
    return dy.average(losses)


def greedy(net: Net, e: Any) -> Any:
    dy = net.dy
    state, word, total = dy.tanh(net.linear("keys", dy.inputVector(e["start"]))), net.weights["query"], []
    for _ in range(MOST_STEPS):
        state = net.gru(word, state)
        scores = dy.log_softmax(net.linear("word", state))
        best = int(np.argmax(scores.npvalue()))
        total.append(dy.pick(scores, best))
        if best % 8 == END:
            break
        word = net.table[best]
    return -dy.average(total)


def early_exit(net: Net, e: Any) -> Any:
    dy = net.dy
    x = dy.inputVector(e["start"])
    for number in range(LAYERS):
        x = x + dy.tanh(net.linear(f"layers.{number}", x))
        if net.linear("halt", x).value() > 0.6:
            break
    return net.loss(x, e["label"])


PROGRAMS: dict[str, Callable[[Net, Any], Any]] = {
    "child-sum TreeLSTM": tree_lstm,
    "lattice": lattice,
    "ragged attention": attention,
    "graph messages": graph,
    "set encoder": set_encoder,
    "pointer network": pointer,
    "greedy decoding": greedy,
    "early exit": early_exit,
}


class Case:
    """The training of a network on a batch."""

    def __init__(self, dy: Any) -> None:
        self._dy, self._step = dy, float

    def start(self, name: str, file: str) -> dict[str, Any]:
        """Return the losses of the first two steps, or why there are none.

        Args:
            file: what the side "loop" has saved.
        """
        if name not in PROGRAMS:
            return {"why": "cannot express it"}
        dy = self._dy
        with np.load(file) as saved:
            arrays = {each: saved[each] for each in saved.files if each != "examples"}
            batch = json.loads(str(saved["examples"]))
        net = Net(dy, arrays)
        trainer = dy.SimpleSGDTrainer(net.collection, 1e-3)
        trainer.set_clip_threshold(0)

        def step() -> float:
            dy.renew_cg()
            loss = dy.average([PROGRAMS[name](net, each) for each in batch])
            found = loss.value()
            loss.backward()
            trainer.update()
            return float(found)

        self._step = step
        return {"losses": [step(), step()]}

    def measure(self) -> dict[str, float]:
        """Return the time of a step."""
        return time_of(self._step, least_s=0.05)


def prepare() -> dict[str, Callable[..., Any]]:
    """Return the answers."""
    import dynet_config  # type: ignore[import-not-found]

    dynet_config.set(autobatch=1, mem=4096, random_seed=1)
    import dynet  # type: ignore[import-not-found]

    case = Case(dynet)
    return {"start": case.start, "measure": case.measure}


if __name__ == "__main__":
    serve(prepare)
