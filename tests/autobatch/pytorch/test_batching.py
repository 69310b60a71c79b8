"""`batching` and `map`: what is computed, when, and what is refused."""

import asyncio
import contextlib
import copy
import gc
import os
import pickle
import sys
import threading

import numpy as np
import pytest
import torch

from dpmodule import autobatch, native
from dpmodule.autobatch import StateError
from dpmodule.autobatch.pytorch import batching
from helpers.both_backends import in_native


@pytest.fixture
def linear():
    torch.manual_seed(1)
    return torch.nn.Linear(4, 4).double()


@pytest.fixture
def examples():
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(4, generator=generator, dtype=torch.float64) for _ in range(6)]


def gradients(parameters, compute):
    """Return results of a function and the gradients of their sum."""
    for each in parameters:
        each.grad = None
    found = compute()
    sum(each.sum() for each in found).backward()
    return [each.detach().clone() for each in found], [each.grad.clone() for each in parameters]


def agrees(module, program, examples, count=None):
    """Compare a program on every example with the same programs in one block."""
    parameters = list(module.parameters())
    alone = gradients(parameters, lambda: [program(each) for each in examples])

    def together():
        with autobatch.batching() as run:
            found = [program(each) for each in examples]
        together.run = run
        return found

    batched = gradients(parameters, together)
    for one, other in zip(alone, batched):
        for a, b in zip(one, other):
            torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-10)
    if count is not None and native.core is not None:
        assert together.run.calls == count
    return together.run


def test_equal_operations_of_all_examples_are_one_call(linear, examples):
    run = agrees(linear, lambda x: torch.tanh(linear(x)).sum(), examples, 3)
    if native.core is not None:
        assert run.recorded == 18


def test_results_are_ordinary_tensors(linear, examples):
    with autobatch.batching():
        out = linear(examples[0])
        assert isinstance(out, torch.Tensor)
        assert torch.is_tensor(out)
        assert (out.shape, out.dtype, out.ndim, out.requires_grad) == ((4,), torch.float64, 1, True)
        assert (len(out), out.size(0), out.dim(), out.numel()) == (4, 4, 1, 4)
    assert type(out) is torch.Tensor
    torch.testing.assert_close(out, linear(examples[0]))
    torch.testing.assert_close(pickle.loads(pickle.dumps(out.detach())), out.detach())
    torch.testing.assert_close(copy.deepcopy(out.detach()), out.detach())
    torch.autograd.backward([out.sum()])
    assert linear.weight.grad is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(1),
        lambda x: x.__iadd__(x),
        lambda x: x.mul_(2).sub_(1),
        lambda x: x.zero_(),
        lambda x: x.masked_fill_(x > 0, 0.0),
        lambda x: x.__setitem__(1, 3.0),
        lambda x: x.clamp_(-0.1, 0.1),
        lambda x: torch.nn.functional.relu(x, inplace=True),
        lambda x: torch.nn.functional.dropout(x, 0.5, False, True),
    ],
)
def test_a_change_in_place_has_its_effect(linear, examples, change):
    def program(x):
        hidden = linear(x) * 1
        before = hidden * 2
        change(hidden)
        return (hidden + before).tanh()

    agrees(linear, program, examples)


def add_one(x):
    x += 1


def add_one_to_a_column(x):
    x[:, 1] += 1


def zero_rows(x):
    for row in x:
        row.zero_()


CHANGES_OF_VIEWS = [
    lambda m: m[0].add_(1),
    lambda m: m[:, 0].add_(1),
    lambda m: m[::2].zero_(),
    lambda m: m.T.mul_(2),
    lambda m: m.T[0].fill_(5),
    lambda m: m.T.view(4, 3)[1].fill_(5),
    lambda m: m.diagonal().fill_(3),
    lambda m: m.view(-1).add_(1),
    lambda m: m.narrow(1, 0, 2).zero_(),
    lambda m: m.select(1, 1).zero_(),
    lambda m: m.unsqueeze(0).add_(1),
    lambda m: m.detach().zero_(),
    lambda m: m.__setitem__((slice(None), 1), 0.5),
    lambda m: torch.mul(m.detach()[0], 2, out=m.detach()[1]),
    lambda m: add_one(m[1]),
    add_one,
    add_one_to_a_column,
]


