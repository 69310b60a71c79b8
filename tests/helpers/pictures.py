"""Pictures, and what MXNet 1.9.1 makes of them (tests/data/goldens/image)."""

import json
from functools import cache
from pathlib import Path

import numpy as np

import dpmodule as mx

FOLDER = Path(__file__).parents[1] / "data" / "goldens" / "image"
FORMATS = Path(__file__).parents[1] / "data" / "formats"
NAMES = ("noise", "wide", "ramp")


@cache
def goldens():
    """Return the recorded arrays by name."""
    with np.load(FOLDER / "image.npz") as file:
        return dict(file)


@cache
def options():
    """Return the arguments they were recorded with."""
    return json.loads((FOLDER / "image.json").read_text())


def file_of(name):
    """Return the bytes of a picture."""
    return (FOLDER / f"{name}.png").read_bytes()


def write_records(path, payloads, labels):
    """Write pictures with labels to a record file, numbered from 0."""
    with mx.recordio.MXRecordIO(path, "w") as writer:
        for number, (payload, label) in enumerate(zip(payloads, labels, strict=True)):
            writer.write(mx.recordio.pack((0, label, number, 0), payload))
    return str(path)
