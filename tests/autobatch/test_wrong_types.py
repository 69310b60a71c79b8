"""Arguments of a wrong type or size: an error that names the argument and what was given, and the caller's line."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("engine")

TRAINERS = [
    "SimpleSGDTrainer",
    "CyclicalSGDTrainer",
    "MomentumSGDTrainer",
    "AdagradTrainer",
    "AdadeltaTrainer",
    "RMSPropTrainer",
    "AdamTrainer",
    "AmsgradTrainer",
]
BUILDERS = [
    "VanillaLSTMBuilder",
    "CompactVanillaLSTMBuilder",
    "CoupledLSTMBuilder",
    "FastLSTMBuilder",
    "SparseLSTMBuilder",
    "SimpleRNNBuilder",
    "GRUBuilder",
    "TreeLSTMBuilder",
]
FOREIGN = [None, "a", [], [None], object(), {}, np.ones((2, 5))]
"""What is not a number, each of another type."""


def refuses(argument, call, kind=dy.ForeignValueError):
    """Check the error: its type, the argument's name, and the line of this file."""
    with pytest.raises(kind) as caught:
        call()
    assert argument in str(caught.value)
    assert re.search(r"\(at .*test_wrong_types\.py:\d+\)", str(caught.value))


def collection():
    m = dy.ParameterCollection()
    m.add_parameters((3, 3)), m.add_lookup_parameters((4, 3))
    return m


def vector():
    return dy.inputVector([1.0, 2.0, 3.0])


@walks(product(TRAINERS, [*FOREIGN, -1, 1.5]))
def test_trainers_of_no_collection(name, value):
    refuses("not a ParameterCollection", lambda: getattr(dy, name)(value))


@walks(product([name for name in TRAINERS if name != "AdadeltaTrainer"], FOREIGN))
def test_learning_rates_that_are_no_numbers(name, value):
    m = collection()
    if value is not None or name != "CyclicalSGDTrainer":
        refuses("learning_rate", lambda: getattr(dy, name)(m, value))
    trainer = getattr(dy, name)(m)
    before = trainer.learning_rate
    refuses("learning_rate", lambda: trainer.set_learning_rate(value))
    refuses("learning_rate", lambda: setattr(trainer, "learning_rate", value))
    if value is not None:
        refuses("learning_rate", lambda: trainer.restart(value))
    assert trainer.learning_rate == before


@pytest.mark.parametrize("value", FOREIGN)
def test_other_arguments_of_trainers(value):
    m = collection()
    for name, argument in (
        ("MomentumSGDTrainer", "mom"),
        ("AdagradTrainer", "eps"),
        ("AdadeltaTrainer", "rho"),
        ("RMSPropTrainer", "rho"),
        ("AdamTrainer", "beta_1"),
        ("AdamTrainer", "beta_2"),
        ("AmsgradTrainer", "eps"),
        ("CyclicalSGDTrainer", "learning_rate_max"),
        ("CyclicalSGDTrainer", "step_size"),
        ("CyclicalSGDTrainer", "gamma"),
    ):
        refuses(argument, lambda: getattr(dy, name)(m, **{argument: value}))  # noqa: B023 (called at once)
    trainer = dy.AdamTrainer(m)
    refuses("clip threshold", lambda: trainer.set_clip_threshold(value))
    refuses("set_sparse_updates", lambda: trainer.set_sparse_updates(value))


IMPOSSIBLE = [
    ("SimpleSGDTrainer", "learning_rate", float("nan")),
    ("AdamTrainer", "alpha", float("inf")),
    ("CyclicalSGDTrainer", "learning_rate_max", float("nan")),
    ("CyclicalSGDTrainer", "step_size", 0),
    ("CyclicalSGDTrainer", "gamma", 1.5),
    ("MomentumSGDTrainer", "mom", float("nan")),
    ("AdagradTrainer", "eps", -1.0),
    ("AdadeltaTrainer", "eps", float("nan")),
    ("AdadeltaTrainer", "rho", 2.0),
    ("RMSPropTrainer", "eps", -1e-8),
    ("RMSPropTrainer", "rho", -0.1),
    ("AdamTrainer", "beta_1", 1.0),
    ("AdamTrainer", "beta_2", 2.0),
    ("AmsgradTrainer", "beta_1", -1.0),
    ("AmsgradTrainer", "eps", -1.0),
]


@walks(IMPOSSIBLE)
def test_steps_that_cannot_be_taken(name, argument, value):
    wanted = "learning_rate" if argument == "alpha" else argument
    refuses(
        f"{wanted} is {value}", lambda: getattr(dy, name)(collection(), **{argument: value}), dy.ArgumentError
    )


