"""Tasks that ship: what they ask, in which split, and what their arguments say."""

from __future__ import annotations

import pytest

from dpmodule.agents import RepeatLabelAgent, create_task
from dpmodule.agents.tasks import split_of
from dpmodule.base import ArgumentError, FileError, FileFormatError

SPLITS = ("train", "valid", "test")
MADE_UP = ("reverse", "nocandidate", "docs")


def create_teacher(task, **opt):
    return create_task({"task": task, "datatype": "valid", **opt}, RepeatLabelAgent({})).get_agents()[0]


def examples(task, **opt):
    teacher = create_teacher(task, **opt)
    return [teacher.get(number) for number in range(teacher.num_episodes())]


def texts(task, **opt):
    return [example["text"] for example in examples(task, **opt)]


@pytest.mark.parametrize("task", MADE_UP)
def test_is_the_same_each_time(task):
    assert examples(task) == examples(task) != []


@pytest.mark.parametrize("task", MADE_UP)
def test_no_text_stands_in_two_splits(task):
    train, valid, test = (set(texts(task, datatype=split)) for split in SPLITS)
    assert train
    assert len(train | valid | test) == len(train) + len(valid) + len(test)


@pytest.mark.parametrize("task", MADE_UP)
@pytest.mark.parametrize("batchsize", [1, 8])
def test_an_epoch_of_valid_is_every_example_once(task, batchsize):
    world = create_task({"task": f"{task}:valid", "batchsize": batchsize}, RepeatLabelAgent({}))
    while not world.epoch_done():
        world.parley()
    report = world.report()
    assert (report["total"], report["accuracy"]) == (world.num_examples(), 1.0)
    assert world.num_examples() >= 100


def test_reverse_has_the_letters_in_reverse_order():
    for example in examples("reverse"):
        letters = example["text"].split()
        assert example["labels"] == [" ".join(reversed(letters))]
        assert 1 <= len(letters) <= 5
        assert set(letters) <= set("abcdefgh")


def test_reverse_takes_sizes_and_lengths():
    made = examples("reverse:size=7:shortest=9:length=12:letters=3", datatype="train")
    assert len(made) == 7
    assert all(9 <= len(example["text"].split()) <= 12 for example in made)
    assert set("".join(example["text"] for example in made)) == set(" abc")


def test_reverse_of_another_seed_has_other_texts():
    assert texts("reverse:seed=1") != texts("reverse:seed=2")


def test_sizes_of_splits():
    sizes = [create_teacher("reverse", datatype=split).num_examples() for split in SPLITS]
    assert sizes == [10_000, 500, 500]
    assert [create_teacher("nocandidate", datatype=split).num_examples() for split in SPLITS] == [
        500,
        100,
        100,
    ]


def test_nocandidate_asks_for_the_same_again():
    for example in examples("nocandidate"):
        assert example["labels"] == [example["text"]]
        assert len(example["text"].split()) == 4
        assert "label_candidates" not in example


def test_docs_has_the_label_among_functions_of_the_module():
    asked = examples("docs:candidates=5", datatype="train")
    assert len(asked) > 500
    for example in asked:
        [label] = example["labels"]
        assert label in example["label_candidates"]
        assert len(example["label_candidates"]) <= 5
    assert any(each["text"].startswith("which function of os.path: ") for each in asked)


@pytest.mark.parametrize(("given", "argument", "used"), [
    ("train", "valid", "valid"),
    ("train:ordered", "train", "train:ordered"),
    ("valid", "test", "test"),
    ("valid", "train", "train:evalmode"),
    ("train", "", "train"),
])  # fmt: skip
def test_a_split_behind_the_name_counts_more_than_the_datatype(given, argument, used):
    teacher = create_teacher(f"reverse:{argument}", datatype=given)
    assert teacher.datatype == used
    assert teacher.act().keys() >= {"labels" if used in ("train", "train:ordered") else "eval_labels"}
    text = teacher.act()["text"]
    assert split_of(text) == used.partition(":")[0]


