"""Cells: calls of modules and functions that are recorded as one."""

import collections
import contextlib
import functools
import gc
import sys
import threading
import weakref

import pytest
import torch
from torch import nn

from dpmodule import autobatch
from dpmodule.autobatch.pytorch.cells import state_of_module
from helpers.both_backends import in_native

State = collections.namedtuple("State", "h c")


class Step(nn.Module):
    """A step of a network with memory, in the body of a module."""

    def __init__(self):
        super().__init__()
        self.gates = nn.Linear(8, 16)
        self.register_buffer("scale", torch.full((), 0.5))

    def forward(self, x, state):
        i, f, o, u = self.gates(torch.cat([x, state.h])).chunk(4)
        c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f) * state.c
        return State(torch.sigmoid(o) * torch.tanh(c) * self.scale, c)


def start():
    return State(torch.zeros(4), torch.zeros(4))


def examples(count=6):
    generator = torch.Generator().manual_seed(5)
    return [[torch.randn(4, generator=generator) for _ in range(2 + k % 3)] for k in range(count)]


def outcome(program, model, block):
    """Return losses and gradients of a program in a block."""
    model.zero_grad()
    torch.manual_seed(7)
    with block:
        losses = [program(model, each) for each in examples()]
        total = torch.stack(losses).sum()
    total.backward()
    found = [each.detach().clone() for each in losses]
    return found + [each.grad.clone() for each in model.parameters() if each.grad is not None]


def agrees(program, model, times=2):
    """Compare a program on all examples with the same in one block, several times."""
    for _ in range(times):
        alone = outcome(program, model, contextlib.nullcontext())
        together = outcome(program, model, autobatch.batching())
        assert len(alone) == len(together)
        for one, other in zip(alone, together):
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


def last_state(model, xs):
    state = start()
    for x in xs:
        state = model(x, state)
    return state.h.sum() + state.c.square().sum()


def test_a_declared_module():
    torch.manual_seed(0)
    model = autobatch.cell(Step())
    assert isinstance(model, Step)
    agrees(last_state, model)
    with torch.no_grad():
        model.gates.weight.mul_(2)
        model.scale.fill_(3.0)
    agrees(last_state, model)
    model.scale = torch.full((), 0.25)
    model.gates = nn.Linear(8, 16)
    agrees(last_state, model)


def test_a_declared_class_and_a_method():
    @autobatch.cell
    class Declared(Step):
        @autobatch.cell
        def twice(self, x, state):
            return self(x, self(x, state))

    torch.manual_seed(0)
    model = Declared()
    agrees(lambda model, xs: model.twice(xs[0], start()).h.sum(), model)
    agrees(last_state, model)


@in_native
def test_what_is_recorded_is_the_same():
    torch.manual_seed(0)
    model = Step()

    def counts():
        with autobatch.batching() as run:
            kept = [last_state(model, each) for each in examples()]
        assert len(kept) == 6
        return run.recorded, run.calls

    before = counts()
    autobatch.cell(model)
    assert counts() == before
    assert state_of_module(model) is not None


