"""MultiSlot text: what is read, what is refused with which words, and C++ and Python alike on random text."""

import random
import re
import struct
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpmodule import native
from dpmodule.base import ArgumentError, BoundsError, FileFormatError
from dpmodule.native import multislot
from dpmodule.streams import MultiSlotFunctor, Slot, StringHandle
from helpers.both_backends import in_native
from helpers.functors import backend as backend
from helpers.functors import outcome
from helpers.walk import walks

WORDS, LABEL = Slot("words"), Slot("label", is_dense=True)
CTR = [Slot("dense", "float", is_dense=True), WORDS, Slot("skipped", "float", is_used=False), LABEL]


def read(text, slots=(WORDS, LABEL), **keywords):
    return MultiSlotFunctor(text, slots, **keywords).run()


def test_values_and_offsets(backend):
    found = read(b"2 0.5 -1e1 3 7 8 9 1 4 1 1\n2 2 3. 1 6 2 5 5 1 0\n", CTR)
    assert (found.num_lines, found.consumed, list(found.slots)) == (2, 48, ["dense", "words", "label"])
    dense, words, label = found.slots.values()
    assert (dense.values.dtype, words.values.dtype, label.values.dtype) == (
        torch.float32,
        torch.int64,
        torch.int64,
    )
    assert dense.values.tolist() == [[0.5, -10], [2, 3]]
    assert dense.offsets.tolist() == [0, 2, 4]
    assert words.values.tolist() == [7, 8, 9, 6]
    assert words.offsets.tolist() == [0, 3, 4]
    assert label.values.tolist() == [[1], [0]]


def test_results_are_tensors_that_can_be_written(backend):
    found = read(b"2 1 2 1 0\n")
    found.slots["words"].values.add_(5)
    assert found.slots["words"].values.tolist() == [6, 7]


@pytest.mark.parametrize("text", [b"2 1 2 1 0", b"2\t1 2  1 \t0 \n", b"  2 1 2 1 0\r\n", b"02 1 002 1 0\n"])
def test_blanks_and_ends_of_lines(backend, text):
    found = read(text)
    assert (found.num_lines, found.consumed) == (1, len(text))
    assert found.slots["words"].values.tolist() == [1, 2]


def test_no_text_has_no_lines(backend):
    found = read(b"", CTR)
    assert (found.num_lines, found.consumed) == (0, 0)
    assert [values.shape for values, _ in found.slots.values()] == [(0, 0), (0,), (0, 0)]
    assert all(offsets.tolist() == [0] for _, offsets in found.slots.values())


def test_unsigned_numbers_keep_their_bits(backend):
    numbers = [0, 9, 99999999, 100000000, 2**63 - 1, 2**63, 2**64 - 1]
    text = f"{len(numbers)} {' '.join(map(str, numbers))} 1 0\n".encode()
    values = read(text).slots["words"].values
    assert values.numpy().view(np.uint64).tolist() == numbers


def test_a_piece_leaves_its_last_line(backend):
    text = b"1 5 1 0\n2 6 7 1 1\n1 8 1"
    found = read(text, final=False)
    assert (found.num_lines, found.consumed) == (2, 18)
    assert read(text[18:] + b" 1\n", first_line=3).slots["words"].values.tolist() == [8]
    assert read(b"1 5 1", final=False).consumed == 0


def test_every_way_of_cutting_gives_the_same(backend):
    text = b"2 1 2 1 0\n1 30 1 1\n3 4 5 6 1 0\n"
    whole = read(text).slots["words"].values.tolist()
    for cut in range(len(text) + 1):
        first = read(text[:cut], final=False)
        second = read(text[first.consumed :])
        assert first.slots["words"].values.tolist() + second.slots["words"].values.tolist() == whole


def test_sources_of_text(backend):
    text = b"2 1 2 1 0\n"
    tensor = torch.tensor(list(text), dtype=torch.uint8).share_memory_()
    for source in (bytearray(text), memoryview(text), StringHandle(b"xx" + text)[2:], tensor):
        assert read(source).slots["words"].values.tolist() == [1, 2]


