"""Habits of programs written for DyNet: graphs run again, buffers used again, files with gradients."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule.autobatch.errors import ShapeError
from helpers.user_programs import PROGRAMS


@pytest.fixture(params=["python", "auto"], autouse=True)
def _engine(request):
    dy.configure(engine=request.param, autobatch=True)
    yield
    dy.configure(engine="auto", autobatch=False)


MAKERS = {
    "inputTensor": dy.inputTensor,
    "batched": lambda array: dy.inputTensor(array, batched=True),
    "inputVector": dy.inputVector,
    "inputMatrix": lambda array: dy.inputMatrix(array, (3,)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_inputs_keep_the_values_of_the_call(name):
    """One buffer serves for many inputs of a graph."""
    buffer = np.array([1.0, 2.0, 4.0])
    first = MAKERS[name](buffer)
    buffer *= 10
    second = MAKERS[name](buffer)
    buffer[:] = 0
    assert first.npvalue().reshape(-1).tolist() == [1, 2, 4]
    assert second.npvalue().reshape(-1).tolist() == [10, 20, 40]


def test_set_keeps_the_values_of_the_call():
    buffer = np.array([1.0, 2.0])
    x = dy.vecInput(2)
    x.set(buffer)
    buffer[:] = 7
    assert x.vec_value() == [1, 2]


def test_arrays_with_steps_of_any_sign_are_inputs():
    array = np.arange(12.0).reshape(3, 4)
    for view in (array[::-1], array[:, ::-2], array.T, array[::-1, ::-1].T):
        for autobatch in (False, True):
            dy.renew_cg(autobatching=autobatch)
            np.testing.assert_array_equal(dy.inputTensor(view).npvalue(), view)
            np.testing.assert_array_equal(dy.inputTensor(view, batched=True).npvalue(), view)


def test_a_graph_is_run_again_for_every_example():
    """`set`, value, backward and update in a loop over one graph do what a new graph for every example does."""
    examples = [([1.0, -1.0], 0.5), ([0.5, 2.0], -1.0), ([1.0, 1.0], 1.0)] * 3

    def network(m):
        w = m.parameters_from_numpy(np.array([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.2]]))
        v = m.parameters_from_numpy(np.array([[0.2, -0.3, 0.6]]))
        return lambda x, y: dy.squared_distance(v * dy.tanh(w * x), y)

    once, often = dy.ParameterCollection(), dy.ParameterCollection()
    wanted, loss_of = [], network(often)
    trainer = dy.SimpleSGDTrainer(often, 0.1)
    for features, target in examples:
        dy.renew_cg()
        loss = loss_of(dy.inputVector(features), dy.scalarInput(target))
        wanted.append(loss.value())
        loss.backward()
        trainer.update()
    dy.renew_cg()
    x, y = dy.vecInput(2), dy.scalarInput(0)
    loss = network(once)(x, y)
    trainer = dy.SimpleSGDTrainer(once, 0.1)
    found = []
    for features, target in examples:
        x.set(features)
        y.set(target)
        found.append(loss.value())
        loss.backward()
        trainer.update()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    for one, other in zip(once.parameters_list(), often.parameters_list()):
        np.testing.assert_allclose(one.as_array(), other.as_array(), rtol=1e-5)


def test_backward_follows_an_input_that_was_set():
    m = dy.ParameterCollection()
    w = m.add_parameters((2,), init=1.0)
    x = dy.vecInput(2)
    loss = dy.dot_product(w, x)
    for values in ([2.0, 3.0], [5.0, 7.0]):
        m.reset_gradient()
        x.set(values)
        loss.backward()
        assert w.grad_as_array().tolist() == values


def test_an_input_that_is_set_late_leaves_values_of_others():
    x, y = dy.scalarInput(1), dy.scalarInput(2)
    assert (x * 3).value() == 3.0
    z = y * x
    y.set(5)
    assert z.value() == 5.0
    x.set(2)
    assert z.value() == 10.0
    assert (x * 3).value() == 6.0


def test_checkpoint_then_set_then_revert():
    x = dy.scalarInput(3)
    y = dy.square(x)
    assert y.value() == 9.0
    dy.cg_checkpoint()
    assert (y + x).value() == 12.0
    x.set(4)
    assert (y * x).value() == 64.0
    dy.cg_revert()
    assert y.value() == 16.0
    assert (y + dy.scalarInput(1)).value() == 17.0


def model():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), name="w")
    b = m.add_parameters(2, init=0.5, name="b")
    e = m.lookup_parameters_from_numpy(np.arange(12.0).reshape(4, 3) / 8, name="e")
    return m, w, b, e


def with_gradients():
    m, w, b, e = model()
    dy.renew_cg()
    dy.pick(w * e[2], 1).backward()
    return m, w, b, e


def check_gradients(found, wanted):
    for one, other in zip(found, wanted):
        np.testing.assert_allclose(one.grad_as_array(), other.grad_as_array(), rtol=1e-6)


def test_files_hold_gradients(tmp_path):
    m, *saved = with_gradients()
    name = str(tmp_path / "model")
    m.save(name)
    other, *read = model()
    dy.renew_cg()
    dy.sum_elems(read[2][0]).backward()  # the file's gradients replace these
    other.populate(name)
    check_gradients(read, saved)
    for each in (m, other):
        dy.SimpleSGDTrainer(each, 1.0).update()
    for one, two in zip(read, saved):
        np.testing.assert_allclose(one.as_array(), two.as_array(), rtol=1e-6)
    assert not read[2].grad_as_array().any()


def test_single_parameters_are_loaded_with_gradients(tmp_path):
    m, w, b, e = with_gradients()
    name = str(tmp_path / "model")
    m.save(name)
    new = dy.ParameterCollection()
    check_gradients([new.load_param(name, "/w"), new.load_lookup_param(name, "/e")], [w, e])
    dy.save(str(tmp_path / "objects"), [e, w])
    check_gradients(dy.load(str(tmp_path / "objects"), new), [e, w])


def test_rows_of_numbers_fill_the_first_dimension_first():
    """As DyNet reads a list for a row that is a matrix; an array of the row's shape is taken as it is."""
    table = dy.ParameterCollection().add_lookup_parameters((3, 2, 2))
    table.init_row(1, [1, 2, 3, 4])
    table.init_row(2, np.array([[1, 2], [3, 4]]))
    assert table[1].npvalue().tolist() == [[1, 3], [2, 4]]
    assert table.row_as_array(2).tolist() == [[1, 2], [3, 4]]


