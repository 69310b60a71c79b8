"""Any order of calls of a session against torch in float64: build, ask, differentiate, go back, update, save, renew."""

import os
import tempfile

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine as Machine
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

import dpmodule.autobatch as dy

SIZE, RATE = 3, 0.1
PLACE = st.integers(0, 99)
NUMBERS = st.lists(st.sampled_from([-1.0, -0.25, 0.0, 0.5, 1.0]), min_size=SIZE, max_size=SIZE)
# operations on vectors, for expressions and for tensors alike: of one or two operands, a matrix and a vector
OF_ONE = {
    "tanh": (lambda x, W, b: dy.tanh(x), lambda x, W, b: torch.tanh(x)),
    "sine": (lambda x, W, b: dy.sin(x * 2.0) - 0.5, lambda x, W, b: torch.sin(x * 2) - 0.5),
    "product": (lambda x, W, b: dy.tanh(W * x), lambda x, W, b: torch.tanh(W @ x)),
    "affine": (lambda x, W, b: dy.affine_transform([b, W, x]), lambda x, W, b: b + W @ x),
    "constant": (lambda x, W, b: dy.cmult(dy.const_parameter(b), x), lambda x, W, b: b.detach() * x),
    "part": (lambda x, W, b: dy.concatenate([x[1:], x[:1]]), lambda x, W, b: torch.cat([x[1:], x[:1]])),
    "norm": (lambda x, W, b: dy.softmax(x) * dy.squared_norm(b), lambda x, W, b: x.softmax(0) * (b @ b)),
}
OF_TWO = {
    "sum": (lambda x, y, b: (x + y) * 0.5, lambda x, y, b: (x + y) * 0.5),
    "product": (lambda x, y, b: dy.cmult(x, dy.tanh(y)), lambda x, y, b: x * torch.tanh(y)),
    "join": (
        lambda x, y, b: dy.concatenate_cols([x, y]) * b[:2],
        lambda x, y, b: torch.stack([x, y], 1) @ b[:2],
    ),
}


def copies(arrays):
    return {n: x.detach().clone() if torch.is_tensor(x) else x.copy() for n, x in arrays.items()}


def close(found, wanted):
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5 * max(1.0, np.abs(wanted).max(initial=0)))