def test_numbers_of_trainers_that_cannot_be():
    nan, m = float("nan"), collection()
    trainer = dy.AdamTrainer(m)
    refuses("learning_rate", lambda: trainer.set_learning_rate(nan), dy.ArgumentError)
    refuses("learning_rate", lambda: trainer.restart(nan), dy.ArgumentError)
    refuses("clip threshold", lambda: trainer.set_clip_threshold(nan), dy.ArgumentError)
    assert (trainer.learning_rate, trainer.get_clip_threshold()) == (0.001, 5.0)
    for value in (-1.0, nan):
        refuses("lam", lambda: m.set_weight_decay(value), dy.ArgumentError)  # noqa: B023 (called at once)
        refuses("weight_decay", lambda: dy.configure(weight_decay=value), dy.ArgumentError)  # noqa: B023
        refuses("weight_decay", lambda: dy.DynetParams().set_weight_decay(value), dy.ArgumentError)  # noqa: B023
    trainer.set_clip_threshold(np.array([-2.0]))
    assert trainer.get_clip_threshold() == 0.0


def test_gradients_that_are_not_finite_name_their_parameter():
    m = collection()
    trainer = dy.SimpleSGDTrainer(m)
    (dy.sum_elems(m.parameters_list()[0] * vector()) * float("nan")).backward()
    refuses("gradient is bad: nan, that of /_0 is not finite", trainer.update, dy.NonFiniteError)


@pytest.mark.parametrize("place", ["updated_params", "updated_lookups"])
def test_places_that_are_not_there_update_nothing(place):
    m = collection()
    trainer = dy.SimpleSGDTrainer(m)
    table = m.lookup_parameters_list()[0]
    dy.sum_elems(m.parameters_list()[0] * table[1]).backward()
    before = [each.as_array() for each in (*m.parameters_list(), table)]

    def update(*places):
        given = {"updated_params": [0], "updated_lookups": [0], place: list(places)}
        trainer.update_subset(**given)

    refuses(place, lambda: update(0, 1), dy.BoundsError)
    refuses(place, lambda: update(-1), dy.NegativeIndexError)
    for value in ("a", None, 0.5):
        refuses(place, lambda: update(0, value))  # noqa: B023 (called at once)
    refuses(
        place, lambda: trainer.update_subset(**{"updated_params": [], "updated_lookups": [], place: None})
    )
    for each, value in zip((*m.parameters_list(), table), before):
        np.testing.assert_array_equal(each.as_array(), value)
    assert trainer.updates == 0
    update(0)
    assert trainer.updates == 1


def test_places_named_twice_are_updated_once():
    values = []
    for places in ([0], [0, 0]):
        dy.renew_cg()
        m = dy.ParameterCollection()
        p, table = m.parameters_from_numpy(np.eye(3)), m.lookup_parameters_from_numpy(np.ones((2, 3)))
        trainer = dy.MomentumSGDTrainer(m)
        dy.sum_elems(p * table[1]).backward()
        trainer.update_subset(places, places)
        values.append([p.as_array(), table.as_array()])
    for once, twice in zip(*values):
        np.testing.assert_array_equal(once, twice)


@pytest.mark.parametrize("value", ["a", "1", [], object(), 0.5, np.ones(2)])
def test_settings_of_other_types(value):
    before = dy.settings()
    for name in ("autobatch", "random_seed"):
        refuses(name, lambda: dy.configure(**{name: value}))  # noqa: B023 (called at once)
    refuses("immediate_compute", lambda: dy.renew_cg(immediate_compute=value))
    refuses("check_validity", lambda: dy.renew_cg(check_validity=value))
    refuses("autobatching", lambda: dy.renew_cg(autobatching=value))
    refuses("random_seed", lambda: dy.set_random_seed(value))
    if not isinstance(value, float):
        refuses("weight_decay", lambda: dy.configure(weight_decay=value))
    with pytest.raises(dy.ArgumentError, match="engine is"):
        dy.configure(engine=value)
    for other in (torch.ones(2), mx.nd.ones((2,))):
        with pytest.raises(mx.base.DTypeError, match="unknown dtype"):
            dy.configure(dtype=other)
    assert dy.settings() == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight_decay": "a"},
        {"engine": "other"},
        {"device": "cuda:99"},
        {"device": "meta"},
        {"random_seed": "x"},
    ],
)
def test_one_wrong_setting_changes_none(wrong):
    before = dy.settings()
    right = {"dtype": "float64", "autobatch": False, "weight_decay": 0.5, "engine": "python", "device": "cpu"}
    with pytest.raises((dy.ArgumentError, dy.ForeignValueError)):
        dy.configure(**{**right, **wrong})
    assert dy.settings() == before
    assert (collection().parameters_list()[0] * vector()).value_tensor().dtype is torch.float32


