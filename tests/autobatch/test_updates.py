"""Updates of many parameters at once, of memory that stays and of memory that is exchanged."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from helpers.walk import walks

TRAINERS = {
    "SimpleSGDTrainer": (0.1,),
    "MomentumSGDTrainer": (0.1, 0.8),
    "AdagradTrainer": (0.1,),
    "AdadeltaTrainer": (1e-3,),
    "RMSPropTrainer": (0.01,),
    "AdamTrainer": (0.01,),
    "AmsgradTrainer": (0.01,),
}


def trained(kind, arguments, is_sparse):
    """Return all values after some steps, some of them clipped, of which none uses all parameters."""
    draw = np.random.RandomState(0)
    m = dy.ParameterCollection()
    weights = [m.parameters_from_numpy(draw.normal(size=(3, 3))) for _ in range(4)]
    tables = [m.lookup_parameters_from_numpy(draw.normal(size=(5, 3))) for _ in range(2)]
    weights[3].set_updated(False)
    trainer = kind(m, *arguments)
    trainer.set_clip_threshold(2.0)
    trainer.set_sparse_updates(is_sparse)
    for step in range(6):
        dy.renew_cg()
        x = tables[step % 2][step % 5] + tables[0][1]
        if step == 4:
            weights[3].set_updated(True)
        for w in (weights[step % 3], weights[3]):
            x = dy.tanh(w * x)
        (dy.squared_norm(x) * (10.0 if step % 2 else 0.1)).backward()
        trainer.update()
    return [each.as_array() for each in (*weights, *tables)]


@walks(product([True, False], TRAINERS))
def test_all_at_once_are_what_they_are_one_by_one(is_sparse, name, engine):
    kind = getattr(dy, name)

    class OneByOne(kind):
        """A rule of one's own is called for each parameter."""

        def rule(self, value, gradient, moments):
            super().rule(value, gradient, moments)

    for found, wanted in zip(
        trained(kind, TRAINERS[name], is_sparse), trained(OneByOne, TRAINERS[name], is_sparse)
    ):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    "other", [torch.full((2, 3), 5.0), torch.arange(6.0).view(3, 2).t()], ids=["full", "transposed"]
)
def test_memory_that_is_exchanged_between_updates(engine, other):
    m = dy.ParameterCollection()
    p = m.parameters_from_numpy(np.ones((2, 3)))
    trainer = dy.MomentumSGDTrainer(m, 0.1, 0.5)

    def step():
        dy.renew_cg()
        dy.sum_elems(p).backward()
        trainer.update()
        return p.as_array()

    np.testing.assert_allclose(step(), np.full((2, 3), 0.9), rtol=1e-6)
    p.tensor.data = other.clone(memory_format=torch.preserve_format)
    np.testing.assert_allclose(step(), other.numpy() - 0.15, rtol=1e-6)
    np.testing.assert_allclose(step(), other.numpy() - 0.15 - 0.175, rtol=1e-6)


def test_a_failed_update_changes_nothing(engine):
    m = dy.ParameterCollection()
    p, q = m.parameters_from_numpy(np.ones(2)), m.parameters_from_numpy(np.ones(2))
    trainer = dy.AdamTrainer(m)
    (dy.sum_elems(p) + dy.sum_elems(dy.log(q * 0.0))).backward()
    with pytest.raises(dy.NonFiniteError):
        trainer.update()
    np.testing.assert_array_equal([p.as_array(), q.as_array()], np.ones((2, 2)))
