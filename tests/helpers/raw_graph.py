"""The native autobatch engine driven by numbers of nodes, and beside every node its value under torch's autograd.

Beside it stand two references, one operation at a time: in float64, which is taken for right, and in float32, which
tells how much of an error is due to the element type alone.
"""

from __future__ import annotations

import weakref

import torch

from dpmodule.autobatch.ops.native_kernels import BINARY, OP, REDUCTION, UNARY
from dpmodule.autobatch.storage import LookupStorage, ParameterStorage

OF_ONE = {
    "tanh": lambda x, k: torch.tanh(x),
    "logistic": lambda x, k: torch.sigmoid(x),
    "rectify": lambda x, k: torch.relu(x),
    "exp": lambda x, k: torch.exp(x),
    "sqrt": lambda x, k: torch.sqrt(x),
    "elu": lambda x, k: torch.where(x > 0, x, k * (torch.exp(x) - 1)),
    "log": lambda x, k: torch.log(x),
    "square": lambda x, k: x * x,
    "cube": lambda x, k: x * x * x,
    "abs": lambda x, k: torch.abs(x),
    "recip": lambda x, k: k / x,
    "softsign": lambda x, k: x / (1 + torch.abs(x)),
    "negate": lambda x, k: -x,
    "scale": lambda x, k: x * k,
    "shift": lambda x, k: x + k,
    "rsub": lambda x, k: k - x,
}
OF_TWO = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
}
ALONG = {
    "sum_dim": lambda x, axis: x.sum(axis),
    "mean_dim": lambda x, axis: x.mean(axis),
    "max_dim": lambda x, axis: x.max(axis)[0],
    "min_dim": lambda x, axis: x.min(axis)[0],
    "logsumexp_dim": torch.logsumexp,
}


class Reference:
    """What torch makes of the same operations in one element type, by nodes."""

    def __init__(self, dtype, params, tables):
        self.dtype, self.at = dtype, {}
        # copies: `to` would give float32 back as it is
        self.leaves = [value.to(dtype, copy=True).requires_grad_() for value, _ in params + tables]

    def gradients(self, node):
        """Return those of all parameters and tables, zeros where the node depends on none."""
        loss = self.at[node].sum()
        if not loss.requires_grad:
            return [torch.zeros_like(leaf) for leaf in self.leaves]
        found = torch.autograd.grad(loss, self.leaves, allow_unused=True)
        return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(self.leaves, found)]