def test_ragged_slots_may_have_no_values(backend):
    text = b"0 1 1\n2 5 6 1 0\n0\t 1 1 \n" + b"0 1 7\n1 3 1 0\n" * 20
    words, label = read(text).slots.values()
    assert words.values.tolist() == [5, 6, *[3] * 20]
    assert words.offsets[:6].tolist() == [0, 0, 2, 2, 2, 3]
    assert label.values.flatten().tolist() == [1, 0, 1, *[7, 0] * 20]
    last = read(b"1 4 0\n1 5 2 8 9\n" * 20, (LABEL, WORDS)).slots["words"]
    assert last.offsets[:4].tolist() == [0, 0, 2, 2]


REFUSED = {
    b"": "slot 'words', count: found the end of the line, expected the number of values",
    b"x": "slot 'words', count: found 'x'",
    b"1 1 0": "slot 'label', count: found '0', expected the number of values, 1 or more, since the slot is dense",
    b"-1 1": "slot 'words', count: found '-1'",
    b"2.0 1 1": "slot 'words', count: found '2.0'",
    b"2 1": "slot 'words', value 2 of 2: found the end of the line, expected an integer from 0 to 18446744073709551615",
    b"1 a 1 1": "slot 'words', value 1 of 1: found 'a'",
    b"1 -1 1 1": "value 1 of 1: found '-1'",
    b"1 +1 1 1": r"value 1 of 1: found '\+1'",
    b"1 1.5 1 1": "value 1 of 1: found '1.5'",
    b"1 18446744073709551616 1 1": "value 1 of 1: found '18446744073709551616'",
    b"1 99999999999999999999999 1 1": "found '99999999999999999999999'",
    b"1 1": "slot 'label', count: found the end of the line",
    b"1 1 1 1 9 9": "found '9' after the last slot 'label', expected the end of the line",
    b"1 1 2 1 1": "slot 'label': found 2 values, expected 1, as many as in the lines before, since the slot is dense",
    b"99999999999999 1 1 1": "slot 'words', value 4 of 99999999999999: found the end",
    b"1 \xff\x00\x0b 1 1": r"found '\\xff\\x00\\x0b'",
    b"1 " + b"z" * 50 + b" 1 1": "found '" + "z" * 40 + r"'\.\.\.",
    b"1 1 1 1\x0c": r"slot 'label', value 1 of 1: found '1\\x0c'",
}


@walks(REFUSED.items())
def test_bad_lines_name_line_and_slot(line, text, backend):
    with pytest.raises(FileFormatError, match=rf"^part-3: line 12(, .*|: ){text}"):
        read(b"1 5 1 0\n" * 2 + line + b"\n1 5 1 0\n", source="part-3", first_line=10)


@walks(
    [
        b"nan",
        b"inf",
        b"-inf",
        b"0x1p3",
        b"1e",
        b"e5",
        b".",
        b"-",
        b"1_0",
        b"1e39",
        b"-1e400",
        b"1,5",
        b"3.4028236e38",
    ]
)
def test_what_is_no_finite_number_is_refused(word, backend):
    with pytest.raises(
        FileFormatError, match="'x', value 2 of 2: found .*, expected a finite decimal number of float32"
    ):
        read(b"2 1 " + word + b"\n", [Slot("x", "float")])


def test_names_may_be_any_text(backend):
    odd = Slot("s\udcff\0\u00e9")
    found = read(b"1 5\n", [odd], source="part\udcff\0\u00e9")
    assert found.slots[odd.name].values.tolist() == [5]
    with pytest.raises(FileFormatError, match="\u00e9: line 1, slot 's.*\u00e9', value 1 of 1: found 'x'"):
        read(b"1 x\n", [odd], source="part\udcff\0\u00e9")


def test_slots_that_are_not_used_are_checked_too(backend):
    with pytest.raises(FileFormatError, match="line 1, slot 'skipped', value 1 of 1: found 'x'"):
        read(b"1 1 1 x 1 1\n", [WORDS, Slot("skipped", is_used=False), LABEL])


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    numbers=st.lists(
        st.floats(-3e38, 3e38).map(repr)
        | st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr)
        | st.from_regex(r"\A[+-]?([0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,25})([eE][+-]?[0-9]{1,2})?\Z").filter(
            lambda text: abs(float(text)) < 3e38
        ),
        min_size=1,
        max_size=20,
    )
)
def test_floats_are_those_of_python(backend, numbers):
    text = f"{len(numbers)} {' '.join(numbers)}\n".encode()
    values = read(text, [Slot("x", "float")]).slots["x"].values
    assert values.numpy().tobytes() == np.array([float(n) for n in numbers]).astype(np.float32).tobytes()


