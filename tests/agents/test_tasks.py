"""Tasks that ship: what they ask, in which split, and the meaning of their arguments."""

import pytest

from dpmodule.agents import ParlaiParser, RepeatLabelAgent, create_task

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
def test_texts_are_the_same_each_time_and_no_text_is_in_two_splits(task):
    assert examples(task) == examples(task) != []
    train, valid, test = (set(texts(task, datatype=split)) for split in SPLITS)
    assert train
    assert len(train | valid | test) == len(train) + len(valid) + len(test)


def test_docs_has_the_label_among_functions_of_the_module():
    asked = examples("docs:candidates=5", datatype="train")
    assert len(asked) > 500
    for example in asked:
        [label] = example["labels"]
        assert label in example["label_candidates"]
        assert len(example["label_candidates"]) <= 5
    assert any(each["text"].startswith("which function of os.path: ") for each in asked)


@pytest.mark.parametrize(("task", "size"), [("reverse", [10000, 500, 500]), ("nocandidate", [500, 100, 100])])
def test_examples_of_reverse_and_nocandidate(task, size):
    assert [create_teacher(task, datatype=split).num_examples() for split in SPLITS] == size
    for example in examples(task):
        letters = example["text"].split()
        assert example["labels"] == [" ".join(letters if task == "nocandidate" else reversed(letters))]
        assert len(letters) == 4 if task == "nocandidate" else 1 <= len(letters) <= 5
        assert task == "nocandidate" or set(letters) <= set("abcdefgh")
        assert "label_candidates" not in example or task == "reverse"


def test_arguments_of_reverse():
    assert texts("reverse:size=0") == texts("nocandidate:size=0") == []
    made = texts("reverse:size=7:shortest=9:length=12:letters=3", datatype="train")
    assert (len(made), set("".join(made))) == (7, set(" abc"))
    assert all(9 <= len(text.split()) <= 12 for text in made)
    assert texts("reverse:seed=1") != texts("reverse:seed=2")


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
    second = (1, 0) if form == "conversations" else (0, 1)
    assert [teacher.get(*place)["text"] for place in ((0, 0), second)] == ["hi", "so"]
    assert teacher.get(0)["labels"] == (("ho",) if form == "conversations" else ("ho", "hum"))


def test_fromfile_takes_the_file_of_an_option(tmp_path):
    (tmp_path / "talk.txt").write_text("text:a\tlabels:b\n")
    opt = ParlaiParser().parse_args(
        ["-t", "fromfile", "--fromfile_datapath", f"{tmp_path}/talk.txt"], print_args=False
    )
    assert texts(**opt) == ["a"]
    assert texts("fromfile:parlaiformat", fromfile_datapath=f"{tmp_path}/talk.txt") == ["a"]


def test_fromfile_takes_the_file_of_the_split_from_a_folder(tmp_path):
    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text(f"text:{split}\tlabels:a\tepisode_done:True\n")
    assert texts(f"fromfile:{tmp_path}", datatype="train:ordered") == ["train"]
    assert texts(f"fromfile:{tmp_path}") == ["valid"]
