"""Every operation: as DyNet computed it, finite differences, and examples of all kinds in one graph on each engine."""

import os
from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule.autobatch.ops import spec
from helpers.autobatch_cases import BATCHED, CASES, total, values
from helpers.both_engines import DESCRIBED, distances, on_both
from helpers.walk import walks

FOUND = np.load(os.path.join(os.path.dirname(__file__), "..", "data", "autobatch", "operations.npz"))
MORE = {
    "identity": (("a",), lambda dy, x: dy.to_device(x, "CPU")),
    "number_divided": (("pos",), lambda dy, x: 2.0 / x),
    "number_power": (("a",), lambda dy, x: 2.0**x),
}
NEW = [name for name in DESCRIBED if name not in CASES]
ALL = {
    **{name: (("a",), lambda dy, x, name=name: getattr(dy, name)(x)) for name in NEW},
    **{**CASES, **BATCHED, **MORE},
}
WAYS = ["single", "batch", "mixed", "last"]
VARIANTS = [
    (name, variant)
    for name, (operands, _) in ALL.items()
    for variant in (["batch"] if name in BATCHED else WAYS[: 2 * min(len(operands), 2)])
]
# operations whose gradient is not that of their value: what it is the gradient of
STANDS_FOR = {
    **dict.fromkeys(["nobackprop", "round", "ceil", "argmax"], lambda dy, x: x * 0.0),
    **dict.fromkeys(["round_straight", "floor_straight", "argmax_straight"], lambda dy, x: x * 1.0),
    **{"flip_gradient": lambda dy, x: -x, "scale_gradient": lambda dy, x: x * 0.5},
}
# what DyNet 2.1 gets wrong (finite differences below agree with us)
WRONG_VALUES = {
    *("conv2d/batch", "conv2d_same/batch", "conv2d_bias/batch"),  # of one element of the minibatch for all
    *("filter1d_narrow/batch", "filter1d_narrow/mixed", "fold_rows/batch", "vanilla_lstm_gates/batch"),
}
WRONG_GRADIENTS = {
    *("average/mixed", "average_many/mixed"),  # counts a broadcast operand's gradient once only
    *("binary_log_loss/single", "poisson_loss/single"),  # of the second operand; of the wrong sign
    *("silu_beta/single", "silu_beta/batch"),  # holds for beta = 1 only
    *("round_straight/single", "round_straight/batch", "floor_straight/single", "floor_straight/batch"),
}


def operands(name, variant, shift=None, dtype=np.float64):
    """Return parameters and, where the variant has them, minibatches; one number moved by `shift`."""
    single, batch = values(seed=1), values(3, seed=2)
    names, m, found = ALL[name][0], dy.ParameterCollection(), []
    has_batch = {"single": (), "mixed": (0,), "last": (len(names) - 1,)}.get(variant, range(len(names)))
    for place, each in enumerate(names):
        array = (batch if place in has_batch else single)[each].copy()
        if shift is not None and shift[0] == place:
            array.flat[shift[1]] += shift[2]
        array, is_batch = array.astype(dtype), place in has_batch
        found.append(dy.inputTensor(array, batched=True) if is_batch else m.parameters_from_numpy(array))
    return found


def loss_of(name, variant, shift=None, dtype=np.float64):
    dy.renew_cg()
    given = operands(name, variant, shift, dtype)
    function = ALL[name][1] if shift is None else STANDS_FOR.get(name, ALL[name][1])
    y = function(dy, *given)
    return given, y, total(dy, y, np.linspace(-1, 1, 11))


def gradient_of(x):
    return x.grad_as_array() if isinstance(x, dy.Parameters) else x.gradient()


@walks(sorted({key.rsplit("/", 1)[0] for key in FOUND} - WRONG_VALUES))
def test_as_dynet(variant, setting):
    given, y, loss = loss_of(*variant.split("/"), dtype=np.float32)
    np.testing.assert_allclose(y.npvalue(), FOUND[f"{variant}/0"], rtol=2e-5, atol=2e-5)
    loss.backward(full=True)
    for place, x in enumerate(given if variant not in WRONG_GRADIENTS else ()):
        wanted = FOUND[f"{variant}/{place + 1}"]
        np.testing.assert_allclose(gradient_of(x), wanted, rtol=2e-4, atol=5e-5, err_msg=f"operand {place}")


@walks(VARIANTS, family=lambda name, variant: variant)
def test_finite_differences(name, variant):
    dy.configure(dtype="float64", autobatch=True)
    given, _, loss = loss_of(name, variant)
    loss.backward(full=True)
    gradients, step, draw = [gradient_of(x) for x in given], 1e-5, np.random.RandomState(0)
    for place, gradient in enumerate(gradients):
        for at in draw.choice(gradient.size, min(3, gradient.size), replace=False):
            ends = [loss_of(name, variant, (place, at, sign * step))[2].scalar_value() for sign in (1, -1)]
            slope = (ends[0] - ends[1]) / (2 * step)
            assert gradient.flat[at] == pytest.approx(slope, rel=2e-3, abs=1e-6), (place, at)


EXAMPLES, ROWS = 5, 4
AFTER = [lambda y: y, dy.tanh, lambda y: y * 0.5, dy.logistic]


