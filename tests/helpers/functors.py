"""Ready-made functors with the extension and in Python, in one process."""

import pytest
from hypothesis import HealthCheck, settings

from dpmodule import native

backends = ["native", "python"] if native.core is not None else ["python"]


@pytest.fixture(params=backends)
def backend(request, monkeypatch):
    """Make functors in C++, then in Python."""
    if request.param == "python":
        monkeypatch.setattr(native, "core", None)
    return request.param


def with_backend(examples):
    """Return hypothesis's settings for tests of both."""
    ignored = [HealthCheck.function_scoped_fixture]
    more = {"deadline": None, "derandomize": True, "database": None}
    return settings(max_examples=examples, suppress_health_check=ignored, **more)


def outcome(functor):
    """Return a functor's result, or the type and text of what it raises."""
    try:
        return functor.run()
    except Exception as error:
        return type(error), str(error)


def agree(monkeypatch, calls, plain=lambda found: found):
    """Make functors with the extension and in Python, which must end alike; returns how many were refused.

    Args:
        calls: tuples of a functor's class, its arguments and its options.
        plain: from a result to what compares.
    """
    made = [(kind(*args, **options), kind, args, options) for kind, args, options in calls]
    refused = 0
    with monkeypatch.context() as patch:
        patch.setattr(native, "core", None)
        for functor, kind, args, options in made:
            found = outcome(functor)
            assert plain(found) == plain(outcome(kind(*args, **options))), (args, options)
            refused += isinstance(found, tuple) and isinstance(found[0], type)
    return refused
