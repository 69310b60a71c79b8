"""MultiSlot text: what is read, what is refused with which words, and C++ and Python alike on random text."""

import random
import struct

import numpy as np
import pytest
import torch

from dpmodule.base import FileFormatError
from dpmodule.native import multislot
from dpmodule.streams import MultiSlotFunctor, Slot, StringHandle
from helpers.both_backends import in_native
from helpers.functors import agree
from helpers.walk import walks

WORDS, LABEL = Slot("words"), Slot("label", is_dense=True)
CTR = [Slot("dense", "float", is_dense=True), WORDS, Slot("skipped", "float", is_used=False), LABEL]


def read(text, slots=(WORDS, LABEL), **keywords):
    return MultiSlotFunctor(text, slots, **keywords).run()


def test_values_and_offsets(backend):
    found = read(b"2 0.5 -1e1 3 7 8 9 1 4 1 1\n2 2 3. 1 6 2 5 5 1 0\n", CTR)
    assert (found.num_lines, found.consumed, list(found.slots)) == (2, 48, ["dense", "words", "label"])
    assert [values.dtype for values, _ in found.slots.values()] == [torch.float32, torch.int64, torch.int64]
    assert [(values.tolist(), offsets.tolist()) for values, offsets in found.slots.values()] == [
        ([[0.5, -10], [2, 3]], [0, 2, 4]),
        ([7, 8, 9, 6], [0, 3, 4]),
        ([[1], [0]], [0, 1, 2]),
    ]
    found.slots["words"].values.add_(5)  # it can be written
    assert found.slots["words"].values.tolist() == [12, 13, 14, 11]


TEXT = b"2 1 2 1 0\n"


@walks(
    [
        TEXT[:-1],
        b"2\t1 2  1 \t0 \n",
        b"  2 1 2 1 0\r\n",
        b"02 1 002 1 0\n",
        bytearray(TEXT),
        memoryview(TEXT),
        StringHandle(b"xx" + TEXT)[2:],
        torch.tensor(list(TEXT), dtype=torch.uint8).share_memory_(),
    ]
)
def test_blanks_ends_of_lines_and_sources(text, backend):
    found = read(text)
    assert (found.num_lines, found.consumed) == (1, len(text))
    assert found.slots["words"].values.tolist() == [1, 2]


def test_unsigned_numbers_keep_their_bits(backend):
    numbers = [0, 9, 99999999, 100000000, 2**63 - 1, 2**63, 2**64 - 1]
    text = f"{len(numbers)} {' '.join(map(str, numbers))} 1 0\n".encode()
    assert read(text).slots["words"].values.numpy().view(np.uint64).tolist() == numbers


UINT = "an integer from 0 to 18446744073709551615"
DENSE = "since the slot is dense"
REFUSED = {
    b"": "slot 'words', count: found the end of the line, expected the number of values",
    b"x": "slot 'words', count: found 'x'",
    b"1 1 0": f"slot 'label', count: found '0', expected the number of values, 1 or more, {DENSE}",
    b"-1 1": "slot 'words', count: found '-1'",
    b"2 1": f"slot 'words', value 2 of 2: found the end of the line, expected {UINT}",
    b"1 a 1 1": "slot 'words', value 1 of 1: found 'a'",
    b"1 +1 1 1": r"value 1 of 1: found '\+1'",
    b"1 18446744073709551616 1 1": "value 1 of 1: found '18446744073709551616'",
    b"1 1": "slot 'label', count: found the end of the line",
    b"1 1 1 1 9 9": "found '9' after the last slot 'label', expected the end of the line",
    b"1 1 2 1 1": f"slot 'label': found 2 values, expected 1, as many as in the lines before, {DENSE}",
    b"99999999999999 1 1 1": "slot 'words', value 4 of 99999999999999: found the end",
    b"1 \xff\x00\x0b 1 1": r"found '\\xff\\x00\\x0b'",
    b"1 " + b"z" * 50 + b" 1 1": "found '" + "z" * 40 + r"'\.\.\.",
}


@walks(REFUSED.items())
def test_bad_lines_name_line_and_slot(line, text, backend):
    with pytest.raises(FileFormatError, match=rf"^part-3: line 12(, .*|: ){text}"):
        read(b"1 5 1 0\n" * 2 + line + b"\n1 5 1 0\n", source="part-3", first_line=10)


NOT_FINITE = b"nan inf 0x1p3 1e e5 . 1_0 1e39 -1e400 1,5 3.4028236e38".split()
SKIPPED = [WORDS, Slot("skipped", is_used=False), LABEL]
ODD = Slot("s\udcff\0\u00e9")
OTHERS = [
    (b"1 1 1 x 1 1", SKIPPED, "line 1, slot 'skipped', value 1 of 1: found 'x'"),
    (b"1 1", [Slot("a", is_dense=True, width=2)], "found 1 values, expected 2 in every line, since"),
    (b"1 x", [ODD], "line 1, slot 's.*\u00e9', value 1 of 1: found 'x'"),
    *((b"2 1 " + word, [Slot("x", "float")], "value 2 of 2: .*a finite decimal") for word in NOT_FINITE),
]


