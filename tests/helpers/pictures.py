"""Pictures, and what MXNet 1.9.1 makes of them (tests/data/goldens/image)."""

from functools import cache

import numpy as np

import dpmodule as mx
from helpers.image_cases import DATA, FOLDER
from helpers.image_cases import NAMES as NAMES
from helpers.image_cases import OPTIONS as OPTIONS

FORMATS = DATA / "formats"


@cache
def goldens():
    """Return the recorded arrays by name."""
    with np.load(FOLDER / "image.npz") as file:
        return dict(file)


def compare(found, tolerance, most=0.0):
    """Compare arrays with those recorded; at most that share of an array's elements may differ by the tolerance."""
    for key, array in found.items():
        wanted = goldens()[key]
        assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape), key
        if array.dtype.kind in "US":
            assert array == wanted, key
            continue
        apart = np.abs(array.astype("f8") - wanted)
        assert apart.max(initial=0) <= tolerance, key
        assert not most or (apart > 1e-4).mean() < most, key


def file_of(name):
    """Return the bytes of a picture."""
    return (FOLDER / f"{name}.png").read_bytes()


def write_records(path, payloads, labels):
    """Write pictures with labels to a record file, numbered from 0."""
    with mx.recordio.MXRecordIO(path, "w") as writer:
        for number, (payload, label) in enumerate(zip(payloads, labels, strict=True)):
            writer.write(mx.recordio.pack((0, label, number, 0), payload))
    return str(path)
