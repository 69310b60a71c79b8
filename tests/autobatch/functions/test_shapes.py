"""Products, selections, joins and other shapes with and without minibatches: both engines agree, also with torch."""

import itertools

import numpy as np
import torch

import dpmodule.autobatch as dy
from helpers.autobatch_cases import total
from helpers.both_engines import on_both
from helpers.walk import walks

BATCH = 3
AXES = [[0], [1], [2], [0, 1], [0, 2], [2, 1], [2, 0, 1]]
ORDERS = list(itertools.permutations(range(3)))
LARGE = torch.eye(40) * 30


def upright(x):
    return x.reshape(len(x), -1)


def by_columns(x, *shape):
    """Reshape with the first dimension fastest."""
    return x.permute(*range(x.ndim)[::-1]).reshape(shape[::-1]).permute(*range(len(shape))[::-1])


def joined(axis):
    """Return functions of operands that join them along any dimension."""

    def theirs(*xs):
        return torch.cat([x.reshape(*x.shape, *[1] * (axis + 1 - x.ndim)) for x in xs], axis)

    return lambda *xs: dy.concatenate(list(xs), axis), theirs


def product(a, b):
    return (a if a.ndim > 1 else upright(a)) @ b


def as_columns(*xs):
    return torch.cat([upright(x) for x in xs], 1)


def affine(b, *xs):
    return dy.affine_transform([b, *xs])


def some_shares(x):
    return dy.select_rows(dy.log_softmax(x, [5, 0, 3]), [0, 3, 5, 3])


def greatest_two(x, d):
    return x.gather(d, x.topk(2, d).indices.sort(d).values)


