"""Programs in the forms of papers and public code, written for one example, against the loop over examples."""

import asyncio
import contextlib
import copy
import inspect
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dpmodule import autobatch
from dpmodule.autobatch.pytorch.rules import words

SIZE, WORDS = 6, 12


class Net(nn.Module):
    """Layers that the programs share."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, SIZE)
        self.lstm = nn.LSTMCell(SIZE, SIZE)
        self.gru = nn.GRUCell(SIZE, SIZE)
        self.iou = nn.Linear(2 * SIZE, 3 * SIZE)
        self.forget = nn.Linear(2 * SIZE, SIZE)
        self.pair = nn.Linear(2 * SIZE, SIZE)
        self.gates = nn.Linear(2 * SIZE, 5 * SIZE)
        self.a = nn.Linear(SIZE, SIZE)
        self.b = nn.Linear(SIZE, SIZE, bias=False)
        self.score = nn.Linear(SIZE, 1)
        self.out = nn.Linear(SIZE, 3)
        self.words = nn.Linear(SIZE, WORDS)
        self.norm = nn.LayerNorm(SIZE)
        self.attention = nn.MultiheadAttention(SIZE, 2, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(SIZE, 2, 8, dropout=0.0, batch_first=True)
        self.conv = nn.Conv1d(SIZE, SIZE, 3, padding=1)
        self.rnn = nn.LSTM(SIZE, SIZE)
        self.query = nn.Parameter(torch.randn(SIZE))
        self.memory = nn.Parameter(torch.randn(5, SIZE))
        self.transitions = nn.Parameter(torch.randn(3, 3))
        self.experts = nn.ModuleList([nn.Linear(SIZE, SIZE) for _ in range(3)])


class Example:
    """Words, a tree over them, edges, and a label, drawn with a seed."""

    def __init__(self, seed, dtype):
        draw = random.Random(seed)
        self.length = draw.randint(2, 7)
        self.words = torch.tensor([draw.randrange(WORDS) for _ in range(self.length)])
        self.tree = self._tree(draw, 0, self.length)
        self.edges = torch.tensor(
            [[draw.randrange(self.length) for _ in range(2 * self.length)] for _ in range(2)]
        )
        self.label = torch.tensor(draw.randrange(3))
        self.steps = draw.randint(1, 4)
        self.rows = torch.randn(self.length, SIZE, generator=torch.Generator().manual_seed(seed)).to(dtype)

    def _tree(self, draw, first, last):
        if last - first == 1:
            return first
        middle = draw.randint(first + 1, last - 1)
        return self._tree(draw, first, middle), self._tree(draw, middle, last)


def fold(tree, leaf, compose):
    if isinstance(tree, int):
        return leaf(tree)
    return compose(*[fold(each, leaf, compose) for each in tree])


def child_sum_tree(net, e):
    def node(x, *children):
        total = sum((h for h, _ in children), torch.zeros_like(x))
        i, o, u = net.iou(torch.cat([x, total])).chunk(3)
        c = i.sigmoid() * u.tanh()
        for h, memory in children:
            c = c + torch.sigmoid(net.forget(torch.cat([x, h]))) * memory
        return o.sigmoid() * c.tanh(), c

    root = fold(
        e.tree, lambda k: node(net.embed(e.words[k])), lambda left, right: node(net.query, left, right)
    )
    return F.cross_entropy(net.out(root[0]), e.label)


def binary_tree(net, e):
    def compose(left, right):
        i, f, g, o, u = net.gates(torch.cat([left[0], right[0]])).chunk(5)
        c = i.sigmoid() * u.tanh() + f.sigmoid() * left[1] + g.sigmoid() * right[1]
        return o.sigmoid() * c.tanh(), c

    x = net.embed(e.words)
    return net.out(fold(e.tree, lambda k: (x[k], torch.zeros_like(x[k])), compose)[0])


def recursive_autoencoder(net, e):
    losses = []

    def compose(left, right):
        both = torch.cat([left, right])
        parent = torch.tanh(net.pair(both))
        losses.append(F.mse_loss(torch.cat([net.a(parent), net.b(parent)]), both))
        return parent

    x = net.embed(e.words)
    fold(e.tree, lambda k: x[k], compose)
    return torch.stack(losses).mean()


def lattice(net, e):
    states = [net.query.unsqueeze(0)]
    for k in range(e.length):
        ways = [net.gru(net.embed(e.words[k : k + 1]), states[j]) for j in range(max(0, k - 1), k + 1)]
        states.append(torch.stack(ways).mean(0))
    return states[-1]


def ragged_attention(net, e):
    x = net.embed(e.words)
    weights = F.softmax(torch.tanh(net.a(x)) @ net.query, dim=0)
    return net.out(weights @ x)


def scaled_attention(net, e):
    x = net.embed(e.words).unsqueeze(0)
    return F.scaled_dot_product_attention(net.a(x), net.b(x), x).mean(1)


def multihead_attention(net, e):
    x = net.embed(e.words).unsqueeze(0)
    return net.attention(x, x, x, need_weights=False)[0].sum(1)


def transformer_layer(net, e):
    return net.encoder(net.embed(e.words).unsqueeze(0)).mean(1)


def graph_messages(net, e):
    x, (source, target) = e.rows, e.edges
    for _ in range(2):
        messages = torch.zeros_like(x).index_add(0, target, net.a(x)[source])
        x = torch.tanh(net.b(x) + messages)
    return x.sum(0)


def graph_convolution(net, e):
    adjacency = torch.zeros(e.length, e.length, dtype=e.rows.dtype)
    adjacency[e.edges[0], e.edges[1]] = 1.0
    return net.a(adjacency @ net.b(e.rows)).relu().amax(0)


def deep_set(net, e):
    return net.out(net.a(net.norm(e.rows)).relu().sum(0))


def pointer(net, e):
    state, keys, found = net.query, net.a(e.rows), []
    for _ in range(e.steps):
        scores = torch.tanh(keys + net.b(state)) @ net.query
        weights = scores.log_softmax(-1)
        found.append(weights.max())
        state = (weights.exp().unsqueeze(-1) * e.rows).sum(0)
    return torch.stack(found).sum()


def cell_loop(net, e):
    h = c = torch.zeros(1, SIZE, dtype=e.rows.dtype)
    for row in e.rows.split(1):
        h, c = net.lstm(row, (h, c))
    return net.out(h)


def whole_sequence(net, e):
    return net.out(net.rnn(e.rows.unsqueeze(1))[0][-1])


def char_cnn(net, e):
    return net.conv(net.embed(e.words).T.unsqueeze(0)).relu().max(-1).values


def memory_network(net, e):
    state = net.embed(e.words).mean(0)
    for _ in range(e.steps):
        state = state + F.softmax(net.memory @ state, -1) @ net.memory
    return net.out(state)


def addressing(net, e):
    key = torch.tanh(net.a(e.rows[0]))
    similar = F.cosine_similarity(net.memory, key.unsqueeze(0), dim=-1)
    weights = torch.softmax(similar * F.softplus(net.score(key)), -1)
    rolled = torch.roll(weights, 1) * 0.5 + weights * 0.5
    return (net.memory * (1 - rolled.unsqueeze(-1)) + rolled.unsqueeze(-1) * key).sum(0)


def chain_crf(net, e):
    scores = net.out(e.rows)
    alpha = scores[0]
    for row in scores[1:]:
        alpha = torch.logsumexp(alpha.unsqueeze(1) + net.transitions, 0) + row
    return torch.logsumexp(alpha, 0) - scores[:, 0].sum()


def siamese(net, e):
    left, right = net.a(e.rows[0]), net.a(e.rows[-1])
    return F.cosine_similarity(left, right, dim=0) + F.pairwise_distance(left, right)


def stack_encoder(net, e):
    """SPINN: shifts and reductions of a known tree, with a tracking GRU."""
    buffer = list(net.embed(e.words).unbind(0))[::-1]
    stack, tracked = [], net.query

    def walk(tree):
        nonlocal tracked
        if isinstance(tree, int):
            stack.append(buffer.pop())
        else:
            walk(tree[0])
            walk(tree[1])
            right, left = stack.pop(), stack.pop()
            stack.append(torch.tanh(net.pair(torch.cat([left, right])) + tracked))
        tracked = net.gru(stack[-1].unsqueeze(0), tracked.unsqueeze(0))[0]

    walk(e.tree)
    return net.out(stack[-1])


async def greedy(net, e):
    state, word, total = net.query, torch.tensor(0), 0.0
    for _ in range(6):
        state = net.gru(net.embed(word).unsqueeze(0), (state + e.rows[0]).unsqueeze(0))[0]
        scores = net.words(state).log_softmax(-1)
        word = torch.tensor(int(await scores.argmax()))
        total = total + scores[int(word)]
        if int(word) < 3:
            break
    return total


async def beam(net, e):
    beams = [(0.0, net.query + e.rows[0], 0)]
    for _ in range(e.steps):
        grown = []
        for score, state, word in beams:
            state = net.gru(net.embed.weight[word].unsqueeze(0), state.unsqueeze(0))[0]
            best = (score + net.words(state).log_softmax(-1)).topk(2)
            grown += [(best.values[k], state, best.indices[k]) for k in range(2)]
        scores = await torch.stack([score for score, _, _ in grown])
        order = sorted(range(len(grown)), key=lambda k: -scores[k].item())[:2]
        beams = [(grown[k][0], grown[k][1], int(grown[k][2])) for k in order]
    return beams[0][0]


async def early_exit(net, e):
    x = e.rows.mean(0)
    for layer in (net.a, net.b, net.a):
        x = torch.tanh(layer(x))
        confidence = await net.out(x).softmax(-1).max()
        if confidence.item() > 0.45:
            break
    return net.out(x)


async def adaptive_steps(net, e):
    state, left, mean = net.query, 1.0, 0.0
    for _ in range(5):
        state = net.gru(e.rows[:1], state.unsqueeze(0))[0]
        halt = torch.sigmoid(net.score(state))[0]
        if (await halt).item() > 0.6:
            break
        mean, left = mean + left * halt * state, left * (1 - halt)
    return mean + left * state


async def shift_reduce(net, e):
    buffer, stack = list(net.embed(e.words).unbind(0))[::-1], []
    while buffer or len(stack) > 1:
        if len(stack) < 2:
            is_shift = True
        elif not buffer:
            is_shift = False
        else:
            is_shift = bool(await net.score(stack[-1] + buffer[-1]).sum() > 0)
        if is_shift:
            stack.append(buffer.pop())
        else:
            right, left = stack.pop(), stack.pop()
            stack.append(torch.tanh(net.pair(torch.cat([left, right]))))
    return net.out(stack[0])


async def experts(net, e):
    x = net.a(e.rows[0])
    chosen = int(await net.out(x).argmax())
    both = await asyncio.gather(half(net, x), half(net, 2 * x))
    return net.experts[chosen](x) + both[0] - both[1]


async def half(net, x):
    return net.b(x) if (await x.sum()).item() > 0 else net.b(-x)


PROGRAMS = [
    child_sum_tree, binary_tree, recursive_autoencoder, lattice, ragged_attention, scaled_attention,
    multihead_attention, transformer_layer, graph_messages, graph_convolution, deep_set, pointer, cell_loop,
    whole_sequence, char_cnn, memory_network, addressing, chain_crf, siamese, stack_encoder, greedy, beam,
    early_exit, adaptive_steps, shift_reduce, experts,
]  # fmt: skip


def steps(net, program, examples, batched):
    """Return losses and gradients of three steps of training."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        if batched:
            outs = autobatch.map(lambda e: program(net, e), examples)
        elif inspect.iscoroutinefunction(program):
            outs = [autobatch.map(lambda e: program(net, e), [each])[0] for each in examples]
        else:
            outs = [program(net, each) for each in examples]
        loss = torch.stack([each.double().square().sum() for each in outs]).mean()
        loss.backward()
        optimizer.step()
        found += [loss.detach(), *[each.grad.clone() for each in net.parameters() if each.grad is not None]]
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    ("dtype", "tolerance", "count"),
    [(torch.float64, 1e-10, 2), (torch.float64, 1e-10, 17), (torch.float32, 1e-5, 9)],
)
def test_a_program_agrees_with_the_loop(program, dtype, tolerance, count):
    torch.manual_seed(4)
    net = Net().to(dtype)
    examples = [Example(seed, dtype) for seed in range(count)]
    alone = steps(copy.deepcopy(net), program, examples, False)
    together = steps(copy.deepcopy(net), program, examples, True)
    assert len(alone) == len(together)
    for a, b in zip(alone, together):
        torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "program",
    [each for each in PROGRAMS if not inspect.iscoroutinefunction(each)],
    ids=lambda each: each.__name__,
)
def test_bfloat16_is_as_precise_as_the_loop(program):
    def results(dtype, batched):
        torch.manual_seed(4)
        net = Net().bfloat16().to(dtype)
        examples = [Example(seed, torch.bfloat16) for seed in range(8)]
        for each in examples:
            each.rows = each.rows.to(dtype)
        return torch.cat([each.double().flatten() for each in steps(net, program, examples, batched)])

    exact = results(torch.float64, False)
    alone, together = ((results(torch.bfloat16, each) - exact).norm() for each in (False, True))
    assert together <= 2 * alone + 0.01 * exact.norm()