def test_settings_may_be_numbers_of_numpy():
    before = dy.settings()
    dy.configure(autobatch=np.True_, random_seed=np.int64(3), weight_decay=np.float32(0.5))
    assert (dy.settings()["autobatch"], dy.settings()["weight_decay"]) == (True, 0.5)
    dy.configure(**{name: before[name] for name in ("autobatch", "weight_decay")})


def test_settings_that_are_collected_first():
    params = dy.DynetParams()
    refuses("autobatch", lambda: params.set_autobatch("yes"))
    refuses("random_seed", lambda: params.set_random_seed(None))
    refuses("weight_decay", lambda: params.set_weight_decay("a"))
    refuses("gpu_mask", lambda: params.set_gpu_mask(None))
    refuses("from_config", lambda: params.from_config(None))
    refuses("init_from_params", lambda: dy.init_from_params(None))


@pytest.mark.parametrize("value", FOREIGN)
def test_initializers(value):
    for name, argument in (
        ("ConstInitializer", "c"),
        ("NormalInitializer", "mean"),
        ("NormalInitializer", "var"),
        ("UniformInitializer", "scale"),
        ("SaxeInitializer", "scale"),
        ("GlorotInitializer", "gain"),
    ):
        refuses(argument, lambda: getattr(dy, name)(**{argument: value}))  # noqa: B023 (called at once)
    if not isinstance(value, np.ndarray) and value != []:
        refuses("array", lambda: dy.NumpyInitializer(value))
    if not isinstance(value, str):
        refuses("fname", lambda: dy.FromFileInitializer(value))


def test_initializers_that_cannot_draw(tmp_path):
    refuses("var", lambda: dy.NormalInitializer(0.0, -1.0), dy.ArgumentError)
    refuses("scale", lambda: dy.UniformInitializer(-0.1), dy.ArgumentError)
    refuses("gain", lambda: dy.GlorotInitializer(gain=float("nan")), dy.ArgumentError)
    refuses("init", lambda: collection().add_parameters(3, init=[1.0, 2.0, 3.0]), dy.ArgumentError)
    (tmp_path / "values").write_text("1 2 three")
    with pytest.raises(mx.base.FileFormatError, match="expected numbers"):
        collection().add_parameters(3, init=dy.FromFileInitializer(tmp_path / "values"))


@walks(product(BUILDERS, FOREIGN))
def test_builders(name, value):
    m, make = collection(), getattr(dy, name)
    first = "arity" if name == "TreeLSTMBuilder" else "layers"
    refuses("model", lambda: make(1, 3, 3, value))
    refuses(first, lambda: make(value, 3, 3, m))
    if not isinstance(value, (list, dict)):
        inner = "dim" if name == "TreeLSTMBuilder" else "input_dim"
        refuses(inner, lambda: make(1, value, 3, m))
    assert len(m.parameters_list()) == 1


