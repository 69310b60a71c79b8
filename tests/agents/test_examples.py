from random import Random

import pytest

from dpmodule.agents import FixedDialogTeacher, RepeatLabelAgent, create_task
from dpmodule.agents.examples import DialogHistory, flatten, make_batches, sort_data
from helpers.talks import NotingBatch, Talks, Texts, spec

TALK = [{"text": f"x{n}", "labels": [f"y{n}"]} for n in range(1, 5)]


def rows_of(**opt):
    """Return the examples that a batch world shows of one conversation, in its order."""
    task = {"task": spec(Talks), "talks": [TALK], "datatype": "train", "batchsize": 4, "batch_sort": True}
    student = NotingBatch({**task, **opt})
    create_task({**task, **opt}, student).parley()
    return sorted(student.seen, key=lambda each: each["labels"])


@pytest.mark.parametrize(
    ("opt", "texts"),
    [
        ({"context_length": -1, "include_labels": False}, ["x1", "x1\nx2", "x1\nx2\nx3", "x1\nx2\nx3\nx4"]),
        ({"context_length": 3, "include_labels": True}, ["x1", "x1\ny1\nx2", "x2\ny2\nx3", "x3\ny3\nx4"]),
        ({"context_length": 0}, ["x4"]),
        ({"context_length": 1}, ["x4"]),
        ({"context_length": 2}, ["y3\nx4"]),
        ({"context_length": 4}, ["y2\nx3\ny3\nx4"]),
        ({"context_length": 2, "include_labels": False}, ["x3\nx4"]),
        ({}, ["x1\ny1\nx2\ny2\nx3\ny3\nx4"]),
    ],
)
def test_squashed_examples(opt, texts):
    """The first two are the tables of ParlAI's description."""
    rows = rows_of(**opt)
    assert [each["text"] for each in rows][-len(texts) :] == texts
    assert [(each["labels"], each["episode_done"]) for each in rows] == [
        ([f"y{n}"], True) for n in range(1, 5)
    ]


