"""Twelve programs of PyTorch for one example, in the forms of papers, and six of them batched by hand.

A program takes the network and an example, and returns its loss, a number. Programs that read values are asynchronous,
and wait for a tensor before they read it. `EXAMPLES` and `BY_HAND` have the examples' makers and the batched forms.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["BY_HAND", "PROGRAMS", "Example", "Net", "examples"]

WORDS, CLASSES, END = 100, 5, 0
LAYERS, MOST_STEPS = 6, 8


class Net(nn.Module):
    """The layers that the programs use.

    Args:
        size: number of hidden units.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.embed = nn.Embedding(WORDS, size)
        self.leaf = nn.Linear(size, 3 * size)
        self.iou = nn.Linear(size, 3 * size)
        self.forget = nn.Linear(size, size)
        self.gru = nn.GRUCell(size, size)
        self.lstm = nn.LSTMCell(size, size)
        self.keys = nn.Linear(size, size)
        self.query = nn.Parameter(torch.randn(size) / size**0.5)
        self.message, self.own = nn.Linear(size, size), nn.Linear(size, size)
        self.pair = nn.Linear(2 * size, size)
        self.gates = nn.Linear(2 * size, 5 * size)
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(LAYERS))
        self.halt = nn.Linear(size, 1)
        self.actions = nn.Linear(3 * size, 3)
        self.score = nn.Linear(size, CLASSES)
        self.word = nn.Linear(size, WORDS)


@dataclass
class Example:
    """Words with a tree over them, edges between them, a vector, and a label."""

    words: Tensor
    tree: Any
    edges: Tensor
    start: Tensor
    rows: Tensor
    label: Tensor
    order: list[int]
    bits: list[int]