@pytest.mark.parametrize("rows", [(), (3,)])
@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_ignored_labels_and_labels_out_of_range(rows, loss):
    torch.manual_seed(6)
    scores = [torch.randn(*rows, 4, dtype=torch.float64) for _ in range(5)]
    labels = [torch.randint(4, rows) for _ in range(5)]
    if rows:
        labels[1][0] = labels[2][1] = -100
    for out, s, y in zip(autobatch.map(loss, scores, labels), scores, labels):
        torch.testing.assert_close(out, loss(s, y))
    labels[3] = torch.full(rows, 9)
    with pytest.raises(IndexError, match="out of bounds"):
        autobatch.map(loss, scores, labels)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.norm(2),
        lambda x: x.norm(1, 0),
        lambda x: F.normalize(x, 2, 0),
        lambda x: x.view(-1, 2, 2).flip(0, 2),
        lambda x: x.flip(0, 1),
        lambda x: x.sum(axis=0),
        lambda x: torch.cat([x, x], axis=1),
        lambda x: x.sum(()),
        lambda x: x.amax(()),
        lambda x: x.mean(0, dtype=torch.float32),
        lambda x: x[0].index_select(0, torch.tensor([0, 2])),
        lambda x: x.float() * x.sum(),
        lambda x: torch.where(x > 0, x.float(), x.sum()),
        lambda x: x.masked_fill(x > 0, x.sum().detach()),
        lambda x: torch.complex(x, x).conj() * 2,
        lambda x: x.sgn(),
    ],
)
@pytest.mark.parametrize("lengths", [[3] * 4, [2, 3, 4, 3]])
def test_arguments_of_every_form(call, lengths):
    torch.manual_seed(7)
    weight = torch.randn(4, dtype=torch.float64, requires_grad=True)
    data = [torch.randn(length, 4, dtype=torch.float64) for length in lengths]
    results = []
    for outs in (
        [call(each * weight) for each in data],
        autobatch.map(lambda each: call(each * weight), data),
    ):
        weight.grad = None
        torch.stack([out.abs().double().sum() for out in outs]).sum().backward()
        results.append([*outs, weight.grad])
    for alone, together in zip(*results):
        torch.testing.assert_close(together, alone)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.dot(x[:2], x[:2] + 1),
        lambda x: F.softmax(x * 2, 0, dtype=torch.float32),
        lambda x: torch.logsumexp(x * 2, 0),
        lambda x: (x * 2).sum(0, dtype=torch.float32),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_integers_of_different_lengths(call, dtype):
    data = [torch.arange(length, dtype=dtype) for length in (2, 5, 3)]
    for out, each in zip(autobatch.map(lambda x: call(x + 1), data), data):
        torch.testing.assert_close(out, call(each + 1))


