"""One program on both engines of autobatch."""

from __future__ import annotations

import numpy as np

import dpmodule.autobatch as dy


def on_both(program):
    """Hold what a program returns on the native engine, batched and alone, to float64 on the other."""
    dy.configure(engine="python", autobatch=False, dtype="float64")
    dy.renew_cg()
    wanted = program()
    batched = []
    for autobatch in (False, True):
        dy.configure(engine="auto", autobatch=autobatch, dtype="float32")
        dy.renew_cg()
        batched.append(program())
        for found, right in zip(batched[-1], wanted):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=4e-6 * max(1.0, np.abs(right).max()))
    return batched


def distances(found, wanted):
    """Return how far each array is from the one wanted, in shares of the largest number there, or of 1."""
    far = []
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        far.append(np.abs(one - other).max(initial=0) / max(1.0, np.abs(other).max(initial=0)))
    return np.array(far)
