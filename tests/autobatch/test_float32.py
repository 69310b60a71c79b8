"""Gradients in float32 of every operation, on the native engine where there is one.

They are held to finite differences of the value that the Python engine computes in float64, one example at a time.
"""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule.autobatch.ops import spec
from helpers.autobatch_cases import BATCHED, CASES, total, values
from helpers.described import described_cases
from helpers.walk import walks

MORE = {
    "identity": (("a",), lambda dy, x: dy.to_device(x, "CPU")),
    "number_divided": (("pos",), lambda dy, x: 2.0 / x),
    "number_power": (("a",), lambda dy, x: 2.0**x),
}
ALL = {**CASES, **BATCHED, **MORE, **described_cases()}
# operations whose gradient is not that of their value: what it is the gradient of
STANDS_FOR = {
    **dict.fromkeys(["nobackprop", "round", "ceil", "argmax"], lambda dy, x: x * 0.0),
    **dict.fromkeys(["round_straight", "floor_straight", "argmax_straight"], lambda dy, x: x * 1.0),
    "flip_gradient": lambda dy, x: -x,
    "scale_gradient": lambda dy, x: x * 0.5,
}
# what draws numbers (test_random_operations.py); what has no operands: gradients arrive there; steps of LSTMs (below);
# what the Python engine makes of several products
ELSEWHERE = {
    "block_dropout", "dropout", "dropout_batch", "dropout_dim", "noise", "noisy_lstm_gates", "random",
    "const_lookup", "const_lookup_batch", "constant", "lookup", "lookup_batch", "one_hot", "parameter",
    "extra", "lstm_first", "lstm_step", "products",
}  # fmt: skip
COUNT, STEP = 3, 1e-6


@pytest.fixture(autouse=True)
def _back():
    yield
    dy.configure(autobatch=False, dtype="float32", engine="auto")


def variants_of(name):
    if name in BATCHED:
        return ["batch"]
    return ["single", "batch", *(["mixed", "mixed, the last one"] if len(ALL[name][0]) > 1 else [])]


def arrays_of(name, variant, seed):
    """Return the values of the operands; those with a minibatch have one axis more."""
    single, batch = values(0, seed), values(3, seed + 100)
    operands = ALL[name][0]
    has_batch = {
        "single": range(0),
        "batch": range(len(operands)),
        "mixed": range(1),
        "mixed, the last one": range(len(operands) - 1, len(operands)),
    }[variant]
    return [
        (batch if place in has_batch else single)[operand].astype(np.float32).astype(np.float64)
        for place, operand in enumerate(operands)
    ]


def make(collection, arrays, name, is_parameter):
    """Return operands: parameters, but for those with a minibatch."""
    ranks = [values()[operand].ndim for operand in ALL[name][0]]
    return [
        collection.parameters_from_numpy(array)
        if is_parameter and array.ndim == rank
        else dy.inputTensor(array, batched=array.ndim > rank)
        for array, rank in zip(arrays, ranks)
    ]


def loss_of(function, xs, number):
    """Return one number for example `number`; the examples weigh the elements differently."""
    return total(dy, function(dy, *xs), np.roll(np.linspace(-1, 1, 11), 3 * number))


def slopes(value, arrays, places):
    """Return the finite differences of ``value(arrays)``, in float64, for the array and element of each place."""
    dy.configure(dtype="float64", autobatch=False, engine="python")
    found = []
    for operand, element in places:
        ends = []
        for sign in (1, -1):
            moved = [array.copy() for array in arrays]
            moved[operand].flat[element] += sign * STEP
            dy.renew_cg()
            ends.append(value(moved))
        found.append((ends[0] - ends[1]) / (2 * STEP))
    return found


def value_of(name, numbers):
    """Return the function from operands' values to the sum of some examples' losses."""
    function = STANDS_FOR.get(name, ALL[name][1])

    def value(arrays):
        xs = make(None, arrays, name, False)
        return sum(loss_of(function, xs, number).scalar_value() for number in numbers)

    return value


def gradient_of(x):
    return x.grad_as_array() if isinstance(x, dy.Parameters) else x.gradient()


def check(xs, places, wanted):
    largest = max(map(abs, wanted))
    for (operand, element), slope in zip(places, wanted):
        found = float(gradient_of(xs[operand]).flat[element])
        assert found == pytest.approx(slope, rel=0, abs=1e-4 * largest + 1e-6), f"{operand}, {element}"


