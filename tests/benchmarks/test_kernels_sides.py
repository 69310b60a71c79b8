"""Kernels called alone: the same calls as the program's, which write the same."""

import pytest
import torch

from benchmarks.kernel_calls import Replay, recorded


def branches(weight, data):
    """Return results of calls with lists, several results, views that are written through, and numbers."""
    left, right = torch.split(data @ weight, 3)
    values, _ = left.max(1)
    right.t()[0].add_(values[: len(right)])
    torch._foreach_mul_([left, right], 2.0)
    return torch.cat([left, right]), values.sum().item() * data.to(torch.float64)


def updates(weight, data):
    """Change what was there before, twice, and look at it by other views."""
    weight.mul_(0.5).view(-1)[:3].neg_()
    weight.t().add_(data.sum())
    return torch.empty_like(weight)


@pytest.mark.parametrize("program", [branches, updates])
def test_what_torch_was_called_for_is_called_again(program):
    weight, data = torch.rand(3, 4), torch.rand(5, 3)
    before = weight.clone()
    with recorded() as recording:
        results = program(weight, data)
    replay = Replay(recording)
    after, found = weight.clone(), len(recording.results)
    assert found == len(results) if program is branches else found == 1
    weight.zero_()
    data.zero_()
    for _ in range(2):
        assert replay.apart() == 0
    assert not weight.any()
    replay.restore()
    again = [each.clone() for each in replay.run()]
    assert len(replay.times()) == len(replay.called) > 0
    assert all(map(torch.equal, again, [copy for _, copy in recording.results]))
    if program is updates:
        torch.testing.assert_close(again[0].view(3, 4), after, rtol=0, atol=0)
        assert not torch.equal(before, after)
