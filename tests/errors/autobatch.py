"""Wrong calls of `dpmodule.autobatch` on both engines; most errors name the line of the caller."""

import copy
import functools
import itertools
import pickle

import numpy as np
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.autobatch.session import pop_arguments
from dpmodule.base import ArgumentError, DTypeError, FileError, FileFormatError

NAN, INF = float("nan"), float("inf")
BUILDERS = ["VanillaLSTM", "CompactVanillaLSTM", "CoupledLSTM", "FastLSTM", "SparseLSTM", "SimpleRNN", "GRU"]
NO_NUMBERS = [None, "a", [], [None], object(), {}, np.ones((2, 5))]
INITIALIZER_NUMBERS = [
    ("Const", "c"), ("Normal", "mean"), ("Normal", "var"), ("Uniform", "scale"), ("Saxe", "scale"), ("Glorot", "gain"),
]  # fmt: skip
IMPOSSIBLE = [
    ("SimpleSGD", "learning_rate", NAN), ("CyclicalSGD", "learning_rate_max", NAN), ("CyclicalSGD", "step_size", 0),
    ("CyclicalSGD", "gamma", 1.5), ("MomentumSGD", "mom", NAN), ("Adagrad", "eps", -1.0), ("Adadelta", "rho", 2.0),
    ("Adadelta", "eps", NAN), ("RMSProp", "eps", -1e-8), ("RMSProp", "rho", -0.1), ("Amsgrad", "beta_1", -1.0),
    ("Adam", "beta_1", 1.0), ("Adam", "beta_2", 2.0), ("Amsgrad", "eps", -1.0),
]  # fmt: skip
STALE_USES = [lambda x: x.npvalue(), lambda x: x.dim(), lambda x: x + 1, dy.tanh, lambda x: x.gradient()]
NUMBERS_OF_WORDS = {"a": 0, "b": 1, "c": 2}
CUT = "#Parameter# /_0 {3,3} 20 ZERO_GRAD\n+1.0 +2.0\n"


def model():
    m = dy.ParameterCollection()
    m.add_parameters((3, 3)), m.add_lookup_parameters((4, 3))
    return m


def weights():
    return model().parameters_list()[0]


def table():
    return model().lookup_parameters_list()[0]


def vector():
    return dy.inputVector([1.0, 2.0, 3.0])


def matrix(rows=3, columns=4):
    return dy.inputTensor(np.arange(float(rows * columns)).reshape(rows, columns))


def batch(count=2):
    return dy.inputTensor(np.ones((3, count)), batched=True)


def trainer(name, **options):
    return getattr(dy, f"{name}Trainer")(model(), **options)


def network(name="VanillaLSTM", layers=1, size=3, hidden=3, m=None, **options):
    return getattr(dy, f"{name}Builder")(layers, size, hidden, model() if m is None else m, **options)


def state(name="GRU", dropout=0.0):
    builder = network(name)
    builder.set_dropout(dropout)
    return builder.initial_state().add_input(vector())


def both(*layers, count=1, cell=dy.LSTMBuilder):
    return dy.BiRNNBuilder(count, 3, 4, model(), cell, *layers)


def words(name, folder, numbers=NUMBERS_OF_WORDS, text="0 a\n0 b\n1 c\n"):
    (folder / "clusters").write_text(text)
    return getattr(dy, f"{name}SoftmaxBuilder")(3, folder / "clusters", numbers, model())


def in_type(made, graph, use):
    dy.configure(dtype=made)
    m = model()
    dy.configure(dtype=graph)
    return use(m.parameters_list()[0], m.lookup_parameters_list()[0])


def cell(**options):
    net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, name="f")
    return dy.cell(net, **options)


def step(**options):
    both = [mx.sym.FullyConnected(mx.sym.Variable(n), num_hidden=4, name=f"to_{n}") for n in ("x", "h")]
    return dy.cell(mx.sym.tanh(both[0] + both[1], name="step"), **options)


def called(*inputs, **named):
    return step(params=None, shapes={"x": (5,), "h": (4,)})(*inputs, **named)


def of_mode(function, mode):
    function.is_train = mode
    return function(vector())


def stale(use, graph=dy.renew_cg):
    x = vector()
    if graph is not dy.renew_cg:
        dy.cg_checkpoint()
        x = dy.tanh(vector())
    graph()
    return use(x)


def saved(folder, shape=(3, 3), text=None):
    dy.ParameterCollection().add_parameters(shape).save(str(folder / "model"))
    if text is not None:
        (folder / "model").write_text(text)
    return str(folder / "model")