def test_copies_have_the_same_examples():
    world = create_task({"task": "reverse:valid:size=20", "batchsize": 4}, RepeatLabelAgent({}))
    assert {row.get_agents()[0].num_examples() for row in world.worlds} == {20}
    assert {row.get_agents()[0].datatype for row in world.worlds} == {"valid"}


@pytest.mark.parametrize(("task", "said"), [
    ("reverse:size=many", "size=many"),
    ("reverse:size=-1", "size=-1"),
    ("nocandidate:letters=3", "letters=3"),
    ("docs:walid", "walid"),
    ("reverse:shortest=5:length=4", "shortest is 5"),
    ("reverse:letters=27", "letters 27"),
    ("nocandidate:length=0", "length is 0"),
    ("nocandidate:tokens=1", "more words"),
])  # fmt: skip
def test_a_wrong_argument_is_named(task, said):
    with pytest.raises(ArgumentError, match=said):
        create_teacher(task)


FORMS = {
    "fields": "text:hi\tlabels:ho|hum\ntext:so\tlabels:well\tepisode_done:True\n",
    "numbered": "1 hi\tho|hum\n2 so\twell\n",
    "conversations": '{"dialog": ["hi", "ho"]}\n\n{"dialog": [{"text": "so"}, {"text": "well"}]}\n',
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("start", ["", "\n  \n", "\ufeff"])
def test_fromfile_knows_a_format_by_the_first_line(form, start, tmp_path):
    (tmp_path / "talk.txt").write_text(start + FORMS[form], encoding="utf-8")
    teacher = create_teacher(f"fromfile:{tmp_path}/talk.txt")
    assert [teacher.get(*place)["text"] for place in _places(teacher)] == ["hi", "so"]
    assert teacher.get(0)["labels"] == (("ho",) if form == "conversations" else ("ho", "hum"))


def _places(teacher):
    return [(0, 0), (1, 0)] if teacher.num_episodes() == 2 else [(0, 0), (0, 1)]


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_fromfile_knows_json_by_its_ending(ending, tmp_path):
    (tmp_path / f"talk.{ending}").write_text("[]\n")
    with pytest.raises(FileFormatError, match=rf"talk\.{ending}: line 1"):
        create_teacher(f"fromfile:{tmp_path}/talk.{ending}")


def test_fromfile_takes_the_file_of_the_split_from_a_folder(tmp_path):
    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text(f"text:{split}\tlabels:a\tepisode_done:True\n")
    assert texts(f"fromfile:{tmp_path}", datatype="train:ordered") == ["train"]
    assert texts(f"fromfile:{tmp_path}") == ["valid"]
    with pytest.raises(ArgumentError, match=r"no test\.txt"):
        create_teacher(f"fromfile:{tmp_path}", datatype="test")


@pytest.mark.parametrize("mode", ["valid", "valid:stream"])
def test_an_epoch_of_a_file_is_every_example_once(mode, tmp_path):
    lines = [f"text:{number}\tlabels:{number}\tepisode_done:{number % 3 == 2}\n" for number in range(20)]
    (tmp_path / "talk").write_text("".join(lines))
    world = create_task(
        {"task": f"fromfile:{tmp_path}/talk", "datatype": mode, "batchsize": 4}, RepeatLabelAgent({})
    )
    while not world.epoch_done():
        world.parley()
    assert world.report()["total"] == 20


def test_fromfile_skips_and_counts_bad_lines(tmp_path):
    (tmp_path / "talk").write_text("text:a\tlabels:b\nnothing\ntext:c\tlabels:d\n")
    with pytest.raises(FileFormatError, match="line 2"):
        create_teacher(f"fromfile:{tmp_path}/talk")
    with pytest.warns(UserWarning, match="1 malformed line skipped"):
        assert create_teacher(f"fromfile:{tmp_path}/talk", on_bad_line="skip").num_examples() == 2


def test_fromfile_needs_a_file_that_is_there(tmp_path):
    with pytest.raises(ArgumentError, match="no file of dialogues is named"):
        create_teacher("fromfile")
    with pytest.raises(FileError, match="gone"):
        create_teacher(f"fromfile:{tmp_path}/gone")
