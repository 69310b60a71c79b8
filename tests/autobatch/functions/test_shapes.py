"""Products, selections, joins and other shapes with and without minibatches: both engines agree, also with torch."""

from __future__ import annotations

import itertools

import numpy as np
import torch

import dpmodule.autobatch as dy
from helpers.both_engines import on_both
from helpers.walk import walks

BATCH = 3
AXES = [[0], [1], [2], [0, 1], [0, 2], [2, 1], [2, 0, 1]]
ORDERS = list(itertools.permutations(range(3)))
SWAPPED = torch.eye(4).flip(0) * 3
LARGE = torch.eye(40) * 30


def upright(x):
    return x.reshape(len(x), -1)


def by_columns(x, *shape):
    """Reshape with the first dimension fastest."""
    return x.permute(*range(x.ndim)[::-1]).reshape(shape[::-1]).permute(*range(len(shape))[::-1])


def joined(axis):
    """Return functions of operands that join them along any dimension."""
    return lambda *xs: dy.concatenate(list(xs), axis), lambda *xs: torch.cat(
        [x.reshape(*x.shape, *[1] * (axis + 1 - x.ndim)) for x in xs], axis
    )


def product(a, b):
    return (a if a.ndim > 1 else upright(a)) @ b


def as_columns(*xs):
    return torch.cat([upright(x) for x in xs], 1)


def affine(b, *xs):
    return dy.affine_transform([b, *xs])


def pooled(x):
    return torch.nn.functional.max_pool2d(x.permute(2, 0, 1)[None], (2, 3), (2, 1))[0].permute(1, 2, 0)


def some_shares(x):
    return dy.select_rows(dy.log_softmax(x, [5, 0, 3]), [0, 3, 5, 3])


def greatest_two(x, d):
    return x.gather(d, x.topk(2, d).indices.sort(d).values)


def labels_of(x):
    return [k % x.dim()[0][0] for k in range(x.dim()[1] if x.dim()[1] > 1 else BATCH)]


def last(x):
    return x.dim()[1] - 1