def test_other_builders(tmp_path):
    m = collection()
    refuses("model", lambda: dy.BiRNNBuilder(1, 3, 4, None, dy.LSTMBuilder))
    refuses("num_layers", lambda: dy.BiRNNBuilder("a", 3, 4, m, dy.LSTMBuilder))
    refuses("rnn_builder_factory", lambda: dy.BiRNNBuilder(1, 3, 4, m, None))
    refuses("pc", lambda: dy.StandardSoftmaxBuilder(3, 4, None))
    refuses("cluster_file", lambda: dy.ClassFactoredSoftmaxBuilder(3, None, {}, m))
    refuses("forget_bias", lambda: dy.VanillaLSTMBuilder(1, 3, 3, m, False, "a"))
    lstm = dy.VanillaLSTMBuilder(1, 3, 3, m)
    refuses("dropout rate", lambda: lstm.set_dropout("a"))
    refuses("dropout rate", lambda: lstm.set_dropouts(0.1, None))
    refuses("vecs", lambda: lstm.initial_state(3))
    refuses("expected 1 memories", lambda: lstm.initial_state([vector()]), dy.ArgumentError)
    both = dy.BiRNNBuilder(1, 3, 4, m, dy.LSTMBuilder)
    refuses("es", lambda: both.transduce(None))
    refuses("es", lambda: both.add_inputs(1))
    for layers in (["ab"], [lstm], [(lstm,)], [(lstm, None)], [(1, 2)]):
        refuses("builder_layers", lambda: dy.BiRNNBuilder(1, 3, 4, m, None, layers))  # noqa: B023 (called at once)
    refuses("builder_layers", lambda: dy.BiRNNBuilder(1, 3, 4, m, None, []), dy.ArgumentError)
    refuses("pair of builders", lambda: dy.BiRNNBuilder(1, 3, 4, m, lambda *_: 3))
    for name in (*BUILDERS, "BiRNNBuilder"):
        refuses("spec", lambda: getattr(dy, name).from_spec(3, m))  # noqa: B023 (called at once)
        refuses("spec", lambda: getattr(dy, name).from_spec((1, 2), m), dy.ArgumentError)  # noqa: B023
    tree = dy.TreeLSTMBuilder(2.0, np.float32(3), 3, m)
    refuses("children", lambda: tree.node(None))
    refuses("children", lambda: tree.node([vector(), 3]))
    sparse = dy.SparseLSTMBuilder(1, 3, 3, m)
    refuses("sparsity", lambda: sparse.set_sparsity("a"))
    refuses("sparsity", lambda: sparse.set_sparsity(1.5), dy.ArgumentError)
    for value in (3, 2.0, "a", None):
        plain = dy.StandardSoftmaxBuilder(3, 4, m, False)
        refuses("not an Expression", lambda: plain.full_logits(value))  # noqa: B023 (called at once)


def test_states_of_stacked_networks():
    state = dy.GRUBuilder(1, 3, 3, collection()).initial_state()
    refuses("states is empty", lambda: dy.StackedRNNState([]), dy.ArgumentError)
    for states in ("ab", [None], [state, 3]):
        refuses("not a state of a network", lambda: dy.StackedRNNState(states))  # noqa: B023 (called at once)
    stacked = dy.StackedRNNState([state, state])
    refuses("not an Expression", lambda: stacked.add_input(3))
    refuses("not an Expression", lambda: stacked.add_inputs([vector(), None]))


@walks(product([0.0, 0.5], [*BUILDERS[:-1], "with normalization"]))
def test_states(dropout, name):
    kind, norm = (dy.VanillaLSTMBuilder, [True]) if " " in name else (getattr(dy, name), [])
    builder = kind(1, 3, 3, collection(), *norm)
    builder.set_dropout(dropout)
    start = builder.initial_state()
    state = start.add_input(vector())
    for bad in (None, "a", 2, 2.0, [1.0], np.ones(3), torch.ones(3)):
        given = [bad] * len(state.s())
        refuses("not an Expression", lambda: builder.initial_state(given))  # noqa: B023 (called at once)
        for each in (start, state):
            refuses("not an Expression", lambda: each.set_s(given))  # noqa: B023 (called at once)
            refuses("not an Expression", lambda: each.set_s([bad]))  # noqa: B023 (called at once)
            refuses("not an Expression", lambda: each.set_h([bad]))  # noqa: B023 (called at once)
    for bad in (None, "a", 0.5):
        refuses("batch_size", lambda: builder.set_dropout_masks(bad))  # noqa: B023 (called at once)
    refuses("batch_size", lambda: builder.set_dropout_masks(-1), dy.ShapeError)
    for each in (start, state):
        refuses("transduce", lambda: each.transduce(None))  # noqa: B023 (called at once)
        refuses("add_inputs", lambda: each.add_inputs(1))  # noqa: B023 (called at once)
        for bad in ("a", None, 3):
            refuses("not an Expression", lambda: each.transduce([vector(), bad]))  # noqa: B023 (called at once)
            refuses("not an Expression", lambda: each.add_input(bad))  # noqa: B023 (called at once)
    refuses("es", lambda: state.set_h(3))
    refuses("es", lambda: state.set_s(3))
    refuses("expected", lambda: state.set_h([]), dy.ArgumentError)


