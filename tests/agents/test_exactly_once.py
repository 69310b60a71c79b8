"""Outside training every example is seen exactly once, however it is asked for."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.talks import Noting, NotingBatch, Texts, epoch, spec

EPISODES = st.lists(st.integers(1, 9), max_size=40).map(
    lambda lengths: [length for place, length in enumerate(lengths) if sum(lengths[: place + 1]) <= 100]
)

CASES = st.fixed_dictionaries(
    {
        "batchsize": st.integers(1, 33),
        "datatype": st.sampled_from(["valid", "test", "valid:stream", "train:evalmode"]),
        "batch_sort": st.booleans(),
        "context_length": st.sampled_from([-1, 1, 3]),
        "max_batch_tokens": st.sampled_from([None, None, 5, 60]),
    }
)


def task_of(name, lengths):
    return spec(Texts, "-".join([name, *map(str, lengths)]))


def examples_of(name, lengths):
    return [(name, f"{episode}.{entry}") for episode, length in enumerate(lengths) for entry in range(length)]


def seen_by(student):
    lasts = (each["text"].rpartition("\n")[2].split() for each in student.seen if "text" in each)
    return sorted((name, number) for name, number, *_ in lasts)


def check(tasks, opt, batched):
    given_opt = {**opt, "task": ",".join(task_of(name, lengths) for name, lengths in tasks.items())}
    student = (NotingBatch if batched and (opt["batchsize"] > 1 or opt["max_batch_tokens"]) else Noting)(
        given_opt
    )
    expected = sorted(each for name, lengths in tasks.items() for each in examples_of(name, lengths))
    world, _, parleys = epoch(given_opt, student)
    assert seen_by(student) == expected
    assert world.report()["total"] == len(expected)
    if world.get_agents()[0].use_batch_act and len(tasks) == 1 and not opt["max_batch_tokens"]:
        assert parleys == -(-len(expected) // opt["batchsize"])
    student.seen.clear()
    world.reset()
    while not world.epoch_done():
        world.parley()
    assert seen_by(student) == expected, "after reset"
    world.shutdown()


def prop(examples):
    def decorate(function):
        given_function = given(EPISODES, EPISODES, st.booleans(), CASES, st.booleans())(function)
        return settings(
            max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
        )(given_function)

    return decorate


def run(first, second, is_double, opt, batched):
    check({"a": first, "b": second} if is_double else {"a": first}, opt, batched)


@prop(250)
def test_every_example_is_seen_exactly_once(first, second, is_double, opt, batched):
    run(first, second, is_double, opt, batched)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@prop(10_000)
def test_every_example_is_seen_exactly_once_at_length(first, second, is_double, opt, batched):
    run(first, second, is_double, opt, batched)


@pytest.mark.parametrize("size", [0, 1, 2, 31, 32, 33, 34, 99, 100])
@pytest.mark.parametrize("batch_sort", [False, True])
def test_sizes_around_that_of_a_batch(size, batch_sort):
    for rows in (1, 2, 16, 32, 33):
        opt = {"batchsize": rows, "datatype": "valid", "batch_sort": batch_sort, "max_batch_tokens": None}
        check({"a": [1] * size}, opt, batched=True)
