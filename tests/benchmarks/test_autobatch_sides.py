"""What automatic batching is measured on: data that is what it is said to be, and sides that compute the same."""

import itertools

import numpy as np
import pytest

from benchmarks import treebank
from benchmarks.autobatch_tasks import TASKS, first_value
from benchmarks.parts.autobatch import NODES
from benchmarks.sides import autobatch, hand_batched
from dpmodule.autobatch import StateError


def test_sentences_look_like_those_of_a_treebank():
    found = treebank.examples("sentences", 4)
    lengths = [len(words) for words, _ in found]
    assert len(found) == 4 * treebank.BATCH_SIZE
    assert 2 <= min(lengths) < 10
    assert 40 < max(lengths) <= 80
    assert 20 < np.mean(lengths) < 28
    words = [word for words, _ in found for word in words]
    assert min(words) >= 1
    assert max(words) < treebank.VOCABULARY
    spelled = [len(row) > 0 for row in treebank.spelling()]
    assert 0.2 < np.mean([spelled[word] for word in words]) < 0.5
    assert all(len(words) == len(tags) for words, tags in found)
    assert found == treebank.examples("sentences", 4)


def test_trees_are_binary_and_in_post_order():
    for words, left, right, labels in treebank.examples("trees", 1):
        assert len(left) == len(right) == len(labels) == 2 * len(words) - 1
        assert sorted(-1 - place for place in left if place < 0) == list(range(len(words)))
        inner = [(a, b) for a, b in zip(left, right) if a >= 0]
        assert sorted(itertools.chain(*inner)) == list(
            range(len(left) - 1)
        )  # all but the root have one parent
        assert all(max(a, b) < number for number, (a, b) in enumerate(zip(left, right)))


def test_actions_parse_their_sentences():
    for words, actions in treebank.examples("parses", 1):
        depth = 0
        for action in actions:
            depth += 1 if action == treebank.SHIFT else -1
            assert depth >= 1
        assert depth == 1
        assert actions.count(treebank.SHIFT) == len(words)


def test_no_other_examples_exist():
    with pytest.raises(ValueError, match="songs"):
        treebank.examples("songs", 1)


def test_first_values_depend_on_the_name():
    assert np.abs(first_value("ab", (50, 3))).max() < 0.1
    assert not np.array_equal(first_value("ab", (3,)), first_value("ba", (3,)))


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


@pytest.mark.parametrize(
    ("name", "way"), [(name, way) for name, ways in hand_batched.WAYS.items() for way in ways]
)
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


def test_nodes_are_made_but_not_computed():
    nodes = autobatch.Nodes(autobatch.load("native", True))
    for kind in NODES:
        assert nodes.measure(kind, 10)["cpu"] > 0
        with pytest.raises(StateError):
            nodes.dy.explain()
