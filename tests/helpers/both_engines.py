"""One program on both engines of autobatch."""

import numpy as np

import dpmodule.autobatch as dy
from dpmodule.autobatch.ops.spec import find, names

# functions of one expression that the package's own records describe: they need no line in the tables of tests
DESCRIBED = [name for name in names() if find(name).text]


def on_both(program):
    """Compare what a program returns on the native engine, one by one and batched, with float64 on the other.

    Returns:
        The results in float64, one by one and batched.
    """
    dy.configure(engine="python", autobatch=False, dtype="float64")
    found = [program()]
    for autobatch in (False, True):
        dy.configure(engine="auto", autobatch=autobatch, dtype="float32")
        found.append(program())
        for one, right in zip(found[-1], found[0], strict=True):
            most = max(1.0, np.abs(right).max(initial=0))
            np.testing.assert_allclose(one, right, rtol=1e-4, atol=4e-6 * most)
    return found


def distances(found, wanted):
    """Return how far each array is from the one wanted, in shares of the largest number there, or of 1."""
    far = []
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        far.append(np.abs(one - other).max(initial=0) / max(1.0, np.abs(other).max(initial=0)))
    return np.array(far)
