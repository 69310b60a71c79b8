from random import Random

import pytest

from dpmodule.agents import RepeatLabelAgent, create_task
from dpmodule.agents.examples import DialogHistory, EpisodePositions, flatten, make_batches, sort_data
from dpmodule.agents.teachers import FixedDialogTeacher
from dpmodule.base import ArgumentError
from helpers.talks import NotingBatch, Talks, Texts, epoch, spec

X1, X2, X3, X4 = [{"text": f"x{n}", "labels": [f"y{n}"]} for n in range(1, 5)]
TALK = [X1, X2, X3, X4]


def rows_of(**opt):
    """Return the examples that a batch world shows of one conversation, in its order."""
    given = {
        "task": spec(Talks),
        "talks": [TALK],
        "datatype": "train",
        "batchsize": 4,
        "batch_sort": True,
        **opt,
    }
    student = NotingBatch(given)
    create_task(given, student).parley()
    seen = [{name: each[name] for name in ("text", "labels", "episode_done")} for each in student.seen]
    return sorted(seen, key=lambda each: each["labels"])


def test_without_batching_the_examples_come_over_four_parleys():
    opt = {"task": spec(Talks), "talks": [TALK], "datatype": "train:ordered"}
    teacher = Talks(opt)
    seen = [teacher.act() for _ in range(4)]
    assert [(each["text"], each["labels"], each["episode_done"]) for each in seen] == [
        ("x1", ["y1"], False), ("x2", ["y2"], False), ("x3", ["y3"], False), ("x4", ["y4"], True)
    ]  # fmt: skip


def test_first_table_of_the_description():
    """context-length -1, include-labels False."""
    assert rows_of(context_length=-1, include_labels=False) == [
        {"text": "x1", "labels": ["y1"], "episode_done": True},
        {"text": "x1\nx2", "labels": ["y2"], "episode_done": True},
        {"text": "x1\nx2\nx3", "labels": ["y3"], "episode_done": True},
        {"text": "x1\nx2\nx3\nx4", "labels": ["y4"], "episode_done": True},
    ]


def test_second_table_of_the_description():
    """context-length 3, include-labels True."""
    assert rows_of(context_length=3, include_labels=True) == [
        {"text": "x1", "labels": ["y1"], "episode_done": True},
        {"text": "x1\ny1\nx2", "labels": ["y2"], "episode_done": True},
        {"text": "x2\ny2\nx3", "labels": ["y3"], "episode_done": True},
        {"text": "x3\ny3\nx4", "labels": ["y4"], "episode_done": True},
    ]


@pytest.mark.parametrize(
    ("length", "labels", "last"),
    [
        (0, True, "x4"),
        (1, True, "x4"),
        (2, True, "y3\nx4"),
        (4, True, "y2\nx3\ny3\nx4"),
        (2, False, "x3\nx4"),
    ],
)
def test_context_length_counts_texts_and_labels(length, labels, last):
    assert rows_of(context_length=length, include_labels=labels)[-1]["text"] == last


def test_by_default_the_context_is_all_with_labels():
    assert rows_of()[-1]["text"] == "x1\ny1\nx2\ny2\nx3\ny3\nx4"


def test_one_label_drawn_at_random_goes_into_the_context():
    talk = [{"text": "x", "labels": ["a", "b", "c"]}, {"text": "y", "labels": ["d"]}]
    drawn = {next(iter(list(flatten([talk], rng=Random(seed)))[1:]))["text"] for seed in range(40)}
    assert drawn == {"x\na\ny", "x\nb\ny", "x\nc\ny"}


def test_squashing_counts_rows_as_examples_and_episodes():
    opt = {
        "task": spec(Talks),
        "talks": [TALK, TALK[:2]],
        "datatype": "valid",
        "batchsize": 4,
        "batch_sort": True,
    }
    world = create_task(opt, NotingBatch(opt))
    assert (world.num_examples(), world.num_episodes()) == (6, 6)
    plain = create_task({**opt, "batch_sort": False}, NotingBatch(opt))
    assert (plain.num_examples(), plain.num_episodes()) == (6, 2)


def test_the_examples_themselves_are_not_changed():
    before = [dict(each) for each in TALK]
    list(flatten([TALK]))
    assert before == TALK


def test_sorting_by_number_of_spaces():
    texts = ["a b c", "a", "a  b", "a b c d", "", "longword"]
    found = sort_data([{"text": text} for text in texts], False, Random(0))
    assert [each["text"].count(" ") for each in found] == [0, 0, 0, 2, 2, 3]


