import random

import pytest

from dpmodule.agents import Agent, DynamicBatchWorld, MultiAgentDialogWorld, create_task
from dpmodule.agents.batch_world import best_window
from dpmodule.base import ArgumentError
from helpers.talks import Noting, NotingBatch, Texts, epoch, spec, texts_of

LENGTHS = "3-1-2-0-5-1-1-4-2-9-1-1"
TASK = spec(Texts, f"a-{LENGTHS}")
TWO = f"{TASK},{spec(Texts, 'b-2-2-7')}"


class Half(Agent):
    """Right about every second example, by its text."""

    def batch_act(self, observations):
        return [self.answer(each) for each in observations]

    def answer(self, observation):
        labels = observation.get("eval_labels")
        is_right = len(observation["text"]) % 2
        return {
            "id": "half",
            "text": labels[0] if is_right else "no idea",
            "metrics": {"loss": len(observation["text"])},
        }

    def act(self):
        return self.answer(self.observation)


@pytest.mark.parametrize("task", [TASK, TWO])
@pytest.mark.parametrize("budget", [1, 8, 40, 1000])
@pytest.mark.parametrize(
    "more", [{}, {"batchsize": 4, "batch_sort": True}, {"batch_buffer": 3}, {"datatype": "test:stream"}]
)
def test_every_example_exactly_once_and_the_report_of_the_serial_world(task, budget, more):
    opt = {"task": task, "datatype": "valid", "max_batch_tokens": budget, **more}
    serial = {"task": task, "datatype": "valid"}
    alone = epoch(serial, Half(serial))[0].report()
    world, _, parleys = epoch(opt, Half(opt))
    assert world.report() == alone
    assert world.get_total_exs() == world.num_examples() == alone["total"]
    assert world.get_total_epochs() == 1.0
    assert parleys <= alone["total"]
    student = Noting(opt)
    world = create_task(opt, student)
    for _ in range(2):
        while not world.epoch_done():
            world.parley()
        world.reset()
    seen = texts_of(student.seen)
    assert seen[::2] == seen[1::2] == texts_of(epoch(serial)[1].seen)


@pytest.mark.parametrize("budget", [12, 30, 100])
def test_batches_stay_within_the_budget(budget):
    opt = {"task": TASK, "datatype": "valid", "max_batch_tokens": budget}
    _, student, parleys = epoch(opt, NotingBatch(opt))
    sizes = [[each["text"].count(" ") + 1 for each in batch] for batch in student.batches]
    assert len(sizes) == parleys
    for lengths in sizes:
        assert lengths == sorted(lengths)
        assert len(lengths) == 1 or (lengths[-1] + 1) * len(lengths) <= budget
    assert max(map(len, sizes)) > 1


def test_the_number_of_rows_is_limited_by_the_batch_size():
    opt = {"task": TASK, "datatype": "valid", "max_batch_tokens": 1000, "batchsize": 3}
    student = epoch(opt, NotingBatch(opt))[1]
    assert max(map(len, student.batches)) == 3


def test_training_starves_no_row():
    opt = {"task": TASK, "datatype": "train:ordered", "max_batch_tokens": 20}
    student = NotingBatch(opt)
    world = create_task(opt, student)
    assert type(world) is DynamicBatchWorld
    while world.get_total_epochs() < 6:
        world.parley()
    answered = {each["text"] for batch in student.batches for each in batch}
    assert len(answered) == world.num_examples()


@pytest.mark.parametrize("seed", range(40))
def test_the_window_is_the_fullest_there_is(seed):
    rng = random.Random(seed)
    lengths = sorted(rng.randrange(1, 12) for _ in range(rng.randrange(1, 12)))
    place, budget, most = rng.randrange(len(lengths)), rng.randrange(1, 60), rng.choice((2, 4, 100))
    windows = [
        (sum(lengths[first:end]), first, end)
        for first in range(place + 1)
        for end in range(place + 1, len(lengths) + 1)
        if end - first <= most and (lengths[end - 1] + 1) * (end - first) <= budget
    ]
    first, end = best_window(lengths, place, budget, most)
    if windows:
        assert (first, end) in [window[1:] for window in windows]
        assert sum(lengths[first:end]) == max(windows)[0]
    else:
        assert (first, end) == (place, place + 1)


def test_no_examples_are_an_epoch_of_no_parleys():
    opt = {"task": spec(Texts, "a"), "datatype": "valid", "max_batch_tokens": 9}
    world, _, parleys = epoch(opt)
    assert parleys == 0
    world.parley()
    assert world.report() == {"total": 0}
    assert world.display().splitlines()[0] == "[--batch of 0--]"


def test_display_shows_the_last_batch():
    opt = {"task": TASK, "datatype": "valid", "max_batch_tokens": 10}
    world = create_task(opt, Noting(opt))
    world.parley()
    assert "a 0.0" in world.display()


class Wrong(Noting):
    def batch_act(self, observations):
        return self.opt["reply"](observations)

    def observe(self, observation):
        return None if self.opt["reply"] is None else super().observe(observation)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (
            lambda rows: rows[1:],
            r"batch_act of agent 'noting' \(Wrong\) returned \d+ messages for \d+ rows",
        ),
        (lambda rows: None, "returned something of type NoneType for"),
        (
            lambda rows: ["text"] * len(rows),
            r"agent 'noting' \(Wrong\) returned something of type str .* in row \d+",
        ),
        (
            lambda rows: [{"text": ["a"]}] * len(rows),
            r"agent 'noting' \(Wrong\) returned a message whose text is of type list",
        ),
        (None, "observe of agent 'noting'.* returned None in row 0"),
    ],
)
def test_agents_that_break_the_rules(reply, told):
    opt = {"task": TASK, "datatype": "valid", "max_batch_tokens": 30, "reply": reply}
    world = create_task(opt, Wrong(opt))
    with pytest.raises(ArgumentError, match=told):
        world.parley()


@pytest.mark.parametrize("name", ["max_batch_tokens", "batch_buffer", "batchsize"])
@pytest.mark.parametrize("value", [0, -1, "3", 1.5, True])
def test_numbers_below_1(name, value):
    opt = {"task": TASK, "datatype": "valid", "max_batch_tokens": 30, name: value}
    with pytest.raises(ArgumentError, match=f"{name} is {value!r}, expected a whole number from 1"):
        create_task(opt, Noting(opt))


def test_three_agents():
    opt = {"task": TASK, "datatype": "valid", "max_batch_tokens": 30}
    world = MultiAgentDialogWorld(opt, [Noting(opt), Noting(opt), Noting(opt)])
    with pytest.raises(ArgumentError, match="world has 3 agents, expected two"):
        DynamicBatchWorld(opt, world)
