"""DataFeedDesc: what it reads, what it gives back, and where it says that something is wrong."""

import random
import re

import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, FileError, FileFormatError
from dpmodule.hogwild import UnknownSlotError
from dpmodule.streams import Slot
from helpers.walk import walks

TEXT = """\
# what each line has
name: "MultiSlotDataFeed"
batch_size: 2
multi_slot_desc {
    slots { name: "words" type: "uint64" is_dense: false is_used: true }
    slots { name: "label" type: "uint64" is_dense: true is_used: false }
}
"""
ONE = 'multi_slot_desc { slots { name: "a" type: "float" } }'


def refused(text, **keywords):
    with pytest.raises(FileFormatError) as found:
        mx.DataFeedDesc(text, **keywords)
    return str(found.value)


def slots_of(text):
    return mx.DataFeedDesc(text).slots


def test_a_description_from_text_and_from_a_file(tmp_path):
    path = tmp_path / "data.prototxt"
    path.write_text(TEXT)
    for given in (TEXT, str(path), path):
        feed = mx.DataFeedDesc(given)
        assert (feed.name, feed.batch_size, feed.pipe_command) == ("MultiSlotDataFeed", 2, "cat")
        assert feed.slots == [Slot("words"), Slot("label", is_dense=True, is_used=False)]
        assert [slot.name for slot in feed.used_slots] == ["words"]


def test_defaults():
    feed = mx.DataFeedDesc(ONE)
    assert (feed.name, feed.batch_size, feed.pipe_command) == ("MultiSlotDataFeed", 32, "cat")
    assert feed.slots == [Slot("a", "float", is_dense=False, is_used=False)]


SAME = [
    "multi_slot_desc: { slots: { name: 'a', type: 'float'; }, };",
    "multi_slot_desc < slots < name: 'a' type: 'float' > >\n",
    "multi_slot_desc{slots{name:'a'type:'float'}}",
    "multi_slot_desc { slots [ { name: 'a' type: 'float' } ] }",
    "# x {\nmulti_slot_desc {\r\n\tslots { name: '' \"\\x61\" # a\n type: 'flo' 'at' is_dense: f } }\n#",
    "multi_slot_desc { slots { name: '\\141' type: \"\\u0066lo\\U00000061t\" is_used: False } } batch_size: 0x20",
    "multi_slot_desc { slots { name: 'a' type: 'float' shape: [] } } batch_size: 040 pipe_command: ' '",
    "name: 'MultiSlotDataFeed' multi_slot_desc { slots { name: 'a' type: 'float' } } pipe_command: 'cat'",
]


@walks(SAME)
def test_forms_of_the_text_format(text):
    assert mx.DataFeedDesc(text).desc() == mx.DataFeedDesc(ONE).desc()


def test_flags_and_shapes():
    slot = "multi_slot_desc { slots { name: 'a' type: 'float' is_dense: %s is_used: t %s } }"
    assert slots_of(slot % ("True", "shape: [2, 3]")) == [Slot("a", "float", True, True, 6)]
    assert slots_of(slot % (1, "shape: 2 shape: 3")) == [Slot("a", "float", True, True, 6)]
    assert slots_of(slot % (1, "shape: -1 shape: 3")) == [Slot("a", "float", True, True)]
    feed = mx.DataFeedDesc(slot % (0, "shape: 5"))
    assert feed.slots == [Slot("a", "float")]
    feed.set_dense_slots(["a"])
    assert feed.slots == [Slot("a", "float", True, True, 5)]


def test_setters():
    feed = mx.DataFeedDesc(TEXT)
    feed.set_batch_size(128)
    feed.set_dense_slots(["words"])
    feed.set_use_slots(("label",))
    assert feed.batch_size == 128
    assert feed.slots == [Slot("words", is_dense=True), Slot("label", is_dense=True)]
    assert mx.DataFeedDesc(feed.desc()).slots == feed.slots


@walks([0, -1, "3", 2.0, True, None, 2**31])
def test_batch_sizes_that_are_none(size):
    feed = mx.DataFeedDesc(TEXT)
    with pytest.raises(
        ArgumentError, match=f"set_batch_size: batch_size is {re.escape(repr(size))}, expected"
    ):
        feed.set_batch_size(size)
    assert feed.batch_size == 2