def test_ties_by_label_length_in_training_only():
    examples = [
        {"text": "a b", "labels": ["x y z"]},
        {"text": "c d", "labels": ["x"]},
        {"text": "e f", "labels": ["x y"]},
    ]
    orders = set()
    for seed in range(30):
        found = sort_data(examples, True, Random(seed))
        assert [each["text"] for each in found] == ["c d", "e f", "a b"]
        orders.add(tuple(each["text"] for each in sort_data(examples, False, Random(seed))))
    assert len(orders) == 6, "elsewhere ties are broken at random"


def test_batches():
    assert make_batches([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
    assert make_batches([], 3) == []


LENGTHS = "-".join(str(1 + n % 4) for n in range(60))


def batches_of(datatype, epochs=2, reset=False):
    opt = {
        "task": spec(Texts, f"a-{LENGTHS}"),
        "datatype": datatype,
        "batchsize": 8,
        "batch_sort": True,
        "context_length": 1,
    }
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


def test_batches_are_of_similar_length_and_in_no_order_of_length():
    first, _ = batches_of("valid", epochs=1)
    spaces = [[text.count(" ") for text in batch if text is not None] for batch in first]
    assert max(max(batch) - min(batch) for batch in spaces) <= 2
    assert spaces != sorted(spaces)


def test_batches_are_shuffled_by_a_fixed_seed():
    assert batches_of("valid", 1) == batches_of("valid", 1)


@pytest.mark.parametrize(("datatype", "reset"), [("train:ordered", False), ("valid", True), ("test", True)])
def test_elsewhere_every_epoch_has_the_same_order(datatype, reset):
    first, second = batches_of(datatype, reset=reset)
    assert first == second


@pytest.mark.parametrize("reset", [False, True])
def test_training_reshuffles_the_batches_each_epoch(reset):
    first, second = batches_of("train", reset=reset)
    assert sorted(first, key=str) == sorted(second, key=str)
    assert first != second


def test_padding_is_a_fraction_of_that_without_sorting():
    """Lengths from 1 to 60, batches of 32."""
    rng = Random(3)
    talks = [[{"text": " ".join("x" * rng.randrange(1, 61)), "labels": ["y"]}] for _ in range(960)]

    def padding(sort):
        opt = {"task": spec(Talks), "talks": talks, "datatype": "valid", "batchsize": 32, "batch_sort": sort}
        batches = epoch(opt, NotingBatch(opt))[1].batches
        lengths = [[each["text"].count(" ") + 1 for each in batch if "text" in each] for batch in batches]
        return sum(max(batch) * len(batch) - sum(batch) for batch in lengths)

    assert padding(True) * 8 <= padding(False)


@pytest.mark.parametrize("length", [-1, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("labels", [True, False])
def test_an_episode_reads_as_its_squashed_examples_do(length, labels):
    history = DialogHistory({"context_length": length, "include_labels": labels})
    found = []
    for _ in range(2):  # nothing of an episode is left for the next
        for place, each in enumerate(TALK):
            found.append(history.extended({**each, "episode_done": place == len(TALK) - 1})["text"])
    assert found == [each["text"] for each in flatten([TALK, TALK], length, labels)]


def test_an_end_without_text_ends_an_episode():
    history = DialogHistory({})
    history.extended({"text": "a", "episode_done": False})
    assert history.extended({"episode_done": True}) == {"episode_done": True}
    assert history.extended({"text": "b", "episode_done": True})["text"] == "b"


def test_observations_are_left_as_they_are():
    history = DialogHistory({})
    history.extended({"text": "a", "episode_done": False})
    given = {"text": "b", "episode_done": False}
    assert history.extended(given)["text"] == "a\nb"
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
def test_another_teacher_goes_on_within_the_episode(before):
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
    opt = {
        "task": "reverse",
        "datatype": "train:ordered",
        "batchsize": 2,
        "numthreads": workers,
        "positions": {},
    }
    opt |= {"hogwild_mode": "thread", "batch_sort": False}
    with create_task(opt, RepeatLabelAgent(opt)) as world:
        for _ in range(3):
            world.parley()
        world.report()
        place = world.get_agents()[0].positions_dict()
    assert place["index"] == 6
    assert len(place["rows"]) == 2 * workers
    assert sorted(row[0] for row in place["rows"])[-2:] == [4, 5]
    with pytest.raises(
        ArgumentError, match=f"positions belong to {2 * workers} copies of the teacher, expected 3"
    ):
        EpisodePositions(3, place["rows"])