def test_a_number_that_examples_share_keeps_its_dtype():
    scale, data = torch.tensor(0.1, dtype=torch.float64), list(torch.arange(6.0))
    for call in (torch.mul, torch.maximum, lambda x, y: torch.where(x > 0, x, y)):
        for out, each in zip(autobatch.map(lambda x, call=call: call(x + 1, scale), data), data):
            torch.testing.assert_close(out, call(each + 1, scale))


@pytest.mark.parametrize("options", [{"scale_grad_by_freq": True}, {"max_norm": 0.5}])
def test_options_of_embeddings(options):
    results = []
    for is_batched in (False, True):
        torch.manual_seed(8)
        table = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)

        def program(words, table=table):
            before = table.detach() * 1
            return F.embedding(words, table, **options).sum(0) + before.sum(0)

        sentences = [torch.tensor([0, 0, 1]), torch.tensor([1, 2, 1]), torch.tensor([3, 0, 3])]
        outs = autobatch.map(program, sentences) if is_batched else [program(each) for each in sentences]
        torch.stack(outs).square().sum().backward()
        results.append([*outs, table.grad])
    for alone, together in zip(*results):
        torch.testing.assert_close(together, alone)


UNARY = sorted(
    words(
        """abs acos asinh atan ceil cos cosh digamma erf erfinv exp expm1 floor frac lgamma log1p neg
        reciprocal relu round rsqrt"""
    )
)
BINARY = sorted(
    words("""add sub mul div pow maximum minimum atan2 fmod remainder hypot logaddexp lt ge eq ne""")
)
ALONG = sorted(
    words(
        """sum mean softmax log_softmax logsumexp max min argmax argmin amax amin cumsum std var prod norm sort
        flip unsqueeze"""
    )
)
SHAPES = [(), (3,), (1,), (2, 3), (1, 3), (2, 1), (2, 2, 3)]


