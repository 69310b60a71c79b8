import random

import pytest

from dpmodule.agents import (
    Agent,
    BatchWorld,
    DialogPartnerWorld,
    DynamicBatchWorld,
    ExecutableWorld,
    FixedDialogTeacher,
    MultiAgentDialogWorld,
    create_task,
)
from dpmodule.agents.batch_world import best_window
from dpmodule.base import ArgumentError
from helpers.talks import Noting, NotingBatch, Talks, Texts, epoch, spec, texts_of

TASK = spec(Texts, "a-3-1-2-1-1-2")


def opt_of(rows, **more):
    return {"task": TASK, "datatype": "valid", "batchsize": rows, **more}


class Recording(Noting):
    """Notes which instance is called; copies know their row."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.calls = shared["calls"] if shared else []
        self.row = self.opt.get("batchindex")

    def share(self):
        return {**super().share(), "calls": self.calls}

    def observe(self, observation):
        self.calls.append(("observe", self.row))
        super().observe(observation)
        return {"changed by": self.row, **observation}

    def act(self):
        self.calls.append(("act", self.row))
        return {"id": self.id, "text": "copy"}


class Batched(Recording):
    def batch_act(self, observations):
        self.calls.append(("batch_act", self.row, [each["changed by"] for each in observations]))
        return [{"id": self.id, "text": "original"} for _ in observations]


class Unused(Batched):
    use_batch_act = False


def test_batch_act_replaces_act_and_is_the_originals():
    agent = Batched(opt_of(3))
    world = create_task(opt_of(3), agent)
    world.parley()
    assert [call for call in agent.calls if call[0] != "observe"] == [("batch_act", None, [0, 1, 2])]
    assert [row.get_acts()[1]["text"] for row in world.worlds] == ["original"] * 3


@pytest.mark.parametrize("kind", [Unused, Recording])
def test_act_of_each_copy_without_batch_act(kind):
    agent = kind(opt_of(3))
    create_task(opt_of(3), agent).parley()
    assert [call for call in agent.calls if call[0] != "observe"] == [("act", 0), ("act", 1), ("act", 2)]


@pytest.mark.parametrize("uses", [True, False])
def test_a_teacher_may_have_a_batch_act_of_its_own(uses):
    class Own(Texts):
        def batch_act(self, observations):
            return [{"text": "own", "labels": ["a"], "id": "own"} for _ in range(self.bsz)]

    given = opt_of(2)
    teacher = Own({**given, "task_arguments": "a-1-1"})
    teacher.use_batch_act = uses
    world = BatchWorld(given, DialogPartnerWorld(given, [teacher, Noting(given)]))
    world.parley()
    assert (world.acts[0][0]["text"] == "own") is uses


def test_copies_still_observe_and_what_observe_returns_is_what_batch_act_gets():
    agent = Batched(opt_of(2))
    create_task(opt_of(2), agent).parley()
    assert agent.calls == [("observe", 0), ("observe", 1), ("batch_act", None, [0, 1])]


def test_copies_keep_the_state_of_their_row():
    agent = NotingBatch(opt_of(2))
    world = create_task(opt_of(2), agent)
    world.parley()
    assert agent.observation is None
    rows = [row.get_agents()[1].observation["text"] for row in world.worlds]
    assert rows == [row.get_acts()[0]["text"] for row in world.worlds]


def test_an_observe_that_returns_none_is_a_value_error():
    class Silent(Noting):
        def observe(self, observation):
            return None if self.opt["batchindex"] == 1 else observation

    world = create_task(opt_of(3), Silent(opt_of(3)))
    with pytest.raises(
        ValueError, match=r"observe of agent 'noting' \(Silent\) returned None in row 1; agents should return"
    ):
        world.parley()


def test_one_parley_is_batchsize_examples():
    world = create_task(opt_of(4), Noting(opt_of(4)))
    world.parley()
    assert (world.total_parleys, world.get_total_exs(), world.report()["total"]) == (1, 4, 4)


@pytest.mark.parametrize("task", [TASK, f"{TASK},{TASK}"])
def test_batchindex_stands_in_every_opt_that_is_shared(task):
    world = create_task(opt_of(3, task=task), Noting(opt_of(3)))
    for number, row in enumerate(world.worlds):
        assert row.opt["batchindex"] == number
        for each in getattr(row, "worlds", [row]):
            assert each.opt["batchindex"] == number
            assert [agent.opt["batchindex"] for agent in each.get_agents()] == [number, number]
    original = world.world
    assert not any("batchindex" in each.opt for each in [original, *original.get_agents()]), (
        "the original has none"
    )


@pytest.mark.parametrize("rows", [2, 3, 4, 7, 10, 11])
def test_batch_sort_padding(rows):
    """Rows without an example are observed, and not counted; ceil(n / batchsize) parleys."""
    given = opt_of(rows, batch_sort=True)
    world, student, parleys = epoch(given, NotingBatch(given))
    assert parleys == -(-10 // rows)
    assert len(student.seen) == parleys * rows
    assert sum("text" in each for each in student.seen) == world.report()["total"] == 10
    assert [each for each in student.seen if "text" not in each] == [{"episode_done": True, "id": TASK}] * (
        -10 % rows
    )


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_past_the_end_rows_get_empty_examples_that_are_not_counted(rows):
    given = opt_of(rows, batch_sort=False)
    world, student, _ = epoch(given)
    late = [each for each in student.seen if "text" not in each]
    assert all(each == {"episode_done": True, "id": TASK} for each in late)
    assert world.report()["total"] == 10
    world.parley()
    assert world.report()["total"] == 10


def test_episode_alignment():
    """Without sorting every row walks its own episode to the end before taking a new one."""
    given = opt_of(3, batch_sort=False)
    world = create_task(given, Noting(given))
    columns = [[] for _ in world.worlds]
    while not world.epoch_done():
        world.parley()
        for column, row in zip(columns, world.worlds):
            column += [row.get_acts()[0]["text"].split()[1]] if "text" in row.get_acts()[0] else []
    assert columns == [["0.0", "0.1", "0.2"], ["1.0", "3.0", "4.0"], ["2.0", "2.1", "5.0", "5.1"]]


@pytest.mark.parametrize("rows", [2, 5])
@pytest.mark.parametrize("sort", [False, True])
def test_metrics_are_one_object_shared_by_all_copies(rows, sort):
    world = create_task(opt_of(rows, batch_sort=sort), Noting(opt_of(rows)))
    metrics = world.world.get_agents()[0].metrics
    assert all(row.get_agents()[0].metrics is metrics for row in world.worlds)


class Losing(Noting):
    def batch_act(self, observations):
        return [
            {"id": "l", "text": "?", "metrics": {"loss": 3.0}} if "text" in each else {"id": "l"}
            for each in observations
        ]


@pytest.mark.parametrize("sort", [False, True])
def test_custom_metrics_are_reported(sort):
    given = opt_of(4, batch_sort=sort)
    report = epoch(given, Losing(given))[0].report()
    assert report == {"total": 10, "accuracy": 0.0, "f1": 0.0, "loss": 3.0}


@pytest.mark.parametrize("sort", [False, True])
def test_reset_gives_another_full_epoch(sort):
    given = opt_of(4, batch_sort=sort)
    world, student, parleys = epoch(given)
    first = texts_of(student.seen)
    for _ in range(3):
        student.seen.clear()
        world.reset()
        assert world.report() == {"total": 0}
        again = 0
        while not world.epoch_done():
            world.parley()
            again += 1
        assert again == parleys
        assert texts_of(student.seen) == first
        assert world.report()["total"] == 10


@pytest.mark.parametrize("datatype", ["train", "train:ordered"])
@pytest.mark.parametrize("sort", [False, True])
def test_epochs_are_counted_in_training(datatype, sort):
    given = opt_of(5, datatype=datatype, batch_sort=sort)
    world = create_task(given, Noting(given))
    for _ in range(6):
        world.parley()
    assert world.get_total_epochs() == 3.0


def test_parley_init_chooses_the_tasks_of_each_row():
    task = f"{spec(Texts, 'a-1-1-1-1')},{spec(Texts, 'b-1-1-1-1')}"
    given = opt_of(2, task=task)
    world = create_task(given, Noting(given))
    firsts = []
    for _ in range(4):
        world.parley()
        firsts.append("".join(row.get_acts()[0]["text"][0] for row in world.worlds))
    assert firsts == ["aa", "bb", "aa", "bb"]
    assert world.epoch_done()


def test_worlds_with_their_own_execute_and_observe():
    class Whispering(ExecutableWorld):
        def execute(self, agent, act):
            self.said = [*getattr(self, "said", ()), act.get("text")]

        def observe(self, agent, act):
            is_own = act["id"] == agent.getID()
            return None if is_own else {**act, "text": f"({act.get('text')})"}

    given = opt_of(2)
    student = Noting(given)
    world = create_task(given, student, default_world=Whispering)
    world.parley()
    assert [each["text"] for each in student.seen] == ["(a 0.0)", "(a 1.0 x x)"]
    assert [row.said for row in world.worlds] == [["a 0.0", "0.0"], ["a 1.0 x x", "1.0"]]


def test_display_shows_every_row():
    given = opt_of(2)
    world = create_task(given, Noting(given))
    world.parley()
    lines = world.display().splitlines()
    assert lines[0] == "[--batchsize 2--]"
    assert [line for line in lines if line.startswith("[batch world")] == [
        "[batch world 0:]",
        "[batch world 1:]",
    ]
    assert not world.episode_done()


class Wrong(Noting):
    def batch_act(self, observations):
        return self.opt["reply"](observations)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (lambda rows: [{}] * 2, r"batch_act of agent 'noting' \(Wrong\) returned 2 messages for 3 rows"),
        (
            lambda rows: [{}] * 2 + [{"text": 7}],
            r"agent 'noting' \(Wrong\) returned a message whose text is of type int from its act in row 2",
        ),
        (lambda rows: [], "returned 0 messages for 3 rows"),
        (lambda rows: None, "returned something of type NoneType for 3 rows"),
        (lambda rows: {"text": "x"}, "returned something of type dict for 3 rows"),
        (
            lambda rows: [{}, "text", {}],
            r"agent 'noting' \(Wrong\) returned something of type str from its act in row 1",
        ),
        (lambda rows: [{}, {}, None], "returned None from its act in row 2"),
    ],
)
def test_a_batch_act_that_breaks_the_rules(reply, told):
    given = opt_of(3, reply=reply)
    world = create_task(given, Wrong(given))
    with pytest.raises(ArgumentError, match=told):
        world.parley()


def test_of_more_messages_than_rows_the_first_ones_count():
    given = opt_of(3, batch_sort=True)
    student = NotingBatch(given)
    student.batch_act = lambda rows: (*map(student.answer, rows), {"text": "more"}, None)
    world = epoch(given, student)[0]
    assert world.report() == {"total": 10, "accuracy": 1.0, "f1": 1.0}
    assert len(world.acts[1]) == 3


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", True])
def test_batch_sizes_below_1(value):
    plain = create_task({"task": TASK, "datatype": "valid"}, Noting({}))
    with pytest.raises(ArgumentError, match="batchsize is .*, expected an integer from 1"):
        BatchWorld({"batchsize": value}, plain)


def test_a_missing_label_in_training_is_told_with_batches():
    talks = [[{"text": "one", "labels": ["1"]}], [{"text": "two"}]]
    given = {
        "task": spec(Talks),
        "talks": talks,
        "datatype": "train:ordered",
        "batchsize": 2,
        "batch_sort": True,
    }
    with pytest.raises(ArgumentError, match=r"the example 'two' has neither labels nor a reward"):
        create_task(given, Noting(given)).parley()
    assert issubclass(Talks, FixedDialogTeacher)


LENGTHS = "3-1-2-0-5-1-1-4-2-9-1-1"
LONG_TASK = spec(Texts, f"a-{LENGTHS}")
TWO = f"{LONG_TASK},{spec(Texts, 'b-2-2-7')}"


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


@pytest.mark.parametrize("task", [LONG_TASK, TWO])
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
    opt = {"task": LONG_TASK, "datatype": "valid", "max_batch_tokens": budget}
    _, student, parleys = epoch(opt, NotingBatch(opt))
    sizes = [[each["text"].count(" ") + 1 for each in batch] for batch in student.batches]
    assert len(sizes) == parleys
    for lengths in sizes:
        assert lengths == sorted(lengths)
        assert len(lengths) == 1 or (lengths[-1] + 1) * len(lengths) <= budget
    assert max(map(len, sizes)) > 1


def test_the_number_of_rows_is_limited_by_the_batch_size():
    opt = {"task": LONG_TASK, "datatype": "valid", "max_batch_tokens": 1000, "batchsize": 3}
    student = epoch(opt, NotingBatch(opt))[1]
    assert max(map(len, student.batches)) == 3


def test_training_starves_no_row():
    opt = {"task": LONG_TASK, "datatype": "train:ordered", "max_batch_tokens": 20}
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
    opt = {"task": LONG_TASK, "datatype": "valid", "max_batch_tokens": 10}
    world = create_task(opt, Noting(opt))
    world.parley()
    assert "a 0.0" in world.display()


class WrongOrSilent(Noting):
    def batch_act(self, observations):
        return self.opt["reply"](observations)

    def observe(self, observation):
        return None if self.opt["reply"] is None else super().observe(observation)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (
            lambda rows: rows[1:],
            r"batch_act of agent 'noting' \(WrongOrSilent\) returned \d+ messages for \d+ rows",
        ),
        (lambda rows: None, "returned something of type NoneType for"),
        (
            lambda rows: ["text"] * len(rows),
            r"agent 'noting' \(WrongOrSilent\) returned something of type str .* in row \d+",
        ),
        (
            lambda rows: [{"text": ["a"]}] * len(rows),
            r"agent 'noting' \(WrongOrSilent\) returned a message whose text is of type list",
        ),
        (None, "observe of agent 'noting'.* returned None in row 0"),
    ],
)
def test_agents_that_break_the_rules(reply, told):
    opt = {"task": LONG_TASK, "datatype": "valid", "max_batch_tokens": 30, "reply": reply}
    world = create_task(opt, WrongOrSilent(opt))
    with pytest.raises(ArgumentError, match=told):
        world.parley()


@pytest.mark.parametrize("name", ["max_batch_tokens", "batch_buffer", "batchsize"])
@pytest.mark.parametrize("value", [0, -1, "3", 1.5, True])
def test_numbers_below_1(name, value):
    opt = {"task": LONG_TASK, "datatype": "valid", "max_batch_tokens": 30, name: value}
    with pytest.raises(ArgumentError, match=f"{name} is {value!r}, expected an integer from 1"):
        create_task(opt, Noting(opt))


def test_three_agents():
    opt = {"task": LONG_TASK, "datatype": "valid", "max_batch_tokens": 30}
    world = MultiAgentDialogWorld(opt, [Noting(opt), Noting(opt), Noting(opt)])
    with pytest.raises(ArgumentError, match="world has 3 agents, expected two"):
        DynamicBatchWorld(opt, world)
