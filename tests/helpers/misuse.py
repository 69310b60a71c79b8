"""Wrong calls of every operation, drawn from right ones, as text: the same for both engines, and for DyNet.

A call is an expression of Python. In it stand ``X(3, 4)`` for an input of these dimensions, ``X(3, n=2)`` for one with
a minibatch of two, ``P(3, 4)`` for a parameter, ``T(5, 3)`` for a table of five rows, ``M()`` for a collection, ``S()``
for an expression of an earlier graph, ``R()`` for one that cg_revert has taken back. This file imports neither torch
nor dpmodule, so that DyNet's Python can run calls.
"""

import random
import re
import warnings

import numpy as np

_FIVE = "[X(3), X(3), X(3), X(3), X(3)]"
_LSTM = "dy.VanillaLSTMBuilder(1, 3, 2, M()).initial_state()"
_GATES = "X(12, 2), X(12, 3), X(12)"

# right calls of all operations but those of one expression that the package's own records describe
RIGHT = [
    "-X(3)", "2.0 ** X(3)", "2.0 / X(3)", "P(3)", "T(5, 3)[2]", "X(3) * 2.5", "X(3) + 1.5", "X(3) + X(3)",
    "X(3) - X(3)", "X(3)[1]", "X(3, 4) * X(4)", "X(3, 4) / X(1)", "X(4)[1:3]", "X(4, 4)[0:3:2, 1:3]",
    f"{_LSTM}.add_input(X(3)).output()", f"{_LSTM}.transduce([X(3), X(3)])[1]",
    "dy.affine_transform([P(3), P(3, 4), X(4), P(3, 2), X(2)])", "dy.affine_transform([X(3), X(3, 4), X(4)])",
    "dy.average([X(3), X(3), X(3)])", "dy.binary_log_loss(dy.logistic(X(3)), dy.logistic(X(3)))",
    "dy.block_dropout(X(3), 1.0)", "dy.bmax(X(3), X(3))", "dy.bmin(X(3), X(3))", "dy.cmult(X(3, 4), X(3))",
    "dy.colwise_add(X(3, 4), X(3))", f"dy.concatenate({_FIVE}, 0)", "dy.concatenate([X(3), X(4)])",
    "dy.concatenate([X(3, 4), X(3, 2)], 1)", "dy.concatenate_cols([X(3), X(3, 2)])",
    f"dy.concatenate_to_batch({_FIVE})", "dy.concatenate_to_batch([X(3), X(3)])", "dy.constant((3, 4), 1.5, 2)",
    "dy.constrained_softmax(X(3), dy.logistic(X(3)))", "dy.contract3d_1d(X(2, 3, 4), X(4))",
    "dy.contract3d_1d_1d(X(2, 3, 4), X(4), X(3))", "dy.contract3d_1d_1d_bias(X(2, 3, 4), X(4), X(3), X(2))",
    "dy.contract3d_1d_bias(X(2, 3, 4), X(4), X(2, 3))", "dy.conv2d(X(5, 4, 2), X(2, 3, 2, 3), [1, 2])",
    "dy.conv2d_bias(X(5, 4, 2), X(2, 3, 2, 3), X(3), [2, 1], False)", "dy.dropout(X(3), 0.5)",
    "dy.dropout_batch(X(3), 1.0)", "dy.dropout_dim(X(3, 4), 1, 1.0)", "dy.elu(X(3), 0.5)", f"dy.emax({_FIVE})",
    f"dy.esum({_FIVE})", "dy.esum([X(3), X(3), X(3)])", "dy.exp(X(3)) ** 1.5", "X(3) ** X(1)", "dy.parameter(P(3))",
    "dy.filter1d_narrow(X(3, 5), X(3, 2, 4))", "dy.flip_gradient(X(3))", "dy.fold_rows(X(4, 3), 2)",
    "dy.hinge(X(3), 1)", "dy.hinge(X(3), 1, 0.5)", "dy.hinge_batch(X(3, n=2), [1, 0])",
    "dy.hinge_batch(X(3, n=2), [1, 0], 0.5)", "dy.hinge_dim(X(3, 4), [0, 1, 2, 0], 0, 1.0)",
    "dy.huber_distance(X(3), X(3), 0.7)", "dy.inputMatrix([1.0, 2.0, 3.0, 4.0], (2, 2))",
    "dy.inputTensor(np.ones((3, 2)), batched=True)", "dy.inputVector([1.0, 2.0])", "dy.inverse(X(3, 3))",
    "dy.kmax_pooling(X(3, 4), 2, 1)", "dy.kmh_ngram(X(3, 4), 2)", "dy.layer_norm(X(3), X(3), X(3))",
    "dy.log_softmax(X(3))", "dy.log_softmax(X(4), [1, 2])", "dy.logdet(X(3, 3))", "dy.logsumexp([X(3), X(3), X(3)])",
    "dy.lookup(T(5, 3), 2)", "dy.lookup(T(5, 3), 2, False)", "dy.lookup_batch(T(5, 3), [2, 1])",
    "dy.lookup_batch(T(5, 3), [2, 1], False)", "dy.matInput(3, 4)", "dy.maxpooling2d(X(5, 4, 2), [2, 2], [1, 2])",
    "dy.mean_dim(X(3, 4), [1], True, 5)", "dy.min_dim(X(3, 4), 0)", "dy.moment_batches(X(3, n=2), 2)",
    "dy.moment_dim(X(3, 4), [0], 2, False)", "dy.moment_elems(X(3, 4), 3)", "dy.noise(X(3), 0.0)", "dy.one_hot(4, 1)",
    "dy.one_hot(4, [1, 3])", "dy.pairwise_rank_loss(X(1, 3), X(1, 3), 0.5)", "dy.pick(X(3), 1)",
    "dy.pick(X(3, 4), 1, 1)", "dy.pick(X(3, n=2), [1, 0])", "dy.pick_batch(X(3, 4, n=2), [1, 0], 1)",
    "dy.pick_batch(X(3, n=2), [1, 0])", "dy.pick_batch_elems(X(3, n=2), [1, 0])", "dy.pick_range(X(3, 4), 1, 3, 1)",
    "dy.pickneglogsoftmax(X(3), 1)", "dy.pickneglogsoftmax_batch(X(3, n=2), [1, 0])", "dy.poisson_loss(X(1), 3)",
    "dy.pow(dy.exp(X(3)), X(1))", "dy.random_bernoulli(3, 1.0, 2.0)", "dy.random_gumbel(3, 1.0, 0.0)",
    "dy.random_normal((3, 4), 2.0, 0.0)", "dy.random_uniform(3, 1.0, 1.0)", "dy.reshape(X(3, 4, n=2), (6, 4), 1)",
    "dy.scalarInput(2.0)", "dy.scale_gradient(X(3), 0.5)", "dy.select_cols(X(3, 4), [3, 1])",
    "dy.select_rows(X(3, 4), [2, 0])", "dy.silu(X(3), 2.0)",
    "dy.sparse_inputTensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 3))", "dy.sparsemax(X(3))", "dy.std_batches(X(3, n=2))",
    "dy.std_dim(X(3, 4), [0], False, 2)", "dy.strided_select(X(4, 4), [2, 1], [0, 1], [3, 3])",
    "dy.sum_dim(X(3, 4, n=2), [0, 1], True)", "dy.to_device(X(3), 'CPU')", "dy.trace_of_product(X(3, 4), X(3, 4))",
    "dy.transpose(X(2, 3, 4), [2, 0, 1])", "dy.transpose(X(3, 4))", "dy.vanilla_lstm_c(X(3), X(12))",
    f"dy.vanilla_lstm_gates(X(2), X(3), {_GATES})", f"dy.vanilla_lstm_gates(X(2), X(3), {_GATES}, 1e-30)",
    f"dy.vanilla_lstm_gates_concat([X(1), X(1)], X(3), {_GATES})",
    f"dy.vanilla_lstm_gates_dropout(X(2), X(3), {_GATES}, X(2), X(3))", "dy.vanilla_lstm_h(X(3), X(12))",
    "dy.weight_norm(X(3, 4), X(1))",
    *[f"dy.{name}(X(3), X(3))" for name in ["cdiv", "circ_conv", "circ_corr", "cmult", "dot_product", "l1_distance"]],
    *[f"dy.{name}(X(3, 4), 1)" for name in ["cumsum", "logsumexp_dim", "max_dim", "softmax"]],
    *[f"dy.{name}(X(3), 'zero_gradient')" for name in ["argmax", "ceil", "floor", "round"]],
    "dy.squared_distance(X(3), X(3))",
]  # fmt: skip