class RawGraph:
    """An engine, its parameters, and the references of every node."""

    def __init__(self, core, batched=True):
        self.machine = core.AutobatchEngine()
        self.machine.batched = batched
        self.params, self.tables, self.references, self.version = [], [], (), 0
        self._storages = []

    @property
    def nodes(self):
        """All nodes, in order."""
        return sorted(self.references[0].at)

    def param(self, *shape):
        value, grad = torch.randn(*shape) * 0.5, torch.zeros(*shape)
        storage = ParameterStorage("", value)
        storage.gradient = grad
        self._storages.append(storage)
        self.params.append((value, grad))
        return self.machine.add_parameter(shape, weakref.ref(storage), True)

    def table(self, rows, width):
        value, grad = torch.randn(rows, width), torch.zeros(rows, width)
        self._storages.append(LookupStorage("", value))
        self.tables.append((value, grad))
        return self.machine.add_table((rows, width), weakref.ref(self._storages[-1]))

    def renew(self):
        self.version += 1
        self.machine.renew(self.version)
        for _, grad in self.params + self.tables:
            grad.zero_()
        self.references = tuple(
            Reference(dtype, self.params, self.tables) for dtype in (torch.float64, torch.float32)
        )

    def keep(self, node, operands, compute):
        """Note what a node is: a function of the values of its operands."""
        assert node >= 0
        for each in self.references:
            each.at[node] = compute(*[None if x is None else each.at[x] for x in operands])
        return node

    def _leaf(self, node, place):
        for each in self.references:
            each.at[node] = each.leaves[place]
        return node

    def at(self, param):
        return self._leaf(self.machine.parameter(param), param)

    def input(self, values):
        values = torch.as_tensor(values, dtype=torch.float32)
        signature = self.machine.input_signature(self.machine.shape(tuple(values.shape)))
        node = self.machine.input(signature, values.numpy())
        for each in self.references:
            each.at[node] = values.to(each.dtype)
        return node

    def lookup(self, table, row):
        node = self.machine.lookup(table, row)
        for each in self.references:
            each.at[node] = each.leaves[len(self.params) + table][row]
        return node

    def one(self, name, x, number=0.0):
        node = self.machine.kernel(OP["unary"], UNARY[name], (x,), number)
        return self.keep(node, [x], lambda x: OF_ONE[name](x, number))

    def two(self, name, x, y):
        node = self.machine.kernel(OP["binary"], BINARY[name], (x, y))
        return self.keep(node, [x, y], OF_TWO[name])

    def affine(self, bias, *terms):
        node = self.machine.kernel(OP["affine"], 0, (-1 if bias is None else bias, *terms))

        def compute(bias, *terms):
            total = 0 if bias is None else bias
            for w, x in zip(terms[::2], terms[1::2]):
                total = total + w @ x
            return total

        return self.keep(node, [bias, *terms], compute)

    def concat(self, *xs):
        return self.keep(self.machine.kernel(OP["concat"], 0, xs), xs, lambda *xs: torch.cat(xs))

    def side_by_side(self, *xs):
        return self.keep(self.machine.kernel(OP["concat"], 1, xs), xs, lambda *xs: torch.stack(xs, 1))

    def multiply(self, x, y):
        return self.keep(self.machine.kernel(OP["multiply"], 0, (x, y)), [x, y], torch.matmul)

    def add_column(self, x, y):
        node = self.machine.kernel(OP["colwise_add"], 0, (x, y))
        return self.keep(node, [x, y], lambda x, y: x + y[:, None])

    def transpose(self, x):
        node = self.machine.kernel(OP["arrangement"], -1, (x,))
        return self.keep(node, [x], lambda x: x[None] if x.dim() == 1 else x.t())

    def pick(self, x, index, axis=0):
        node = self.machine.kernel(OP["view"], 0, (x,), axis, index)
        return self.keep(node, [x], lambda x: x.select(axis, index))

    def sum(self, *xs):
        return self.keep(self.machine.kernel(OP["sum"], 0, xs), xs, lambda *xs: sum(xs))

    def loss(self, x, label):
        node = self.machine.kernel(OP["loss"], 0, (x,), 0.0, label)
        return self.keep(node, [x], lambda x: -torch.log_softmax(x, 0)[label : label + 1])

    def hinge(self, x, label, margin):
        node = self.machine.kernel(OP["hinge"], 0, (x,), margin, label)

        def compute(x):
            others = torch.arange(len(x)) != label
            return torch.relu(x - x[label] + margin)[others].sum()[None]

        return self.keep(node, [x], compute)

    def along(self, name, x, axis):
        node = self.machine.kernel(OP["reduction"], REDUCTION[name], (x,), 0.0, 2 << axis)
        return self.keep(node, [x], lambda x: ALONG[name](x, axis))

    def softmax(self, x, log=False):
        node = self.machine.kernel(OP["log_softmax" if log else "softmax"], 0, (x,))
        return self.keep(node, [x], lambda x: (torch.log_softmax if log else torch.softmax)(x, 0))

    def total(self, x, square=False):
        node = self.machine.kernel(OP["squared_norm" if square else "sum_elems"], 0, (x,))
        return self.keep(node, [x], lambda x: ((x * x) if square else x).sum()[None])

    def dot(self, x, y):
        node = self.machine.kernel(OP["dot"], 0, (x, y))
        return self.keep(node, [x, y], lambda x, y: (x * y).sum()[None])

    def view(self, x, first, last):
        node = self.machine.kernel(OP["view"], last - first, (x,), 0.0, first)
        return self.keep(node, [x], lambda x: x[first:last])

    def lstm(self, x, h, c, wx, wh, b, forget_bias=1.0):
        operands = (x, -1 if h is None else h, -1 if c is None else c, wx, wh, b)
        node = self.machine.kernel(OP["lstm"], 0, operands, forget_bias)

        def memory(x, h, c, wx, wh, b):
            i, f, o, u = (wx @ x + b + (0 if h is None else wh @ h)).chunk(4)
            fresh = torch.sigmoid(i) * torch.tanh(u)
            return (fresh if c is None else fresh + torch.sigmoid(f + forget_bias) * c), torch.sigmoid(o)

        def output(*operands):
            found, gate = memory(*operands)
            return gate * torch.tanh(found)

        operands = [x, h, c, wx, wh, b]
        self.keep(node + 1, operands, lambda *operands: memory(*operands)[0])
        return self.keep(node, operands, output), node + 1

    def forward(self, node):
        self.machine.follow()
        return self.machine.forward(node)

    def backward(self, node):
        self.machine.begin_pass()
        for number, (_, grad) in enumerate(self.tables):
            self.machine.set_table_gradient(number, grad.data_ptr())
        self.machine.backward(node)
        self.machine.end_pass()

    def value(self, node):
        self.machine.follow()
        return torch.frombuffer(self.machine.value(node), dtype=torch.float32).double()

    def check_value(self, node, floor=4e-6):
        right, single = (each.at[node].detach().reshape(-1) for each in self.references)
        _check([f"node {node}"], [self.value(node)], [right], [single], 1.0, floor)

    def check_gradients(self, loss, floor=1e-5):
        self.backward(loss)
        right, single = (each.gradients(loss) for each in self.references)
        found = [grad.double() for _, grad in self.params + self.tables]
        names = [f"parameter {place}" for place in range(len(found))]
        _check(names, found, right, single, 1e-3, floor)


FACTOR = 8.0
"""So many times as large as torch's in float32 may the error of the engine be, where it is above the floor; of 10,000
random graphs the worst had seven times the error. Both are the largest of a graph in units of the tensor's largest
number, because a number by itself may be right by chance."""


def _check(names, found, right, single, least, floor):
    sizes = [least + float(each.abs().max()) for each in right]
    errors = [float((s.double() - r).abs().max()) / size for r, s, size in zip(right, single, sizes)]
    allowed = max(FACTOR * max(errors), floor)
    for name, f, r, size in zip(names, found, right, sizes):
        torch.testing.assert_close(
            f, r, rtol=0, atol=allowed * size, msg=lambda text, name=name: f"{name}: {text}"
        )