SLICES = [  # of expressions as of tensors
    *[((7,), f) for f in (lambda x: x[1:6:2], lambda x: x[::3], lambda x: x[-1:])],
    *[((5, 4), f) for f in (lambda x: x[::2, 1::2], lambda x: x[:, :3], lambda x: x[1], lambda x: x[-1])],
    *[((5, 4, 3), f) for f in (lambda x: x[::2, 1:3, 1:], lambda x: x[1], lambda x: -x[1:3] * 2.0 + 1.5)],
    ((5, 3), lambda x: x[1:4] * 0.5 + x[2:5] - x[:3]),
]
SHAPES = [
    *(((6,), (6,)), ((4, 6), (3, 8)), ((4, 6), (24,)), ((4, 6), (2, 3, 4)), ((1, 1, 5), (5,))),
    ((6, 1), (1, 6)),
]
ONE = [  # the shape of an operand, our function, torch's
    *[(shape, function, function) for shape, function in SLICES],
    *[((4, 5, 3), lambda x, d=d: dy.pick_range(x, 1, 3, d), lambda x, d=d: x.narrow(d, 1, 2)) for d in range(3)],
    *[((4, 5, 3), lambda x, d=d: dy.cumsum(x, d), lambda x, d=d: x.cumsum(d)) for d in range(3)],
    *[((4, 5, 3), lambda x, o=o: dy.transpose(x, o), lambda x, o=o: x.permute(o)) for o in ORDERS],
    *[(shape, dy.transpose, lambda x: upright(x).T) for shape in ((4, 5), (4,), (1, 4), (5, 1))],
    ((4, 5), lambda x: dy.transpose(x, (2, 0, 1)), lambda x: x[None]),
    ((4, 5), lambda x: dy.transpose(x, (1, 0, 2)), lambda x: x.T),
    *[(given, lambda x, to=to: dy.reshape(x, to), lambda x, to=to: by_columns(x, *to)) for given, to in SHAPES],
    ((4, 3, 2), lambda x: dy.reshape(x, (6, 4), x.dim()[1]), lambda x: by_columns(x, 6, 4)),
    *[(shape, lambda x: dy.select_rows(x, [3, 0, 3]), lambda x: x[[3, 0, 3]]) for shape in ((4, 5), (4, 1), (4,))],
    ((5, 3), lambda x: dy.cmult(dy.select_rows(x, [2, 2]), x[0:2]), lambda x: x[[2, 2]] * x[:2]),
    *[((4, 5), lambda x, d=d: dy.softmax(x, d), lambda x, d=d: x.softmax(d)) for d in (0, 1)],
    *[(shape, dy.softmax, lambda x: x.softmax(0)) for shape in ((7, 1), (3, 70), (1, 7))],
    ((4, 5), lambda x: dy.tanh(dy.softmax(dy.tanh(x)) * 3), lambda x: torch.tanh(torch.tanh(x).softmax(0) * 3)),
    *[(shape, dy.log_softmax, lambda x: x.log_softmax(0)) for shape in ((4, 5), (7, 1), (7,))],
    *[(shape, some_shares, lambda x: x[[0, 3, 5, 3]] - x[[5, 0, 3]].logsumexp(0)) for shape in ((7,), (7, 1))],
    ((7, 1), lambda x: dy.pickneglogsoftmax(x, 2), lambda x: -x.log_softmax(0)[2]),
    *[((4, 5, 3), lambda x, d=d: dy.kmax_pooling(x, 2, d), lambda x, d=d: greatest_two(x, d)) for d in range(3)],
    ((6, 4), lambda x: dy.fold_rows(x, 3), lambda x: x.reshape(2, 3, 4).sum(1)),
    *[((3, 4), lambda x, r=r: dy.moment_elems(x, r), lambda x, r=r: (x**r).mean()) for r in range(1, 8)],
    *[((3, 4, 2), lambda x, d=d: dy.std_dim(x, d, False), lambda x, d=d: x.std(d, correction=0)) for d in AXES],
    *[((3, 4, 2), lambda x, d=d: dy.moment_dim(x, d, 3, False, 5), lambda x, d=d: (x**3).sum(d) / 5) for d in AXES],
    ((40, 40), lambda x: dy.inverse(x + dy.inputTensor(LARGE)), lambda x: torch.inverse(x + LARGE)),
    ((130, 130), lambda x: x * x * 0.1, lambda x: x @ x * 0.1),
]  # fmt: skip
PRODUCTS = [
    *[((37, 70), (70, 41)), ((1, 6), (6, 20)), ((2, 6), (6, 20)), ((20, 6), (6, 1)), ((20, 6), (6,))],
    *[((1, 6), (6,)), ((5, 1), (1, 4)), ((5,), (1, 4)), ((130, 131), (131, 3))],
]
SEVERAL = [  # the shapes of operands, our function, torch's
    *[(shapes, lambda a, b: a * b, product) for shapes in PRODUCTS],
    (((5, 6), (6, 4)), lambda a, b: dy.tanh(a * dy.tanh(b)), lambda a, b: torch.tanh(a @ torch.tanh(b))),
    (((6, 6), (6, 6)), lambda a, b: dy.transpose(a) * b * a, lambda a, b: a.T @ b @ a),
    *[(s, dy.colwise_add, lambda x, c: x + upright(c)) for s in (((20, 7), (20,)), ((5, 4), (5, 1)), ((5, 1), (5,)))],
    (((5, 4, 2), (5,)), dy.colwise_add, lambda x, c: x + c[:, None, None]),
    (((5, 7), (5,)), lambda x, c: c + x, lambda x, c: x + upright(c)),
    (((5,), (5, 1)), lambda x, y: x - y, lambda x, y: upright(x) - y),
    (((5,), (5, 1)), dy.cmult, lambda x, y: upright(x) * y),
    (((3, 6), (3, 2)), dy.filter1d_narrow, lambda x, f: torch.einsum("dtw,dw->t", x.unfold(1, 2, 1), f)[None]),
    *[(s, affine, lambda b, w, x: upright(b) + w @ x) for s in (((5, 4), (5, 6), (6, 4)), ((5,), (5, 6), (6, 4)))],
    *[(s, affine, lambda b, w, x: b.ravel() + w @ x) for s in (((5,), (5, 6), (6,)), ((5, 1), (5, 4), (4,)))],
    (((5, 3), (5, 4), (4, 3), (5, 2), (2, 3)), affine, lambda b, w, x, u, y: b + w @ x + u @ y),
    (((5,), (5, 4), (4, 1), (5, 2), (2,)), affine, lambda b, w, x, u, y: b + w @ x[:, 0] + u @ y),
    (((5, 1), (5, 6), (6, 1)), lambda b, w, x: affine(b, w, x, w, x * 2.0), lambda b, w, x: (b + w @ (3 * x))[:, 0]),
    *[(s, lambda *xs: dy.concatenate_cols(list(xs)), as_columns) for s in (((5,), (5, 1), (5, 3)), ((3,),) * 19)],
    *[(shapes, *joined(0)) for shapes in (((4,), (3,)), ((4, 1), (3, 1)), ((1, 3), (2, 3)) * 2)],
    *[(((2, 3), (2, 4)), *joined(1)), (((2, 3), (2, 3, 2), (2, 3)), *joined(2)), (((4,), (4,)), *joined(1))],
    *[(((2, 3, 2),) * count, *joined(axis)) for axis in range(4) for count in (2, 40)],
]  # fmt: skip


