"""Parameters whose memory was replaced, also by what an engine cannot read; `configure` with wrong settings."""

import itertools

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from dpmodule.base import DTypeError

pytestmark = pytest.mark.usefixtures("engine")
USES = [  # of a matrix and a table; which of them is replaced
    *[(lambda w, e: w * dy.inputVector([1, 2, 3]), 0), (lambda w, e: w.expr(update=False), 0)],
    *[(lambda w, e: dy.lookup(e, 1, update=False), 1), (lambda w, e: dy.lookup_batch(e, [1, 2]), 1)],
    (lambda w, e: e[1], 1),
]
REPLACED = [lambda old: torch.ones(1, 3), lambda old: torch.ones(len(old) * 3), lambda old: old.double()]


@pytest.mark.parametrize(("use", "place"), USES)
def test_memory_that_does_not_fit_is_refused(use, place):
    """In the graph under construction as in later ones."""
    for autobatch, replace in itertools.product((False, True), REPLACED):
        dy.configure(autobatch=autobatch)
        m = dy.ParameterCollection()
        both = m.add_parameters((4, 3)), m.add_lookup_parameters((4, 3))
        dy.forward([use(*both), both[1][1] * 2.0])
        both[place].tensor.data = replace(both[place].tensor)
        for _ in range(2):
            with pytest.raises((DTypeError, dy.ShapeError), match=f"parameter {both[place].name()} (is|has)"):
                dy.sum_elems(use(*both)).value()
            dy.renew_cg()


def test_memory_that_is_replaced_between_forward_backward_and_update():
    for trainer in (dy.SimpleSGDTrainer, dy.AdamTrainer):
        dy.renew_cg()
        m = dy.ParameterCollection()
        w = m.add_parameters((4,), init=1.0)
        update, loss = trainer(m), dy.squared_norm(w)
        loss.value()
        w.tensor.data = torch.ones(700)
        with pytest.raises(dy.ShapeError, match="has the shape"):
            loss.backward()
        w.tensor.data = torch.ones(4)
        loss.backward()
        w.tensor.data = torch.ones(700)
        with pytest.raises(dy.ShapeError, match="has the shape"):
            update.update()
        with pytest.raises(dy.StateError, match="storage cannot be replaced"):
            w.storage = dy.ParameterCollection().add_parameters((4,)).storage


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_table_whose_memory_was_replaced(dtype):
    table = dy.ParameterCollection().add_lookup_parameters((3, 2), init=1.0)
    dy.sum_elems(table[1]).backward()
    dy.configure(dtype=dtype)
    table.storage.tensor = torch.ones(3, 2, dtype=getattr(torch, dtype))
    table.storage.clear_gradient()
    dy.squared_norm(table[2]).backward()
    assert table.grad.dtype is table.tensor.dtype
    np.testing.assert_allclose(table.grad_as_array(), [[0, 0], [0, 0], [2, 2]])


def test_a_refused_tensor_leaves_its_name_free():
    m = dy.ParameterCollection()
    for name in ("w", ""):
        with pytest.raises(dy.ShapeError):
            m.parameter_from_tensor(torch.ones(0), name)
    assert [m.add_parameters(2, name="").name(), m.add_parameters(2, name="w").name()] == ["/_0", "/w"]
    module = torch.nn.Linear(2, 2)
    module.extra = torch.nn.Parameter(torch.ones(0, 3))
    with pytest.raises(dy.ShapeError, match="parameter /extra would have the shape"):
        dy.wrap(module)


WRONG = {"weight_decay": "a", "engine": "other", "device": "meta", "random_seed": "x", "dtype": "float16"}


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_setting_changes_none(name):
    before = dy.settings()
    right = {"dtype": "float64", "autobatch": False, "weight_decay": 0.5, "engine": "python", "device": "cpu"}
    with pytest.raises(dy.errors.MXNetError):
        dy.configure(**{**right, name: WRONG[name]})
    assert dy.settings() == before
    assert dy.scalarInput(1.0).value_tensor().dtype is torch.float32