def test_very_small_and_very_long_numbers(backend):
    words = [
        "1e-46",
        "-1e-400",
        "1e-45",
        "0." + "0" * 400 + "1",
        "1" + "0" * 30,
        "0" * 400 + "7",
        "1" * 38,
        "5e-324",
    ]
    words += [
        "3.4028234663852886e38",
        "3.40282356e38",
        "0.1e00000000000000000001",
        "100e-00000000000000000002",
    ]
    values = read(f"{len(words)} {' '.join(words)}\n".encode(), [Slot("x", "float")]).slots["x"].values
    assert values.tolist() == [struct.unpack("f", struct.pack("f", float(word)))[0] for word in words]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: MultiSlotFunctor(b"", []), ArgumentError, "slots are [], expected one or more"),
        (lambda: MultiSlotFunctor(b"", [WORDS, WORDS]), ArgumentError, "['words', 'words'], expected"),
        (lambda: MultiSlotFunctor(b"", [WORDS], first_line=-1), BoundsError, "first_line is -1"),
        (
            lambda: MultiSlotFunctor(b"", ["words"]),
            ArgumentError,
            "slots contains 'words', expected Slot('name', ...)",
        ),
        (lambda: Slot(7), ArgumentError, "name is 7, expected text"),
        (lambda: Slot("a", "int"), ArgumentError, "slot 'a': type is 'int', expected 'uint64' or 'float'"),
    ],
)
def test_arguments_are_checked(backend, make, error, text):
    with pytest.raises(error, match=re.escape(text)):
        make()


def random_word(generator, is_float):
    choice = generator.random()
    if choice < 0.02:
        return generator.choice(
            ["", "x", "-1", "1e999", "nan", "99999999999999999999", ".", "1e5e", "++1", "0x1", "\0"]
        )
    if not is_float:
        return str(generator.randrange(10 ** generator.randint(1, 19)))
    form = generator.choice(["{:.3f}", "{:.17g}", "{:e}", "{:+.0f}", "{!r}"])
    return form.format(generator.choice([1, -1]) * generator.random() * 10.0 ** generator.randint(-50, 36))


def random_text(generator, slots):
    """Lines that mostly fit the slots, neat ones or such with blanks of all kinds, and some mistakes."""
    dims = [generator.randint(1, 3) for _ in slots]
    lines, neat = [], generator.random() < 0.6
    for _ in range(generator.randint(0, 6) if not neat else generator.randint(0, 30)):
        words = []
        for slot, dim in zip(slots, dims, strict=True):
            count = dim if slot.is_dense else generator.randint(0, 9)
            said = count + (generator.choice([-1, 1]) if generator.random() < 0.003 else 0)
            words += [str(said), *(random_word(generator, slot.type == "float") for _ in range(count))]
        if generator.random() < 0.003:
            words.append("7")
        if neat:
            lines.append(" ".join(words))
        else:
            lines.append("".join(word + generator.choice([" ", " ", " ", "\t", "  "]) for word in words))
    text = ("\n" if neat else generator.choice(["\n", "\r\n"])).join(lines) + generator.choice(["\n", ""])
    data = bytearray(text.encode())
    if data and generator.random() < 0.3:
        data[generator.randrange(len(data))] = generator.randrange(256)
    return bytes(data)


def plain(found):
    """What was found as values that compare."""
    if not isinstance(found, multislot.MultiSlotLines):
        return found
    slots = {name: (v.numpy().tobytes(), v.shape, o.tolist()) for name, (v, o) in found.slots.items()}
    return slots, found.num_lines, found.consumed, found.num_bad, found.passed.tolist()