EXPRESSIONS = [  # the same with torch: shape, function
    *[((7,), f) for f in (lambda x: x[1:6:2], lambda x: x[::3], lambda x: x[6:], lambda x: x[-1:])],
    *[
        ((5, 4), f)
        for f in (lambda x: x[::2, 1::2], lambda x: x[::3], lambda x: x[:, :3], lambda x: x[2:4, 1:3])
    ],
    *[
        ((4, 3), f)
        for f in (lambda x: x[1], lambda x: x[-1], lambda x: x[1:4], lambda x: -x[0:2] * 2.0 + 1.5)
    ],
    ((5, 4, 3), lambda x: x[::2, 1:3, 1:]),
    ((2, 3, 4), lambda x: x[1]),
    ((3, 2, 4), lambda x: x[1:3]),
    ((1, 5), lambda x: x[:, 1:4]),
]
ONE = [  # the shape of an operand, our function, torch's or None
    *[(shape, function, function) for shape, function in EXPRESSIONS],
    *[((4, 5, 3), lambda x, d=d: dy.pick(x, 2, d), lambda x, d=d: x.select(d, 2)) for d in range(3)],
    *[((4, 5, 3), lambda x, d=d: dy.pick_range(x, 1, 3, d), lambda x, d=d: x.narrow(d, 1, 2)) for d in range(3)],
    *[((4, 5, 3), lambda x, d=d: dy.cumsum(x, d), lambda x, d=d: x.cumsum(d)) for d in range(3)],
    *[((4, 5, 4), lambda x, d=d: dy.pick_batch(x, labels_of(x), d), None) for d in range(3)],
    *[((4, 5, 3), lambda x, o=o: dy.transpose(x, o), lambda x, o=o: x.permute(o)) for o in ORDERS],
    *[(shape, dy.transpose, lambda x: upright(x).T) for shape in ((4, 5), (4,), (1, 4), (5, 1))],
    ((1,), dy.transpose, lambda x: x),
    ((4, 5), lambda x: dy.transpose(x, (2, 0, 1)), lambda x: x[None]),
    ((4, 5), lambda x: dy.tanh(dy.transpose(dy.tanh(x))), lambda x: torch.tanh(torch.tanh(x).T)),
    *[
        (given, lambda x, to=to: dy.reshape(x, to), lambda x, to=to: by_columns(x, *to))
        for given, *shapes in (
            ((4, 6), (3, 8), (24,), (4, 6), (2, 3, 4)),
            ((24,), (3, 8), (24, 1)),
            ((4, 3, 2), (2, 12), (24,)),
            ((6, 1), (1, 6)),
            ((1, 1, 5), (5,)),
        )
        for to in shapes
    ],
    ((4, 3, 2), lambda x: dy.reshape(x, (6, 4), x.dim()[1]), lambda x: by_columns(x, 6, 4)),
    ((4, 3, 2), lambda x: dy.reshape(x, (3, 2), 4 * x.dim()[1]), None),
    ((4, 6), lambda x: dy.reshape(x, (6,), 4 * x.dim()[1]), None),
    ((24,), lambda x: dy.reshape(x, (2, 2), 6 * x.dim()[1]), None),
    ((6,), lambda x: dy.reshape(x, (2,), 3 * x.dim()[1]), None),
    ((6,), lambda x: dy.reshape(dy.reshape(x, (1, 6)), (6,), x.dim()[1]), lambda x: x),
    ((4, 5), lambda x: dy.select_rows(x, [3, 0, 3]), lambda x: x[[3, 0, 3]]),
    ((4, 1), lambda x: dy.select_rows(x, [2]), lambda x: x[[2]]),
    ((4,), lambda x: dy.select_rows(x, [3, 0, 3]), lambda x: x[[3, 0, 3]]),
    ((4, 5), lambda x: dy.select_cols(x, [4, 1, 4, 0]), lambda x: x[:, [4, 1, 4, 0]]),
    ((4, 5), lambda x: dy.select_cols(x, (2,)), lambda x: x[:, [2]]),
    ((5, 4), lambda x: dy.strided_select(x, [2, 1], [1, 0], [5, 3]), lambda x: x[1:5:2, :3]),
    ((5, 4), lambda x: x[::2, 1:3, last(x) :], None),
    ((5, 3), lambda x: dy.cmult(x[1:4], x[2:5]) + x[:3], lambda x: x[1:4] * x[2:5] + x[:3]),
    ((5, 3), lambda x: dy.cmult(dy.select_rows(x, [2, 2]), x[0:2]), lambda x: x[[2, 2]] * x[:2]),
    ((5,), lambda x: dy.pick_batch(x, labels_of(x)), None),
    ((5,), lambda x: dy.pick_batch(x, labels_of(x)[: x.dim()[1]]), None),
    ((4, 2), lambda x: dy.pick_batch_elem(x, last(x)), None),
    ((4, 2), lambda x: dy.pick_batch_elems(x, [last(x), 0, 0]), None),
    *[((4, 5), lambda x, d=d: dy.softmax(x, d), lambda x, d=d: x.softmax(d)) for d in (0, 1)],
    *[(shape, dy.softmax, lambda x: x.softmax(0)) for shape in ((7, 1), (3, 70), (1, 7))],
    ((1, 5), lambda x: dy.softmax(x, 1) * 0.5, lambda x: x.softmax(1) * 0.5),
    ((4, 5), lambda x: dy.tanh(dy.softmax(dy.tanh(x)) * 3), lambda x: torch.tanh(torch.tanh(x).softmax(0) * 3)),
    *[(shape, dy.log_softmax, lambda x: x.log_softmax(0)) for shape in ((4, 5), (7, 1), (7,))],
    *[(shape, some_shares, lambda x: x[[0, 3, 5, 3]] - x[[5, 0, 3]].logsumexp(0)) for shape in ((7,), (7, 1))],
    ((7, 1), lambda x: dy.pickneglogsoftmax(x, 2), lambda x: -x.log_softmax(0)[2]),
    ((3, 6), lambda x: dy.kmh_ngram(x, 3), lambda x: x.unfold(1, 3, 1).sum(-1)),
    ((3, 6), lambda x: dy.kmh_ngram(x, 6), None),
    *[((4, 5, 3), lambda x, d=d: dy.kmax_pooling(x, 2, d), lambda x, d=d: greatest_two(x, d)) for d in range(3)],
    ((6, 4), lambda x: dy.fold_rows(x, 3), lambda x: x.reshape(2, 3, 4).sum(1)),
    *[((6,), lambda x, n=n: dy.fold_rows(x, n), lambda x, n=n: x.reshape(-1, n).sum(1)) for n in (1, 2, 6)],
    ((5, 6, 2), lambda x: dy.maxpooling2d(x, (2, 3), (2, 1)), pooled),
    ((5, 6), lambda x: dy.maxpooling2d(x, (2, 3), (1, 2), False), None),
    *[((3, 4), lambda x, r=r: dy.moment_elems(x, r), lambda x, r=r: (x**r).mean()) for r in range(1, 8)],
    *[((3, 4), lambda x, r=r: dy.moment_batches(x, r), None) for r in (1, 2, 5)],
    *[((3, 4, 2), lambda x, d=d: dy.sum_dim(x, d), lambda x, d=d: x.sum(d)) for d in AXES],
    *[((3, 4, 2), lambda x, d=d: dy.mean_dim(x, d, False), lambda x, d=d: x.mean(d)) for d in AXES],
    *[((3, 4, 2), lambda x, d=d: dy.std_dim(x, d, False), lambda x, d=d: x.std(d, correction=0)) for d in AXES],
    *[((3, 4, 2), lambda x, d=d: dy.moment_dim(x, d, 3, False, 5), lambda x, d=d: (x**3).sum(d) / 5) for d in AXES],
    *[((3, 4, 2), lambda x, d=d, f=f: f(x, d, True), None) for d in AXES for f in (dy.sum_dim, dy.mean_dim)],
    *[((3, 4, 2), lambda x, d=d: dy.std_dim(x, d, True), None) for d in AXES],
    *[((3, 4, 2), lambda x, d=d: dy.moment_dim(x, d, 3, True, 5), None) for d in AXES],
    ((4, 4), lambda x: dy.inverse(x + dy.inputTensor(SWAPPED)), lambda x: torch.inverse(x + SWAPPED)),
    ((1, 1), lambda x: dy.inverse(dy.square(x) + 1), lambda x: 1 / (x * x + 1)),
    ((40, 40), lambda x: dy.inverse(x + dy.inputTensor(LARGE)), lambda x: torch.inverse(x + LARGE)),
    ((4, 4), lambda x: x * x, lambda x: x @ x),
    ((130, 130), lambda x: x * x * 0.1, lambda x: x @ x * 0.1),
    ((3,), lambda x: dy.concatenate_cols([x, x, x]), lambda x: as_columns(x, x, x)),
]  # fmt: skip
PRODUCTS = [
    *[((5, 4), (4, 3)), ((37, 70), (70, 41)), ((1, 6), (6, 20)), ((2, 6), (6, 20)), ((20, 6), (6, 1))],
    *[((20, 6), (6,)), ((1, 6), (6,)), ((5, 1), (1, 4)), ((5,), (1, 4)), ((130, 131), (131, 3))],
]
SEVERAL = [  # the shapes of operands, our function, torch's or None
    *[(shapes, lambda a, b: a * b, product) for shapes in PRODUCTS],
    (((5, 6), (6, 4)), lambda a, b: dy.tanh(a * dy.tanh(b)), lambda a, b: torch.tanh(a @ torch.tanh(b))),
    (((6, 6), (6, 6)), lambda a, b: dy.transpose(a) * b * a, lambda a, b: a.T @ b @ a),
    (((3, 3), (3, 2)), lambda w, x: w * dy.tanh(w * x), lambda w, x: w @ torch.tanh(w @ x)),
    *[(s, dy.colwise_add, lambda x, c: x + upright(c)) for s in (((20, 7), (20,)), ((5, 4), (5, 1)), ((5, 1), (5,)))],
    (((5,), (5,)), dy.colwise_add, lambda x, c: x + c),
    (((5, 4, 2), (5,)), dy.colwise_add, lambda x, c: x + c[:, None, None]),
    (((5, 7), (5,)), lambda x, c: c + x, lambda x, c: x + upright(c)),
    (((5, 1), (5,)), lambda x, y: x + y, lambda x, y: x + upright(y)),
    (((5,), (5, 1)), lambda x, y: x - y, lambda x, y: upright(x) - y),
    (((5,), (5, 1)), dy.cmult, lambda x, y: upright(x) * y),
    (((4, 5), (4, 5)), dy.trace_of_product, lambda x, y: (x * y).sum()),
    (((4, 5), (4, 5)), dy.dot_product, lambda x, y: (x * y).sum()),
    (((4, 5), (1,)), dy.weight_norm, lambda w, g: w * g / w.norm()),
    (((5,), (1, 1)), dy.weight_norm, None),
    (((4, 5, 3), (3,)), dy.contract3d_1d, lambda x, y: x @ y),
    (((4, 5), (1,)), dy.contract3d_1d, None),
    (((4, 5, 3), (3,), (4, 5)), dy.contract3d_1d_bias, lambda x, y, b: x @ y + b),
    (((4, 5, 3), (3,), (5,)), dy.contract3d_1d_1d, lambda x, y, z: x @ y @ z),
    (((4, 5, 3), (3,), (4, 1)), lambda x, y, b: dy.contract3d_1d_1d_bias(x, y, dy.ones(5), b), None),
    (((3, 6), (3, 2, 4)), dy.filter1d_narrow, lambda x, f: torch.einsum("dtw,dwf->ft", x.unfold(1, 2, 1), f)),
    (((3, 6), (3, 5, 2)), dy.filter1d_narrow, lambda x, f: torch.einsum("dtw,dwf->ft", x.unfold(1, 5, 1), f)),
    (((3, 6), (3, 2)), dy.filter1d_narrow, lambda x, f: torch.einsum("dtw,dw->t", x.unfold(1, 2, 1), f)[None]),
    *[(((7,), (7,)), f, None) for f in (dy.circ_conv, dy.circ_corr)],
    (((6, 5, 2), (3, 2, 2, 4)), lambda x, f: dy.conv2d(x, f, (2, 1)), None),
    (((6, 5, 2), (3, 2, 2, 4)), lambda x, f: dy.conv2d(x, f, (1, 1), False), None),
    (((4, 4, 2), (2, 2, 2, 3), (3,)), lambda x, f, b: dy.conv2d_bias(x, f, b, (1, 2)), None),
    *[(s, affine, lambda b, w, x: upright(b) + w @ x) for s in (((5, 4), (5, 6), (6, 4)), ((5,), (5, 6), (6, 4)))],
    (((5,), (5, 6), (6,)), affine, lambda b, w, x: b + w @ x),
    (((5, 1), (5, 4), (4,)), affine, lambda b, w, x: b[:, 0] + w @ x),
    (((5, 3), (5, 4), (4, 3), (5, 2), (2, 3)), affine, lambda b, w, x, u, y: b + w @ x + u @ y),
    (((5,), (5, 4), (4, 1), (5, 2), (2,)), affine, lambda b, w, x, u, y: b + w @ x[:, 0] + u @ y),
    (((5, 1), (5, 6), (6, 1)), lambda b, w, x: affine(b, w, x, w, x * 2.0), lambda b, w, x: (b + w @ (3 * x))[:, 0]),
    (((5,), (5, 6), (6,)), lambda b, w, x: affine(b, w, x, w, dy.reshape(x, (6, 1))), None),
    (
        ((6, 5), (5, 7), (6,), (1, 6)),
        lambda w, x, c, v: v * dy.tanh(dy.colwise_add(w * x, c)),
        lambda w, x, c, v: v @ torch.tanh(w @ x + upright(c)),
    ),
    (((5,), (5, 1), (5, 3), (5,)), lambda *xs: dy.concatenate_cols(list(xs)), as_columns),
    (((3,),) * 19, lambda *xs: dy.concatenate_cols(list(xs)), as_columns),
    *[(shapes, *joined(0)) for shapes in (((4,), (3,)), ((2, 3), (1, 3)), ((4, 1), (3, 1)), ((1, 3, 2), (2, 3, 2)))],
    (((4, 1), (3,)), lambda x, y: dy.concatenate([x, y]), lambda x, y: torch.cat([x, upright(y)])),
    (((4,), (3,)), lambda x, y: dy.concatenate([x, y, x]), lambda x, y: torch.cat([x, y, x])),
    *[(((2, 3), (2, 4)), *joined(1)), (((2, 3), (2, 3, 2), (2, 3)), *joined(2)), (((4,), (4,)), *joined(1))],
    *[(tuple((2, 3, 2) for _ in range(count)), *joined(axis)) for axis in range(4) for count in (2, 40)],
    (((1 + k % 3, 3, 2) for k in range(5)), *joined(0)),
]  # fmt: skip