def drawn_call(draw):
    """Return a function of a list of tensors, and the shapes of its operands for an example of a length."""
    kind = draw.choice(
        [
            "unary",
            "binary",
            "along",
            "along",
            "product",
            "join",
            "index",
            "linear",
            "view",
            "change",
            "window",
        ]
    )
    shape = draw.choice(SHAPES)
    if kind == "binary":
        name, tail = draw.choice(BINARY), draw.choice([(), (1,), (3,), (2, 3)])
        other = draw.choice([lambda n: tail, lambda n: (n, *tail), lambda n: (1, *tail)])
        dtype = draw.choice([torch.float64, torch.float64, torch.int64])
        return lambda x, y: getattr(torch, name)(x, y.to(dtype)), lambda n: [(n, *tail), other(n)]
    if kind == "along":
        name, dims = draw.choice(ALONG), 1 + len(shape)
        dim = draw.choice([draw.randrange(dims), draw.randrange(dims) - dims])
        if name in words("sum mean amax amin logsumexp norm std var") and draw.random() < 0.3:
            dim = tuple(draw.sample(range(dims), draw.randint(1, dims)))
        may_keep = name in words("sum mean max amax logsumexp std prod norm")
        keep = {"keepdim": True} if may_keep and draw.random() < 0.3 else {}
        argument = {"dims": [dim]} if name == "flip" else {"dim": dim}
        if name in words("sum mean") and draw.random() < 0.3:
            argument = {"axis": dim}
        if name == "norm" and draw.random() < 0.5:
            argument["p"] = draw.choice([1, 2, float("inf")])
        return lambda x: getattr(x, name)(**argument, **keep), lambda n: [(n, *shape)]
    if kind == "product":
        shapes = draw.choice(
            [
                lambda n: [(n,), (n, 3)], lambda n: [(n, 3), (3,)], lambda n: [(n, 3), (3, 2)],
                lambda n: [(3,), (3, n)],
                lambda n: [(2, n), (n, 3)], lambda n: [(n,), (n,)], lambda n: [(2, n, 3), (3, 4)],
                lambda n: [(n, 3), (2, 3, 4)], lambda n: [(3,), (2, 3, n)], lambda n: [(2, 4, n), (n,)],
                lambda n: [(n, n), (n, 2)],
            ]
        )  # fmt: skip
        return torch.matmul, shapes
    if kind == "join":
        join, dim = draw.choice([torch.cat, torch.stack]), draw.randrange(1 + len(shape))
        return lambda x, y: join([x, y, x], dim=dim), lambda n: [(n, *shape), (n, *shape)]
    if kind == "index":
        index = torch.tensor([0, 1, 0, -1][: draw.randint(1, 4)])
        call = draw.choice([lambda x: x[index], lambda x: x[-1], lambda x: x[1:], lambda x: x.flip(0)[index]])
        return call, lambda n: [(n, *shape)]
    if kind in ("view", "change", "window", "linear"):
        return drawn_view(draw, kind)
    name = draw.choice(UNARY)
    return lambda x: getattr(torch, name)(x), lambda n: [(n, *shape)]


