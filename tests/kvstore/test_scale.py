"""What a step of "dist_sync" costs with 1 to 64 processes, simulated by torch's process group that sends nothing."""

import json

import pytest

from helpers.programs import TESTS, run_file

pytest.importorskip("torch.testing._internal.distributed.fake_pg")

SIZES = [1, 2, 8, 64]


@pytest.fixture(scope="module")
def costs():
    done = run_file(TESTS / "programs" / "dist_costs.py", *SIZES)
    assert done.returncode == 0, done.stderr
    return {int(size): cost for size, cost in json.loads(done.stdout.splitlines()[-1]).items()}


def test_messages_and_bytes_are_the_same_for_any_number_of_processes(costs):
    first = costs[2]["steps"][0][0]
    assert len(first) > 1
    for size, cost in costs.items():
        for collectives, _ in cost["steps"]:
            assert {name for name, _ in collectives} <= {"all_reduce"}
            assert size == 1 or collectives == first
            assert size > 1 or collectives == []
            assert sum(count for _, count in collectives) <= 1.05 * cost["gradients"]


def test_what_the_host_does_does_not_depend_on_how_many_there_are(costs):
    several = {size: [calls for _, calls in cost["steps"]] for size, cost in costs.items() if size > 1}
    assert all(found == several[2] for found in several.values()), several
    assert several[2][0]["torch"] > 0
    assert several[2][0]["Python"] > 0
