import os

import pytest
import torch

import dpmodule as mx
from dpmodule.module.group.contexts import run_between
from helpers.programs import run_program

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


FORKED = """
import os, signal, sys, threading
import torch, torch.nn.functional as F
import dpmodule as mx
from dpmodule.module.group.contexts import run_parallel


def train():
    for _ in range(3):
        weight = torch.ones(16, 8, requires_grad=True)
        F.linear(torch.ones(4, 8), weight).sum().backward()


def train_together():
    both = threading.Barrier(2)
    job = lambda: (both.wait(), train())
    run_parallel([mx.cpu(0), mx.cpu(1)], [job, job])


threads = [threading.Thread(target=train) for _ in range(32)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for number in range(int(sys.argv[1])):
    child = os.fork()
    if not child:
        signal.alarm(60)
        train_together()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == 0, (number, status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize(
    "count", [20, pytest.param(4000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_contexts_run_in_forked_processes(count):
    """The first tensors saved for gradients there, by two threads at a time, crashed one process in a few hundred."""
    done = run_program(FORKED, count, fresh=True, OMP_NUM_THREADS="1", seconds=500)
    assert done.returncode == 0, done.stdout + done.stderr