@pytest.mark.parametrize("call", ["set_use_slots", "set_dense_slots"])
def test_names_of_slots_are_checked_before_any_changes(call):
    feed = mx.DataFeedDesc(TEXT)
    with pytest.raises(
        ArgumentError, match=rf"{call}: got 'label', expected a list of names, such as \['label'\]"
    ):
        getattr(feed, call)("label")
    with pytest.raises(ArgumentError, match="got 7"):
        getattr(feed, call)(7)
    for error in (UnknownSlotError, KeyError):
        with pytest.raises(
            error, match=f"^{call}: there is no slot 'lable'; the slots are words, label; did you mean"
        ):
            getattr(feed, call)(["words", "label", "lable"])
    assert feed.desc() == mx.DataFeedDesc(TEXT).desc()


PLACES = [
    ("{", 1, 1, "found '{', expected a field of the description"),
    ("}", 1, 1, "found '}'"),
    (
        "\n\n  nam: 'x'",
        3,
        3,
        r"found 'nam', expected a field of the description \(name, .*did you mean name\?",
    ),
    ("name 'x'\n", 1, 6, "found \"'x'\", expected ':' after name"),
    ("name: x\n", 1, 7, "found 'x', expected a string in quotes for name"),
    ("name: 'x'\n", 1, 7, "expected the name 'MultiSlotDataFeed'"),
    ("name: 'x\n", 1, 7, "expected a closing ' on the same line"),
    ("batch_size: 0\n", 1, 13, "found '0', expected a batch_size of 1 or more"),
    ("batch_size: -5\n", 1, 13, "found '-5', expected a batch_size of 1 or more"),
    ("batch_size: 1.5\n", 1, 13, "found '1.5', expected an integer of 32 bits for batch_size"),
    ("batch_size: '4'\n", 1, 13, "expected an integer of 32 bits"),
    ("batch_size: 2147483648\n", 1, 13, "expected an integer of 32 bits"),
    ("batch_size: 09\n", 1, 13, "expected an integer of 32 bits"),
    ("batch_size: " + "9" * 5000 + "\n", 1, 13, "expected an integer of 32 bits"),
    ("batch_size: 4\nbatch_size: 4\n", 2, 1, "found 'batch_size', expected batch_size only once"),
    ("batch_size:\n", 2, 1, "found the end of the text, expected an integer"),
    ("batch_size: 4\n@", 2, 1, "found '@', expected a name, number, string or brace"),
    ("multi_slot_desc { slots {\n  name: 'a\\q' } }", 2, 11, "expected an escape such as"),
    ("multi_slot_desc { slots { name: '\\377' } }", 1, 33, "expected UTF-8 in the string"),
    (
        "multi_slot_desc { slots { name: 'a' type: 'int' } }",
        1,
        43,
        'expected the type "uint64" or "float" of slot \'a\'',
    ),
    ("multi_slot_desc { slots { name: 'a' } }", 1, 37, "found '}', expected the type"),
    ("multi_slot_desc { slots { type: 'float' } }", 1, 41, "found '}', expected the name of the slot"),
    ("multi_slot_desc { slots { name: '' type: 'float' } }", 1, 33, "expected the name of the slot"),
    ("multi_slot_desc { slots { is_used: yes } }", 1, 36, "found 'yes', expected true or false for is_used"),
    ("multi_slot_desc { slots { is_used: 'true' } }", 1, 36, "expected true or false for is_used"),
    (
        "multi_slot_desc { slots { name: 'a' type: 'float' > }",
        1,
        51,
        "found '>', expected a field of slots or '}'",
    ),
    (
        "multi_slot_desc { slots { name: 'a' type: 'float' }",
        1,
        52,
        "found the end of the text, expected a field of",
    ),
    ("multi_slot_desc { slots { name: 'a' type: 'float' shape: [1 2] } }", 1, 61, "found '2', expected ','"),
    ("multi_slot_desc: 3", 1, 18, "found '3', expected '{' after multi_slot_desc"),
    ("multi_slot_desc { }", 1, 19, "found '}', expected multi_slot_desc { slots"),
    ("batch_size: 4\n", 2, 1, "found the end of the text, expected multi_slot_desc { slots"),
    (
        ONE.replace("} }", "}\nslots { type: 'float' name: 'a' } }"),
        2,
        29,
        "expected another name, since an earlier slot",
    ),
    (ONE + "\npipe_command: 'a \"b'", 2, 15, "expected a command in shell syntax"),
    (ONE + "\npipe_command: 'a\\000b'", 2, 15, "expected a command without the character 0"),
]


