import numpy as np
import pytest
import torch

from dpmodule.ops.contrib import nms


def near(one, other):
    """Points closer than 1 exclude each other; those that are no numbers are near nothing."""
    return (one[0][:, :, None] - other[0][:, None]).abs() < 1


def slow(points, size):
    kept = []
    for i in range(size):
        if all(abs(points[i] - points[k]) >= 1 for k in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("spread", [5.0, 60.0, 1000.0])
@pytest.mark.parametrize("limit", [None, 3, 40])
def test_keeps_what_the_loop_keeps(spread, limit):
    random = np.random.RandomState(1)
    sizes = [500, 0, 129, 1, 128, 300, 7]
    points = random.rand(len(sizes), max(sizes)) * spread
    found = nms.keep_greedily(torch.from_numpy(points)[:, :, None], torch.tensor(sizes), near, limit)
    for row, values, size in zip(found.numpy(), points, sizes, strict=True):
        expected = slow(values, size)
        assert not row[size:].any()
        assert list(np.flatnonzero(row)[:limit]) == expected[:limit]
        if limit is None:
            assert list(np.flatnonzero(row)) == expected


def test_a_long_chain_of_overlaps():
    points = torch.arange(300.0)[None, :, None] * 0.6
    found = nms.keep_greedily(points, torch.tensor([300]), near)
    assert found[0].nonzero().view(-1).tolist() == list(range(0, 300, 2))


def test_groups_keep_the_order_of_their_elements():
    group, rank, sizes = nms.groups_of(torch.tensor([7, -2, 7, 3, -2, 7]))
    assert group.tolist() == [2, 0, 2, 1, 0, 2]
    assert rank.tolist() == [0, 0, 1, 0, 1, 2]
    assert sizes.tolist() == [2, 1, 3]


def test_chosen_positions_come_first():
    chosen = torch.tensor(
        [[False, True, False, True], [False, False, False, False], [True, True, True, True]]
    )
    assert nms.front(chosen).tolist() == [[1, 3, 0, 2], [0, 1, 2, 3], [0, 1, 2, 3]]