def test_the_array_of_a_table_says_how_many_rows_there_are():
    m = dy.ParameterCollection()
    values = np.arange(6.0).reshape(2, 3)
    table = m.add_lookup_parameters((5, 3), init=values)
    assert table.shape() == (2, 3)
    np.testing.assert_array_equal(table.as_array(), values)
    with pytest.raises(ShapeError, match="does not fit"):
        m.add_lookup_parameters((5, 4), init=values)


def test_collections_inside_a_collection_of_a_users_class():
    class Named(dy.ParameterCollection):
        def __init__(self, language):
            super().__init__()
            self.language = language

    m = Named("en")
    inner = m.add_subcollection("encoder")
    lstm = dy.LSTMBuilder(1, 2, 3, m)
    assert inner.add_parameters(2).name() == "/encoder/_0"
    assert len(m.parameters_list()) == 1 + len(lstm.param_collection().parameters_list())


def test_elements_of_results_are_picked_again():
    x = dy.inputTensor(np.arange(6.0).reshape(3, 2))
    assert x[1][0].value() == 2.0
    assert (x * x[0])[2].value() == 5.0
    assert dy.pick(x, 2)[1].value() == 5.0
    assert x[0:2][1][1].value() == 3.0


def test_several_continuations_of_one_state():
    """As in a search that tries words: products of one vector stand many times in a batch."""
    m = dy.ParameterCollection()
    draw = np.random.RandomState(3)
    a, b = (m.parameters_from_numpy(draw.uniform(-1, 1, (3, 3))) for _ in "ab")
    words = m.lookup_parameters_from_numpy(draw.uniform(-1, 1, (2, 3)))
    found = []
    for autobatch in (True, False):
        dy.renew_cg(autobatching=autobatch)
        state, tried = dy.inputVector([1.0, -0.5, 0.2]), []
        for step in range(6):
            tries = [dy.cmult(dy.tanh(a * state + words[word]), b * state) for word in (0, 1)]
            state = tries[step % 2]
            tried += tries
        loss = dy.esum([dy.squared_norm(each) for each in tried])
        loss.backward()
        found.append([loss.npvalue(), *(p.grad_as_array() for p in (a, b, words))])
        dy.SimpleSGDTrainer(m, 0.0).update()  # sets the gradients to zero
    for batched, single in zip(*found):
        np.testing.assert_allclose(batched, single, rtol=1e-5, atol=1e-6)


BY_DYNET = {
    "stack_lstm": [23.92043, 23.73302, 23.55949, 23.39346],
    "beam_search": [
        *(24.66829, 23.18211, 22.0848, -1.16492, -1.55291, -1.64058, -2.01751, -2.41029, -2.54006),
        *(-2.72645, -3.07593, -3.31162, -3.36701, -3.69185, -3.98284),
    ],
    "crf": [3.24259, 2.91323, 2.60633, 2.18429],
}
"""What the programs return with DyNet 2.1, rounded."""


@pytest.mark.parametrize("autobatch", [False, True])
@pytest.mark.parametrize("name", BY_DYNET)
def test_programs_of_users_go_as_with_dynet(name, autobatch):
    dy.configure(autobatch=autobatch)
    np.testing.assert_allclose(PROGRAMS[name](dy), BY_DYNET[name], rtol=2e-5, atol=2e-5)
