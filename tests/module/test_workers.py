import pytest
import torch

import dpmodule as mx
from dpmodule.module.workers import run_between

PAIR = [mx.cpu(0), mx.cpu(1)]


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("contexts", "share"), [([mx.cpu()], 4), (PAIR, 2), ([mx.cpu(i) for i in range(8)], 1)]
)
def test_work_between_has_the_share_of_one_context(contexts, share, four_threads):
    seen = []
    run_between(contexts, lambda: seen.append(torch.get_num_threads()))
    assert seen == [share]
    assert torch.get_num_threads() == 4


def test_threads_come_back_after_an_error(four_threads):
    with pytest.raises(ZeroDivisionError):
        run_between(PAIR, lambda: 1 / 0)
    assert torch.get_num_threads() == 4
