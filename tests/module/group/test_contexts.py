import os

import pytest
import torch

import dpmodule as mx
from dpmodule.module.group.contexts import run_between
from helpers.programs import TESTS, run_file


@pytest.mark.parametrize(("count", "share"), [(1, 4), (2, 2), (8, 1)])
def test_work_between_has_the_share_of_one_context(count, share):
    torch.set_num_threads(4)
    contexts, seen = [mx.cpu(i) for i in range(count)], []
    run_between(contexts, lambda: seen.append(torch.get_num_threads()))
    with pytest.raises(ZeroDivisionError):
        run_between(contexts, lambda: 1 / 0)
    assert (seen, torch.get_num_threads()) == ([share], 4)


SLOW = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize("count", [20, pytest.param(4000, marks=SLOW)])
def test_contexts_run_in_forked_processes(count):
    """The first tensors saved for gradients there, by two threads at a time, crashed one process in a few hundred."""
    program = TESTS / "programs" / "contexts_in_forks.py"
    done = run_file(program, count, fresh=True, OMP_NUM_THREADS="1", seconds=500)
    assert done.returncode == 0, done.stdout + done.stderr
