import random

import pytest
from errors.agents import BAD_LINES

from dpmodule.agents import ConversationTeacher, FbDialogTeacher, FromFileTeacher, ParlAIDialogTeacher
from dpmodule.base import ArgumentError, FileFormatError
from helpers.damaged import damaged

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

CONVERSATIONS = """\
{"dialog": [{"id": "a", "text": "hi"}, {"id": "b", "text": "hello"}, "how are you?", {"text": "fine"}]}
{"conversation": ["x", "y"]}
"""

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


def told(text, *labels, **more):
    return {"text": text, **({"eval_labels": labels} if labels else {}), **more}


@pytest.mark.parametrize("datatype", ["valid", "test:stream"])
def test_numbered_lines(read, datatype):
    question = "Sam went to the kitchen.\nPat gave Sam the milk.\nWhere is the milk?"
    rooms = ("hallway", "kitchen", "bathroom")
    assert read(FB, NUMBERED, datatype) == [
        [
            told(question, "kitchen", label_candidates=rooms, reward=1.0),
            told("And\nnow?", "here", "there", reward=0.5),
        ],
        [told("Where is Pat?", "hall", reward=0), told("The end.", reward=0)],
    ]
    other = "\ufeff1 a\tb\r\n2 c\u2028d\te\r\n"  # lines of other systems
    assert read(FB, other, datatype) == [[told("a", "b", reward=0), told("c\u2028d", "e", reward=0)]]
    added = read(FB, "1 a\t\t1\n2 b\t\t0.25\n3 c\td\n")
    assert added[0][0]["reward"] == 1.25, "those without labels are added"
    assert list(map(len, read(FB, "5 a\tb\n7 c\td\n7 e\tf\n"))) == [2, 1], "a number not above the last"


def test_candidates_of_a_file_are_offered_with_every_example(read, tmp_path):
    for lines, candidates in (
        *(("yes\nno\\nno\n\nyes\n", ("yes", "no\nno")), ("1 yes\n2 no way\n", ("yes", "no way"))),
        ("1 first\n2 where is it\there\n3 and now\tthere|here\t1\n1 nowhere\t\n", ("here", "there|here")),
        *(("a\nb\tc\nd\n", ("b\tc", "d")), ("", None)),
    ):
        (tmp_path / "cands").write_text(lines)
        expected = [None, None]
        if candidates:
            expected = [tuple(dict.fromkeys((*candidates, label))) for label in ("yes", "z")]
        for kind in (FB, FromFileTeacher):
            episode = read(kind, "1 a\tyes\n2 b\tz\n3 c\td\t\td|e\n", cands_datafile=str(tmp_path / "cands"))[
                0
            ]
            assert [each.get("label_candidates") for each in episode] == [*expected, ("d", "e")]


def test_a_cloze_file_asks_so_before_each_episode(read):
    episodes = read(FB, "1 a _\tb\n2 c\td\n1 e\tf\n", cloze=True)
    line = "Fill in the blank in the last sentence."
    assert [[each["text"] for each in one] for one in episodes] == [[f"{line}\na _", "c"], [f"{line}\ne"]]


def test_named_fields(read):
    first = told("How\nmany?", "one", "1", label_candidates=("one", "1", "two"), mood="good")
    assert read(PARLAI, FIELDS) == [[first, told("And now?", "two", reward=0.5)], [told("Last", "three")]]


def test_conversations(read):
    for turns, pairs in (
        ("both", [("hi", "hello"), ("hello", "how are you?"), ("how are you?", "fine")]),
        ("secondspeaker", [("hi", "hello"), ("how are you?", "fine")]),
        ("firstspeaker", [("hello", "how are you?")]),
    ):
        episodes = read(TALK, CONVERSATIONS, label_turns=turns)
        assert [(each["text"], *each["eval_labels"]) for each in episodes[0]] == pairs
        assert len(episodes) == (1 if turns == "firstspeaker" else 2)


@pytest.mark.parametrize("kind", [FB, PARLAI, TALK])
@pytest.mark.parametrize("datatype", ["train", "train:stream", "valid"])
def test_empty_files_are_epochs_of_nothing(read, kind, datatype):
    for text in ("", "\ufeff\r\n"):
        assert read(kind, text, datatype) == []


@pytest.mark.parametrize("datatype", ["valid", "valid:stream"])
@pytest.mark.parametrize(("kind", "text", "told"), BAD_LINES)
def test_malformed_lines_are_left_out_and_counted_once(read, kind, text, told, datatype):
    talk = '{"dialog": ["good", "yes"]}\n'
    good = {FB: "1 good\tyes\n", PARLAI: "text:good\tlabels:yes\n", TALK: talk}[kind]
    data = (text if isinstance(text, bytes) else text.encode()) * 2 + good.encode()
    with pytest.warns(UserWarning, match=r"talk\.txt: 2 malformed lines skipped, the first: line") as warned:
        episodes = read(kind, data, datatype, on_bad_line="skip")
    assert (len(warned), episodes[-1][-1]["text"], episodes[-1][-1]["eval_labels"]) == (1, "good", ("yes",))


ODD = (b"\t", b"|", b"\n", b":", b"1 ", b"\xff", b'"', b"[", b"{}", b"\x00", b"\r")


@pytest.mark.parametrize("count", [600, pytest.param(100_000, marks=pytest.mark.slow)])
def test_damaged_files_are_read_or_refused(tmp_path, count):
    rng, seeds = random.Random(count), {FB: NUMBERED, PARLAI: FIELDS, TALK: CONVERSATIONS}
    path, refused = tmp_path / "talk.txt", 0
    for _ in range(count):
        kind = rng.choice((FB, PARLAI, TALK))
        path.write_bytes(damaged(rng, seeds[kind].encode(), ODD))
        opt = {"datafile": str(path), "datatype": rng.choice(("valid", "test:stream", "train:ordered"))}
        try:
            teacher = kind(opt)
            teacher.num_examples()
            for _ in range(3):
                teacher.act()
        except (FileFormatError, ArgumentError) as error:
            str(error).encode()
            refused += 1
    assert 50 < refused < count - 50
