"""`DataFeedDesc`: what it reads, and what it gives back; wrong texts are in tests/errors/hogwild.py."""

import random
import re

import pytest

import dpmodule as mx
from dpmodule.base import FileFormatError, UnknownNameError
from dpmodule.streams import Slot
from helpers.damaged import damaged

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


def test_a_description_from_text_and_from_a_file(tmp_path):
    path = tmp_path / "data.prototxt"
    path.write_text(TEXT)
    for given in (TEXT, str(path), path):
        feed = mx.DataFeedDesc(given)
        assert (feed.batch_size, feed.used_slots) == (2, [Slot("words")])
        assert feed.slots == [Slot("words"), Slot("label", is_dense=True, is_used=False)]
    feed = mx.DataFeedDesc(ONE)
    assert (feed.name, feed.batch_size, feed.pipe_command) == ("MultiSlotDataFeed", 32, "cat")


def test_forms_of_the_text_format():
    for text in (
        "multi_slot_desc: { slots: { name: 'a', type: 'float'; }, };",
        "multi_slot_desc < slots < name: 'a' type: 'float' > >\n",
        "multi_slot_desc { slots [ { name: 'a' type: 'float' } ] }",
        "# x {\nmulti_slot_desc {\r\n\tslots { name: '' \"\\x61\" # a\n type: 'flo' 'at' is_dense: f } }\n#",
        "multi_slot_desc { slots { name: '\\141' type: \"\\u0066lo\\U00000061t\" is_used: False } } batch_size: 0x20",
        "multi_slot_desc { slots { name: 'a' type: 'float' shape: [] } } batch_size: 040 pipe_command: ' '",
    ):
        assert mx.DataFeedDesc(text).desc() == mx.DataFeedDesc(ONE).desc()


def test_flags_and_shapes():
    for is_dense, shape, slot in (
        ("True", "shape: [2, 3]", Slot("a", "float", True, True, 6)),
        (1, "shape: 2 shape: 3", Slot("a", "float", True, True, 6)),
        (1, "shape: -1 shape: 3", Slot("a", "float", True, True)),
        (0, "shape: 5", Slot("a", "float")),
    ):
        slot_text = f"name: 'a' type: 'float' is_dense: {is_dense} is_used: t {shape}"
        feed = mx.DataFeedDesc(f"multi_slot_desc {{ slots {{ {slot_text} }} }}")
        assert feed.slots == [slot]
        if not slot.is_dense:
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


@pytest.mark.parametrize("call", ["set_use_slots", "set_dense_slots"])
def test_names_of_slots_are_checked_before_any_changes(call):
    feed = mx.DataFeedDesc(TEXT)
    told = f"^{call}: slot 'lable' does not exist; the slots are words, label; did you mean"
    with pytest.raises(UnknownNameError, match=told):
        getattr(feed, call)(["words", "label", "lable"])
    assert feed.desc() == mx.DataFeedDesc(TEXT).desc()


def random_description(generator):
    """A description, and the slots that it has."""
    letters = ["a", "B", "_", " ", "\n", "\t", '"', "'", "\\", "é", "漢", "\x00", "\x7f", "7", "{", "#"]
    slots, parts = [], []
    for i in range(generator.randint(1, 6)):
        name = f"{i}" + "".join(generator.choices(letters, k=generator.randint(0, 5)))
        kind = generator.choice(["uint64", "float"])
        slot = Slot(name, kind, generator.random() < 0.5, generator.random() < 0.5)
        dense = generator.choice(["true", "t", "1"] if slot.is_dense else ["false", "f", "0"])
        fields = [f"name: {mx.hogwild.prototxt.quoted(name)}", f"type: '{kind}'", f"is_dense: {dense}"]
        fields.append(f"is_used: {slot.is_used}")
        generator.shuffle(fields)
        parts.append("slots { " + generator.choice([" ", "\n", ", ", " # x\n"]).join(fields) + " }")
        slots.append(slot)
    return f"batch_size: {generator.randint(1, 999)} multi_slot_desc {{ {' '.join(parts)} }}", slots


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_random_descriptions(rounds):
    generator, refused = random.Random(rounds), 0
    for _ in range(rounds):
        text, slots = random_description(generator)
        feed = mx.DataFeedDesc(text)
        assert feed.slots == slots
        assert mx.DataFeedDesc(feed.desc()).desc() == feed.desc()
        broken = damaged(generator, text, "{}<>[]:;,'\"\\#\n ax09.-\0é\ud800\U0001f600")
        broken += generator.choice("\n{")
        try:
            again = mx.DataFeedDesc(broken, allow_pipe_command=True)
            assert mx.DataFeedDesc(again.desc(), allow_pipe_command=True).desc() == again.desc()
        except FileFormatError as error:
            refused += 1
            place = re.match(r"DataFeedDesc text: line (\d+), column (\d+): found ", str(error))
            lines = broken.split("\n")
            assert 1 <= int(place[2]) <= len(lines[int(place[1]) - 1]) + 1
    assert refused > rounds / 2