NUMBERS = {
    "elu: alpha": lambda v: dy.elu(vector(), v),
    "silu: beta": lambda v: dy.silu(vector(), v),
    "scale_gradient: lambd": lambda v: dy.scale_gradient(vector(), v),
    "dropout rate": lambda v: dy.dropout(vector(), v),
    "noise: stddev": lambda v: dy.noise(vector(), v),
    "huber_distance: c": lambda v: dy.huber_distance(vector(), vector(), v),
    "hinge: m": lambda v: dy.hinge(vector(), 1, v),
    "pairwise_rank_loss: m": lambda v: dy.pairwise_rank_loss(dy.scalarInput(1.0), dy.scalarInput(2.0), v),
    "random_normal": lambda v: dy.random_normal(3, v),
    "random_uniform": lambda v: dy.random_uniform(3, 0.0, v),
    "random_gumbel": lambda v: dy.random_gumbel(3, 0.0, v),
    "random_bernoulli: p": lambda v: dy.random_bernoulli(3, v),
    "val": lambda v: dy.constant(3, v),
    "set_weight_decay: lam": lambda v: collection().set_weight_decay(v),
    "scale: s": lambda v: collection().parameters_list()[0].scale(v),
    "scale_gradient: s": lambda v: collection().parameters_list()[0].scale_gradient(v),
    "clip_inplace: left": lambda v: collection().parameters_list()[0].clip_inplace(v, 1.0),
}
WHOLE = {
    "softmax: d": lambda v: dy.softmax(vector(), v),
    "max_dim: d": lambda v: dy.max_dim(vector(), v),
    "logsumexp_dim: d": lambda v: dy.logsumexp_dim(vector(), v),
    "cumsum: d": lambda v: dy.cumsum(vector(), v),
    "moment: r": lambda v: dy.moment_elems(vector(), v),
    "kmax_pooling: k": lambda v: dy.kmax_pooling(dy.inputTensor(np.eye(3)), v),
    "fold_rows: nrows": lambda v: dy.fold_rows(dy.inputTensor(np.eye(4)), v),
    "kmh_ngram: v": lambda v: dy.kmh_ngram(dy.inputTensor(np.eye(3)), v),
    "dropout_dim: d": lambda v: dy.dropout_dim(vector(), v, 0.5),
    "pick: dim": lambda v: dy.pick(vector(), 1, v),
    "pick_range: d": lambda v: dy.pick_range(vector(), 0, 1, v),
    "concatenate: d": lambda v: dy.concatenate([vector(), vector()], v),
    "poisson_loss: x": lambda v: dy.poisson_loss(dy.scalarInput(1.0), v),
    "dim": lambda v: dy.vecInput(v),
}


@walks(product(NUMBERS, FOREIGN))
def test_numbers_of_functions(name, value):
    refuses(name.split(": ")[-1], lambda: NUMBERS[name](value))


@walks(product(NUMBERS, [np.float32(0.5), np.array(0.5), torch.tensor(0.5)]))
def test_numbers_of_all_kinds_are_taken(name, value):
    NUMBERS[name](value)


@walks(product(WHOLE, [None, "a", [None], object(), 0.5]))
def test_integers_of_functions(name, value):
    refuses(name.split(": ")[-1], lambda: WHOLE[name](value))


@pytest.mark.parametrize("value", [None, 1, object()])
def test_lists_of_functions(value):
    matrix = dy.inputTensor(np.eye(3))
    refuses("strided_select: strides", lambda: dy.strided_select(vector(), value))
    refuses("transpose: dims", lambda: dy.transpose(matrix, value))
    refuses("stride", lambda: dy.maxpooling2d(dy.inputTensor(np.ones((3, 3, 1))), [2, 2], value))
    if value != 1:
        refuses("d", lambda: dy.sum_dim(vector(), value))


def test_texts_where_there_is_something_else():
    for call in (dy.round, dy.ceil, dy.floor, dy.argmax):
        for mode in (None, [], 1, "a"):
            refuses("gradient mode", lambda: call(vector(), mode), dy.ArgumentError)  # noqa: B023 (called at once)
    refuses("to_device", lambda: dy.to_device(vector(), 1))
    refuses("is_valid", lambda: dy.conv2d(vector(), vector(), [1, 1], "no"))
    refuses("batched", lambda: dy.inputTensor([1.0], "no"))
    refuses("b:", lambda: dy.sum_dim(vector(), 0, "no"))


