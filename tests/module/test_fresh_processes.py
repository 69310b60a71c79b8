"""What a process decides once, decided anew: ordinary programs in processes of their own, and the same bits in all."""

import contextlib
import os
import time

import pytest

from helpers.programs import TESTS, Program, run_file, run_module

SEED = int(os.environ.get("DPMODULE_TEST_SEED") or time.time())
"""Of the programs that each run draws anew; a failure tells their numbers."""


SLOW = [pytest.mark.slow, pytest.mark.timeout(1000)]
LATER = [pytest.param(number, marks=SLOW) for number in range(1, 160)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", [0, *LATER])
def test_ordinary_programs(part):
    """The known ones, and some drawn anew; ``python -m helpers.ordinary_programs N`` runs number N again."""
    for number in (*range(12 * part, 12 * part + 12), *range(40 * SEED + 3 * part, 40 * SEED + 3 * part + 3)):
        done = run_module("helpers.ordinary_programs", number, seconds=100)
        assert done.returncode == 0, (
            f"program {number}, DPMODULE_TEST_SEED={SEED}\n{done.stdout}{done.stderr}"
        )


def digests(count, threads, **options):
    """Return what processes print, the second half of them beside a busy neighbour."""
    found = []
    with contextlib.ExitStack() as stack:
        for i in range(count):
            if i == count // 2:
                stack.enter_context(Program("code", "while True: pass"))
            sizes = 17 * i, 1000 + 4104 * i
            done = run_file(TESTS / "programs" / "train_digest.py", threads, *sizes, **options)
            assert done.returncode == 0, done.stderr
            found.append(done.stdout)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("threads", [1, 2])
def test_processes_have_the_same_bits(threads, count):
    found = digests(2, threads) + digests(count, threads, fresh=True, PYTHONHASHSEED="random")
    assert len(set(found)) == 1, found
