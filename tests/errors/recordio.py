"""Wrong calls of `mx.recordio`."""

import dpmodule as mx
from dpmodule.base import ArgumentError, BoundsError, FileError, FileFormatError, StateError, UnknownNameError
from dpmodule.recordio.framing import MAGIC, frame
from helpers.pictures import FORMATS

R = mx.recordio
PLAIN, INDEX = FORMATS / "plain.rec", FORMATS / "indexed.idx"


def written(folder, content):
    (folder / "a.rec").write_bytes(content)
    return folder / "a.rec"


def read(folder, content):
    record = R.MXRecordIO(written(folder, content), "r")
    return list(iter(record.read, None))


def indexed(folder, index, content=None, key=None):
    (folder / "a.idx").write_text(index, encoding="latin-1")
    path = written(folder, PLAIN.read_bytes() if content is None else content)
    record = R.MXIndexedRecordIO(folder / "a.idx", path, "r")
    return record if key is None else record.read_idx(key)


def writer(folder):
    return R.MXRecordIO(folder / "a.rec", "w")


def cut_after_opening(folder):
    dataset = R.RecordDataset(written(folder, PLAIN.read_bytes()))
    written(folder, PLAIN.read_bytes()[:-6])
    return dataset[len(dataset) - 1]


PART = MAGIC + (2 << 29 | 4).to_bytes(4, "little") + b"abcd"

ROWS = [
    # files
    (lambda: R.MXRecordIO(PLAIN, "r").write(b"a"), StateError, "open for reading"),
    (lambda folder: writer(folder).read(), StateError, "open for writing"),
    (lambda folder: writer(folder).write("text"), ArgumentError, "encode text first"),
    (lambda folder: R.MXRecordIO(folder / "a.rec", "a"), ArgumentError, "flag is 'a'"),
    (lambda folder: R.MXRecordIO(folder / "missing.rec", "r"), FileError, "missing.rec"),
    (lambda folder: indexed(folder, "", b"", 0), UnknownNameError, "no key 0 and no other"),
    *[
        (lambda folder, text=text: indexed(folder, text), FileFormatError, r"a\.idx: ")
        for text in ("a\t0\n", "1\t-4\n", "\xff")
    ],
    # damage
    *[
        (lambda folder, content=content: read(folder, content), FileFormatError, rf"a\.rec: byte {pattern}")
        for content, pattern in (
            (b"version https://git-lfs.github.com/spec/v1\noid", "0: .*git lfs pull"),
            (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "0: .*gzip"),
            (frame(b"one") + frame(b"two and more")[:-4], "12: 12 bytes of payload expected, but 8 are left"),
            (frame(b"one") + MAGIC, "12: the head of a record"),
            (frame(b"one") + b"junkjunk", "12: .*damaged"),
            (PART, "0: a part of kind 2 is not allowed here"),
        )
    ],
    # records
    (lambda: R.unpack(b"12345"), FileFormatError, "the record has 5 bytes"),
    (lambda: R.unpack(R.pack((0, [1, 2, 3], 0, 0), b"")[:-4]), FileFormatError, "3 labels, 12 bytes, but 8"),
    (lambda: R.unpack_img(R.pack((0, 1, 6, 0), b"junk")), FileFormatError, "image 6 of 4 bytes"),
    *[
        (lambda header=header: R.pack(header, b""), ArgumentError, "pack: header is")
        for header in ((0, 1.0, -1, 0), (0, "label", 0, 0))
    ],
    # datasets
    (lambda: R.RecordDataset("nowhere.rec"), FileError, "nowhere"),
    (lambda folder: R.RecordDataset(written(folder, b"something else, and long")), FileFormatError, "byte 0"),
    (lambda: R.RecordDataset(PLAIN)[99], BoundsError, "record 99 does not exist; the file has"),
    (cut_after_opening, FileFormatError, "a.rec: byte"),
]
