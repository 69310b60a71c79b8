"""What automatic batching is measured on: data that is what it is said to be, and sides that compute the same."""

import numpy as np
import pytest

from benchmarks import treebank
from benchmarks.autobatch_tasks import TASKS, first_value
from benchmarks.sides import autobatch, hand_batched


def test_examples_look_like_those_of_a_treebank():
    found = treebank.examples("sentences", 4)
    lengths = [len(words) for words, _ in found]
    assert len(found) == 4 * treebank.BATCH_SIZE
    assert (2 <= min(lengths) < 10, 40 < max(lengths) <= 80, 20 < np.mean(lengths) < 28) == (True, True, True)
    assert all(1 <= min(words) <= max(words) < treebank.VOCABULARY for words, _ in found)
    assert found == treebank.examples("sentences", 4)
    for words, left, right, labels in treebank.examples("trees", 1):
        assert len(left) == len(right) == len(labels) == 2 * len(words) - 1
        assert all(max(a, b) < number for number, (a, b) in enumerate(zip(left, right)))
    for words, actions in treebank.examples("parses", 1):
        assert actions.count(treebank.SHIFT) == len(words)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_gives_its_losses(name):
    dy = autobatch.load("native", True)
    program = autobatch.Program(dy, name, 1)
    (first, *_) = program.batches[0]
    dy.renew_cg()
    losses = program.task.losses(*first)
    count = len(first[-1])  # tags, labels or actions; an action without an alternative has no loss
    assert 0 < len(losses) < count if name == "parser" else len(losses) == count
    assert all(0 < each.value() < 5 for each in losses[:3])


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