def drawn_view(draw, kind):
    """Return a view, a change through a view, or a function of rows or of windows, as `drawn_call`."""
    if kind == "linear":
        return F.linear, lambda n: [(n, 3), (2, 3), (2,)]
    if kind == "view":
        view = draw.choice(VIEWS)
        return lambda x: view(x * 2) * 3, lambda n: [(n, 2, 3)]
    if kind == "change":
        view, change = draw.choice(VIEWS), draw.choice(CHANGES)
        return lambda x: changed(x, view, change), lambda n: [(n, 2, 3)]
    return draw.choice(
        [
            (lambda x, w: F.conv1d(x, w, padding=1), lambda n: [(2, 3, n), (4, 3, 3)]),
            (lambda x, w: F.conv1d(x, w), lambda n: [(3, n + 2), (4, 3, 3)]),
            (lambda x, w: F.conv2d(x, w, padding=1), lambda n: [(1, 3, n, 4), (2, 3, 3, 3)]),
            (lambda x: F.max_pool1d(x, 2), lambda n: [(2, 3, 2 * n)]),
            (lambda x: F.adaptive_avg_pool1d(x, 2), lambda n: [(3, 2 * n)]),
            (lambda x: F.avg_pool2d(x, 2), lambda n: [(1, 3, 2 * n, 4)]),
        ]
    )


