"""What a process decides once, decided anew: ordinary programs in processes of their own, and the same bits in all."""

import contextlib
import os
import time

import pytest

from helpers.programs import TESTS, Program, run_file, run_module

SEED = int(os.environ.get("DPMODULE_TEST_SEED") or time.time())
"""Of the programs that each run draws anew; a failure tells their numbers."""


def run_numbers(first, count, seconds):
    """Run so many programs; ``python -m helpers.ordinary_programs N N+1`` runs number N again."""
    done = run_module("helpers.ordinary_programs", first, first + count, seconds=seconds)
    assert done.returncode == 0, f"DPMODULE_TEST_SEED={SEED}\n{done.stdout}{done.stderr}"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", range(2))
def test_ordinary_programs(part, record_property):
    record_property("DPMODULE_TEST_SEED", SEED)
    print(f"DPMODULE_TEST_SEED={SEED}")
    run_numbers(40 * SEED + 20 * part, 20, 350)


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("first", "count"),
    [
        (0, 25),
        (25, 25),
        *(pytest.param(first, 200, marks=pytest.mark.slow) for first in range(50, 2000, 200)),
    ],
)
def test_known_ordinary_programs(first, count):
    run_numbers(first, count, 900)


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


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("threads", "count"), [(1, 3), (2, 2)])
def test_processes_have_the_same_bits(threads, count):
    found = digests(count, threads)
    found += digests(1, threads, fresh=True, PYTHONHASHSEED="random")
    assert len(set(found)) == 1, found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("threads", [1, 2])
def test_twenty_fresh_starts_have_the_same_bits(threads):
    assert len(set(digests(20, threads, fresh=True, PYTHONHASHSEED="random"))) == 1
