"""The public header: what an extension of a user does with it."""

import array

import pytest

from dpmodule import native
from helpers import compiled

if native.core is None or compiled.compiler() is None:
    pytest.skip("needs the extension and a C++ compiler", allow_module_level=True)

from helpers.jobs import JOBS


@pytest.mark.parametrize(
    "data",
    [b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"xabcx")[1:4], array.array("B", b"abc")],
    ids=["bytes", "bytearray", "memoryview", "slice", "array"],
)
def test_bytes_come_from_any_buffer(data):
    assert JOBS.sum(data) == sum(b"abc")


def test_bytes_come_from_capsules_and_from_objects_that_have_one():
    class Handle:
        def __dpmodule_bytes__(self):
            return JOBS.bytes_capsule(b"abc")

    assert JOBS.sum(JOBS.bytes_capsule(b"abc")) == sum(b"bc")
    assert JOBS.sum(Handle()) == sum(b"bc")


@pytest.mark.parametrize(
    "wrong", ["text", 3, None, memoryview(b"abcdef")[::2]], ids=lambda wrong: type(wrong).__name__
)
def test_what_has_no_bytes_is_refused(wrong):
    with pytest.raises((TypeError, BufferError)):
        JOBS.sum(wrong)


def test_a_functor_has_no_bytes():
    with pytest.raises(TypeError):
        JOBS.sum(JOBS.noop())


def test_a_buffer_is_released_with_its_last_owner():
    data = bytearray(b"abc")
    capsule = JOBS.bytes_capsule(data)
    with pytest.raises(BufferError):
        data.append(1)
    del capsule
    data.append(1)


def test_an_error_of_the_conversion_goes_through():
    class Broken:
        def __dpmodule_bytes__(self):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        JOBS.sum(Broken())