@walks(
    [row if "\n" in row[0] or "{" in row[0] or "}" in row[0] else (row[0] + "\n", *row[1:]) for row in PLACES]
)
def test_what_is_wrong_names_line_and_column(text, line, column, expected):
    message = refused(text, allow_pipe_command=True)
    assert message.startswith(f"DataFeedDesc text: line {line}, column {column}: found "), message
    assert re.search(
        expected.replace("{", r"\{").replace("multi_slot_desc \\{ slots", "multi_slot_desc { slots"), message
    )


def test_a_file_is_named_in_errors(tmp_path):
    path = tmp_path / "data.prototxt"
    path.write_text("\nbatch_size: x {")
    assert refused(path).startswith(f"{path}: line 2, column 13: found 'x'")
    path.write_bytes(b"name: 'x'\n# \xff")
    assert refused(path).startswith(f"{path}: line 2, column 3: found a byte 0xff, expected text in UTF-8")
    for missing in (tmp_path / "none", tmp_path, "a\0b"):
        with pytest.raises(FileError, match="DataFeedDesc: cannot read the description"):
            mx.DataFeedDesc(missing)
    for wrong in (7, None, b"x", ""):
        with pytest.raises(ArgumentError, match="expected a path or the text of a description"):
            mx.DataFeedDesc(wrong)


def test_programs_are_refused_unless_they_are_allowed():
    text = ONE + '\npipe_command: "python clean.py"'
    with pytest.raises(
        ArgumentError, match=r"line 2, column 15: pipe_command is 'python clean.py'.*allow_pipe_command=True"
    ):
        mx.DataFeedDesc(text)
    feed = mx.DataFeedDesc(text, allow_pipe_command=True)
    assert feed.pipe_command == "python clean.py"
    assert mx.DataFeedDesc(feed.desc(), allow_pipe_command=True).desc() == feed.desc()


def random_description(generator):
    """A description, and the slots that it has."""
    letters = ["a", "B", "_", " ", "\n", "\t", '"', "'", "\\", "é", "漢", "\x00", "\x7f", "7", "{", "#"]
    slots, parts = [], []
    for i in range(generator.randint(1, 6)):
        name = f"{i}" + "".join(generator.choices(letters, k=generator.randint(0, 5)))
        slot = Slot(
            name, generator.choice(["uint64", "float"]), generator.random() < 0.5, generator.random() < 0.5
        )
        fields = [
            f"name: {mx.hogwild.prototxt.quoted(name)}",
            f"type: '{slot.type}'",
            f"is_dense: {generator.choice(['true', 't', '1'] if slot.is_dense else ['false', 'f', '0'])}",
            f"is_used: {str(slot.is_used)}",
        ]
        generator.shuffle(fields)
        parts.append("slots { " + generator.choice([" ", "\n", ", ", " # x\n"]).join(fields) + " }")
        slots.append(slot)
    return f"batch_size: {generator.randint(1, 999)} multi_slot_desc {{ {' '.join(parts)} }}", slots


def damaged(generator, text):
    """The text with some characters changed, left out, doubled, or cut off."""
    chars = list(text)
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(chars))
        what = generator.random()
        if what < 0.4:
            chars[at] = generator.choice("{}<>[]:;,'\"\\#\n ax09.-\0é\ud800\U0001f600")
        elif what < 0.6:
            del chars[at : at + generator.randint(1, 8)]
        elif what < 0.8:
            chars[at:at] = chars[max(0, at - generator.randint(1, 20)) : at]
        else:
            del chars[at:]
        chars = chars or ["{"]
    return "".join(chars) + generator.choice(["", "\n", "{"])


def fuzz(seed, rounds):
    """Read descriptions, whole and damaged ones; return how many of these were refused."""
    generator, refusals = random.Random(seed), 0
    for _ in range(rounds):
        text, slots = random_description(generator)
        feed = mx.DataFeedDesc(text)
        assert feed.slots == slots
        assert mx.DataFeedDesc(feed.desc()).desc() == feed.desc()
        broken = damaged(generator, text)
        if not any(mark in broken for mark in "{}\n"):
            continue
        try:
            again = mx.DataFeedDesc(broken, allow_pipe_command=True)
            assert mx.DataFeedDesc(again.desc(), allow_pipe_command=True).desc() == again.desc()
        except FileFormatError as error:
            refusals += 1
            place = re.match(r"DataFeedDesc text: line (\d+), column (\d+): found ", str(error))
            lines = broken.split("\n")
            assert 1 <= int(place[2]) <= len(lines[int(place[1]) - 1]) + 1
    return refusals


def test_random_descriptions():
    assert fuzz(0, 300) > 200


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_random_descriptions_at_length():
    assert fuzz(1, 100_000) > 50_000