FLAGS = {
    **{
        f"{name}: recalculate": lambda v, name=name: getattr(dy.sum_elems(vector()), name)(v)
        for name in (
            "value",
            "npvalue",
            "scalar_value",
            "vec_value",
            "tensor_value",
            "value_tensor",
            "forward",
        )
    },
    **{
        f"{call.__name__}: recalculate": lambda v, call=call: call([vector()], v)
        for call in (dy.forward, dy.values, dy.npvalues)
    },
    "backward: full": lambda v: dy.sum_elems(collection().parameters_list()[0]).backward(v),
    "expr: update": lambda v: collection().parameters_list()[0].expr(v),
    "table: update": lambda v: collection().lookup_parameters_list()[0].expr(v),
    "row: update": lambda v: collection().lookup_parameters_list()[0].row(1, v),
    "batch: update": lambda v: collection().lookup_parameters_list()[0].batch([1, 2], v),
    "lookup: update": lambda v: dy.lookup(collection().lookup_parameters_list()[0], 1, v),
    "lookup_batch: update": lambda v: dy.lookup_batch(collection().lookup_parameters_list()[0], [1, 2], v),
    "initial_state: update": lambda v: dy.GRUBuilder(1, 3, 3, collection()).initial_state(None, v),
    "from_raw: update": lambda v: dy.LSTMBuilder(1, 3, 3, collection()).initial_state_from_raw_vectors(
        [[1.0] * 3] * 2, v
    ),
    "softmax: update": lambda v: dy.StandardSoftmaxBuilder(3, 4, collection()).full_logits(vector(), v),
    "softmax: bias": lambda v: dy.StandardSoftmaxBuilder(3, 4, collection(), v),
    "LSTM: ln_lstm": lambda v: dy.VanillaLSTMBuilder(1, 3, 3, collection(), v),
    "Glorot: is_lookup": lambda v: dy.GlorotInitializer(v),
    "training: is_train": lambda v: dy.training(v),
    "cell: rows": lambda v: dy.cell(mx.sym.tanh(mx.sym.Variable("x")), rows=v),
    "cell: allow_extra": lambda v: dy.cell(mx.sym.tanh(mx.sym.Variable("x")), allow_extra=v),
    "AutobatchModule: autobatch": lambda v: mx.mod.AutobatchModule(len, collection(), autobatch=v),
    "AutobatchModule: stack": lambda v: mx.mod.AutobatchModule(len, collection(), stack=v),
    "wrap: rows": lambda v: dy.wrap(torch.tanh, v),
    "wrap: random": lambda v: dy.wrap(torch.tanh, random=v),
    "sum_dim: b": lambda v: dy.sum_dim(vector(), 0, v),
    "mean_dim: b": lambda v: dy.mean_dim(vector(), 0, v),
    "moment_dim: b": lambda v: dy.moment_dim(vector(), 0, 2, v),
    "std_dim: b": lambda v: dy.std_dim(vector(), 0, v),
    "inputTensor: batched": lambda v: dy.inputTensor([1.0], v),
    "sparse_inputTensor: batched": lambda v: dy.sparse_inputTensor([[1]], [1.0], (3,), v),
}


@walks(product(FLAGS, ["no", [], {}, 0.5, np.ones(2), torch.ones(2)]))
def test_yes_or_no(name, value):
    refuses(name.split(": ")[-1], lambda: FLAGS[name](value))


@walks(FLAGS)
def test_yes_or_no_in_other_words(name):
    for value in (True, np.False_, 0):
        FLAGS[name](value)


@pytest.mark.parametrize("value", [1 << 31, 1 << 70])
def test_sizes_and_powers_beyond_all_bounds(value):
    for call in (dy.vecInput, dy.zeros, dy.random_normal, collection().add_parameters):
        refuses("dim", lambda: call(value), dy.ShapeError)  # noqa: B023 (called at once)
    refuses("dim", lambda: dy.sparse_inputTensor([[1]], [1.0], (value,)), dy.ShapeError)
    refuses("batch_size", lambda: dy.ones(3, value), dy.ShapeError)
    refuses("r is", lambda: dy.moment_elems(vector(), value), dy.BoundsError)
    refuses("n is", lambda: dy.mean_dim(vector(), 0, False, value), dy.BoundsError)
    refuses("n is", lambda: dy.std_dim(vector(), 0, False, value), dy.BoundsError)


@pytest.mark.parametrize("name", ["ClassFactoredSoftmaxBuilder", "HierarchicalSoftmaxBuilder"])
def test_softmaxes_over_words(name, tmp_path):
    (tmp_path / "clusters").write_text("0 a\n0 b\n1 c\n")
    make = getattr(dy, name)
    for bad in (None, 3, b"abc", torch.ones(2)):
        refuses("word_dict", lambda: make(3, tmp_path / "clusters", bad, collection()))  # noqa: B023 (called at once)
    words = make(3, tmp_path / "clusters", {"a": 0, "b": 1, "c": 2}, collection())
    for bad in ([], np.ones(2), None, "a", 0.5):
        refuses("c:", lambda: words.neg_log_softmax(vector(), bad))  # noqa: B023 (called at once)
        refuses("not an Expression", lambda: words.full_logits(bad))  # noqa: B023 (called at once)
    for bad in (None, 3, [[1], [2]], np.array(1.0)):
        refuses("c:", lambda: words.neg_log_softmax_batch(vector(), bad))  # noqa: B023 (called at once)
    refuses("one vector", lambda: words.sample(dy.inputTensor(np.ones((3, 3)))), dy.ShapeError)
    refuses("one vector", lambda: words.sample(dy.zeros(3, 2)), dy.ShapeError)


