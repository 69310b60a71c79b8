"""Ready-made functors with the extension and in Python, in one process."""

import pytest

from dpmodule import native

__all__ = ["backend", "backends", "outcome"]

backends = ["native", "python"] if native.core is not None else ["python"]


@pytest.fixture(params=backends)
def backend(request, monkeypatch):
    """Make functors in C++, then in Python."""
    if request.param == "python":
        monkeypatch.setattr(native, "core", None)
    return request.param


def outcome(functor):
    """Return a functor's result, or the type and text of what it raises."""
    try:
        return functor.run()
    except Exception as error:
        return type(error), str(error)