class Operands:
    """Draws where the operands of an operation come from; the same ones from the same seed."""

    def __init__(self, names, seed):
        self.draw = np.random.RandomState(seed)
        shared, rows, self.collection = values(0, seed + 1), values(ROWS, seed + 2), dy.ParameterCollection()
        add, add_table = self.collection.parameters_from_numpy, self.collection.lookup_parameters_from_numpy
        self.parameters = {name: add(shared[name].astype("f4")) for name in names}
        self.tables = {name: add_table(np.moveaxis(rows[name], -1, 0).astype("f4")) for name in names}
        self.inputs = []

    def one(self, name, size):
        """Return an operand, with a minibatch of `size` or without."""
        kind = self.draw.randint(5)
        if kind == 0:
            return self.parameters[name] + 0.0 if self.draw.randint(2) else self.parameters[name]
        if kind == 1:
            return self.tables[name][int(self.draw.randint(ROWS))]
        if kind == 2:
            return dy.lookup_batch(self.tables[name], self.draw.randint(0, ROWS, size).tolist())
        batch = size if kind == 3 else 0
        array = values(batch, int(self.draw.randint(1000)))[name].astype("f4")
        self.inputs.append(dy.inputTensor(array, batched=batch > 0))
        return self.inputs[-1]


def run(name, seed, dtype, engine, autobatch):
    """Return the values, and gradients of all that has one; nothing where operands do not go together."""
    dy.configure(dtype=dtype, autobatch=autobatch, engine=engine)
    names, function = ALL[name]
    drawn, found, losses = Operands(names, seed), [], []
    for number in range(EXAMPLES):
        size = 3 if name in BATCHED else int(drawn.draw.choice([1, 2, 3, 8]))
        xs, after = [drawn.one(each, size) for each in names], AFTER[drawn.draw.randint(len(AFTER))]
        try:
            found.append(function(dy, *xs))
        except (dy.ShapeError, dy.BoundsError):
            found.append(np.zeros(0))
            continue
        losses.append(total(dy, after(found[-1]), np.roll(np.linspace(-1, 1, 11), 3 * number)))
    if losses:
        dy.esum(losses).backward(full=True)
    found = [y if isinstance(y, np.ndarray) else y.npvalue() for y in found]
    found += [x.gradient() for x in drawn.inputs if losses]
    return found + [each.grad_as_array() for each in (*drawn.parameters.values(), *drawn.tables.values())]


def compare(name, seed):
    """Return False, without comparing, where the gradient jumps, as that of the deviation of equal numbers does."""
    wanted = run(name, seed, "float64", "python", False)
    rounding = distances(run(name, seed, "float32", "python", False), wanted)
    if rounding.max() >= 1e-3:
        return False
    assert distances(run(name, seed, "float64", "python", True), wanted).max() < 1e-12
    for manner in (("python", True), ("auto", False), ("auto", True)):
        far = distances(run(name, seed, "float32", *manner), wanted)
        assert (far <= 1e-5 + 4 * rounding).all(), f"{name}, seed {seed}, {manner}: {far}, {rounding}"
    return True


@walks(ALL, family=lambda name: f"{len(ALL[name][0])} operands")
def test_examples_of_all_kinds_in_one_graph(name):
    """Each example has a minibatch of its own size; each operand has it or not, is its own, a parameter or a row."""
    assert compare(name, 0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ALL)
def test_many_examples_of_all_kinds_in_one_graph(name):
    assert sum(compare(name, 7000 + seed) for seed in range(60)) >= 54


def test_which_operations_run_in_torch():
    """All but sources, which the engine has itself, and steps of LSTMs, which come as one node, have kernels."""
    without = "logdet noisy_lstm_gates vanilla_lstm_gates vanilla_lstm_c vanilla_lstm_h lstm_first lstm_step"
    without += " products extra input constant one_hot parameter random lookup lookup_batch const_lookup"
    without += " const_lookup_batch"
    assert {name for name in spec.names() if spec.find(name).kernel is None} == set(without.split())


def uniform(seed, *shape):
    return np.random.RandomState(seed).uniform(-1, 1, shape)


@walks(product([False, True], [(1, 1), (2, 3), (9, 9)], [((3, 2), 3), ((1, 1), 1), ((2, 5), 17)], [1, 2, 4]))
def test_images_of_several_sizes(is_valid, stride, window, filters):
    (*sizes,), channels = window
    images = [uniform(k, *size, channels) for k, size in enumerate([(6, 7), (6, 7), (5, 9), (6, 7)])]

    def program():
        m = dy.ParameterCollection()
        f = [m.parameters_from_numpy(uniform(k, *sizes, channels, 4)) for k in range(2)]
        b = [m.parameters_from_numpy(uniform(k, 4)) for k in range(2)]
        xs, found = [dy.inputTensor(image) for image in images], []
        for k, x in enumerate(xs):  # one parameter, two, or values that each image has
            f_k = dy.tanh(f[0] * (1 + k)) if filters == 4 else f[k % filters]
            found += [dy.conv2d_bias(x, f_k, b[k % 2], stride, is_valid), dy.conv2d(x, f_k, stride, is_valid)]
            found.append(dy.maxpooling2d(x, sizes, stride, is_valid))
        dy.esum([dy.squared_norm(y) for y in found]).backward(full=True)
        return [*dy.npvalues(found), *[x.gradient() for x in xs], *[p.grad_as_array() for p in (*f, *b)]]

    _, alone, batched = on_both(program)
    if dy.explain().engine == "native":  # a value is the same batched and alone there, to the bit
        for one, other in zip(alone[:12], batched[:12]):
            np.testing.assert_array_equal(one, other)
