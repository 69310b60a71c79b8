"""The native autobatch engine driven by numbers of nodes, and beside every node its value in float64 under autograd."""

from __future__ import annotations

import torch

from dpmodule.autobatch.native_kernels import BINARY, OP, UNARY

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


class RawGraph:
    """An engine, its parameters, and ``wanted``: from a node to its float64 tensor."""

    def __init__(self, core, batched=True):
        self.machine = core.AutobatchEngine()
        self.machine.batched = batched
        self.params, self.tables, self.wanted, self.version = [], [], {}, 0

    def param(self, *shape):
        value, grad = torch.randn(*shape) * 0.5, torch.zeros(*shape)
        number = self.machine.add_parameter(shape)
        self.machine.set_parameter(number, value.data_ptr(), grad.data_ptr())
        self.params.append((value, grad))
        return number

    def table(self, rows, width):
        value, grad = torch.randn(rows, width), torch.zeros(rows, width)
        number = self.machine.add_table(rows, (width,))
        self.machine.set_table(number, value.data_ptr(), grad.data_ptr())
        self.tables.append((value, grad))
        return number

    def renew(self):
        self.version += 1
        self.machine.renew(self.version)
        self.machine.parameters_changed()
        self.wanted = {}
        for _, grad in self.params + self.tables:
            grad.zero_()
        self.leaves = [value.double().requires_grad_() for value, _ in self.params]
        self.rows = [value.double().requires_grad_() for value, _ in self.tables]

    def keep(self, node, wanted):
        assert node >= 0
        self.wanted[node] = wanted
        return node

    def at(self, param):
        return self.keep(self.machine.parameter(param), self.leaves[param])

    def input(self, values):
        values = torch.as_tensor(values, dtype=torch.float32)
        signature = self.machine.input_signature(self.machine.shape(tuple(values.shape)))
        return self.keep(self.machine.input(signature, values.numpy()), values.double())

    def lookup(self, table, row):
        return self.keep(self.machine.lookup(table, row), self.rows[table][row])

    def one(self, name, x, number=0.0):
        node = self.machine.kernel(OP["unary"], UNARY.index(name), (x,), number)
        return self.keep(node, OF_ONE[name](self.wanted[x], number))

    def two(self, name, x, y):
        node = self.machine.kernel(OP["binary"], BINARY.index(name), (x, y))
        return self.keep(node, OF_TWO[name](self.wanted[x], self.wanted[y]))

    def affine(self, bias, *terms):
        node = self.machine.kernel(OP["affine"], 0, (-1 if bias is None else bias, *terms))
        total = 0 if bias is None else self.wanted[bias]
        for w, x in zip(terms[::2], terms[1::2]):
            total = total + self.wanted[w] @ self.wanted[x]
        return self.keep(node, total)

    def concat(self, *xs):
        node = self.machine.kernel(OP["concat"], 0, xs)
        return self.keep(node, torch.cat([self.wanted[x] for x in xs]))

    def side_by_side(self, *xs):
        node = self.machine.kernel(OP["concat"], 1, xs)
        return self.keep(node, torch.stack([self.wanted[x] for x in xs], 1))

    def multiply(self, x, y):
        return self.keep(self.machine.kernel(OP["multiply"], 0, (x, y)), self.wanted[x] @ self.wanted[y])

    def add_column(self, x, y):
        node = self.machine.kernel(OP["colwise_add"], 0, (x, y))
        return self.keep(node, self.wanted[x] + self.wanted[y][:, None])

    def transpose(self, x):
        value = self.wanted[x]
        node = self.machine.kernel(OP["transpose"], -1, (x,))
        return self.keep(node, value[None] if value.dim() == 1 else value.t())

    def pick(self, x, index, axis=0):
        node = self.machine.kernel(OP["view"], 0, (x,), axis, index)
        return self.keep(node, self.wanted[x].select(axis, index))

    def sum(self, *xs):
        return self.keep(self.machine.kernel(OP["sum"], 0, xs), sum(self.wanted[x] for x in xs))

    def loss(self, x, label):
        node = self.machine.kernel(OP["loss"], 0, (x,), 0.0, label)
        return self.keep(node, -torch.log_softmax(self.wanted[x], 0)[label : label + 1])

    def softmax(self, x, log=False):
        node = self.machine.kernel(OP["log_softmax" if log else "softmax"], 0, (x,))
        return self.keep(node, (torch.log_softmax if log else torch.softmax)(self.wanted[x], 0))

    def total(self, x, square=False):
        node = self.machine.kernel(OP["squared_norm" if square else "sum_elems"], 0, (x,))
        value = self.wanted[x]
        return self.keep(node, ((value * value) if square else value).sum()[None])

    def dot(self, x, y):
        return self.keep(
            self.machine.kernel(OP["dot"], 0, (x, y)), (self.wanted[x] * self.wanted[y]).sum()[None]
        )

    def view(self, x, first, last):
        node = self.machine.kernel(OP["view"], last - first, (x,), 0.0, first)
        return self.keep(node, self.wanted[x][first:last])

    def lstm(self, x, h, c, wx, wh, b, forget_bias=1.0):
        operands = (x, -1 if h is None else h, -1 if c is None else c, wx, wh, b)
        node = self.machine.kernel(OP["lstm"], 0, operands, forget_bias)
        gates = self.wanted[wx] @ self.wanted[x] + self.wanted[b]
        if h is not None:
            gates = gates + self.wanted[wh] @ self.wanted[h]
        i, f, o, u = gates.chunk(4)
        memory = torch.sigmoid(i) * torch.tanh(u)
        if c is not None:
            memory = memory + torch.sigmoid(f + forget_bias) * self.wanted[c]
        self.keep(node + 1, memory)
        return self.keep(node, torch.sigmoid(o) * torch.tanh(memory)), node + 1

    def value(self, node):
        return torch.frombuffer(self.machine.value(node), dtype=torch.float32).double()

    def check_value(self, node, tolerance=1e-4):
        wanted = self.wanted[node].detach().reshape(-1)
        self._close(self.value(node), wanted, tolerance, 1.0, f"node {node}")

    def check_gradients(self, loss, tolerance=2e-4):
        self.machine.backward(loss)
        if self.wanted[loss].requires_grad:
            self.wanted[loss].sum().backward()
        pairs = list(zip(self.params, self.leaves)) + list(zip(self.tables, self.rows))
        for place, ((_, grad), leaf) in enumerate(pairs):
            wanted = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            self._close(grad.double(), wanted, tolerance, 1e-3, f"parameter {place}")

    @staticmethod
    def _close(found, wanted, tolerance, least, what):
        atol = tolerance * (least + float(wanted.abs().max()))
        torch.testing.assert_close(found, wanted, rtol=0, atol=atol, msg=lambda text: f"{what}: {text}")
