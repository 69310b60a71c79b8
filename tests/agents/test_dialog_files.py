import json
import random

import pytest

from dpmodule.agents import ConversationTeacher, FbDialogTeacher, FromFileTeacher, ParlAIDialogTeacher
from dpmodule.base import ArgumentError, FileError, FileFormatError

NUMBERED = """\
1 Sam went to the kitchen.
2 Pat gave Sam the milk.
3 Where is the milk?\tkitchen\t1\thallway|kitchen|bathroom
4 And\\nnow?\there|there\t0.5

1 Where is Pat?\thall
2 The end.
"""

FIELDS = """\
text:How\\nmany?\tlabels:one|1\tlabel_candidates:one|1|two\tmood:good
text:And now?\tlabels:two\treward:0.5\tepisode_done:True
text:Last\teval_labels:three
"""

CONVERSATIONS = [
    {"dialog": [{"id": "a", "text": "hi"}, {"id": "b", "text": "hello"}, "how are you?", {"text": "fine"}]},
    {"conversation": ["x", "y"]},
]

FB, PARLAI, TALK = FbDialogTeacher, ParlAIDialogTeacher, ConversationTeacher


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a text with a teacher and returns its messages, an episode in a list."""

    def read(kind, text, datatype="valid", **opt):
        path = tmp_path / "talk.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        teacher = kind({"task": "t", "datatype": datatype, "datafile": str(path), **opt})
        episodes = [[]]
        while not teacher.epoch_done():
            message = teacher.act()
            message.pop("id")
            episodes[-1].append(message)
            if message.pop("episode_done"):
                episodes.append([])
        return episodes[:-1]

    return read


def conversations(*lines):
    return "".join(json.dumps(line) + "\n" for line in lines or CONVERSATIONS)


@pytest.mark.parametrize("datatype", ["valid", "test:stream"])
def test_numbered_lines(read, datatype):
    first, second = read(FB, NUMBERED, datatype)
    assert first == [
        {
            "text": "Sam went to the kitchen.\nPat gave Sam the milk.\nWhere is the milk?",
            "eval_labels": ("kitchen",),
            "reward": 1.0,
            "label_candidates": ("hallway", "kitchen", "bathroom"),
        },
        {"text": "And\nnow?", "eval_labels": ("here", "there"), "reward": 0.5},
    ]
    assert second == [
        {"text": "Where is Pat?", "eval_labels": ("hall",), "reward": 0},
        {"text": "The end.", "reward": 0},
    ]


def test_rewards_of_lines_without_labels_are_added_to_the_next(read):
    assert read(FB, "1 a\t\t1\n2 b\t\t0.25\n3 c\td\n")[0][0]["reward"] == 1.25


@pytest.mark.parametrize(
    ("lines", "candidates"),
    [
        ("yes\nno\\nno\n\nyes\n", ("yes", "no\nno")),
        ("1 yes\n2 no way\n", ("yes", "no way")),
        ("1 first\n2 where is it\there\n3 and now\tthere|here\t1\n1 nowhere\t\n", ("here", "there|here")),
        ("a\nb\tc\nd\n", ("b\tc", "d")),
        ("", None),
    ],
)
@pytest.mark.parametrize("kind", [FB, FromFileTeacher])
def test_candidates_of_a_file_are_offered_with_every_example(read, tmp_path, kind, lines, candidates):
    (tmp_path / "cands").write_text(lines)
    episode = read(kind, "1 a\tyes\n2 b\tz\n3 c\td\t\td|e\n", cands_datafile=str(tmp_path / "cands"))[0]
    offered = [each.get("label_candidates") for each in episode]
    expected = [candidates, candidates] if candidates is None else [
        candidates if "yes" in candidates else (*candidates, "yes"), (*candidates, "z")
    ]  # fmt: skip
    assert offered == [*expected, ("d", "e")]


def test_a_cloze_file_says_so_before_each_episode(read):
    told = [
        [each["text"] for each in episode] for episode in read(FB, "1 a _\tb\n2 c\td\n1 e\tf\n", cloze=True)
    ]
    line = "Fill in the blank in the last sentence."
    assert told == [[f"{line}\na _", "c"], [f"{line}\ne"]]


def test_a_task_of_parlai_changes_entries_and_candidates(tmp_path):
    """As its teacher of bAbI does, whose labels have commas in them."""

    class Carried(FbDialogTeacher):
        def __init__(self, opt, shared=None):
            self.number = opt["task"].split(":")[2]
            opt["cands_datafile"] = opt["datafile"] = opt["folder"] + f"/qa{self.number}.txt"
            super().__init__(opt, shared)

        def setup_data(self, path):
            for entry, begins in super().setup_data(path):
                entry[1] = [label.replace(",", " ") for label in entry[1]]
                yield entry, begins

        def load_cands(self, path):
            return [text.replace(",", " ") for text in super().load_cands(path)]

    (tmp_path / "qa8.txt").write_text("1 What?\tmilk,ball\t1\n2 And now?\tmilk\t3\n")
    opt = {"task": "babi:Task1k:8", "folder": str(tmp_path), "datatype": "train:ordered"}
    teacher = Carried(opt)
    copy = Carried(opt, teacher.share())
    assert copy.cands is teacher.cands
    for _ in range(2):
        first = teacher.act()
        assert (first["labels"], first["label_candidates"]) == (("milk ball",), ("milk ball", "milk"))
        assert copy.act()["text"] == "What?"
        assert teacher.act()["reward"] == 3.0
        copy.act()


def test_a_number_that_is_not_above_the_last_begins_an_episode(read):
    assert list(map(len, read(FB, "5 a\tb\n7 c\td\n7 e\tf\n"))) == [2, 1]


@pytest.mark.parametrize("datatype", ["valid", "valid:stream"])
def test_named_fields(read, datatype):
    assert read(PARLAI, FIELDS, datatype) == [
        [
            {
                "text": "How\nmany?",
                "eval_labels": ("one", "1"),
                "label_candidates": ("one", "1", "two"),
                "mood": "good",
            },
            {"text": "And now?", "eval_labels": ("two",), "reward": 0.5},
        ],
        [{"text": "Last", "eval_labels": ("three",)}],
    ]


@pytest.mark.parametrize(
    ("turns", "pairs"),
    [
        ("both", [("hi", "hello"), ("hello", "how are you?"), ("how are you?", "fine")]),
        ("secondspeaker", [("hi", "hello"), ("how are you?", "fine")]),
        ("firstspeaker", [("hello", "how are you?")]),
    ],
)
def test_conversations(read, turns, pairs):
    episodes = read(TALK, conversations(), label_turns=turns)
    assert [(each["text"], *each["eval_labels"]) for each in episodes[0]] == pairs
    assert len(episodes) == (1 if turns == "firstspeaker" else 2)


@pytest.mark.parametrize("kind", [FB, PARLAI, TALK])
@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff\r\n"])
@pytest.mark.parametrize("datatype", ["train", "train:ordered", "train:stream", "valid", "valid:stream"])
def test_empty_files_are_epochs_of_nothing(read, kind, text, datatype):
    assert read(kind, text, datatype) == []


def test_line_ends_of_other_systems(read):
    assert read(FB, "\ufeff1 a\tb\r\n2 c\u2028d\te\r\n") == [
        [
            {"text": "a", "eval_labels": ("b",), "reward": 0},
            {"text": "c\u2028d", "eval_labels": ("e",), "reward": 0},
        ]
    ]


BAD = [
    (FB, "1 a\tb\nno number\n", "line 2: number: 'no number'"),
    (FB, "0 a\tb\n", "line 1: number"),
    (FB, "-1 a\tb\n", "line 1: number"),
    (FB, "1 a\tb\tmuch\n", "line 1: reward: 'much', expected a number"),
    (FB, "1 a\tb\tnan\n", "line 1: reward"),
    (FB, "1 a\tb\t1\tc|d\n", "line 1: labels: 'b' is not among the candidates"),
    (FB, "1 a\tb\t1\tb|d\te\n", "line 1: fields: 5 of them"),
    (FB, b"1 a\tb\n2 \xff\tb\n", "line 2: byte 3: not UTF-8"),
    (PARLAI, "text:a\tlabels:b\nhello\n", "line 2: fields: 'hello', expected name:text"),
    (PARLAI, "labels:a\n", "line 1: text: missing"),
    (PARLAI, "text:a\ttext:b\n", "line 1: text: the field is given twice"),
    (PARLAI, "text:a\tlabels:b\treward:x\n", "line 1: reward"),
    (PARLAI, "text:a\tlabels:b\tepisode_done:maybe\n", "line 1: episode_done: 'maybe'"),
    (PARLAI, "text:a\tlabels:b\tlabel_candidates:c|d\n", "line 1: labels: 'b' is not among"),
    (TALK, "{\n", "line 1: JSON"),
    (TALK, "[1]\n", r"line 1: JSON: '\[1\]', expected an object"),
    (TALK, "{}\n", "line 1: dialog: missing"),
    (TALK, '{"dialog": 3}\n', "line 1: dialog: '3', expected a list"),
    (TALK, '{"dialog": ["alone"]}\n', "line 1: dialog: .*expected a list of at least two turns"),
    (TALK, '{"dialog": ["a", {"id": 1}]}\n', r"line 1: dialog\[1\]: .*expected an object with a text"),
    (TALK, '{"dialog": ["a", "\\ud800"]}\n', r"line 1: dialog\[1\]: .*not valid Unicode"),
    (TALK, "[" * 100_000 + "\n", "line 1: JSON"),
]


@pytest.mark.parametrize(("kind", "text", "told"), BAD)
def test_malformed_lines_name_file_line_and_field(read, kind, text, told):
    with pytest.raises(FileFormatError, match=rf"talk\.txt: {told}") as caught:
        read(kind, text)
    assert "--on-bad-line skip" in str(caught.value)


@pytest.mark.parametrize("datatype", ["valid", "valid:stream"])
@pytest.mark.parametrize(("kind", "text", "told"), BAD)
def test_malformed_lines_are_left_out_and_counted_once(read, kind, text, told, datatype):
    talk = conversations({"dialog": ["good", "yes"]})
    good = {FB: "1 good\tyes\n", PARLAI: "text:good\tlabels:yes\n", TALK: talk}[kind]
    data = (text if isinstance(text, bytes) else text.encode()) * 2 + good.encode()
    with pytest.warns(UserWarning, match=r"talk\.txt: 2 malformed lines skipped, the first: line") as warned:
        episodes = read(kind, data, datatype, on_bad_line="skip")
    assert len(warned) == 1
    reward = {"reward": 0} if kind is FB else {}
    assert episodes[-1][-1] == {"text": "good", "eval_labels": ("yes",), **reward}


def test_on_bad_line_is_one_of_two(read):
    with pytest.raises(ArgumentError, match="on_bad_line is 'cry', expected 'error' or 'skip'"):
        read(FB, NUMBERED, on_bad_line="cry")


@pytest.mark.parametrize("kind", [FB, PARLAI, TALK])
def test_files_that_are_not_there(kind, tmp_path):
    with pytest.raises(FileError, match=r"none\.txt"):
        kind({"datafile": str(tmp_path / "none.txt")})
    with pytest.raises(FileError, match="cannot read dialogues"):
        kind({"datafile": str(tmp_path)})
    with pytest.raises(ArgumentError, match="datafile"):
        kind({})


def test_label_turns_are_one_of_three(read):
    with pytest.raises(ArgumentError, match="label_turns is 'all'"):
        read(TALK, conversations(), label_turns="all")


def _damaged(data, rng):
    """Return a file with some bytes changed, cut out or repeated."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(found) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            found[place:place] = rng.choice(
                (b"\t", b"|", b"\n", b":", b"1 ", b"\xff", b'"', b"[", b"{}", b"\x00", b"\r")
            )
        elif kind == 1:
            del found[place : place + rng.randrange(12)]
        elif kind == 2:
            found[place:place] = found[place : place + rng.randrange(40)]
        elif place < len(found):
            found[place] = rng.randrange(256)
    return bytes(found)


def _fuzz(folder, count, seed):
    rng = random.Random(seed)
    seeds = {FB: NUMBERED, PARLAI: FIELDS, TALK: conversations()}
    path = folder / "talk.txt"
    outcomes = {"read": 0, "refused": 0}
    for _ in range(count):
        kind = rng.choice((FB, PARLAI, TALK))
        path.write_bytes(_damaged(seeds[kind].encode(), rng))
        opt = {"datafile": str(path), "datatype": rng.choice(("valid", "test:stream", "train:ordered"))}
        try:
            teacher = kind(opt)
            teacher.num_examples()
            for _ in range(3):
                teacher.act()
            outcomes["read"] += 1
        except (FileFormatError, ArgumentError) as error:
            str(error).encode()
            outcomes["refused"] += 1
    return outcomes


def test_damaged_files_are_read_or_refused(tmp_path):
    outcomes = _fuzz(tmp_path, 600, 1)
    assert outcomes["read"] > 50
    assert outcomes["refused"] > 50


@pytest.mark.slow
def test_damaged_files_are_read_or_refused_at_length(tmp_path):
    outcomes = _fuzz(tmp_path, 100_000, 2)
    assert sum(outcomes.values()) == 100_000