_ELEMENT = r"[XPT]\([^()]*\)|np\.\w+\(+[^()]*\)+|'\w+'|True|False|(?<![\w.])\d[\w.-]*"
_LIST = r"(?<=[( ])\[[^][]*\]|(?<=, )\([^()]*\)"
_INTEGERS = "-1|0|1|2|3|4|7|LARGE|-LARGE|1.5|2.0|None|'1'|True|[0]|[0, 1]|[]|(1,)|np.int64(1)|float('nan')"
_INTEGERS += "|np.float32(1.5)|np.array([1])|np.array(1)|np.array([0, 1])|float('inf')"
_NUMBERS = "-1.0|0.0|1.0|2.0|1e300|1e-300|1|-3|HUGE|None|'a'|[]|[0.5]|True|np.float32(0.5)|np.array([0.5])|1j"
_NUMBERS += "|np.array(0.5)|np.array([0.5, 1.0])|float('nan')|float('inf')"
_OPERANDS = "None|3|2.0|'x'|[X(3)]|[1.0, 2.0]|np.ones(3)|np.float32(2.0)|S()|R()|T(5, 3)|object|float('nan')"
_FLAGS = "None|'no'|1|0|2|[]|0.5|np.bool_(True)|np.array([True, False])"
_TEXTS = "None|'a'|3|''|'GPU:0'|[]"
_SHAPES = "1|2|3|4|5|6|12|3, 1|1, 3|3, 4|4, 3|3, 3|4, 4|2, 3, 4|3, 4, 1|5, 4, 2|12, 2|1, 1|2, 2, 2, 2"