def some_places(arrays, most=2):
    draw = np.random.RandomState(0)
    return [
        (operand, int(element))
        for operand, array in enumerate(arrays)
        for element in draw.choice(array.size, min(most, array.size), replace=False)
    ]


@walks([(n, v) for n in ALL for v in variants_of(n)], family=lambda name, variant: variant)
def test_parameters_that_all_examples_use(name, variant):
    arrays = arrays_of(name, variant, 1)
    places = some_places(arrays)
    wanted = slopes(value_of(name, range(COUNT)), arrays, places)
    for autobatch in (False, True):
        dy.configure(dtype="float32", autobatch=autobatch, engine="auto")
        xs = make(dy.ParameterCollection(), arrays, name, True)
        dy.esum([loss_of(ALL[name][1], xs, number) for number in range(COUNT)]).backward(full=True)
        check(xs, places, wanted)


@walks([(n, v) for n in ALL for v in variants_of(n)], family=lambda name, variant: variant)
def test_operands_of_each_example(name, variant):
    examples = [arrays_of(name, variant, 3 + number) for number in range(COUNT)]
    places = some_places(examples[0])
    wanted = [slopes(value_of(name, [number]), arrays, places) for number, arrays in enumerate(examples)]
    for autobatch in (False, True):
        dy.configure(dtype="float32", autobatch=autobatch, engine="auto")
        rows = [make(None, arrays, name, False) for arrays in examples]
        dy.esum([loss_of(ALL[name][1], xs, number) for number, xs in enumerate(rows)]).backward(full=True)
        for xs, each in zip(rows, wanted):
            check(xs, places, each)


@pytest.mark.parametrize("is_batched", [False, True])
def test_steps_of_an_lstm(is_batched):
    """The first step, the second one, and one that begins with given states: for inputs, states and weights."""
    draw = np.random.RandomState(5)
    shapes = [*[(2,)] * COUNT, (3,), (3,)]
    arrays = [draw.uniform(-1, 1, (*d, 2) if is_batched else d) for d in shapes]
    arrays += [draw.uniform(-1, 1, d) for d in ((12, 2), (12, 3), (12,))]
    arrays = [array.astype(np.float32).astype(np.float64) for array in arrays]

    def run(arrays):
        collection = dy.ParameterCollection()
        builder = dy.VanillaLSTMBuilder(1, 2, 3, collection)
        weights = collection.parameters_list()
        for weight, array in zip(weights, arrays[5:]):
            weight.set_value(array)
        *inputs, h, c = (dy.inputTensor(array, batched=is_batched) for array in arrays[:5])
        states = [builder.initial_state([c, h]).add_input(inputs[0])]
        for x in inputs:
            first = builder.initial_state().add_input(x)
            states += [first, first.add_input(inputs[1])]
        losses = [
            total(dy, dy.concatenate([*state.h(), *state.s()]), np.roll(np.linspace(-1, 1, 11), number))
            for number, state in enumerate(states)
        ]
        return [*inputs, h, c, *weights], dy.esum(losses)

    places = some_places(arrays)
    wanted = slopes(lambda moved: run(moved)[1].scalar_value(), arrays, places)
    for autobatch in (False, True):
        dy.configure(dtype="float32", autobatch=autobatch, engine="auto")
        xs, loss = run(arrays)
        loss.backward(full=True)
        check(xs, places, wanted)


def test_no_operation_is_left_out():
    dy.configure(dtype="float64", autobatch=False, engine="python")
    met = set()
    for name, (_, function) in ALL.items():
        dy.renew_cg()
        xs = make(None, arrays_of(name, variants_of(name)[0], 1), name, False)
        loss_of(function, xs, 0).value()
        met |= {step.kind.op.name for plan in dy.cg().plans() for step in plan.steps}
    assert set(spec.names()) - met == ELSEWHERE


def test_which_operations_run_in_torch():
    """All but sources, which the engine has itself, and steps of LSTMs, which come as one node, have kernels."""
    without = {
        "logdet", "noisy_lstm_gates", "vanilla_lstm_gates", "vanilla_lstm_c", "vanilla_lstm_h",
        "lstm_first", "lstm_step", "products", "extra",
        "input", "constant", "one_hot", "parameter", "random",
        "lookup", "lookup_batch", "const_lookup", "const_lookup_batch",
    }  # fmt: skip
    assert {name for name in spec.names() if spec.find(name).kernel is None} == without
