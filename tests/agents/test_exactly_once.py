"""Outside training every example is seen exactly once, however it is asked for, and reports are the same."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpmodule.agents import BatchWorld, DialogPartnerWorld, HogwildWorld, MultiTaskTeacher
from helpers.talks import Noting, NotingBatch, Texts, epoch, finish, spec

EPISODES = st.lists(st.integers(0, 9), max_size=40).map(
    lambda lengths: [length for place, length in enumerate(lengths) if sum(lengths[: place + 1]) <= 100]
)
CASES = st.fixed_dictionaries(
    {
        "batchsize": st.integers(1, 33),
        "datatype": st.sampled_from(["valid", "test", "valid:stream", "train:evalmode"]),
        **{"batch_sort": st.booleans(), "context_length": st.sampled_from([-1, 1, 3])},
        "max_batch_tokens": st.sampled_from([None, None, 1, 5, 60]),
        **{"batch_buffer": st.sampled_from([3, 100]), "workers": st.sampled_from([1] * 9 + [2, 3])},
        "hogwild_mode": st.sampled_from(["fork", "thread"]),
    }
)


class Half(Noting):
    """Right about every second example."""

    def answer(self, observation):
        (label,) = observation.get("eval_labels") or (None,)
        if label is None:
            return {"id": self.id}
        is_right = int(label[-1]) % 2
        return {"id": self.id, "text": label if is_right else "no idea", "metrics": {"loss": float(label)}}


class HalfBatch(Half, NotingBatch):
    pass


def seen_by(student):
    lasts = (each["text"].rpartition("\n")[2].split() for each in student.seen if "text" in each)
    return sorted((name, number) for name, number, *_ in lasts)


def check(first, second, is_double, opt, batched, as_teacher):
    tasks = {"a": first, "b": second} if is_double else {"a": first}
    as_teacher &= is_double
    names = [spec(Texts, "-".join([name, *map(str, lengths)])) for name, lengths in tasks.items()]
    opt = {**opt, "task": ",".join(names), "numthreads": opt.get("workers", 1)}
    has_workers = opt["numthreads"] > 1
    if as_teacher or has_workers:
        opt["max_batch_tokens"] = None
    student = (HalfBatch if batched and (opt["batchsize"] > 1 or opt["max_batch_tokens"]) else Half)(opt)
    episodes = [(name, place, m) for name, lengths in tasks.items() for place, m in enumerate(lengths)]
    expected = sorted((name, f"{place}.{entry}") for name, place, m in episodes for entry in range(m))
    if as_teacher:
        world = DialogPartnerWorld(opt, [MultiTaskTeacher({**opt, "numthreads": 1}), student])
        if has_workers:
            world = HogwildWorld(opt, world)
        elif opt["batchsize"] > 1:
            world = BatchWorld(opt, world)
        parleys = finish(world)
    else:
        world, _, parleys = epoch(opt, student)
    assert has_workers or seen_by(student) == expected  # other processes have lists of their own
    serial = {"task": opt["task"], "datatype": "valid"}
    assert (world.report(), world.num_examples()) == (epoch(serial, Half(serial))[0].report(), len(expected))
    if has_workers:
        assert parleys <= len(expected) + 3 * opt["numthreads"]
    elif opt["max_batch_tokens"] and not as_teacher:
        assert (world.get_total_exs(), parleys <= len(expected)) == (len(expected), True)
    elif not as_teacher and world.get_agents()[0].use_batch_act and len(tasks) == 1:
        assert parleys == -(-len(expected) // opt["batchsize"])
    student.seen.clear()
    world.reset()
    finish(world)
    assert world.report()["total"] == len(expected), "after reset"
    assert has_workers or seen_by(student) == expected, "after reset"
    world.shutdown()


@pytest.mark.parametrize(
    "examples", [80, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_every_example_is_seen_exactly_once(examples):
    options = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}
    drawn = given(EPISODES, EPISODES, st.booleans(), CASES, st.booleans(), st.booleans())(check)
    settings(max_examples=examples, **options)(drawn)()