class Session(Machine):
    """Nodes of the graph, each with the way to compute it from tensors; and the parameters as tensors."""

    def __init__(self):
        super().__init__()
        draw = np.random.RandomState(0)
        arrays = {"W": draw.uniform(-0.7, 0.7, (SIZE, SIZE)), "b": draw.uniform(-1, 1, SIZE)}
        self.m = dy.ParameterCollection()
        self.p = {name: self.m.parameters_from_numpy(array.astype("f4")) for name, array in arrays.items()}
        self.p["e"] = self.m.lookup_parameters_from_numpy(draw.uniform(-1, 1, (4, SIZE)).astype("f4"))
        self.trainer = dy.SimpleSGDTrainer(self.m, RATE)
        self.trainer.set_clip_threshold(0)
        self.values = {name: torch.tensor(p.as_array(), requires_grad=True) for name, p in self.p.items()}
        self.gradients = {name: np.zeros(value.shape) for name, value in self.values.items()}
        self.folder = tempfile.TemporaryDirectory()
        self.saved = None
        self.begin()

    def begin(self):
        self.nodes, self.marks, self.loss = [], [], None

    def teardown(self):
        dy.configure(engine="auto", autobatch=False)
        self.folder.cleanup()

    def add(self, expression, compute, *operands, held=None):
        self.nodes.append((expression, compute, operands, held))

    def tensors(self):
        found = []
        for _, compute, operands, _ in self.nodes:
            found.append(compute(*[found[place] for place in operands]))
            if found[-1].requires_grad:
                found[-1].retain_grad()
        return found

    has_nodes = precondition(lambda self: self.nodes)

    def vector(self, place):
        """Return the place of a node that is no loss."""
        found = [k for k, (expression, *_) in enumerate(self.nodes) if expression.dim()[0] == (SIZE,)]
        return found[place % len(found)]

    @rule(engine=st.sampled_from(["python", "auto"]), autobatch=st.booleans())
    def renew(self, engine, autobatch):
        old = self.nodes[-1:]
        dy.configure(engine=engine, autobatch=autobatch)
        self.begin()
        for expression, *_ in old:
            with pytest.raises(dy.StaleExpressionError, match="renew"):
                expression.npvalue()

    @rule(numbers=NUMBERS)
    def enter(self, numbers):
        x, tensor = dy.vecInput(SIZE), torch.zeros(SIZE, dtype=torch.float64, requires_grad=True)
        x.set(numbers)
        tensor.data[:] = torch.tensor(numbers)
        self.add(x, lambda: tensor * 1.0, held=tensor)

    @rule(row=st.integers(0, 3), constant=st.booleans())
    def look_up(self, row, constant):
        values, expression = self.values["e"], dy.lookup(self.p["e"], row, not constant)
        self.add(expression, lambda: (values.detach().requires_grad_() if constant else values)[row] * 1.0)

    @has_nodes
    @rule(places=st.tuples(PLACE, PLACE), name=st.sampled_from([*OF_ONE, *OF_TWO]), is_one=st.booleans())
    def take(self, places, name, is_one):
        is_one = name not in OF_TWO or is_one and name in OF_ONE
        ours, theirs = (OF_ONE if is_one else OF_TWO)[name]
        places = [self.vector(place) for place in places[: 2 - is_one]]
        rest = ["W", "b"] if is_one else ["b"]
        expression = ours(*[self.nodes[place][0] for place in places], *[self.p[each] for each in rest])
        self.add(expression, lambda *xs: theirs(*xs, *[self.values[each] for each in rest]), *places)

    @has_nodes
    @rule(place=PLACE, again=st.booleans())
    def ask(self, place, again):
        place %= len(self.nodes)
        close(self.nodes[place][0].npvalue(recalculate=again), self.tensors()[place].detach())
        self.loss = None if again else self.loss  # all is computed anew, and may be differentiated again

    @has_nodes
    @rule(count=st.integers(1, 5))
    def forward(self, count):
        dy.forward([expression for expression, *_ in self.nodes[-count:]])

    @has_nodes
    @rule(place=PLACE, numbers=NUMBERS)
    def set(self, place, numbers):
        x, *_, held = self.nodes[place % len(self.nodes)]
        if held is not None:
            x.set(numbers)
            held.data[:] = torch.tensor(numbers)
            self.loss = None

    @has_nodes
    @rule(place=PLACE, full=st.booleans(), first=st.booleans())
    def differentiate(self, place, full, first):
        place %= len(self.nodes)
        self.add(dy.sum_elems(dy.tanh(self.nodes[place][0])), lambda x: torch.tanh(x).sum()[None], place)
        loss = self.nodes[-1][0]
        if first:
            close(loss.npvalue(), self.tensors()[-1].detach())
        loss.backward(full=full)
        self.loss, self.is_full = len(self.nodes) - 1, full
        for value in self.values.values():
            value.grad = None
        tensors = self.tensors()
        if tensors[-1].requires_grad:
            tensors[-1].backward()
        self.slopes = [t.grad if t.requires_grad else None for t in tensors]
        for name, value in self.values.items():
            if value.grad is not None:
                self.gradients[name] += value.grad.numpy()

    @has_nodes
    @rule(place=PLACE)
    def ask_gradient(self, place):
        place %= len(self.nodes)
        expression = self.nodes[place][0]
        if self.loss is not None and place <= self.loss and self.is_full:
            slope = self.slopes[place]
            close(expression.gradient(), np.zeros(expression.dim()[0]) if slope is None else slope)

    @precondition(lambda self: self.loss is not None)
    @rule()
    def differentiate_twice(self):
        with pytest.raises(dy.StateError, match="twice"):
            self.nodes[self.loss][0].backward()

    @rule()
    def reset_gradients(self):
        self.m.reset_gradient()
        self.gradients = {name: each * 0 for name, each in self.gradients.items()}

    @rule()
    def checkpoint(self):
        dy.cg_checkpoint()
        self.marks.append(len(self.nodes))

    @rule()
    def revert(self):
        if not self.marks:
            with pytest.raises(dy.StateError, match="cg_checkpoint"):
                dy.cg_revert()
            return
        dy.cg_revert()
        count = self.marks.pop()
        for expression, *_ in self.nodes[count:][-1:]:
            with pytest.raises(dy.StaleExpressionError, match="removed by cg_revert"):
                expression.npvalue()
        del self.nodes[count:]
        if self.loss is not None and self.loss >= count:
            self.loss = None
            for expression, *_ in self.nodes[-1:]:
                with pytest.raises(dy.NoGradientError):
                    expression.gradient()

    @rule()
    def update(self):
        self.trainer.update()
        for name, value in self.values.items():
            value.data -= RATE * torch.tensor(self.gradients[name])
        self.reset_gradients()
        dy.renew_cg()
        self.begin()

    @rule()
    def save(self):
        self.m.save(os.path.join(self.folder.name, "model"))
        self.saved = copies(self.values), copies(self.gradients)

    @precondition(lambda self: self.saved)
    @rule()
    def populate(self):
        self.m.populate(os.path.join(self.folder.name, "model"))
        for name, value in self.saved[0].items():
            self.values[name].data.copy_(value)
        self.gradients = copies(self.saved[1])
        dy.renew_cg()
        self.begin()

    @invariant()
    def parameters_are_those_of_torch(self):
        for name, p in self.p.items():
            close(p.as_array(), self.values[name].detach())
            close(p.grad_as_array(), self.gradients[name])


SLOW = [pytest.mark.slow, pytest.mark.timeout(3600)]
QUIET = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


@pytest.mark.parametrize("count", [25, pytest.param(3000, marks=SLOW)])
def test_any_order_of_calls(count):
    run_state_machine_as_test(Session, settings=settings(max_examples=count, stateful_step_count=30, **QUIET))