def compare(seed, rounds, monkeypatch, skip=False):
    """Parse random texts by both, with `skip` passing over some lines; return how many texts were refused."""
    generator, refused = random.Random(seed), 0
    made = []
    for _ in range(rounds):
        slots = [
            Slot(
                f"s{i}",
                generator.choice(["uint64", "float"]),
                generator.random() < 0.3,
                generator.random() < 0.8,
            )
            for i in range(generator.randint(1, 4))
        ]
        keywords = {"final": generator.random() < 0.6, "first_line": generator.randrange(100)}
        text = random_text(generator, slots)
        if skip:
            keywords["skip_blank"], keywords["skip_bad"] = generator.random() < 0.7, generator.random() < 0.7
            slots = [
                replace(slot, width=generator.choice([None, 1, 2]) if slot.is_dense else None)
                for slot in slots
            ]
        made.append((MultiSlotFunctor(text, slots, **keywords), text, slots, keywords))
    with monkeypatch.context() as patch:
        patch.setattr(native, "core", None)
        for functor, text, slots, keywords in made:
            found = plain(outcome(functor))
            assert found == plain(outcome(MultiSlotFunctor(text, slots, **keywords))), (text, slots, keywords)
            refused += found[0] is FileFormatError
    return refused


@walks(
    product(
        [b"\n", b"  1 5 1 0\n", b"1 5 1 0 \n", b"1\t5 1 0\r\n", b"1 5 1 0 9\n", b"1 a 1 0\n", b"1 5 1\n"],
        [0, 1, 2, 50, 97, 99],
    )
)
def test_a_line_that_is_not_plain_between_many(mistake, where, backend):
    lines = [f"3 {i} {10**i % 2**64} {i * i} 1 {i % 2}\n".encode() for i in range(100)]
    lines[where] = mistake
    if mistake.split() == [b"1", b"5", b"1", b"0"]:
        words, label = read(b"".join(lines)).slots.values()
        expected = [[5] if i == where else [i, 10**i % 2**64, i * i] for i in range(100)]
        assert words.values.numpy().view(np.uint64).tolist() == sum(expected, [])
        assert label.values.flatten().tolist() == [0 if i == where else i % 2 for i in range(100)]
    else:
        with pytest.raises(FileFormatError, match=f"line {where + 1}[:,]"):
            read(b"".join(lines))


@in_native
@pytest.mark.parametrize("seed", range(5))
def test_both_parsers_agree(seed, monkeypatch):
    assert 20 < compare(seed, 200, monkeypatch) < 180


@in_native
@pytest.mark.parametrize("seed", range(3))
def test_both_parsers_pass_over_the_same_lines(seed, monkeypatch):
    assert 20 < compare(seed, 200, monkeypatch, skip=True) < 120


def test_lines_are_passed_over_and_counted(backend):
    text = b"\n1 5 1 0\n \t\r\nx\n2 6 7 1 1\n2 8 1 1\n\n1 9 2 1 1\n1 9 1 1"
    found = read(text, skip_blank=True, skip_bad=True)
    assert found.slots["words"].values.tolist() == [5, 6, 7, 9]
    assert found.slots["label"].values.tolist() == [[0], [1], [1]]
    assert (found.num_lines, found.num_bad, found.consumed) == (3, 3, len(text))
    assert found.passed.tolist() == [0, 1, 1, 2, 2, 2]
    with pytest.raises(FileFormatError, match="line 4, slot 'words', count: found 'x'"):
        read(text, skip_blank=True)
    with pytest.raises(FileFormatError, match="line 1, slot 'words', count: found the end of the line"):
        read(text)
    assert read(text, skip_bad=True).num_bad == 6


def test_the_first_line_that_is_read_tells_the_width(backend):
    slots = [Slot("a", is_dense=True), Slot("b", is_dense=True)]
    found = read(b"2 1 2 1 x\n1 7 1 8\n2 1 2 1 3\n", slots, skip_bad=True)
    assert (found.num_lines, found.num_bad, found.slots["a"].values.tolist()) == (1, 2, [[7]])


def test_the_width_of_a_slot_is_checked(backend):
    slots = [Slot("a", is_dense=True, width=2)]
    assert read(b"2 1 2\n", slots).slots["a"].values.tolist() == [[1, 2]]
    with pytest.raises(
        FileFormatError, match="line 1, slot 'a': found 1 values, expected 2 in every line, since"
    ):
        read(b"1 1\n", slots)
    for keywords in ({"width": 2}, {"is_dense": True, "width": 0}, {"is_dense": True, "width": True}):
        with pytest.raises(
            ArgumentError, match=f"slot 'a': width is {keywords['width']}, expected an integer from 1"
        ):
            Slot("a", **keywords)


@in_native
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_both_parsers_agree_at_length(monkeypatch):
    assert sum(compare(seed, 1000, monkeypatch, seed % 2 == 1) for seed in range(1000, 1100)) > 10_000