class Layers(nn.Module):
    """Layers of torch alone."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.LayerNorm(8), nn.Dropout(0.5))
        self.cell = nn.GRUCell(8, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.cell(self.body(x)))


def change_weight(model, number):
    if number == 2:
        model.last.weight = nn.Parameter(model.last.weight.detach() * 2)


def change_mode(model, number):
    model.train(number % 2 == 1)


def change_a_number(model, number):
    model.body[2].eps = 0.1 * number


def change_a_layer(model, number):
    if number == 3:
        model.body[1] = nn.Tanh()


@pytest.mark.parametrize("change", [change_weight, change_a_number, change_a_layer])
def test_changes_of_a_module_inside(change):
    def program(model, xs):
        change(model, len(xs))
        return model(xs[0]).square().sum()

    models = []
    for block in (contextlib.nullcontext(), autobatch.batching()):
        torch.manual_seed(1)
        models.append((Layers().eval(), block))
    alone, together = (outcome(program, *each) for each in models)
    for one, other in zip(alone, together):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


def test_a_hook_added_inside_and_training_modes():
    seen = []

    def program(model, xs):
        change_mode(model, len(xs))
        if len(xs) == 3 and not seen:
            model.last.register_forward_hook(lambda module, args, out: seen.append(1) or out * 2)
        return model(xs[0]).square().sum()

    torch.manual_seed(1)
    model = Layers()
    model.body[3].p = 0.0
    together = outcome(program, model, autobatch.batching())
    assert len(seen) == 5
    alone = outcome(program, model, contextlib.nullcontext())
    for one, other in zip(alone[1:], together[1:]):  # the first example has come before the hook
        if one.shape == ():
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


def test_weights_of_each_example():
    def program(model, xs):
        weights = {name: each * xs[0][0] for name, each in model.named_parameters()}
        return torch.func.functional_call(model, weights, (xs[1],)).square().sum()

    torch.manual_seed(1)
    agrees(program, Layers().eval())


@in_native
def test_dropout_of_a_layer_differs_between_examples():
    torch.manual_seed(1)
    layer = nn.Sequential(nn.Dropout(0.5), nn.Identity())
    with autobatch.batching():
        found = [layer(torch.ones(64)) for _ in range(4)]
    assert len({tuple(each.tolist()) for each in found}) == 4


@autobatch.cell
def branches(x, state, options=None, *, scale=1.0):
    """Returns nested results, some of them an argument."""
    total = x + state.h
    total += scale
    return {"no": 1} if options == "dict" else (total, [x, None, total * 2], State(state.h, total.sum()))


CALLS = [
    lambda model, x: branches(x, start())[0],
    lambda model, x: branches(x, start())[1][0] * branches(x, start(), scale=2.0)[1][2],
    lambda model, x: branches(x, State(x, x))[2].c + branches(x, start())[2].h,
    lambda model, x: x * branches(x, start(), "dict")["no"],
    lambda model, x: reading(x * 2) + x,
    lambda model, x: changing(x * 1),
    lambda model, x: transposed(torch.stack([x, x * 2])).sum(0),
    lambda model, x: row_of(torch.stack([x, x * 2])) * 2,
    lambda model, x: autobatch.cell(lambda y: y * x)(x),
    lambda model, x: random_of(x),
]


@autobatch.cell
def reading(x):
    return x * 2 if float(x.detach().sum()) > 0 else x * 3


@autobatch.cell
def changing(x):
    return x.mul_(2) + 1


@autobatch.cell
def transposed(x):
    return (x * 2).T


@autobatch.cell
def row_of(x):
    return x[1]


@autobatch.cell
def random_of(x):
    return x + 0 * torch.rand(4)


@pytest.mark.parametrize("call", CALLS)
def test_functions(call):
    torch.manual_seed(0)
    agrees(lambda model, xs: (call(model, model(xs[0], start()).h) * call(model, xs[1])).sum(), Step())


def test_errors_come_from_the_call():
    @autobatch.cell
    def wrong(x):
        return x + torch.ones(3)

    with pytest.raises(RuntimeError, match="size"), autobatch.batching():
        wrong(torch.ones(4) * 2)
    with pytest.raises(autobatch.ForeignValueError, match="cell: int 3 is not a symbol"):
        autobatch.cell(3)
    with pytest.raises(autobatch.ArgumentError, match="takes no other arguments"):
        autobatch.cell(wrong, rows=True)


class Scaled(nn.Module):
    """A layer whose state has parts that are not tensors, numbers or layers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.options = {"scales": [[1.0], [2.0]], "names": ("one", "two")}
        self.config = None

    def forward(self, x, options=None):
        for config in (self.config, options):
            x = x * config.scale if config else x
        return torch.tanh(self.layer(x)) * self.options["scales"][1][0]

    @autobatch.cell
    def twice(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        return self(self(x))


class Config:
    def __init__(self, scale):
        self.scale = scale


def change_options(model, k):
    model.options["scales"][1][0] = 1.0 + k


def change_config(model, k):
    model.config = model.config or Config(1.0)
    model.config.scale = 1.0 + k


def change_dtype_of_numbers(model, k):
    model.options["scales"][1] = (1 + k,) if k % 2 else [1.0 + k]


@pytest.mark.parametrize("change", [change_options, change_config, change_dtype_of_numbers])
def test_changes_deep_in_the_state(change):
    def program(model, xs):
        change(model, len(xs))
        return model(xs[0]).sum()

    torch.manual_seed(0)
    agrees(program, autobatch.cell(Scaled()))


def test_objects_as_arguments_are_not_taken_for_others():
    torch.manual_seed(0)
    model = autobatch.cell(Scaled())
    step = autobatch.cell(lambda x, config: x * config.scale + 1)

    def program(model, xs):  # a new object has the address of the last one
        found = [model(x, Config(1.0 + k)) + step(x, Config(k)) for k, x in enumerate(xs)]
        return torch.stack(found).sum()

    agrees(program, model, times=4)


@in_native
def test_a_method_of_a_module_that_is_not_declared():
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    seen = []

    @autobatch.cell
    def twice(layer, x):
        seen.append(1)
        return layer(layer(x))

    agrees(lambda model, xs: twice(model, xs[0]).sum(), model)
    assert len(seen) == 6 + 1 + 6  # once for all calls of both blocks
    handle = model.register_forward_hook(lambda module, args, out: out * 2)
    agrees(lambda model, xs: twice(model, xs[0]).sum(), model)
    handle.remove()
    other = nn.Linear(4, 4)
    both = autobatch.cell(lambda first, x, second: second(first(x)))

    def program(model, xs):
        with torch.no_grad():
            other.bias = nn.Parameter(torch.full((4,), float(len(xs))))
        return both(model, xs[0], other).sum()

    agrees(program, model)


def test_what_a_body_reads_from_outside_is_not_kept():
    torch.manual_seed(0)

    def program(model, xs):
        known = (xs[0] * 2).sum()
        float(known)  # computed before the cell is traced

        @autobatch.cell
        def branch(x):
            if known > 0:
                return x * 2
            return x * 3 if float(known) < -1 else x * known.tolist()

        return (branch(xs[0]) + branch(xs[1])).sum() + model.gates.weight.sum()

    agrees(program, Step())


def make_step():
    return Step()


def make_part_that_knows_its_whole():
    model = Step()
    model.gates.whole = [model]
    return model


def make_method():
    model = Step()
    model.step = model.forward
    return model


def make_closure():
    model = Step()
    model.step = lambda x: model.gates(x)
    model.other = functools.partial(nn.Module.train, model)
    return model


@pytest.mark.parametrize("make", [make_step, make_part_that_knows_its_whole, make_method, make_closure])
def test_modules_are_released(make):
    model = autobatch.cell(make())
    outcome(last_state, model, autobatch.batching())
    with autobatch.batching():
        model.gates(torch.ones(8))
    found = weakref.ref(model), weakref.ref(model.gates), weakref.ref(model.gates.weight)
    del model
    gc.collect()
    assert [each() for each in found] == [None] * 3


def test_threads_share_a_module():
    torch.manual_seed(0)
    model = autobatch.cell(Step())
    alone = [last_state(model, each).item() for each in examples()]
    wrong, interval = [], sys.getswitchinterval()

    def work(number):
        for k in range(60):
            with torch.no_grad(), autobatch.batching():
                found = [last_state(model, each) for each in examples()]
            if not torch.allclose(torch.stack(found), torch.tensor(alone), rtol=1e-5, atol=1e-5):
                wrong.append((number, k))
            if number == 0:
                model.number = k  # all traces start anew

    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


class Equal(nn.Sequential):
    """A module that is equal to others."""

    def __eq__(self, other):
        return isinstance(other, Equal)

    def __hash__(self):
        return 0


def test_equal_modules_have_weights_of_their_own():
    torch.manual_seed(1)
    modules = [autobatch.cell(Equal(nn.Linear(3, 3))) for _ in range(2)]
    examples = [torch.randn(3) for _ in range(4)]
    with autobatch.batching():
        found = [[module(each * 1) for each in examples] for module in modules]
    for module, outs in zip(modules, found):
        for each, out in zip(examples, outs):
            torch.testing.assert_close(out, module(each))