_KINDS = [  # what stands in a call, what may stand there, and what never does
    *((r"[XPT]\(|np", "", "None|'x'|np.ones(3)"), (r"[\[(]", "", "None|object()")),
    *(("True|False", _FLAGS, "'no'|[]|0.5"), ("'", _TEXTS, "")),
    *((r"\d+$", _INTEGERS, "None|'a'|0.5|object()"), ("", _NUMBERS, "None|'a'|{}|[None]")),
]


def _other(text, draw):
    """Return what might stand in a call in place of a text."""
    if text[0] in "XPTn":
        shape = draw.choice(_SHAPES.split("|"))
        made = [f"X({shape})", f"X({shape}, n=1)", f"X({shape}, n=2)", f"X({shape}, n=3)", f"P({shape})"]
        return draw.choice([*made, draw.choice(_OPERANDS.split("|"))])
    if text[0] in "[(":
        inner = text[1:-1]
        forms = ["[]", "[{0}, {0}]", "({0},)", "iter([{0}])", "[[{0}]]", "None", "{0}", "np.array([{0}])"]
        return draw.choice(forms[:7] if "(" in inner else forms).format(inner)
    return draw.choice(next(may for kind, may, _ in _KINDS if re.match(kind, text)).split("|"))


def wrong_calls(calls, count, seed):
    """Return `count` calls that are wrong for the most part: right ones in turn with one or two places changed."""
    draw, found = random.Random(seed), []
    for number in range(count):
        call = calls[number % len(calls)]
        for _ in range(draw.choice([1, 1, 2])):
            places = [place for kind in (_ELEMENT, _LIST) for place in re.finditer(kind, call)]
            if call[-1] == ")" and (not places or draw.random() < 0.1):
                call = call[:-1] + draw.choice([", 1)", ", d=1)", ", other=1)"])
            elif places:
                place = draw.choice(places)
                call = call[: place.start()] + _other(place[0], draw) + call[place.end() :]
        found.append(call)
    return found


def wrong_types(calls):
    """Return right calls of functions, each with one argument of a type that none takes."""
    found = []
    for call in [call for call in calls if re.match(r"dy\..*\)$", call)]:
        lists, elements = ([*re.finditer(kind, call)] for kind in (_LIST, _ELEMENT))
        outside = [each for each in elements if not any(x.start() < each.start() < x.end() for x in lists)]
        for place in [*lists, *outside]:
            never = next(never for kind, _, never in _KINDS if re.match(kind, place[0]))
            before, after = call[: place.start()], call[place.end() :]
            found += [before + value + after for value in never.split("|") if value]
    return found


class Runner:
    """Runs calls and tells what came of each.

    Args:
        dy: the module, dpmodule.autobatch or dynet.
        renew: begins a graph; `dy.renew_cg` unless given.
    """

    def __init__(self, dy, renew=None):
        self._dy, self._renew = dy, renew or dy.renew_cg
        self._renew()
        stale = dy.scalarInput(1.0)
        self._names = {
            **{"dy": dy, "np": np, "X": self._input, "LARGE": 2**40, "HUGE": 10**400},
            **{"M": dy.ParameterCollection, "S": lambda: stale, "R": self._taken_back},
            "P": lambda *shape: dy.ParameterCollection().parameters_from_numpy(_values(shape)),
            "T": lambda *shape: dy.ParameterCollection().lookup_parameters_from_numpy(_values(shape)),
        }

    def _input(self, *shape, n=0):
        return self._dy.inputTensor(_values((*shape, n) if n else shape), batched=bool(n))

    def _taken_back(self):
        self._dy.cg_checkpoint()
        found = [self._dy.scalarInput(1.0) for _ in range(40)][-1]
        self._dy.cg_revert()
        return found

    def run(self, call):
        """Return how a call ended and what it gave: (type of the error and its text or "", dimensions, value)."""
        self._renew()
        self._dy.reset_random_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = eval(compile(call, "<call>", "eval"), self._names)
                return "", found.dim(), found.npvalue()
            except Exception as error:
                # numbers of graphs and addresses differ from run to run
                text = re.sub(r"graph \d+|is \d+;|/\d+|0x[0-9a-f]+", "#", str(error))
                return f"{type(error).__name__}: {text}", None, None


def _values(shape):
    return np.cos(np.arange(1, 1 + np.prod(shape, dtype=int)) ** 2 * 0.37 + len(shape)).reshape(shape)


def are_alike(one, other):
    """Say whether a call ended in the same way twice, with values that differ by rounding only."""
    if one[:2] != other[:2]:
        return False
    return one[2] is None or np.allclose(one[2], other[2], rtol=1e-4, atol=1e-5, equal_nan=True)