def examples(count: int, size: int, seed: int = 1) -> list[Example]:
    """Draw examples: sentences of 4 to 16 words, graphs of two edges for each node."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        length = draw.randint(4, 16)
        found.append(
            Example(
                torch.tensor([draw.randrange(1, WORDS) for _ in range(length)]),
                _tree(draw, 0, length),
                torch.tensor([[draw.randrange(length) for _ in range(2 * length)] for _ in range(2)]),
                torch.randn(size, generator=generator),
                torch.randn(length, size, generator=generator),
                torch.tensor(draw.randrange(CLASSES)),
                draw.sample(range(length), length),
                [draw.randrange(2) for _ in range(2 * length)],
            )
        )
    return found


def _tree(draw: random.Random, first: int, last: int) -> Any:
    if last - first == 1:
        return first
    middle = draw.randint(first + 1, last - 1)
    return _tree(draw, first, middle), _tree(draw, middle, last)


def classified(net: Net, hidden: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(net.score(hidden), label)


def tree_lstm(net: Net, e: Example) -> Tensor:
    """Child-sum TreeLSTM (Tai et al. 2015)."""

    def node(tree: Any) -> tuple[Tensor, Tensor]:
        if isinstance(tree, int):
            i, o, u = net.leaf(net.embed(e.words[tree])).chunk(3)
            c = torch.sigmoid(i) * torch.tanh(u)
        else:
            children = [node(child) for child in tree]
            i, o, u = net.iou(torch.stack([h for h, _ in children]).sum(0)).chunk(3)
            c = torch.sigmoid(i) * torch.tanh(u)
            for h, memory in children:
                c = c + torch.sigmoid(net.forget(h)) * memory
        return torch.sigmoid(o) * torch.tanh(c), c

    return classified(net, node(e.tree)[0], e.label)


def lattice(net: Net, e: Example) -> Tensor:
    """A GRU over words and pairs of words, whose paths meet after every word (Zhang and Yang 2018, simplified)."""
    x, states = net.embed(e.words), [net.query]
    for k in range(len(x)):
        ways = [net.gru(x[k], states[k])]
        if k:
            ways.append(net.gru(x[k - 1] + x[k], states[k - 1]))
        states.append(torch.stack(ways).mean(0))
    return classified(net, states[-1], e.label)


def attention(net: Net, e: Example) -> Tensor:
    """Attention over the words of a document (Yang et al. 2016)."""
    x = net.embed(e.words)
    weights = F.softmax(torch.tanh(net.keys(x)) @ net.query, 0)
    return classified(net, weights @ x, e.label)


def graph(net: Net, e: Example) -> Tensor:
    """Two rounds of messages along edges (Gilmer et al. 2017)."""
    x, source, target = e.rows, e.edges[0], e.edges[1]
    for _ in range(2):
        received = torch.zeros_like(x).index_add(0, target, net.message(x)[source])
        x = torch.tanh(net.own(x) + received)
    return classified(net, x.sum(0), e.label)


def set_encoder(net: Net, e: Example) -> Tensor:
    """A sum over a set (Zaheer et al. 2017)."""
    x = torch.relu(net.layers[1](torch.relu(net.layers[0](e.rows))))
    return classified(net, torch.relu(net.keys(x.sum(0))), e.label)


def pointer(net: Net, e: Example) -> Tensor:
    """A pointer network with given outputs (Vinyals et al. 2015)."""
    x, h, losses = e.rows, net.query, []
    keys = net.keys(x)
    for place in e.order:
        losses.append(F.cross_entropy(torch.tanh(keys + net.own(h)) @ net.query, torch.tensor(place)))
        h = net.gru(x[place], h)
    return torch.stack(losses).mean()


async def greedy(net: Net, e: Example) -> Tensor:
    """A decoder that reads what it has written, until the end token."""
    state, word, total = torch.tanh(net.keys(e.start)), net.query, []
    for _ in range(MOST_STEPS):
        state = net.gru(word, state)
        scores = F.log_softmax(net.word(state), 0)
        best = int(await scores.argmax())
        total.append(scores[best])
        if best % 8 == END:
            break
        word = net.embed.weight[best]
    return -torch.stack(total).mean()


async def beam(net: Net, e: Example) -> Tensor:
    """Beam search with three beams; no gradients."""
    with torch.no_grad():
        state = torch.tanh(net.keys(e.start))
        beams = [(0.0, state, END)]
        for _ in range(MOST_STEPS):
            steps = [net.gru(net.embed.weight[word], state) for _, state, word in beams]
            best = [F.log_softmax(net.word(state), 0).topk(3) for state in steps]
            await torch.stack([each.values for each in best])
            grown = [
                (score + value, state, word)
                for (score, _, _), state, each in zip(beams, steps, best)
                for value, word in zip(each.values.tolist(), each.indices.tolist())
            ]
            beams = sorted(grown, key=lambda each: -each[0])[:3]
    return torch.tensor(beams[0][0])


async def early_exit(net: Net, e: Example) -> Tensor:
    """Layers until a score is large enough (Teerapittayanon et al. 2016)."""
    x = e.start
    for layer in net.layers:
        x = x + torch.tanh(layer(x))
        if float(await net.halt(x).detach()) > 0.6:
            break
    return classified(net, x, e.label)


async def adaptive(net: Net, e: Example) -> Tensor:
    """Adaptive computation time (Graves 2016)."""
    h, spent, outs = torch.tanh(net.keys(e.start)), 0.0, []
    for _ in range(MOST_STEPS):
        h = net.gru(e.start, h)
        p = torch.sigmoid(net.halt(h)).squeeze(0)
        value = float(await p.detach())
        if spent + value > 0.99:
            outs.append(h * (1 - spent))
            break
        outs.append(h * p)
        spent += value
    return classified(net, torch.stack(outs).sum(0), e.label)


async def rnng(net: Net, e: Example) -> Tensor:
    """A recurrent grammar: stacked states; actions by scores (Dyer et al. 2016, simplified)."""
    buffer = list(net.embed(e.words).unbind(0))[::-1]
    stack, history, losses = [(net.query, net.query)], net.query, []
    for bit in e.bits:
        h = stack[-1][0]
        scores = F.log_softmax(net.actions(torch.cat([h, history, buffer[-1] if buffer else net.query])), 0)
        losses.append(scores[bit])
        action = int(await scores.detach().argmax())
        if len(stack) > 2 and (action == 1 or not buffer):
            (_, right), (_, left) = stack.pop(), stack.pop()
            x = torch.tanh(net.pair(torch.cat([left, right])))
        elif buffer:
            x = buffer.pop()
        else:
            break
        stack.append((net.gru(x, stack[-1][0]), x))
        history = net.gru(x, history)
    return classified(net, stack[-1][0], e.label) - torch.stack(losses).mean()


async def spinn(net: Net, e: Example) -> Tensor:
    """Shift and reduce with a tracker that decides (Bowman et al. 2016)."""
    buffer, stack = list(net.embed(e.words).unbind(0))[::-1], []
    zero = torch.zeros(net.size)
    state = (net.query, net.query)
    while buffer or len(stack) > 1:
        top = stack[-1][0] if stack else zero
        state = net.lstm(top + (buffer[-1] if buffer else zero), state)
        shifts = not buffer or len(stack) < 2
        if not shifts:
            shifts = float(await net.halt(state[0]).detach()) > 0
        if buffer and shifts:
            stack.append((buffer.pop(), zero))
        else:
            right, left = stack.pop(), stack.pop()
            i, f, g, o, u = net.gates(torch.cat([left[0], right[0]])).chunk(5)
            c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f) * left[1] + torch.sigmoid(g) * right[1]
            stack.append((torch.sigmoid(o) * torch.tanh(c), c))
    return classified(net, stack[0][0], e.label)


PROGRAMS: dict[str, Callable[[Net, Example], Any]] = {
    "child-sum TreeLSTM": tree_lstm,
    "lattice": lattice,
    "ragged attention": attention,
    "graph messages": graph,
    "set encoder": set_encoder,
    "pointer network": pointer,
    "greedy decoding": greedy,
    "beam search": beam,
    "early exit": early_exit,
    "adaptive computation": adaptive,
    "RNNG": rnng,
    "SPINN": spinn,
}


def trees_by_hand(net: Net, batch: Sequence[Example]) -> Tensor:
    """All nodes of one height at a time."""
    nodes: list[
        tuple[int, int, int]
    ] = []  # height, and the numbers of the children; a leaf has its word twice
    roots, words = [], []

    def add(e: Example, tree: Any) -> int:
        if isinstance(tree, int):
            words.append(e.words[tree])
            nodes.append((0, len(words) - 1, 0))
        else:
            left, right = (add(e, child) for child in tree)
            nodes.append((1 + max(nodes[left][0], nodes[right][0]), left, right))
        return len(nodes) - 1

    roots.extend(add(e, e.tree) for e in batch)
    heights: dict[int, list[int]] = {}
    for number, (height, _, _) in enumerate(nodes):
        heights.setdefault(height, []).append(number)
    place = {}
    for height in sorted(heights):
        for number in heights[height]:
            place[number] = len(place)
    i, o, u = net.leaf(net.embed(torch.stack([words[nodes[number][1]] for number in heights[0]]))).chunk(3, 1)
    c = torch.sigmoid(i) * torch.tanh(u)
    hs, cs = torch.sigmoid(o) * torch.tanh(c), c
    for height in sorted(heights)[1:]:
        left = torch.tensor([place[nodes[number][1]] for number in heights[height]])
        right = torch.tensor([place[nodes[number][2]] for number in heights[height]])
        h, k, c1, c2 = hs[left], hs[right], cs[left], cs[right]
        i, o, u = net.iou(h + k).chunk(3, 1)
        c = torch.sigmoid(i) * torch.tanh(u)
        c = c + torch.sigmoid(net.forget(h)) * c1 + torch.sigmoid(net.forget(k)) * c2
        hs, cs = torch.cat([hs, torch.sigmoid(o) * torch.tanh(c)]), torch.cat([cs, c])
    labels = torch.stack([e.label for e in batch])
    return classified(net, hs[torch.tensor([place[root] for root in roots])], labels)


def attention_by_hand(net: Net, batch: Sequence[Example]) -> Tensor:
    words = nn.utils.rnn.pad_sequence([e.words for e in batch], batch_first=True)
    is_word = torch.arange(words.shape[1]) < torch.tensor([len(e.words) for e in batch]).unsqueeze(1)
    x = net.embed(words)
    scores = (torch.tanh(net.keys(x)) @ net.query).masked_fill(~is_word, -torch.inf)
    mixed = (F.softmax(scores, 1).unsqueeze(1) @ x).squeeze(1)
    return classified(net, mixed, torch.stack([e.label for e in batch]))


def _joined(batch: Sequence[Example]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows of all examples, the example of each, and the first row of each example."""
    lengths = torch.tensor([len(e.rows) for e in batch])
    owner = torch.repeat_interleave(torch.arange(len(batch)), lengths)
    return torch.cat([e.rows for e in batch]), owner, lengths.cumsum(0) - lengths