def compare(shapes, ours, theirs, batches, parameters):
    """Compute three examples and their gradients on both engines and with torch.

    Args:
        shapes: of the operands.
        ours: the function of expressions.
        theirs: the function of tensors for one element of a minibatch, or None.
        batches: for every operand, the size of its minibatch.
        parameters: the numbers of operands that are one parameter for all examples.
    """
    draw = np.random.RandomState(0)
    held = {k: draw.uniform(-1, 1, shapes[k]) for k in parameters}
    whole = [(*shape, batch) if batch > 1 else shape for shape, batch in zip(shapes, batches)]
    rows = [
        {k: draw.uniform(-1, 1, shape) for k, shape in enumerate(whole) if k not in held} for _ in range(3)
    ]
    weights = np.random.RandomState(1).uniform(-1, 1, 20_000)

    def program():
        m = dy.ParameterCollection()
        shared = {k: m.parameters_from_numpy(array) for k, array in held.items()}
        inputs = [{k: dy.inputTensor(row[k], batched=batches[k] > 1) for k in row} for row in rows]
        found = [ours(*[(shared | xs)[k] for k in range(len(shapes))]) for xs in inputs]
        heads = []
        for out in found:
            sizes, batch = out.dim()
            scale = np.resize(weights, (*sizes, batch) if batch > 1 else sizes)
            weighted = dy.cmult(dy.sin(out), dy.inputTensor(scale, batched=batch > 1))
            heads.append(dy.sum_batches(dy.sum_elems(weighted)))
        dy.esum(heads).backward(full=True)
        gradients = [x.gradient() for xs in inputs for x in xs.values()] + [
            p.grad_as_array() for p in shared.values()
        ]
        return [*dy.npvalues(found), *gradients]

    found = on_both(program)
    if theirs is not None:
        for one, other in zip(found[0], by_torch(theirs, rows, held, batches, weights), strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def by_torch(theirs, rows, held, batches, weights):
    held = {k: torch.tensor(array, requires_grad=True) for k, array in held.items()}
    rows = [{k: torch.tensor(array, requires_grad=True) for k, array in row.items()} for row in rows]
    outputs = []
    for row in rows:
        xs = [(held | row)[k] for k in range(len(batches))]
        one_by_one = [
            theirs(*[x[..., at] if batch > 1 else x for x, batch in zip(xs, batches)])
            for at in range(max(batches))
        ]
        one_by_one = [y if y.ndim else y[None] for y in one_by_one]
        outputs.append(torch.stack(one_by_one, -1) if len(one_by_one) > 1 else one_by_one[0])
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
    few = [(size,) * count for size in (1, BATCH)]
    yield from (
        (batches, ()) for batches in (itertools.product([1, BATCH], repeat=count) if count < 4 else few)
    )
    for place in range(count if count < 4 else 1):
        others = tuple(k for k in range(count) if k != place)
        yield from ((tuple(batch if k == place else 1 for k in range(count)), others) for batch in (1, BATCH))


@walks(SEVERAL)
def test_several_operands(shapes, ours, theirs):
    shapes = tuple(shapes)
    for batches, parameters in ways(len(shapes)):
        compare(shapes, ours, theirs, batches, parameters)


def test_the_greatest_of_equal_numbers_and_of_nan(setting):
    array = np.array([1.0, 3.0, 2.0, 3.0, 3.0, 1.0])
    x = dy.inputTensor(array)
    y = dy.kmax_pooling(x, 4, 0)
    dy.dot_product(y, dy.inputVector([1.0, 2.0, 3.0, 4.0])).backward(full=True)
    assert (y.vec_value(), x.gradient().tolist()) == ([3, 2, 3, 3], [0, 1, 2, 3, 4, 0])
    found = [
        dy.kmax_pooling(dy.inputTensor([1.0, np.inf, np.nan, 3.0, np.nan]), k, 0).npvalue() for k in (2, 3)
    ]
    np.testing.assert_array_equal(found[0], [np.nan, np.nan])
    np.testing.assert_array_equal(found[1], [np.inf, np.nan, np.nan])