def test_groups_of_words_that_are_not_there(tmp_path):
    (tmp_path / "clusters").write_text("0 a\n0 b\n1 c\n")
    words = {"a": 0, "b": 1, "c": 2}
    grouped = dy.ClassFactoredSoftmaxBuilder(3, tmp_path / "clusters", words, collection())
    for call in (grouped.subclass_logits, grouped.subclass_log_distribution):
        refuses("classid", lambda: call(vector(), np.ones(2)))  # noqa: B023 (called at once)
        refuses("classid", lambda: call(vector(), 2), dy.BoundsError)  # noqa: B023 (called at once)
        refuses("classid", lambda: call(vector(), -1), dy.NegativeIndexError)  # noqa: B023 (called at once)


def test_files(tmp_path):
    m = collection()
    parameter, table = m.parameters_list()[0], m.lookup_parameters_list()[0]
    for bad in (None, [], 1.5):
        for call in (m.save, m.populate, parameter.save, parameter.populate, table.save, table.populate):
            refuses("fname", lambda: call(bad))  # noqa: B023 (called at once)
        refuses("fname", lambda: m.load_param(bad, "/_0"))  # noqa: B023 (called at once)
    for bad in (None, 3, np.ones(2)):
        refuses("key", lambda: m.load_param("model", bad))  # noqa: B023 (called at once)
        refuses("key", lambda: m.load_lookup_param("model", bad))  # noqa: B023 (called at once)
    for bad in (None, [], 1.5):
        refuses("save: basename", lambda: dy.save(bad, [parameter]))  # noqa: B023 (called at once)
        refuses("load: basename", lambda: dy.load(bad, m))  # noqa: B023 (called at once)
    name = str(tmp_path / "model")
    refuses("objects", lambda: dy.save(name, None))
    refuses("params", lambda: dy.load(name, None))
    refuses("name", lambda: m.save(name, 3))
    refuses("append", lambda: m.save(name, "", "no"))
    refuses("key", lambda: parameter.save(name, 3))
    m.save(name)
    refuses("key", lambda: m.populate(name, 3))
    refuses("key", lambda: parameter.populate(name, 3))
    m.populate(tmp_path / "model")


def test_parameters():
    m = collection()
    parameter, table = m.parameters_list()[0], m.lookup_parameters_list()[0]
    for bad in (None, "a", [None], object(), [[1.0], [2.0, 3.0]]):
        refuses("set_value", lambda: parameter.set_value(bad))  # noqa: B023 (called at once)
        refuses("init_row", lambda: table.init_row(0, bad))  # noqa: B023 (called at once)
        refuses("init_from_array", lambda: table.init_from_array(bad))  # noqa: B023 (called at once)
        refuses("array", lambda: m.parameters_from_numpy(bad))  # noqa: B023 (called at once)
        refuses("set_updated", lambda: parameter.set_updated(bad))  # noqa: B023 (called at once)
        refuses("not a torch tensor", lambda: m.parameter_from_tensor(bad))  # noqa: B023 (called at once)
        refuses("load_tensors", lambda: m.load_tensors(bad))  # noqa: B023 (called at once)
    refuses("name", lambda: m.add_parameters(3, name=5))
    refuses("name", lambda: m.add_subcollection(5))
    refuses("'/'", lambda: m.add_parameters(3, name="a/b"), dy.ArgumentError)
    refuses("not the storage", lambda: dy.Parameters(None))
    refuses("not the storage", lambda: dy.LookupParameters("a"))
    for each in (m.add_parameters(3, name=""), m.add_parameters(3, name="b")):
        assert each.name() in ("/_2", "/b")


def test_values_on_the_device():
    tensor = dy.tanh(vector()).tensor_value()
    refuses("dim", lambda: tensor.argmax("a"))
    refuses("dim", lambda: tensor.argmax(1), dy.BoundsError)
    refuses("num", lambda: tensor.topk(0, None))
    refuses("num", lambda: tensor.topk(0, 4), dy.BoundsError)
    refuses("num", lambda: tensor.categorical_sample_log_prob(0, 0), dy.ArgumentError)
    assert tensor.argmax().as_numpy().tolist() == [2]