def graph_by_hand(net: Net, batch: Sequence[Example]) -> Tensor:
    x, owner, first = _joined(batch)
    edges = torch.cat([e.edges + start for e, start in zip(batch, first)], 1)
    for _ in range(2):
        received = torch.zeros_like(x).index_add(0, edges[1], net.message(x)[edges[0]])
        x = torch.tanh(net.own(x) + received)
    sums = x.new_zeros(len(batch), net.size).index_add(0, owner, x)
    return classified(net, sums, torch.stack([e.label for e in batch]))


def set_by_hand(net: Net, batch: Sequence[Example]) -> Tensor:
    x, owner, _ = _joined(batch)
    x = torch.relu(net.layers[1](torch.relu(net.layers[0](x))))
    sums = x.new_zeros(len(batch), net.size).index_add(0, owner, x)
    return classified(net, torch.relu(net.keys(sums)), torch.stack([e.label for e in batch]))


def greedy_by_hand(net: Net, batch: Sequence[Example]) -> Tensor:
    state = torch.tanh(net.keys(torch.stack([e.start for e in batch])))
    word, rows = net.query.expand(len(batch), -1), torch.arange(len(batch))
    losses, counts = torch.zeros(len(batch)), torch.zeros(len(batch))
    for _ in range(MOST_STEPS):
        state = net.gru(word, state)
        best, chosen = F.log_softmax(net.word(state), 1).max(1)
        losses, counts = losses.index_add(0, rows, best), counts.index_add(0, rows, torch.ones(len(rows)))
        goes_on = chosen % 8 != END
        if not goes_on.any():
            break
        rows, state, word = rows[goes_on], state[goes_on], net.embed.weight[chosen[goes_on]]
    return -(losses / counts).mean()


def early_exit_by_hand(net: Net, batch: Sequence[Example]) -> Tensor:
    x, labels = torch.stack([e.start for e in batch]), torch.stack([e.label for e in batch])
    losses = []
    for number, layer in enumerate(net.layers, 1):
        x = x + torch.tanh(layer(x))
        stops = net.halt(x).detach().squeeze(1) > 0.6
        if number == len(net.layers):
            stops = torch.ones_like(stops)
        if stops.any():
            losses.append(F.cross_entropy(net.score(x[stops]), labels[stops], reduction="sum"))
        x, labels = x[~stops], labels[~stops]
        if not len(x):
            break
    return torch.stack(losses).sum() / len(batch)


BY_HAND: dict[str, Callable[[Net, Sequence[Example]], Tensor]] = {
    "child-sum TreeLSTM": trees_by_hand,
    "ragged attention": attention_by_hand,
    "graph messages": graph_by_hand,
    "set encoder": set_by_hand,
    "greedy decoding": greedy_by_hand,
    "early exit": early_exit_by_hand,
}