VIEWS = [
    lambda x: x[1],
    lambda x: x[:, 0],
    lambda x: x[..., 1:],
    lambda x: x[:, [1, 0]],
    lambda x: x.transpose(0, 2),
    lambda x: x.transpose(-1, 0)[0],
    lambda x: x.mT,
    lambda x: x.permute(2, 0, 1),
    lambda x: x.flatten(1),
    lambda x: x.reshape(-1),
    lambda x: x.unsqueeze(1).expand(-1, 2, -1, -1),
    lambda x: x.narrow(2, 1, 2),
    lambda x: x.select(1, 1),
    lambda x: x.diagonal(0, 1, 2),
    lambda x: x.unflatten(2, (3, 1)).squeeze(-1),
    lambda x: x.movedim(0, 1),
    lambda x: x[::2],
    lambda x: x[:, None, 1],
]
CHANGES = [
    lambda v: v.mul_(2),
    lambda v: v.add_(v.detach()),
    lambda v: v.zero_(),
    lambda v: v.__setitem__(0, 1.5),
    lambda v: v.masked_fill_(v > 0.3, 0.1),
    lambda v: v.clamp_(0.1, 0.4),
]


def changed(x, view, change):
    """Change a part of a tensor in place; return what is seen before and after."""
    whole = x * 1
    part, before = view(whole), whole.sum()
    change(part)
    return whole * 2, part * 3, before


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "seed", [*range(40), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40, 1000))]
)
def test_random_calls_agree_with_the_loop(seed):
    draw = random.Random(seed)
    for case in range(10):
        call, shapes_of = drawn_call(draw)
        call = autobatch.cell(call) if draw.random() < 0.3 else call
        lengths = draw.choice([[3] * 4, [2, 3, 4, 3, 5, 2], [2] * 9 + [4] * 9])
        shared = [draw.random() < 0.3 for _ in shapes_of(2)]
        torch.manual_seed(1000 * seed + case)
        first = [
            torch.rand(shape, dtype=torch.float64).mul(0.8).requires_grad_()
            for shape in shapes_of(lengths[0])
        ]
        examples = []
        for length in lengths:
            own = [
                torch.rand(shape, dtype=torch.float64).mul(0.8).requires_grad_()
                for shape in shapes_of(length)
            ]
            examples.append([f if s and f.shape == o.shape else o for s, f, o in zip(shared, first, own)])
        results = []
        for is_batched in (False, True):
            with autobatch.batching() if is_batched else contextlib.nullcontext():
                try:
                    outs = [call(*[x * 1 for x in example]) for example in examples]
                except RuntimeError:  # torch refuses some changes of views
                    outs = []
            outs = [each if isinstance(each, tuple) else (each,) for each in outs]
            for each in {x for example in examples for x in example}:
                each.grad = None
            terms = [(x * x).sum() for out in outs for x in out if x.requires_grad]
            if terms:
                with contextlib.suppress(RuntimeError):  # nor does it differentiate all of them
                    torch.stack(terms).sum().backward()
            grads = [x.grad for example in examples for x in example]
            results.append(([x for out in outs for x in out], grads))
        for alone, together in zip(*results):
            for a, b in zip(alone, together):
                torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-10, equal_nan=True)
