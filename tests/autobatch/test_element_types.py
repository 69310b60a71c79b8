"""Parameters whose memory was replaced, also by what an engine cannot read; `configure` with wrong settings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from dpmodule.base import DTypeError

pytestmark = pytest.mark.usefixtures("engine")
USES = {
    "product": lambda w, e: w * dy.inputVector([1, 2, 3]),
    "constant": lambda w, e: w.expr(update=False),
    "row": lambda w, e: e[1],
    "constant row": lambda w, e: dy.lookup(e, 1, update=False),
    "rows": lambda w, e: dy.lookup_batch(e, [1, 2]),
    "table": lambda w, e: e.expr(),
}
REPLACED = [lambda old: torch.ones(1, 3), lambda old: torch.ones(len(old) * 3), lambda old: old.double()]


@pytest.mark.parametrize("use", USES)
def test_memory_that_does_not_fit_is_refused(use):
    """In the graph under construction as in later ones."""
    for autobatch, replace in itertools.product((False, True), REPLACED):
        dy.configure(autobatch=autobatch)
        m = dy.ParameterCollection()
        w, e = m.add_parameters((4, 3)), m.add_lookup_parameters((4, 3))
        values = [USES[use](w, e), e[1] * 2.0, w * dy.inputVector([1, 2, 3])]
        dy.forward([dy.esum([dy.sum_elems(each) for each in values])])
        wrong = e if use in ("row", "constant row", "rows", "table") else w
        wrong.tensor.data = replace(wrong.tensor)
        if use == "table":  # one expression, whose value is there
            dy.renew_cg()
        for _ in range(2):
            with pytest.raises((DTypeError, dy.ShapeError), match=f"parameter {wrong.name()} (is|has)"):
                dy.sum_elems(USES[use](w, e)).value()
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


@pytest.mark.parametrize("other", [torch.full((2, 3), 5.0), torch.arange(6.0).view(3, 2).t()])
def test_memory_that_is_exchanged_between_updates(other):
    m = dy.ParameterCollection()
    p, trainer = m.parameters_from_numpy(np.ones((2, 3))), dy.MomentumSGDTrainer(m, 0.1, 0.5)

    def step():
        dy.renew_cg()
        dy.sum_elems(p).backward()
        trainer.update()
        return p.as_array()

    np.testing.assert_allclose(step(), np.full((2, 3), 0.9), rtol=1e-6)
    p.tensor.data = other.clone(memory_format=torch.preserve_format)
    np.testing.assert_allclose(step(), other.numpy() - 0.15, rtol=1e-6)
    np.testing.assert_allclose(step(), other.numpy() - 0.15 - 0.175, rtol=1e-6)


def test_a_refused_tensor_leaves_its_name_free():
    m = dy.ParameterCollection()
    for name in ("w", ""):
        with pytest.raises(dy.ShapeError):
            m.parameter_from_tensor(torch.ones(0), name)
    assert m.parameter_count() == 0
    assert [m.add_parameters(2, name="").name(), m.add_parameters(2, name="w").name()] == ["/_0", "/w"]
    with pytest.raises(dy.ShapeError):
        dy.wrap(torch.tanh, params=[torch.ones(0, requires_grad=True)])
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