@walks(OTHERS)
def test_values_of_other_slots_are_checked(line, slots, text, backend):
    with pytest.raises(FileFormatError, match=f"part.*\u00e9: .*{text}"):
        read(line + b"\n", slots, source="part\udcff\0\u00e9")


def test_very_small_and_very_long_numbers(backend):
    words = f"1e-46 -1e-400 1e-45 0.{'0' * 400}1 1{'0' * 30} {'0' * 400}7 {'1' * 38} 5e-324 3.40282356e38"
    words = f"{words} 3.4028234663852886e38 0.1e00000000000000000001 100e-00000000000000000002".split()
    values = read(f"{len(words)} {' '.join(words)}\n".encode(), [Slot("x", "float")]).slots["x"].values
    assert values.tolist() == [struct.unpack("f", struct.pack("f", float(word)))[0] for word in words]


def test_lines_are_passed_over_and_counted(backend):
    text = b"\n1 5 1 0\n \t\r\nx\n2 6 7 1 1\n2 8 1 1\n\n1 9 2 1 1\n1 9 1 1"
    found = read(text, skip_blank=True, skip_bad=True)
    assert found.slots["words"].values.tolist() == [5, 6, 7, 9]
    assert found.slots["label"].values.tolist() == [[0], [1], [1]]
    assert (found.num_lines, found.num_bad, found.consumed) == (3, 3, len(text))
    assert found.passed.tolist() == [0, 1, 1, 2, 2, 2]
    with pytest.raises(FileFormatError, match="line 4, slot 'words', count: found 'x'"):
        read(text, skip_blank=True)
    assert read(text, skip_bad=True).num_bad == 6


# --- C++ and Python alike


ODD_WORDS = ["", "x", "-1", "1e999", "nan", "99999999999999999999", ".", "1e5e", "++1", "0x1", "\0"]


def random_word(draw, is_float):
    if draw.random() < 0.02:
        return draw.choice(ODD_WORDS)
    if not is_float:
        return str(draw.randrange(10 ** draw.randint(1, 19)))
    form = draw.choice(["{:.3f}", "{:.17g}", "{:e}", "{:+.0f}", "{!r}"])
    return form.format(draw.choice([1, -1]) * draw.random() * 10.0 ** draw.randint(-50, 36))


def random_text(draw, slots):
    """Lines that mostly fit the slots, neat ones or such with blanks of all kinds, and some mistakes."""
    dims, lines, neat = [draw.randint(1, 3) for _ in slots], [], draw.random() < 0.6
    for _ in range(draw.randint(0, 30 if neat else 6)):
        words = []
        for slot, dim in zip(slots, dims, strict=True):
            count = dim if slot.is_dense else draw.randint(0, 9)
            mistaken = draw.choice([-1, 1]) if draw.random() < 0.003 else 0
            words += [str(count + mistaken), *(random_word(draw, slot.type == "float") for _ in range(count))]
        words += ["7"] * (draw.random() < 0.003)
        lines.append((" " if neat else draw.choice([" ", "\t", "  "])).join(words) + " " * (not neat))
    end = "\n" if neat else draw.choice(["\n", "\r\n"])
    data = bytearray((end.join(lines) + draw.choice(["\n", ""])).encode())
    if data and draw.random() < 0.3:
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


def random_calls(seed, rounds, skip):
    draw = random.Random(seed)
    for _ in range(rounds):
        slots = []
        for i in range(draw.randint(1, 4)):
            dense = draw.random() < 0.3
            width = draw.choice([None, 1, 2]) if skip and dense else None
            slots.append(Slot(f"s{i}", draw.choice(["uint64", "float"]), dense, draw.random() < 0.8, width))
        keywords = {"final": draw.random() < 0.6, "first_line": draw.randrange(100)}
        if skip:
            keywords.update(skip_blank=draw.random() < 0.7, skip_bad=draw.random() < 0.7)
        yield MultiSlotFunctor, (random_text(draw, slots), slots), keywords


def plain(found):
    """What was found as values that compare."""
    if not isinstance(found, multislot.MultiSlotLines):
        return found
    slots = {name: (v.numpy().tobytes(), v.shape, o.tolist()) for name, (v, o) in found.slots.items()}
    return slots, found.num_lines, found.consumed, found.num_bad, found.passed.tolist()


@in_native
@pytest.mark.timeout(900)
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(1000, 1250), marks=pytest.mark.slow)])
def test_both_parsers_agree(seeds, skip, monkeypatch):
    for seed in seeds:
        assert 20 < agree(monkeypatch, random_calls(seed, 200, skip), plain) < (120 if skip else 180)
