"""What automatic batching is measured on: data that is what it is said to be, and sides that compute the same."""

import numpy as np
import pytest

from benchmarks.autobatch_tasks import first_value
from benchmarks.sides import autobatch, dynet_programs, hand_batched, torch_programs
from benchmarks.torch_programs import PROGRAMS


@pytest.mark.parametrize(("name", "way"), [(n, way) for n, ways in hand_batched.WAYS.items() for way in ways])
def test_batches_by_hand_compute_the_same(name, way, tmp_path):
    ours = autobatch.Program(autobatch.load("native", True), name, 2)
    hand = hand_batched.Program(name, 2, way)
    paths = [str(tmp_path / side) + ".npz" for side in ("ours", "hand")]
    np.testing.assert_allclose(hand.check(paths[1]), ours.check(paths[0]), rtol=1e-5)
    with np.load(paths[0]) as mine, np.load(paths[1]) as theirs:
        assert set(mine) == set(theirs)
        for each in mine:
            moved = np.linalg.norm(mine[each] - first_value(each, mine[each].shape))
            assert np.linalg.norm(mine[each] - theirs[each]) <= 1e-3 * moved, each


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_torch_and_of_dynet_compute_the_same(name, tmp_path):
    """The package named dynet is ours here."""
    file = str(tmp_path / "case.npz")
    loop = torch_programs.Case("loop").start(name, 8, 4, file)
    assert loop["losses"][0] != 0
    for kind in ("ours", "hand"):
        found = torch_programs.Case(kind).start(name, 8, 4)
        assert "losses" in found or kind == "hand"
        np.testing.assert_allclose(found.get("losses", loop["losses"]), loop["losses"], rtol=1e-5)
    dynet = dynet_programs.Case(autobatch.load("native", True)).start(name, file)
    np.testing.assert_allclose(dynet.get("losses", loop["losses"]), loop["losses"], rtol=1e-4)
