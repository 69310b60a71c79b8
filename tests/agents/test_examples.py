from random import Random

import pytest

from dpmodule.agents import create_task
from dpmodule.agents.examples import DialogHistory, flatten, sort_data
from helpers.talks import NotingBatch, Talks, Texts, spec

TALK = [{"text": f"x{n}", "labels": [f"y{n}"]} for n in range(1, 5)]


def rows_of(**opt):
    """Return the examples that a batch world shows of one conversation, in its order."""
    task = {"task": spec(Talks), "talks": [TALK], "datatype": "train", "batchsize": 4, "batch_sort": True}
    student = NotingBatch({**task, **opt})
    create_task({**task, **opt}, student).parley()
    return sorted(student.seen, key=lambda each: each["labels"])


def test_squashed_examples():
    """The first two are the tables of ParlAI's description."""
    for opt, texts in (
        ({"context_length": -1, "include_labels": False}, ["x1", "x1\nx2", "x1\nx2\nx3", "x1\nx2\nx3\nx4"]),
        ({"context_length": 3, "include_labels": True}, ["x1", "x1\ny1\nx2", "x2\ny2\nx3", "x3\ny3\nx4"]),
        *(({"context_length": 0}, ["x4"]), ({"context_length": 1}, ["x4"])),
        *(({"context_length": 4}, ["y2\nx3\ny3\nx4"]), ({}, ["x1\ny1\nx2\ny2\nx3\ny3\nx4"])),
    ):
        rows = rows_of(**opt)
        assert [each["text"] for each in rows][-len(texts) :] == texts
        assert [(e["labels"], e["episode_done"]) for e in rows] == [([f"y{n}"], True) for n in range(1, 5)]


@pytest.mark.parametrize("length", [-1, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("labels", [True, False])
def test_an_episode_reads_as_its_squashed_examples_do(length, labels):
    history = DialogHistory({"context_length": length, "include_labels": labels})
    before, found = [dict(each) for each in TALK], []
    for _ in range(2):  # nothing of an episode is left for the next
        for place, each in enumerate(TALK):
            found.append(history.extended({**each, "episode_done": place == len(TALK) - 1})["text"])
    assert (found, before) == ([each["text"] for each in flatten([TALK, TALK], length, labels)], TALK)


def test_one_label_drawn_at_random_goes_into_the_context():
    talk = [{"text": "x", "labels": ["a", "b", "c"]}, {"text": "y", "labels": ["d"]}]
    drawn = {list(flatten([talk], rng=Random(seed)))[1]["text"] for seed in range(40)}
    assert drawn == {"x\na\ny", "x\nb\ny", "x\nc\ny"}


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


def batches_of(datatype, reset=False):
    task = spec(Texts, "a-" + "-".join(str(1 + n % 4) for n in range(60)))
    opt = {"task": task, "datatype": datatype, "batchsize": 8, "batch_sort": True, "context_length": 1}
    student = NotingBatch(opt)
    world = create_task(opt, student)
    count = -(-world.num_examples() // 8)
    for _ in range(2):
        for _ in range(count):
            world.parley()
        if reset:
            world.reset()
    texts = [tuple(each.get("text") for each in batch) for batch in student.batches]
    return texts[:count], texts[count:]


@pytest.mark.parametrize("datatype", ["train:ordered", "valid", "train"])
def test_training_alone_shuffles_batches_of_similar_length_each_epoch(datatype):
    first, second = batches_of(datatype, reset=datatype != "train:ordered")
    assert sorted(first, key=str) == sorted(second, key=str)
    assert (first == second) is (datatype != "train")
    spaces = [[text.count(" ") for text in batch if text is not None] for batch in first]
    assert max(max(batch) - min(batch) for batch in spaces) <= 2
    assert spaces != sorted(spaces)