@pytest.mark.parametrize("change", CHANGES_OF_VIEWS)
def test_a_change_of_a_view_changes_its_base(linear, examples, change):
    def program(x):
        hidden = linear(torch.stack([x, -x, 2 * x]))
        before = hidden * 2
        change(hidden)
        return hidden.tanh() + before

    agrees(linear, program, examples)


@pytest.mark.parametrize(
    "change",
    [
        *CHANGES_OF_VIEWS,
        lambda m: m.chunk(2, 1)[1].zero_(),
        lambda m: m.split(2, 1)[0].mul_(3),
        lambda m: m.unbind(1)[0].zero_(),
        zero_rows,
    ],
)
def test_a_change_of_a_view_changes_a_tensor_of_the_program(linear, examples, change):
    def program(x):
        matrix = torch.zeros(3, 4, dtype=torch.float64)
        hidden = linear(x) + matrix
        change(matrix)
        return hidden * matrix + linear(x)

    agrees(linear, program, examples)


@pytest.mark.parametrize(
    "view",
    [
        lambda m: m[1],
        lambda m: m[:, 1],
        lambda m: m.T,
        lambda m: m.T[0],
        lambda m: m.detach(),
        lambda m: m.diagonal(),
        lambda m: m.expand(2, 3, 4),
        lambda m: m.T.select(1, 2),
    ],
)
@pytest.mark.parametrize("is_value", [False, True])
def test_views_see_changes_of_their_base(linear, examples, view, is_value):
    def program(x):
        matrix = linear(torch.stack([x, -x, 2 * x])) if is_value else torch.ones(3, 4, dtype=torch.float64)
        seen = view(matrix)
        before = seen.sum()
        matrix.mul_(2)
        return seen.sum() * 3 + before + linear(x).sum()

    agrees(linear, program, examples)


def test_rows_written_and_read_in_turn(linear, examples):
    def program(x):
        rows = torch.zeros(3, 4, dtype=torch.float64)
        sums = rows.sum(0)
        for i in range(2):
            rows[i] = linear(x + sums)
            rows[i, :2] += rows[i, 2:]
            sums = rows.sum(0)
        return rows

    agrees(linear, program, examples)


def test_equal_tensors_of_examples_change_separately(linear, examples):
    def program(x):
        total, count = torch.zeros(4, dtype=torch.float64), torch.tensor(0)
        first = total[0]
        total += linear(x)
        count += int(x[0] > 0)
        total[1:3] = x[:2]
        total[torch.tensor([0, 3])] += 1.0
        ones = torch.ones(2, 4, dtype=torch.float64)
        ones[1] = total
        ones[:, 0].zero_()
        return total * count + ones.sum(0) + first + torch.zeros_like(x)

    agrees(linear, program, examples)


@in_native
def test_rows_written_into_a_tensor_share_calls(linear, examples):
    def program(x):
        rows = torch.empty(3, 4, dtype=torch.float64)
        for i in range(3):
            x = linear(x)
            rows[i] = x
            rows[i, 0] = 1.0
        return rows

    assert agrees(linear, program, examples).calls <= 12


@in_native
def test_a_change_of_a_result_computes_only_this(linear, examples):
    with autobatch.batching() as run:
        others = [linear(each) for each in examples[1:]]
        hidden = linear(examples[0])
        before = hidden + 1
        hidden.fill_(2.0)
        assert run.calls == 1
        after = hidden + 1
        hidden.zero_()
        both = before + after
    torch.testing.assert_close(both, linear(examples[0]) + 4)
    assert len(others) == 5
    assert hidden.tolist() == [0.0] * 4


