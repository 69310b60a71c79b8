"""Habits of programs written for DyNet: graphs run again, inputs set again, own collections; and what DyNet returns."""

import gc

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.user_programs import PROGRAMS

pytestmark = pytest.mark.usefixtures("engine")


def test_a_graph_is_run_again_for_every_example():
    """`set`, value, backward and update in a loop over one graph do what a new graph for every example does."""
    found = []
    for renews in (True, False):
        m = dy.ParameterCollection()
        w = m.parameters_from_numpy(np.array([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.2]]))
        trainer, losses = dy.SimpleSGDTrainer(m, 0.1), []
        for number, features in enumerate([[1.0, -1.0], [0.5, 2.0], [1.0, 1.0]] * 3):
            if renews or not number:
                dy.renew_cg()
                x = dy.vecInput(2)
                loss = dy.squared_norm(dy.tanh(w * x))
            x.set(features)
            losses.append(loss.value())
            loss.backward()
            trainer.update()
        found.append([*losses, *w.as_array().ravel()])
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_rows_of_numbers_fill_the_first_dimension_first():
    """As DyNet reads a list for a row that is a matrix; an array of the row's shape is taken as it is."""
    table = dy.ParameterCollection().add_lookup_parameters((3, 2, 2))
    table.init_row(1, [1, 2, 3, 4])
    table.init_row(2, np.array([[1, 2], [3, 4]]))
    assert table[1].npvalue().tolist() == [[1, 3], [2, 4]]
    assert table.row_as_array(2).tolist() == [[1, 2], [3, 4]]


def test_parameters_outlive_their_collection():
    p = dy.parameter(dy.ParameterCollection().add_parameters((1,), init=1.0))
    q = dy.parameter(dy.ParameterCollection().add_subcollection().add_parameters((1,), init=2.0))
    row = dy.ParameterCollection().add_lookup_parameters((3, 2), init=4.0)[1]
    rows = dy.lookup_batch(dy.ParameterCollection().add_lookup_parameters((3, 2), init=4.0), [0, 2])
    gc.collect()
    assert (p.value(), q.value(), row.vec_value(), rows.vec_value()) == (1, 2, [4, 4], [4, 4, 4, 4])


def test_parameters_may_be_added_after_an_update():
    m = dy.ParameterCollection()
    for kind in (dy.SimpleSGDTrainer, dy.AdamTrainer):
        trainer = kind(m)
        for _ in range(20):
            p = m.add_parameters((1,))
            dy.renew_cg()
            dy.parameter(p).backward()
            before = p.as_array()
            trainer.update()
            assert p.as_array() < before


BY_DYNET = {  # what the programs return with DyNet 2.1, rounded
    "stack_lstm": [23.92043, 23.73302, 23.55949, 23.39346],
    "beam_search": [
        *(24.66829, 23.18211, 22.0848, -1.16492, -1.55291, -1.64058, -2.01751, -2.41029, -2.54006),
        *(-2.72645, -3.07593, -3.31162, -3.36701, -3.69185, -3.98284),
    ],
}


@pytest.mark.parametrize("name", BY_DYNET)
def test_programs_of_users_go_as_with_dynet(name, setting):
    np.testing.assert_allclose(PROGRAMS[name](dy), BY_DYNET[name], rtol=2e-5, atol=2e-5)