@pytest.mark.parametrize("value", [None, "a", 3, [], torch.nn.Linear(2, 2)])
def test_cells(value):
    refuses("cell", lambda: dy.cell(value))
    if not isinstance(value, torch.nn.Module):
        with pytest.raises(dy.ArgumentError, match="not a torch module"):
            dy.wrap(value)


def test_arguments_of_cells():
    symbol = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, name="f")
    refuses("inputs", lambda: dy.cell(symbol, inputs=3))
    refuses("inputs", lambda: dy.cell(symbol, inputs=np.ones((2, 2))))
    refuses("name", lambda: dy.cell(symbol, name=np.ones(2)))
    refuses("shapes", lambda: dy.cell(symbol, shapes=[("x", (3,))]))
    for shape in (None, 3, "a", [None], [0.5], [[3]], np.eye(2)):
        refuses("shapes of x", lambda: dy.cell(symbol, shapes={"x": shape}))  # noqa: B023 (called at once)
    for size in (0, -3, 1 << 31, 1 << 70):
        refuses("shapes of x", lambda: dy.cell(symbol, shapes={"x": (size,)}), dy.ShapeError)  # noqa: B023
    refuses("no elements", lambda: dy.wrap(lambda x: x[:0])(vector()), dy.ShapeError)
    for function in (dy.cell(symbol, shapes={"x": (3,)}), dy.wrap(torch.nn.Linear(3, 2))):
        for mode in ("yes", 0.5, np.ones(2), torch.ones(2)):
            function.is_train = mode
            refuses("is_train", lambda: function(vector()))  # noqa: B023 (called at once)
    refuses("initializer", lambda: dy.cell(symbol, initializer="uniform"))
    refuses("params", lambda: dy.wrap(torch.tanh, params=3))
    refuses("dtypes", lambda: dy.wrap(torch.tanh, dtypes=3))
    refuses("dtypes", lambda: dy.wrap(torch.tanh, dtypes=["integers"]), dy.ArgumentError)


@pytest.mark.parametrize("value", [None, "a", 1, [None], object()])
def test_sparse_inputs(value):
    refuses("idxs", lambda: dy.sparse_inputTensor(value, [1.0], (3,)))
    refuses("defval", lambda: dy.sparse_inputTensor([[1]], [1.0], (3,), defval=[value]))
    if value != 1:
        refuses("values", lambda: dy.sparse_inputTensor([[1]], value, (3,)))
        refuses("dim", lambda: dy.sparse_inputTensor([[1]], [1.0], value))


def test_numbers_of_labels_and_values():
    refuses("1 indices", lambda: dy.sparse_inputTensor([[1]], [1.0, 2.0], (3,)), dy.ShapeError)
    matrix = dy.inputTensor(np.eye(3))
    refuses("hinge_dim: 2 labels", lambda: dy.hinge_dim(matrix, [0, 1]), dy.ShapeError)
    refuses("hinge_dim: d", lambda: dy.hinge_dim(matrix, [0, 1, 2], None))
    refuses("pick_batch: dim", lambda: dy.pick_batch(matrix, [0], "a"))
    assert dy.inputTensorTranspose([1.0, 2.0], batch_size=True, dim=2).dim() == ((2,), 1)
    sparse = dy.sparse_inputTensor(([0, 1], [1, 1]), np.array([2, 3]), (2, 2), defval=np.float32(1.0))
    np.testing.assert_array_equal(sparse.npvalue(), [[1, 2], [1, 3]])


@pytest.mark.parametrize("value", [None, "a", 3, np.ones(3)])
def test_operands(value):
    matrix = dy.inputTensor(np.eye(3))
    for call in (dy.cmult, dy.cdiv, dy.bmax, dy.pow, dy.dot_product, dy.colwise_add, dy.squared_distance):
        refuses("not an Expression", lambda: call(vector(), value))  # noqa: B023 (called at once)
        refuses("not an Expression", lambda: call(value, vector()))  # noqa: B023 (called at once)
    for operands in ([vector(), matrix, value], [vector(), value, vector()], [value, matrix, vector()]):
        refuses("not an Expression", lambda: dy.affine_transform(operands))  # noqa: B023 (called at once)
    refuses("not an Expression", lambda: dy.concatenate([vector(), value]))
    refuses("not an Expression", lambda: dy.esum([vector()] * 5 + [value]))
    refuses("not an Expression", lambda: dy.tanh(value))