def from_file(folder):
    return dy.FromFileInitializer(saved(folder, text="1 two"))


def called_twice(function):
    wrapped = dy.wrap(function, rows=False)
    return dy.npvalues([wrapped([1.0, 2.0]), wrapped([1.0, 2.0, 3.0])])


def on(engine, call):
    """Run a call on an engine in a new graph; put the settings back."""

    @functools.wraps(call)
    def run(*folder):
        dy.configure(engine=engine, autobatch=True)
        try:
            return call(*folder)
        finally:
            dy.configure(engine="auto", autobatch=False, dtype="float32", weight_decay=0.0)

    return run


def alike(error, *pairs):
    """Return rows of (pattern, call) pairs, or of one pattern and its calls."""
    first, *calls = pairs
    pairs = [(first, call) for call in calls] if isinstance(first, str) else pairs
    return [(call, error, pattern) for pattern, call in pairs]


def each(error, values, *pairs):
    """Return rows as `alike` does: the first call with all values, the others with one of them in turn."""
    first, *others = alike(error, *pairs)
    with_value = [*[(first, value) for value in values], *zip(others, itertools.cycle(values))]
    return [(functools.partial(call, value), error, pattern) for (call, _, pattern), value in with_value]


SPECS = ("GRU", "TreeLSTM", "BiRNN")
CUTTING = [dy.kmh_ngram, dy.fold_rows, dy.kmax_pooling]
X, M, TypeOf = vector, matrix, dy.ForeignValueError
LINE = r".*\(at .*errors.autobatch\.py:\d+\)"
TENSORS = {
    DTypeError: [torch.tensor([1, 2]), torch.tensor([True]), torch.ones(2, dtype=torch.complex64)],
    dy.ShapeError: [torch.ones(0), torch.ones(0, 3), torch.ones(3, 0)],
}
ARRAY_OPERATORS = [lambda x, v: x + v, lambda x, v: v - x, lambda x, v: v / x, lambda x, v: x**v]
USES = [
    *(lambda w, e: w * X(), lambda w, e: w.npvalue(), lambda w, e: w.expr(update=False), lambda w, e: e[1]),
    *(lambda w, e: dy.lookup(e, 1, False), lambda w, e: dy.lookup_batch(e, [1, 2]), lambda w, e: e.expr()),
]
ARGUMENTS = [  # of a wrong type
    *each(TypeOf, NO_NUMBERS,
        ("set_weight_decay: lam", lambda v: model().set_weight_decay(v)), ("scale: s", lambda v: weights().scale(v)),
        ("clip threshold", lambda v: trainer("Adam").set_clip_threshold(v)),
        ("learning_rate", lambda v: setattr(trainer("Adam"), "learning_rate", v)),
        *[(a, lambda v, n=n, a=a: trainer(n, **{a: v})) for n, a, _ in IMPOSSIBLE],
        *[(a, lambda v, n=n, a=a: getattr(dy, f"{n}Initializer")(**{a: v})) for n, a in INITIALIZER_NUMBERS],
    ),
    *each(TypeOf, [0.5, None, "a", [None], object()],
        ("layers: ", lambda v: network(layers=v)), ("arity: ", lambda v: network("TreeLSTM", v)),
        ("num_layers: ", lambda v: both(count=v)), ("batch_size: ", lambda v: network().set_dropout_masks(v)),
        ("dim: ", lambda v: dy.tanh(X()).tensor_value().argmax(v)),
        ("random_seed", lambda v: dy.configure(random_seed=v)),
    ),
    *each(TypeOf, ["no", [], {}, 0.5, np.ones(2), torch.ones(2)],
        ("recalculate", lambda v: X().value(v)),
        *[("recalculate", lambda v, n=n: getattr(X(), n)(v)) for n in ("npvalue", "vec_value", "value_tensor")],
        *[("recalculate", lambda v, f=f: f([X()], v)) for f in (dy.forward, dy.values, dy.npvalues)],
        ("full", lambda v: dy.sum_elems(weights()).backward(v)), ("update", lambda v: weights().expr(v)),
        ("update", lambda v: network("GRU").initial_state(None, v)),
        ("bias", lambda v: dy.StandardSoftmaxBuilder(3, 4, model(), v)),
        ("is_lookup", lambda v: dy.GlorotInitializer(v)),
        ("is_train", lambda v: of_mode(cell(shapes={"x": (3,)}), v)),
        ("is_train", lambda v: of_mode(dy.wrap(torch.nn.Linear(3, 2)), v)), ("rows", lambda v: cell(rows=v)),
        ("allow_extra", lambda v: cell(allow_extra=v)), ("autobatch", lambda v: dy.configure(autobatch=v)),
        ("immediate_compute", lambda v: dy.renew_cg(immediate_compute=v)),
        ("autobatching", lambda v: dy.renew_cg(autobatching=v)),
        ("set_sparse_updates", lambda v: trainer("Adam").set_sparse_updates(v)),
        ("set_updated", lambda v: weights().set_updated(v)),
    ),
    *each(TypeOf, [None, "a", 2, 2.0, [1.0], np.ones(3), torch.ones(3)],
        "not an Expression", dy.tanh,
        *[lambda v, f=f: f([X(), v]) for f in (dy.concatenate, dy.esum, dy.forward, dy.values)],
        *[lambda v, n=n: state(n).set_s([v] * len(state(n).s())) for n in BUILDERS],
        *[lambda v, n=n: state(n, 0.5).set_h([v]) for n in BUILDERS],
        *[lambda v, n=n: network(n).initial_state().add_input(v) for n in BUILDERS],
        lambda v: state("GRU", 0.5).transduce([X(), v]),
        lambda v: dy.StandardSoftmaxBuilder(3, 4, model(), False).full_logits(v),
        lambda v: dy.StackedRNNState([state()]).add_inputs([X(), v]),
        lambda v: network().initial_state().transduce([X(), X(), v]),
    ),
    *each(TypeOf, [None, "a", [], object(), np.ones((2, 5)), -1, 1.5],
        ("not a ParameterCollection", dy.AdamTrainer),
        *[("model: ", lambda v, n=n: getattr(dy, f"{n}Builder")(1, 3, 3, v)) for n in BUILDERS],
        ("model: ", lambda v: dy.BiRNNBuilder(1, 3, 4, v, dy.LSTMBuilder)),
        ("pc: ", lambda v: dy.StandardSoftmaxBuilder(3, 4, v)),
    ),
    *each(TypeOf, [3, None],
        ("es: ", lambda v: both().transduce(v)), ("es: ", lambda v: both().add_inputs(v)),
        ("children", lambda v: network("TreeLSTM", 2).node(v)),
        ("vecs", lambda v: network().initial_state_from_raw_vectors(v)),
        ("transduce", lambda v: network().initial_state().transduce(v)),
        ("add_inputs", lambda v: state().add_inputs(v)),
    ),
    *each(TypeOf, [1.5, "1", None, NAN, [[1]], slice(0, 2)],
        "is not an integer", lambda v: table()[v], lambda v: dy.lookup_batch(table(), [v]),
    ),
    *each(TypeOf, [np.ones(3), torch.ones(3)],
        *[(r"\(3, ?3?\).*inputTensor", lambda v, f=f: f(X(), v)) for f in ARRAY_OPERATORS],
    ),
    *each(TypeOf, [None, "a", [None], object()],
        ("set_value", lambda v: weights().set_value(v)), ("init_row", lambda v: table().init_row(0, v)),
        ("init_from_array", lambda v: table().init_from_array(v)),
        ("not a torch tensor", lambda v: model().parameter_from_tensor(v)),
        ("load_tensors", lambda v: model().load_tensors(v)), ("array", lambda v: dy.NumpyInitializer(v)),
        ("defval", lambda v: dy.sparse_inputTensor([[1]], [1.0], (3,), defval=[v])),
    ),
    *each(TypeOf, [None, [], 1.5],
        ("fname", lambda v: model().save(v)), ("fname", lambda v: table().populate(v)),
        ("fname", lambda v: model().load_param(v, "/_0")), ("key", lambda v: model().load_lookup_param("model", v)),
        ("key", lambda v: weights().save("model", v)), ("save: basename", lambda v: dy.save(v, [weights()])),
        ("load: basename", lambda v: dy.load(v, model())),
    ),
    *each(TypeOf, [None, 3, "a", [None], [0.5], [[3]], np.eye(2)], ("shapes of x", lambda v: cell(shapes={"x": v}))),
    *each(TypeOf, [None, "a", 3, [], (1, 2)], ("cell", dy.cell)),
    *each(TypeOf, [["ab"], [3], [(1, 2)]], ("builder_layers", lambda v: both(v, cell=None))),
    *each(TypeOf, ["ab", [None], [3]], ("not a state of a network", dy.StackedRNNState)),
    *alike(TypeOf,
        ("learning_rate", lambda: trainer("Adam").restart("a")),
        ("weight_decay", lambda: dy.DynetParams().set_weight_decay("a")),
        ("gpu_mask", lambda: dy.DynetParams().set_gpu_mask(None)),
        ("from_config", lambda: dy.DynetParams().from_config(None)),
        ("init_from_params", lambda: dy.init_from_params(None)), ("rnn_builder_factory", lambda: both(cell=None)),
        ("pair of builders", lambda: both(cell=lambda *_: 3)), ("forget_bias", lambda: network(forget_bias="a")),
        ("dropout rate", lambda: network().set_dropouts(0.1, None)), ("vecs", lambda: network().initial_state(3)),
        ("es: ", lambda: state().set_h(3)), ("children are", lambda: network("TreeLSTM", 2).node([X(), 3])),
        ("to_device", lambda: dy.to_device(X(), 1)), ("LookupParameter", lambda: dy.sqrt(X()).value(table())),
        *[("spec", lambda n=n: getattr(dy, f"{n}Builder").from_spec(3, model())) for n in SPECS],
        ("sparsity", lambda: network("SparseLSTM").set_sparsity("a")), ("npvalue", lambda: np.asarray(X())),
        ("npvalue", lambda: dy.inputTensor([X(), X()])), ("valid list of floats", lambda: dy.inputTensor(["a"])),
        ("idxs", lambda: dy.sparse_inputTensor(None, [1.0], (2, 3))),
        ("", lambda: dy.inputVector([[1.0], [2.0, 3.0]])), ("", lambda: dy.vecInput(2).set("abc")),
        ("flat", lambda: dy.inputTensorTranspose(np.ones((2, 3)))),
        ("numbers", lambda: dy.inputTensorTranspose(["a"])),
        ("cannot be copied or pickled", lambda: pickle.dumps(X())),
        ("name", lambda: model().add_parameters(3, name=5)), ("name", lambda: model().save("model", 3)),
        ("not the storage", lambda: dy.Parameters(None)), ("not the storage", lambda: dy.LookupParameters("a")),
        ("cluster_file", lambda: dy.ClassFactoredSoftmaxBuilder(3, None, {}, model())),
        ("inputs", lambda: cell(inputs=np.ones((2, 2)))), ("name", lambda: cell(name=np.ones(2))),
        ("shapes", lambda: cell(shapes=[("x", (3,))])), ("initializer", lambda: cell(initializer="uniform")),
        ("params", lambda: dy.wrap(torch.tanh, params=3)), ("dtypes", lambda: dy.wrap(torch.tanh, dtypes=3)),
        ("is not an Expression, number or array", lambda: called(np.ones(5), object())),
    ),
]  # fmt: skip
NUMBERS = [  # out of range
    *[(lambda n=n, a=a, v=v: trainer(n, **{a: v}), ArgumentError, f"{a} is {v}") for n, a, v in IMPOSSIBLE],
    *each(ArgumentError, [NAN, -1.0],
        ("clip threshold", lambda v: trainer("Adam").set_clip_threshold(NAN)),
        ("lam", lambda v: model().set_weight_decay(v)), ("weight_decay", lambda v: dy.configure(weight_decay=v)),
        ("var", lambda v: dy.NormalInitializer(0.0, v)), ("scale", lambda v: dy.UniformInitializer(v)),
        ("gain", lambda v: dy.GlorotInitializer(gain=v)), ("noise", lambda v: dy.noise(X(), v)),
        ("random_normal", lambda v: dy.random_normal(3, 0.0, v)),
    ),
    *alike(ArgumentError,
        ("learning_rate", lambda: trainer("Adam").set_learning_rate(NAN)),
        ("p is", lambda: dy.random_bernoulli(3, 1.5)), ("dropout", lambda: dy.dropout(X(), 1.5)),
        ("init", lambda: model().add_parameters(3, init=[1.0, 2.0, 3.0])), ("layers", lambda: network(layers=0)),
        ("layers", lambda: network("GRU", layers=1 << 70)), ("num_layers", lambda: both(count=0)),
        ("expected 1 memories", lambda: network().initial_state([X()])),
        *[("spec", lambda n=n: getattr(dy, f"{n}Builder").from_spec((1, 2), model())) for n in SPECS],
        ("sparsity", lambda: network("SparseLSTM").set_sparsity(1.5)),
        *[("gradient mode", lambda f=f: f(X(), "a")) for f in (dy.round, dy.ceil, dy.argmax)],
        ("num", lambda: dy.tanh(X()).tensor_value().categorical_sample_log_prob(0, 0)),
        ("'/'", lambda: model().add_parameters(3, name="a/b")), ("zero", lambda: X()[::0]),
        ("input h is missing", lambda: called(np.ones(5))), ("builder_layers", lambda: both([], cell=None)),
        ("states is empty", lambda: dy.StackedRNNState([])), ("expected", lambda: state("FastLSTM").set_h([])),
        ("dtypes", lambda: dy.wrap(torch.tanh, dtypes=["integers"])),
        ("3 inputs, expected x, h", lambda: called(np.ones(5), np.ones(4), 1)),
        ("'y' is not an input", lambda: called(np.ones(5), np.ones(4), y=1)),
        ("'x' is given twice", lambda: called(np.ones(5), x=np.ones(5))), ("0 inputs", lambda: dy.wrap(torch.tanh)()),
    ),
    *alike(dy.BoundsError,
        ("r is", lambda: dy.moment_elems(X(), 1 << 70)), ("n is", lambda: dy.mean_dim(X(), 0, False, 1 << 31)),
        ("", lambda: table()[4]), ("", lambda: dy.lookup_batch(table(), [1, 4])), ("", lambda: dy.pick(M(), 4, 1)),
        ("", lambda: M()[-4]), ("", lambda: X()[1:1]), ("select_rows: 3", lambda: dy.select_rows(M(), [3])),
        *[("3 out of bounds", lambda f=f: f(batch(), [0, 3])) for f in (dy.pickneglogsoftmax_batch, dy.pick_batch)],
        ("", lambda: dy.one_hot(3, 3)), ("requested element 2", lambda: dy.pick_batch_elems(batch(), [0, 2])),
        *[("", lambda v=v: dy.strided_select(M(), *v)) for v in ([[0]], [[1], [3], [3]], [[1], [0], [4]])],
        ("dim", lambda: dy.tanh(X()).tensor_value().argmax(1)),
        ("num", lambda: dy.tanh(X()).tensor_value().topk(0, 4)),
    ),
    *alike(dy.NegativeIndexError, "", lambda: table()[-1], lambda: dy.lookup_batch(table(), [-1])),
    (lambda: dy.pick(X(), -1), dy.NegativeIndexError, ""),
    *each(dy.EmptySequenceError, [[]],
        "", *(dy.esum, dy.concatenate, dy.average, dy.emax, dy.concatenate_cols),
        *[lambda v, f=f: f(X(), v) for f in (dy.pick_batch, dy.hinge_batch, dy.log_softmax, dy.pick_batch_elems)],
        *[lambda v, f=f: f(M(), v) for f in (dy.hinge_dim, dy.select_rows, dy.select_cols)],
        lambda v: dy.lookup_batch(table(), v),
    ),
]  # fmt: skip
SHAPES = [
    *each(dy.ShapeError, [-1, -2, 2**40],
        r"\{3", lambda d: dy.concatenate([M(), M()], d),
        *[lambda d, f=f: f(M(), d) for f in (dy.softmax, dy.sum_dim, dy.max_dim, dy.cumsum)],
        *[lambda d, f=f: f(M(), 1, d) for f in (dy.pick, dy.kmax_pooling)], lambda d: dy.pick_range(M(), 0, 2, d),
        lambda d: dy.transpose(M(), (0, d)), lambda d: dy.dropout_dim(M(), d, 0.5),
    ),
    *[(lambda f=f, v=v: f(M(), v), dy.ShapeError, r"\{3,4\}") for f in CUTTING for v in (0, 5, 2**40)],
    *each(dy.ShapeError, [1 << 31, 0, -1, 1 << 70, (2, 0)],
        ("dim", lambda v: dy.zeros(v)), ("dim", lambda v: model().add_parameters(v)),
        ("dim", lambda v: dy.sparse_inputTensor([[1]], [1.0], v)),
        ("dim", lambda v: model().add_lookup_parameters(v)), ("batch_size", lambda v: dy.ones(3, v)),
        ("batch_size", lambda v: network().set_dropout_masks(-1)),
        ("shapes of x", lambda v: cell(shapes={"x": (v,)})),
    ),
    *alike(dy.ShapeError,
        (r"\{3,4\} \{3\}", lambda: dy.inputTensor(np.ones((3, 4))) * X()),
        (r"\{3\} \{2\}", lambda: X() + dy.inputVector([1.0, 2.0])), ("right one equal 1", lambda: X() / M()),
        (r"\{3X2\} \{3X4\}", lambda: dy.lookup_batch(table(), [1, 2]) + batch(4)),
        (r"\{3,4\} \{3\}", lambda: dy.concatenate([M(), X()])), ("", lambda: dy.hinge_dim(X(), [0], 0, 1.0)),
        (r"\{3\} \{3,4\} \{3\}", lambda: dy.affine_transform([X(), M(), X()])),
        ("affine.*pairs", lambda: dy.affine_transform([X(), *[M(3, 3), X()] * 10][:20])),
        ("PickRange", lambda: dy.pick_range(X(), 2**70, 2**71)), (r"\{2,2\} \{3\}", lambda: dy.reshape(X(), (2, 2))),
        ("", lambda: dy.logsumexp([dy.scalarInput(1.0), X()])),
        ("a vector or a matrix is needed", lambda: dy.logsumexp_dim(dy.inputTensor(np.ones((2, 3, 4))))),
        ("", lambda: dy.conv2d(dy.zeros((3, 3, 2)), dy.zeros((2, 2, 3, 4)), (1, 1))),
        ("", lambda: dy.conv2d_bias(dy.zeros((3, 3, 2)), dy.zeros((2, 2, 2, 4)), X(), (1, 1))),
        ("", lambda: dy.maxpooling2d(dy.zeros((3, 3, 2)), (4, 1), (1, 1))),
        *[("", lambda f=f: f(batch(), [0, 1, 2]).value()) for f in (dy.pickneglogsoftmax_batch, dy.hinge_batch)],
        ("", lambda: dy.sum_dim(M(), [0, 0])), ("", lambda: dy.inputVector([])),
        ("log_softmax: .*a vector is needed to restrict", lambda: dy.log_softmax(M(), [0])),
        ("reduction dimension must be", lambda: dy.softmax(X(), 1)),
        ("poisson_loss: .*one number is needed", lambda: dy.poisson_loss(X(), 1)),
        ("PairwiseRankLoss", lambda: dy.pairwise_rank_loss(X(), X())), ("0 numbers", lambda: dy.scalarInput([])),
        *[("6 values", lambda v=v: dy.inputTensorTranspose(np.arange(6.0), *v)) for v in (((2, 2), 1), (None, 2))],
        *[("", lambda n=n: network(n, size=4).initial_state().add_input(X())) for n in BUILDERS],
        ("no elements", lambda: dy.wrap(lambda x: x[:0])(X())),
        (r"Linear fails on inputs of shapes \(3,\)", lambda: dy.wrap(torch.nn.Linear(2, 2))(X())),
        (r"step: inputs of shapes x \(3,\), h \(4,\)", lambda: called(np.ones(3), np.ones(4))),
    ),
    *[(lambda t=t: model().parameter_from_tensor(t), e, r"/\(unnamed\) would ") for e in TENSORS for t in TENSORS[e]],
    *[(lambda t=t: model().lookup_parameter_from_tensor(t, "w"), e, "/w ") for e in TENSORS for t in TENSORS[e]],
    *[(lambda t=t: cell(params={"f_weight": t}), e, "/f_weight would ") for e in TENSORS for t in TENSORS[e]],
    *[(lambda u=u: in_type("float32", "float64", u), DTypeError, "is float32 on cpu, .* uses float64") for u in USES],
    *[(lambda u=u: in_type("float64", "float32", u), DTypeError, "is float64 on cpu, .* uses float32") for u in USES],
]  # fmt: skip
STALE = [
    *[(lambda u=u: stale(u), dy.StaleExpressionError, "renew") for u in STALE_USES],
    *[(lambda u=u: stale(u, dy.cg_revert), dy.StaleExpressionError, "removed by cg_revert") for u in STALE_USES[:4]],
    (lambda: stale(lambda h: called(np.ones(5), h)), dy.StaleExpressionError, "renew"),
    (dy.cg_revert, dy.StateError, r"cg_checkpoint\(\) first"),
    (lambda: dy.cg().revert(), dy.StateError, r"cg_checkpoint\(\) first"),
]  # fmt: skip
WORDS = [
    (lambda folder: words("ClassFactored", folder, b"abc"), TypeOf, "word_dict"),
    (lambda folder: words("Hierarchical", folder, torch.ones(2)), TypeOf, "word_dict"),
    *[
        (lambda folder, n=n, use=use: use(words(n, folder)), error, pattern)
        for n in ("ClassFactored", "Hierarchical")
        for pattern, error, use in (
            ("c:", TypeOf, lambda s: s.neg_log_softmax(X(), 0.5)),
            ("not an Expression", TypeOf, lambda s: s.full_logits(None)),
            ("c:", TypeOf, lambda s: s.neg_log_softmax_batch(X(), 3)),
            ("one vector", dy.ShapeError, lambda s: s.sample(dy.zeros(3, 2))),
        )
    ],
    *[
        (lambda folder, v=v: words("ClassFactored", folder).subclass_logits(X(), v), error, "classid")
        for v, error in ((np.ones(2), TypeOf), (2, dy.BoundsError), (-1, dy.NegativeIndexError))
    ],
    (lambda folder: words("ClassFactored", folder).subclass_log_distribution(X(), 2), dy.BoundsError, "classid"),
    *[
        (lambda folder, n=n: words(n, folder, {"a": 0, "b": 0.5, "c": 1}), TypeOf, r"word_dict\['b'\]")
        for n in ("ClassFactored", "Hierarchical")
    ],
    (lambda folder: dy.save(str(folder / "a"), None), TypeOf, "objects"),
    (lambda folder: dy.load(str(folder / "a"), None), TypeOf, "params"),
    (lambda folder: model().populate(saved(folder), 3), TypeOf, "key"),
    (lambda folder: weights().populate(saved(folder), 3), TypeOf, "key"),
]  # fmt: skip
FILES = [  # and others that do not name the line of the caller
    *[
        (lambda folder, n=n, some=some: words(n, folder, {"a": 0, **some}), FileFormatError, pattern)
        for n in ("ClassFactored", "Hierarchical")
        for some, pattern in (
            ({"b": 0, "c": 1}, "line 2: 'b' is word 0, expected a number from 0 that no earlier line has"),
            ({"b": 1, "c": -1}, "line 3: 'c' is word -1"),
        )
    ],
    *[
        (lambda folder, n=n: words(n, folder, text="\n"), FileFormatError, "clusters has no words, expected lines")
        for n in ("ClassFactored", "Hierarchical")
    ],
    (lambda folder: weights().populate(str(folder / "none"), "/X"), FileError, "Could not read"),
    (lambda folder: weights().populate(saved(folder), "/nope"), FileFormatError, "Could not find key /nope"),
    (lambda folder: model().populate(saved(folder)), FileFormatError, "no values for /_1"),
    (lambda folder: dy.ParameterCollection().populate(saved(folder)), FileFormatError, "Too many parameters"),
    (lambda folder: model().populate(saved(folder, (3,))), FileFormatError, "do not match"),
    (lambda folder: weights().populate(saved(folder, text=CUT), "/_0"), FileFormatError, "2 values, expected 9"),
    (lambda folder: weights().populate(saved(folder, text="?\n"), "/_0"), FileFormatError, "expected the header of a"),
    (lambda folder: dy.save(str(folder / "a"), [3]), TypeOf, "save"),
    (lambda folder: model().save(folder), FileError, "cannot save"),
    *[(lambda m=m: m().save("a\0b"), ArgumentError, "possible file name") for m in (model, weights)],
    *[(lambda m=m: m().populate("a\0b"), ArgumentError, "possible file name") for m in (model, weights)],
    *each(ArgumentError, ["a\nb", "\ud800"],
        "one line", lambda v: model().add_subcollection(v), lambda v: model().add_parameters(2, name=v),
        lambda v: model().save("model", v), lambda v: weights().save("model", v, append=True),
    ),
    (lambda folder: model().add_parameters(3, init=from_file(folder)), FileFormatError, "expected numbers"),
    *each(ArgumentError, ["a", 0.5], ("engine is", lambda v: dy.configure(engine=v))),
    (lambda: dy.configure(dtype=torch.ones(2)), DTypeError, "unknown dtype"),
    (lambda: dy.configure(dtype="float16"), ArgumentError, "expected float32 or float64"),
    (lambda: dy.configure(device="meta"), ArgumentError, "expected the CPU or a GPU"),
    (lambda: dy.configure(device="nonsense"), ArgumentError, "expected a Context, or a name"),
    (lambda: dy.configure(autobach=True), ArgumentError, "there is no setting autobach; did you mean autobatch"),
    (lambda: dy.DynetParams().set_requested_gpus(99), ArgumentError, "GPU:98"),
    (lambda: dy.DynetParams().from_config({"seed": 3}), KeyError, ""),
    *each(ArgumentError, ["--dynet-seed", "--dynet-seed="], ("needs a value", lambda v: pop_arguments(["prog", v]))),
    (lambda: dy.to_device(X(), "GPU:0"), ArgumentError, "Invalid device name: GPU:0; this graph is on CPU"),
    (lambda: dy.inputTensor(batched=True), TypeError, "arr"),
    (lambda: dy.softmax(X(), 1, d=1), TypeError, "d"),
    (lambda: dy.elu(X(), beside=1.0), TypeError, "unexpected keyword argument 'beside'"),
    (lambda: dy.maxpooling2d(dy.zeros((3, 3, 2)), (1, 1), (1,)), ArgumentError, "stride"),
    (lambda: (M(2, 2) * dy.inputVector([1.0, 2.0])).backward(), dy.NotScalarError, r"dimension: \{2\}"),
    (lambda: X().scalar_value(), dy.NotScalarError, "scalar_value"),
    (lambda: X().gradient(), dy.NoGradientError, ""),
    (lambda: dy.vecInput(2).set([1.0, 2.0, 3.0]), dy.ShapeError, "set: 3 values"),
    (lambda: network().get_parameter_expressions(), dy.StaleExpressionError, "stale"),
    (lambda: copy.deepcopy(weights()), TypeOf, "cannot be copied or pickled"),
    (lambda: copy.deepcopy(state()), TypeOf, "cannot be copied or pickled"),
    (lambda: model().parameter_from_tensor(torch.ones(3, 2).t()), ArgumentError, r"not contiguous.*strides \(1, 2\)"),
    (lambda: model().lookup_parameter_from_tensor(torch.ones(3, 2).t()), ArgumentError, "not contiguous"),
    (lambda: model().add_lookup_parameters((5, 4), init=np.ones((2, 3))), dy.ShapeError, "does not fit"),
    (lambda: dy.inverse(dy.ones((2, 2))).value(), ArgumentError, "singular"),
    (lambda: dy.explain(), dy.StateError, "nothing has been computed since renew_cg"),
    (lambda: (dy.zeros(3).value(), dy.explain()), dy.StateError, "only parameters, inputs, table rows"),
    (lambda: (dy.renew_cg(check_validity=True), dy.log(dy.scalarInput(0.0))), dy.NonFiniteError, "not finite"),
    (lambda: step(params={"y": mx.nd.ones(1)}, inputs=["x", "h"]), ArgumentError, "'y' in params is not a parameter"),
    (lambda: step(params={"to_x_weight": [1.0]}, inputs=["x", "h"]), ArgumentError, "to_x_weight is list"),
    (lambda: step(params=[1.0]), ArgumentError, "params is list"),
    (lambda: step(inputs=["z"]), ArgumentError, "inputs names 'z'"),
    (lambda: cell(params={"f_weight": mx.nd.array([[1]], dtype="int32")}), DTypeError, "would be int32"),
    *each(ArgumentError, [3, torch.nn.Linear, None, "a"], ("not a torch module or a function", dy.wrap)),
    (lambda: dy.wrap(torch.tanh, params=[torch.ones(2)]), ArgumentError, "not a leaf tensor"),
    (lambda: dy.wrap(torch.nn.LazyLinear(2)), ArgumentError, "parameter weight of LazyLinear has no shape yet"),
    *[(lambda v=v: dy.wrap(lambda x: None, v)([1.0]), ArgumentError, "returned NoneType") for v in (None, True, False)],
    (lambda: dy.wrap(lambda x: {"a": x}, True)([1.0]), ArgumentError, "returned dict"),
    (lambda: dy.wrap(lambda x: x.sum(0), rows=True)(X()), dy.NotBatchableError, r"rows=True, but returns \(3,\)"),
    (lambda: dy.wrap(lambda x: x * float(x.sum()))([1.0]), dy.NotBatchableError, "vmap does .*rows=True.*rows=False"),
    (lambda: called_twice(lambda x: (x, x) if len(x) > 2 else x), ArgumentError, "returns 2 tensors here but .* 1"),
    (lambda: called_twice(lambda x: x.repeat(1 + int(x.sum() > 0))), dy.ShapeError, r"returned \(6,\) for .*\(3,\)"),
]  # fmt: skip
ROWS = [
    (on(engine, call), error, pattern + line)
    for engine in ("python", "auto")
    for rows, line in (([*ARGUMENTS, *NUMBERS, *SHAPES, *STALE, *WORDS], LINE), (FILES, ""))
    for call, error, pattern in rows
]