def compare(shapes, ours, theirs, batches, parameters):
    """Compute three examples and their gradients on both engines and with torch.

    Args:
        shapes: of the operands.
        ours: the function of expressions.
        theirs: the function of tensors for one element of a minibatch.
        batches: for every operand, the size of its minibatch.
        parameters: the numbers of operands that are one parameter for all examples.
    """
    draw = np.random.RandomState(0)
    held = {k: draw.uniform(-1, 1, shapes[k]) for k in parameters}
    whole = [(*shape, batch) if batch > 1 else shape for shape, batch in zip(shapes, batches)]
    own = [k for k in range(len(shapes)) if k not in held]
    rows = [{k: draw.uniform(-1, 1, whole[k]) for k in own} for _ in range(3)]
    weights = np.random.RandomState(1).uniform(-1, 1, 20_000)

    def program():
        m = dy.ParameterCollection()
        shared = {k: m.parameters_from_numpy(array) for k, array in held.items()}
        inputs = [{k: dy.inputTensor(row[k], batched=batches[k] > 1) for k in row} for row in rows]
        found = [ours(*[(shared | xs)[k] for k in range(len(shapes))]) for xs in inputs]
        dy.esum([total(dy, dy.sin(out), weights) for out in found]).backward(full=True)
        gradients = [x.gradient() for xs in inputs for x in xs.values()]
        return [*dy.npvalues(found), *gradients, *[p.grad_as_array() for p in shared.values()]]

    found = on_both(program)
    for one, other in zip(found[0], by_torch(theirs, rows, held, batches, weights), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def by_torch(theirs, rows, held, batches, weights):
    held = {k: torch.tensor(array, requires_grad=True) for k, array in held.items()}
    rows = [{k: torch.tensor(array, requires_grad=True) for k, array in row.items()} for row in rows]
    outputs = []
    for row in rows:
        xs = [(held | row)[k] for k in range(len(batches))]
        each = [
            torch.atleast_1d(theirs(*[x[..., at] if batch > 1 else x for x, batch in zip(xs, batches)]))
            for at in range(max(batches))
        ]
        outputs.append(torch.stack(each, -1) if len(each) > 1 else each[0])
    sum((torch.sin(y) * torch.tensor(np.resize(weights, y.shape))).sum() for y in outputs).backward()
    gradients = [x.grad for row in rows for x in row.values()] + [x.grad for x in held.values()]
    return [each.detach().numpy() for each in [*outputs, *gradients]]


@walks(itertools.product([1, BATCH], ONE))
def test_one_operand(batch, case):
    shape, ours, theirs = case
    compare([shape], ours, theirs, [batch], ())
    if batch == 1:
        compare([shape], ours, theirs, [1], (0,))


def ways(count):
    """Yield minibatches and parameters of so many operands: all minibatches, one operand that is no parameter."""
    few = itertools.product([1, BATCH], repeat=count) if count < 4 else [(1,) * count, (BATCH,) * count]
    yield from ((batches, ()) for batches in few)
    for place in range(count if count < 4 else 1):
        others = {*range(count)} - {place}
        yield from (([batch if k == place else 1 for k in range(count)], others) for batch in (1, BATCH))


@walks(SEVERAL)
def test_several_operands(shapes, ours, theirs):
    for batches, parameters in ways(len(shapes)):
        compare(shapes, ours, theirs, batches, parameters)
