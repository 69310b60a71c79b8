"""The public header: what an extension of a user does with it."""

import array

import pytest

from dpmodule import native
from helpers import compiled

if native.core is None or compiled.compiler() is None:
    pytest.skip("needs the extension and a C++ compiler", allow_module_level=True)

from helpers.jobs import JOBS


def of(make):
    """An object that gives its bytes by a call."""
    return type("Handle", (), {"__dpmodule_bytes__": lambda self: make()})()


ABC = b"abc"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        *((data, ABC) for data in (ABC, bytearray(ABC), memoryview(b"xabcx")[1:4], array.array("B", ABC))),
        (of(lambda: JOBS.bytes_capsule(ABC)), b"bc"),
    ],
)
def test_bytes_come_from_buffers_capsules_and_objects(data, expected):
    assert JOBS.sum(data) == sum(expected)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        *((wrong, (TypeError, BufferError)) for wrong in ("text", 3, None, memoryview(b"abcdef")[::2])),
        (of(lambda: 1 / 0), ZeroDivisionError),
    ],
)
def test_what_has_no_bytes_is_refused(wrong, error):
    with pytest.raises(error):
        JOBS.sum(wrong)
    with pytest.raises(TypeError):
        JOBS.sum(JOBS.noop())


def test_a_buffer_is_released_with_its_last_owner():
    data = bytearray(ABC)
    capsule = JOBS.bytes_capsule(data)
    assert JOBS.sum(capsule) == sum(b"bc")
    with pytest.raises(BufferError):
        data.append(1)
    del capsule
    data.append(1)