@pytest.mark.parametrize("length", [-1, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("labels", [True, False])
def test_an_episode_reads_as_its_squashed_examples_do(length, labels):
    history = DialogHistory({"context_length": length, "include_labels": labels})
    found = []
    for _ in range(2):  # nothing of an episode is left for the next
        for place, each in enumerate(TALK):
            found.append(history.extended({**each, "episode_done": place == len(TALK) - 1})["text"])
    before = [dict(each) for each in TALK]
    assert found == [each["text"] for each in flatten([TALK, TALK], length, labels)]
    assert before == TALK


def test_one_label_drawn_at_random_goes_into_the_context():
    talk = [{"text": "x", "labels": ["a", "b", "c"]}, {"text": "y", "labels": ["d"]}]
    drawn = {list(flatten([talk], rng=Random(seed)))[1]["text"] for seed in range(40)}
    assert drawn == {"x\na\ny", "x\nb\ny", "x\nc\ny"}


@pytest.mark.parametrize(("sort", "episodes"), [(True, 6), (False, 2)])
def test_squashing_counts_rows_as_examples_and_episodes(sort, episodes):
    task = {"task": spec(Talks), "talks": [TALK, TALK[:2]], "datatype": "valid"}
    world = create_task({**task, "batchsize": 4, "batch_sort": sort}, NotingBatch(task))
    assert (world.num_examples(), world.num_episodes()) == (6, episodes)


def test_sorting_by_number_of_spaces_then_by_label_length_in_training_only():
    texts = ["a b c", "a", "a  b", "a b c d", "", "longword"]
    found = sort_data([{"text": text} for text in texts], False, Random(0))
    assert [each["text"].count(" ") for each in found] == [0, 0, 0, 2, 2, 3]
    ties = [("a b", "x y z"), ("c d", "x"), ("e f", "x y")]
    examples = [{"text": text, "labels": [label]} for text, label in ties]
    orders = {True: set(), False: set()}
    for training, found in orders.items():
        for seed in range(30):
            found.add(tuple(each["text"] for each in sort_data(examples, training, Random(seed))))
    assert orders[True] == {("c d", "e f", "a b")}
    assert len(orders[False]) == 6, "elsewhere ties are broken at random"


def test_batches():
    assert make_batches([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
    assert make_batches([], 3) == []


def batches_of(datatype, epochs=2, reset=False):
    task = spec(Texts, "a-" + "-".join(str(1 + n % 4) for n in range(60)))
    opt = {"task": task, "datatype": datatype, "batchsize": 8, "batch_sort": True, "context_length": 1}
    student = NotingBatch(opt)
    world = create_task(opt, student)
    count = -(-world.num_examples() // 8)
    for _ in range(epochs):
        for _ in range(count):
            world.parley()
        if reset:
            world.reset()
    texts = [tuple(each.get("text") for each in batch) for batch in student.batches]
    return texts[:count], texts[count:]


def test_batches_are_of_similar_length_and_in_a_fixed_order_but_not_of_length():
    first, _ = batches_of("valid", epochs=1)
    spaces = [[text.count(" ") for text in batch if text is not None] for batch in first]
    assert max(max(batch) - min(batch) for batch in spaces) <= 2
    assert spaces != sorted(spaces)
    assert batches_of("valid", 1) == (first, [])


@pytest.mark.parametrize(
    ("datatype", "reset", "same"),
    [
        ("train:ordered", False, True),
        ("valid", True, True),
        ("test", True, True),
        ("train", False, False),
        ("train", True, False),
    ],
)
def test_training_alone_shuffles_the_batches_each_epoch(datatype, reset, same):
    first, second = batches_of(datatype, reset=reset)
    assert sorted(first, key=str) == sorted(second, key=str)
    assert (first == second) is same


def test_history_ends_with_its_episode_and_leaves_observations_as_they_are():
    history, given = DialogHistory({}), {"text": "b", "episode_done": False}
    history.extended({"text": "a", "episode_done": False})
    assert history.extended({"episode_done": True}) == {"episode_done": True}
    assert history.extended(given) is given
    assert history.extended(given)["text"] == "b\nb"
    assert given["text"] == "b"
    history.clear()
    assert history.extended(given) is given


class Threes(FixedDialogTeacher):
    """Episodes of three examples."""

    def get(self, episode_idx, entry_idx=0):
        text = f"{episode_idx} {entry_idx}"
        return {"text": text, "labels": [text], "episode_done": entry_idx == 2}

    def num_episodes(self):
        return 5

    def num_examples(self):
        return 15


def asked(teacher, count):
    return [teacher.act()["text"] for _ in range(count)]


@pytest.mark.parametrize("before", [0, 1, 2, 3, 7, 14])
def test_another_teacher_resumes_within_the_episode(before):
    opt = {"task": "threes", "datatype": "train:ordered"}
    expected = asked(Threes(opt), 15)
    first = Threes({**opt, "positions": {}})
    assert asked(first, before) == expected[:before]
    second = Threes({**opt, "positions": {"threes": first.positions_dict()}})
    assert asked(second, 15 - before) == expected[before:]
    assert second.epoch_done()
    assert Threes(opt).positions_dict() is None


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_and_workers_have_places_of_their_own(workers):
    opt = {"task": "reverse", "datatype": "train:ordered", "batchsize": 2, "numthreads": workers}
    opt |= {"positions": {}, "hogwild_mode": "thread", "batch_sort": False}
    with create_task(opt, RepeatLabelAgent(opt)) as world:
        for _ in range(3):
            world.parley()
        world.report()
        place = world.get_agents()[0].positions_dict()
    assert (place["index"], len(place["rows"])) == (6, 2 * workers)
    assert sorted(row[0] for row in place["rows"])[-2:] == [4, 5]