def test_tensors_made_inside_are_trained(examples):
    def trained(block):
        torch.manual_seed(3)
        with block:
            scale = torch.ones(4, dtype=torch.float64).requires_grad_()
            layer = torch.nn.Linear(4, 2, dtype=torch.float64)
            seen = scale[1] * 2
            loss = sum(layer(x * scale).square().sum() for x in examples) + seen
        loss.backward()
        optimizer = torch.optim.SGD([scale, *layer.parameters()], lr=0.1)
        optimizer.step()
        assert all(isinstance(each, torch.nn.Parameter) for each in layer.parameters())
        return [scale.grad, scale.detach(), layer.weight.grad, layer.bias.grad, layer.weight.detach()]

    alone = trained(contextlib.nullcontext())
    for one, other in zip(alone, trained(autobatch.batching())):
        torch.testing.assert_close(other, one, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_comparisons_of_numbers_that_are_known(dtype):
    def answers(x):
        total = x.sum() if dtype != torch.bool else x.any()
        float(total)
        found = []
        for other in (0.1, 1, -1.5, True, 2**40, float("nan")):
            for compare in ("lt", "le", "gt", "ge", "eq", "ne"):
                found.append(bool(getattr(total, f"__{compare}__")(other)))
                found.append(getattr(torch, compare)(total, other).item())
        answer = total > 0
        answer.logical_not_()
        return [*found, bool(answer), bool(total > 0)]

    examples = [
        torch.tensor([0.1]).to(dtype),
        torch.tensor([1.0, 0.0]).to(dtype),
        torch.tensor([-1.0]).to(dtype),
    ]
    alone = [answers(each) for each in examples]
    with autobatch.batching():
        assert [answers(each) for each in examples] == alone


def test_a_change_without_grad_keeps_the_gradient(linear, examples):
    def program(x):
        hidden = linear(x) * 1
        with torch.no_grad():
            hidden.zero_()
            hidden.add_(2)
        assert hidden.requires_grad
        return hidden * hidden

    agrees(linear, program, examples)


@in_native
def test_changes_of_numbers_run_together(linear, examples):
    def program(x):
        hidden = linear(x)
        hidden += x
        hidden.neg_().mul_(2)
        return torch.nn.functional.relu(hidden, inplace=True)

    run = agrees(linear, program, examples)
    assert run.calls == 5


@in_native
@pytest.mark.parametrize(
    "change",
    [
        lambda x: setattr(x, "data", torch.ones(4, dtype=torch.float64)),
        lambda x: x.resize_(2),
    ],
)
def test_other_memory_for_a_tensor_that_was_read_is_refused(linear, examples, change):
    read = examples[0].clone()
    with autobatch.batching():
        out = linear(read)
        with pytest.raises(StateError, match=r"gives a tensor .* other memory.*test_batching\.py:\d+"):
            change(read)
        with pytest.raises(StateError, match="other memory"):
            change(out)


def test_equal_results_of_examples_have_memory_of_their_own(linear, examples):
    with autobatch.batching():
        found = [(linear.weight * 2).detach() for _ in examples]
        ones = [linear.bias.detach().exp() for _ in examples]
    found[0].zero_()
    ones[0].zero_()
    assert found[1].abs().sum() > 0
    assert ones[1].abs().sum() > 0


@pytest.mark.parametrize("join", [torch.stack, torch.cat])
def test_joined_tensors_have_memory_of_their_own(examples, join):
    xs = [each.clone().requires_grad_() for each in examples]
    with torch.no_grad(), autobatch.batching():
        joined = [join([x]) for x in xs]
        xs[0].add_(1)
    assert not any(each.requires_grad for each in joined)
    torch.testing.assert_close(joined[0].flatten(), examples[0])
    joined[1].add_(1)
    torch.testing.assert_close(xs[1].detach(), examples[1])


def test_tensors_of_the_program_may_change(linear, examples):
    buffer = torch.zeros(4, dtype=torch.float64)

    def program(x):
        buffer.copy_(x)
        out = linear(buffer * 1)
        buffer.add_(1)
        return out + buffer

    agrees(linear, program, examples)


def test_writing_results_into_a_tensor(linear, examples):
    def program(x):
        out = torch.zeros(2, 4, dtype=torch.float64)
        out[0] = linear(x)
        out[1] = out[0] * 2
        return out

    agrees(linear, program, examples)


@pytest.mark.parametrize(
    "read",
    [
        lambda t: float(t.sum()) > 0,
        lambda t: bool(t.sum() > 0),
        lambda t: t.sum().item() > 0,
        lambda t: t.tolist()[0] > 0,
        lambda t: t.detach().numpy()[0] > 0,
        lambda t: np.asarray(t.detach())[0] > 0,
        lambda t: f"{t.sum():.3f}".startswith("-"),
        lambda t: str(t).startswith("tensor([-"),
        lambda t: int(t.argmax()) % 2 == 0,
        lambda t: 1.0 in (t > 0).double(),
        lambda t: torch.equal(t, t.abs()),
        lambda t: len(t[t > 0]) > 2,
        lambda t: t.nonzero().shape[0] > 2,
    ],
)
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_what_is_read_inside_is_right(linear, examples, read):
    def program(x):
        hidden = linear(x)
        return (torch.tanh(hidden) if read(hidden) else hidden * 3).sum()

    agrees(linear, program, examples)


@in_native
def test_a_read_computes_only_what_it_needs(linear, examples):
    with autobatch.batching() as run:
        others = [linear(each).tanh() for each in examples[1:]]
        float(linear(examples[0]).detach().sum())
        assert run.calls == 3
    assert run.calls == 5
    assert others[0].requires_grad
    assert list(run.explain().reads.values()) == [1]
    assert "test_batching.py" in str(run.explain())


class Straight(torch.autograd.Function):
    """The sign, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        return x.sign() + 0 * x

    @staticmethod
    def backward(ctx, grad):
        return grad * 7


straight = Straight.apply


def test_functions_with_their_own_gradient(linear, examples):
    agrees(linear, lambda x: straight(linear(x)) * 2, examples)
    agrees(linear, lambda x: Straight.apply(linear(x)) * linear(x), examples)


def test_a_hook_on_a_tensor(linear, examples):
    def program(x):
        hidden = linear(x)
        hidden.register_hook(lambda grad: grad * 3)
        return hidden.tanh()

    agrees(linear, program, examples)


def test_hooks_run_in_order(linear, examples):
    def program(x):
        hidden = linear(x)
        hidden.register_hook(lambda grad: grad * 2)
        hidden.register_hook(lambda grad: grad + 1)
        return hidden.tanh()

    agrees(linear, program, examples)


def test_a_hook_after_a_change_sees_all_gradients(linear, examples):
    def program(x):
        hidden = linear(x) * 1
        hidden.requires_grad_()
        used = hidden * 2
        hidden.register_hook(lambda grad: grad * 3)
        return used + hidden

    agrees(linear, program, examples)


@in_native
def test_hooks_that_come_too_late_are_refused(linear, examples):
    with autobatch.batching():
        hidden = linear(examples[0])
        hidden.tanh()
        with pytest.raises(StateError, match="register_hook comes after calls"):
            hidden.register_hook(print)
        with pytest.raises(StateError, match="use register_hook"):
            (hidden * 2).retain_grad()


def test_the_grad_mode_belongs_to_the_call(linear, examples):
    def program(x):
        with torch.no_grad():
            scale = linear(x).sigmoid()
            with torch.enable_grad():
                bias = linear(x * 2)
        assert (scale.requires_grad, bias.requires_grad) == (False, True)
        return linear(x) * scale + bias + linear(x).detach()

    agrees(linear, program, examples)


def test_autocast_belongs_to_the_call(examples):
    module = torch.nn.Linear(4, 4)

    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = module(x)
        return low.float() + module(x)

    run = autobatch.map(program, [each.float() for each in examples])
    for one, x in zip(run, examples):
        torch.testing.assert_close(one, program(x.float()), rtol=1e-2, atol=1e-2)


def test_dropout_has_a_mask_for_each_example():
    ones = [torch.ones(50) for _ in range(4)]
    with autobatch.batching():
        outs = [torch.nn.functional.dropout(each, 0.5) for each in ones]
        shared = [torch.nn.functional.dropout(ones[0], 0.5) for _ in range(4)]
    for masks in (outs, shared):
        assert all(set(each.tolist()) == {0.0, 2.0} for each in masks)
        assert len({tuple(each.tolist()) for each in masks}) == 4


def test_statistics_of_batch_norm_are_those_of_the_loop():
    torch.manual_seed(3)
    data = [torch.randn(5, 3) for _ in range(4)]
    norm, other = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    alone = [norm(each) for each in data]
    with autobatch.batching():
        together = [other(each) for each in data]
    for a, b in zip(alone, together):
        torch.testing.assert_close(b, a)
    torch.testing.assert_close(other.running_var, norm.running_var)
    assert int(other.num_batches_tracked) == 4


def batch_norm_with_statistics_made_inside(data):
    norm = torch.nn.functional.batch_norm
    return [norm(each * 2, torch.zeros(3), torch.ones(3), training=True) for each in data] + [torch.zeros(3)]


def statistics_read_before_a_batch_norm(data):
    norm = torch.nn.BatchNorm1d(3)
    norm.num_batches_tracked = None
    doubled = [each * 2 for each in data]
    before = norm.running_mean + 1
    return [before, *(norm(each) for each in doubled), norm.running_var * 1]


def weights_read_before_they_are_limited(data):
    weight = torch.full((5, 3), 3.0)
    before = weight * 1
    return [before, *(torch.nn.functional.embedding(each.argmax(1), weight, max_norm=1.0) for each in data)]


def a_result_in_memory_of_another_size(data):
    out = torch.empty(0)
    before = out + 1
    torch.add(data[0] * 2, data[1], out=out)
    return [before, out * 2]


def filled_by_values(data):
    doubled = [each * 2 for each in data]
    filled = [torch.full_like(each, each.sum()) for each in doubled] + [
        each.new_full((2,), each[0, 0]) for each in doubled
    ]
    return filled + [each.new_tensor([each[0, 1].item(), 2.0]) for each in doubled]


def other_views_of_their_own_memory(data):
    doubled = [each * 2 for each in data]
    rows, flat = [each[1:] for each in doubled], [each.view(-1) for each in doubled]
    for each in doubled:
        each.t_().unsqueeze_(0)
    sums = [each.sum(1) for each in doubled]
    for each in flat:
        each.mul_(3)
    return [*doubled, *sums, *rows, *flat]


def a_view_of_a_tensor_of_the_program_before_it_is_transposed(data):
    tensor = data[0].clone()
    view = tensor[1:]
    tensor.t_()
    return [tensor * 1, view * 1]


def views_with_a_gradient_of_their_own(data):
    doubled = [each * 2 for each in data]
    views = [each.view(each.shape).requires_grad_() for each in doubled]
    sum((each * view).sum() for each, view in zip(doubled, views)).backward()
    assert not any(each.requires_grad for each in doubled)
    return [view.grad for view in views]


def conjugated(data):
    turned = [torch.complex(each, -each).conj() for each in data]
    return [torch.view_as_real(each.resolve_conj()) for each in turned] + [each.imag * 1 for each in turned]


@pytest.mark.parametrize(
    "program",
    [
        batch_norm_with_statistics_made_inside,
        statistics_read_before_a_batch_norm,
        weights_read_before_they_are_limited,
        a_result_in_memory_of_another_size,
        filled_by_values,
        other_views_of_their_own_memory,
        a_view_of_a_tensor_of_the_program_before_it_is_transposed,
        views_with_a_gradient_of_their_own,
        conjugated,
    ],
)
def test_changes_of_other_tensors_and_of_shapes(program):
    torch.manual_seed(3)
    data = [torch.randn(5, 3) for _ in range(4)]
    alone = program(data)
    with autobatch.batching():
        together = program(data)
    for a, b in zip(alone, together, strict=True):
        torch.testing.assert_close(b, a)


def test_calls_that_return_their_operand(examples):
    with autobatch.batching():
        doubled = [each * 2 for each in examples]
        assert all(each.contiguous() is each for each in doubled)
        assert not any(each.view(4) is each for each in doubled)
        assert examples[0].contiguous() is examples[0]


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_tensors_run_immediately(examples):
    quantized = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 0, torch.quint8)
    with autobatch.batching():
        sums = [quantized.dequantize() + each for each in examples]
    for each, found in zip(examples, sums):
        torch.testing.assert_close(found, torch.arange(4.0) + each)


def test_training_steps_inside_a_block(linear, examples):
    other = copy.deepcopy(linear)

    def train(module):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for x in examples:
            optimizer.zero_grad()
            module(x).square().sum().backward()
            optimizer.step()

    train(linear)
    with autobatch.batching():
        train(other)
    torch.testing.assert_close(other.weight, linear.weight)


def test_double_backward(linear, examples):
    def penalty(run):
        with run:
            outs = [linear(x).tanh().sum() for x in examples]
            loss = torch.stack(outs).sum()
        (grad,) = torch.autograd.grad(loss, linear.weight, create_graph=True)
        linear.weight.grad = None
        grad.square().sum().backward()
        return linear.weight.grad.clone()

    torch.testing.assert_close(penalty(autobatch.batching()), penalty(contextlib.nullcontext()))


def test_gathered_rows_have_second_derivatives(linear, examples):
    def program(x):
        first, second = linear(x), linear(x * 2)
        for _ in range(int(x[0] > 0)):
            first = first + linear(first).tanh()
        return (first * second).tanh()

    def penalty(block):
        with block:
            loss = torch.stack([program(x) for x in examples]).sum()
        (grad,) = torch.autograd.grad(loss, linear.weight, create_graph=True)
        linear.weight.grad = None
        grad.square().sum().backward()
        return linear.weight.grad.clone()

    torch.testing.assert_close(penalty(autobatch.batching()), penalty(contextlib.nullcontext()))


def test_a_second_backward_pass(linear, examples):
    with autobatch.batching():
        loss = torch.stack([linear(x).sum() for x in examples]).sum()
    loss.backward(retain_graph=True)
    once = linear.weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(linear.weight.grad, 2 * once)


def test_torch_func_inside(linear, examples):
    weights = {name: each.detach() for name, each in linear.named_parameters()}

    def loss(weights, x):
        return torch.func.functional_call(linear, weights, (x,)).square().sum()

    def program(x):
        return torch.func.grad(loss)(weights, x)["weight"] + linear(x)

    agrees(linear, program, examples)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize(
    "transform",
    [
        lambda linear, h: torch.func.grad(lambda v: (v * h).sum())(h),
        lambda linear, h: torch.func.grad_and_value(lambda v: linear(v).sum())(h)[1],
        lambda linear, h: torch.func.vmap(lambda v: v * 2)(torch.stack([h, linear(h)])).sum(0),
        lambda linear, h: torch.func.vmap(lambda w: w @ h)(torch.stack([linear.weight, linear.weight])).sum(
            0
        ),
        lambda linear, h: torch.func.vjp(lambda v: v.tanh() * h, h)[0],
        lambda linear, h: torch.func.jvp(lambda v: (h * 2) * v, (h,), (h.detach() + 1,))[1],
        lambda linear, h: torch.func.jacrev(lambda v: v.sin())(h).sum(0),
        lambda linear, h: torch.func.jacfwd(lambda v: v.sin() * h)(h).sum(0),
        lambda linear, h: torch.func.hessian(lambda v: (v**3).sum())(h).sum(0),
    ],
)
def test_transformations_of_values(linear, examples, transform):
    agrees(linear, lambda x: transform(linear, linear(x)) + linear(x).tanh(), examples)


def test_errors_are_those_of_torch_at_the_line_of_the_program(linear, examples):
    with pytest.raises(RuntimeError, match="size") as alone:
        linear(examples[0]) + torch.ones(3)
    with pytest.raises(RuntimeError, match="size") as caught, autobatch.batching():
        linear(examples[0]) + torch.ones(3)
    assert str(caught.value) == str(alone.value)


@in_native
def test_values_of_an_interrupted_block_are_refused(linear, examples):
    outs = []

    def interrupted():
        with autobatch.batching():
            outs.append(linear(examples[0]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    (out,) = outs
    for use in (lambda: out + 1, lambda: print(out), lambda: torch.tanh(out), lambda: out.shape):
        with pytest.raises(StateError, match="was interrupted"):
            use()


@in_native
def test_other_threads_are_refused(linear, examples):
    errors = []

    def use(out):
        for call in (lambda: out + 1, lambda: torch.tanh(out), lambda: float(out.sum())):
            try:
                call()
            except StateError as error:
                errors.append(str(error))

    with autobatch.batching():
        out = linear(examples[0])
        thread = threading.Thread(target=use, args=(out,))
        thread.start()
        thread.join()
    assert len(errors) == 3
    assert all("thread" in each for each in errors)


def test_a_block_ends_in_its_thread(linear, examples):
    caught = []

    def end():
        try:
            run.__exit__(None, None, None)
        except StateError as error:
            caught.append(str(error))

    with autobatch.batching() as run:
        out = linear(examples[0])
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
    assert "in the thread that started it" in caught[0]
    torch.testing.assert_close(out, linear(examples[0]))


def test_blocks_do_not_nest(linear):
    with autobatch.batching(), pytest.raises(StateError, match="open already"), autobatch.batching():
        pass
    run = autobatch.batching()
    with run:
        pass
    with pytest.raises(StateError, match="has ended"), run:
        pass


def test_threads_may_record_separately(linear, examples):
    found, compiled = {}, torch.compile(lambda x: x + 1, backend="eager")
    compiled(examples[0])  # now blocks have torch.compile to switch off

    def work(name):
        found[name] = autobatch.map(lambda x: linear(x).tanh(), examples)

    threads = [threading.Thread(target=work, args=(each,)) for each in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert gc.isenabled()
    assert torch._dynamo.eval_frame._stance.stance == "default"
    for outs in found.values():
        for out, x in zip(outs, examples):
            torch.testing.assert_close(out, linear(x).tanh())


def test_threads_meet_new_shapes_at_the_same_time():
    start, wrong, ended = threading.Barrier(4), [], []

    def work(width):
        start.wait()
        for rows in range(1, 40):
            data = [torch.full((rows, width, 3 + i % 3), float(i)) for i in range(4)]
            with autobatch.batching():
                sums = [(each * 2).sum(0) + rows for each in data]
            for each, found in zip(data, sums):
                if not torch.equal(found, (each * 2).sum(0) + rows):
                    wrong.append(tuple(each.shape))
        ended.append(width)

    threads = [threading.Thread(target=work, args=(41 + i,)) for i in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong
    assert len(ended) == 4


# map


async def decode(linear, x, steps):
    states = []
    for _ in range(steps):
        x = torch.tanh(linear(x))
        states.append(int(await x.argmax()))
        if states[-1] == 3:
            break
    return states, x


def test_asynchronous_programs_have_company(linear, examples):
    steps = [3, 5, 1, 4, 7, 2]
    found = autobatch.map(lambda x, n: decode(linear, x, n), examples, steps)
    for (states, x), example, count in zip(found, examples, steps):
        (alone,) = autobatch.map(lambda x, n: decode(linear, x, n), [example], [count])
        assert alone[0] == states
        torch.testing.assert_close(x, alone[1])


@in_native
def test_waiting_programs_share_calls(linear, examples):
    async def program(x):
        return float((await linear(x).sum()).detach())

    with autobatch.batching() as run:
        autobatch.map(program, examples)
    assert run.calls == 2


def test_gather_inside_a_program_and_inside_another_loop(linear, examples):
    async def part(x):
        return float((await linear(x).sum()).detach())

    async def program(x):
        return await asyncio.gather(part(x), part(2 * x))

    async def notebook():
        return autobatch.map(program, examples)

    expected = [[float(linear(k * x).sum().detach()) for k in (1, 2)] for x in examples]
    np.testing.assert_allclose(autobatch.map(program, examples), expected)
    np.testing.assert_allclose(asyncio.run(notebook()), expected)
    np.testing.assert_allclose(autobatch.map(program, examples[:1]), expected[:1])


async def in_modes(linear, x, awaits):
    """Waits inside blocks of modes, which other programs must not see."""
    with torch.no_grad():
        first = float(await linear(x).sum())
        frozen = linear(x)
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(awaits):
            await linear(x.float().double()).sum().detach()
        assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")
    return linear(x) * first + frozen


def test_modes_belong_to_the_programs_that_wait(linear, examples):
    counts = [0, 2, 1, 3, 0, 1]
    alone = gradients(
        list(linear.parameters()),
        lambda: [autobatch.map(in_modes, [linear], [x], [n])[0] for x, n in zip(examples, counts)],
    )
    together = gradients(
        list(linear.parameters()),
        lambda: autobatch.map(lambda x, n: in_modes(linear, x, n), examples, counts),
    )
    for one, other in zip(alone, together):
        for a, b in zip(one, other):
            torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-10)
    assert torch.is_grad_enabled()


def test_blocks_after_one_in_inference_mode_have_gradients():
    layer, examples = torch.nn.Linear(37, 3), torch.randn(4, 37).unbind()  # a size that no other test uses
    found = []
    for mode in (True, False):
        with torch.inference_mode(mode), autobatch.batching():
            outputs = [layer(x).tanh().sum() for x in examples]
            found.append(sum(outputs[1:], outputs[0]) * 1.0)
    found[1].backward()
    assert found[0].item() == found[1].item()
    assert layer.weight.grad.abs().sum() > 0


@in_native
def test_waiting_in_inference_mode_is_refused(linear, examples):
    async def program(x):
        with torch.inference_mode():
            await linear(x).sum()

    with pytest.raises(StateError, match=r"inference_mode, which all programs share; use torch\.no_grad"):
        autobatch.map(program, examples)
    assert not torch.is_inference_mode_enabled()


def test_modes_are_those_of_the_caller_after_an_error(linear, examples):
    async def program(x):
        with torch.no_grad():
            await linear(x).sum()
            raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        autobatch.map(program, examples)
    assert torch.is_grad_enabled()


def test_programs_that_wait_for_something_else_are_refused(examples):
    async def sleeps(x):
        await asyncio.sleep(0.01)

    async def forever(x):
        await asyncio.get_running_loop().create_future()

    for program in (sleeps, forever):
        with pytest.raises(StateError, match="may wait for tensors and for other coroutines only"):
            autobatch.map(program, examples)


def test_the_error_of_a_program_is_raised(linear, examples):
    ended = []

    async def program(x):
        try:
            await linear(x).sum()
            if x is examples[2]:
                raise KeyError("third")
            await linear(x).sum()
        finally:
            ended.append(x)

    with pytest.raises(KeyError, match="third"):
        autobatch.map(program, examples)
    assert len(ended) == len(examples)
    with autobatch.batching():  # nothing is left open
        pass


def test_map_takes_several_lists_and_no_example(linear, examples):
    outs = autobatch.map(lambda x, y: linear(x) + y, examples, examples[::-1])
    torch.testing.assert_close(outs[1], linear(examples[1]) + examples[-2])
    assert autobatch.map(linear, []) == []
    with pytest.raises(autobatch.ForeignValueError, match="map: program"):
        autobatch.map(3, examples)


def test_star_import_keeps_pythons_map():
    names = {}
    exec("from dpmodule.autobatch import *", names)
    assert [name in names for name in ("map", "batching", "Model")] == [False, False, True]


@in_native
def test_blocks_without_company_are_seldom_recorded(linear, examples, monkeypatch):
    monkeypatch.setattr(batching, "BLOCKS_BETWEEN_TRIALS", 2 / 7)
    runs = []
    for _ in range(4):
        with autobatch.batching() as run:
            kept = linear(examples[0]).tanh()
        runs.append(run)
        assert kept.requires_grad
    assert [each.recorded for each in runs] == [2, 0, 0, 2]
    assert "too few equal operations" in str(runs[1].explain())


@in_native
def test_memory_is_released(linear, examples):
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("needs /proc")

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    big = [torch.randn(1000, 100) for _ in range(8)]
    weight = torch.randn(100, 100, requires_grad=True)

    def step():
        with autobatch.batching():
            loss = torch.stack([(x @ weight).tanh().sum() for x in big]).sum()
        loss.backward()

    for _ in range(3):
        step()
    before = resident()
    for _ in range(20):
        step()
    assert resident() - before < 64e6


def test_each_example_may_have_its_own_weights(examples):
    torch.manual_seed(5)
    module = torch.nn.Linear(4, 12).double()

    def program(x):
        weights = module(x).view(3, 4)
        return torch.nn.functional.linear(torch.outer(x[: 1 + int(x[0] > 0)], x), weights)

    agrees(module, program, examples)
