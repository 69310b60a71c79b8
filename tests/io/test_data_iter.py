import inspect

import pytest

import dpmodule as mx


@pytest.mark.parametrize(
    "name", ["CSVIter", "LibSVMIter", "MNISTIter", "ImageRecordIter", "ImageDetRecordIter"]
)
def test_help_lists_the_options(name):
    cls = getattr(mx.io, name)
    arguments = inspect.getdoc(cls).partition("Args:")[2].partition("Raises:")[0]
    listed = [line.split(":")[0].strip() for line in arguments.splitlines() if line.strip()]
    assert listed == list(inspect.signature(cls).parameters)
