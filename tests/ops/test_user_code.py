"""Errors of users' code are known as such, and are MXNetErrors as well as what they were."""

import pickle

import pytest

from dpmodule.base import MXNetError, OpError
from dpmodule.ops.user_code import is_user_error, user_code


def raised_by(error):
    with pytest.raises(BaseException) as caught, user_code():  # noqa: PT011
        raise error
    return caught.value


@pytest.mark.parametrize("error", [KeyError("x"), AssertionError(), OSError(2, "no file"), StopIteration()])
def test_what_is_raised_inside_is_marked_and_of_both_types(error):
    found = raised_by(error)
    assert found.__cause__ is error
    for each in (found, pickle.loads(pickle.dumps(found))):
        assert type(each) is type(found)
        assert isinstance(each, type(error))
        assert isinstance(each, MXNetError)
        assert (each.args, str(each), type(each).__name__) == (error.args, str(error), type(error).__name__)
        assert is_user_error(each)


@pytest.mark.parametrize("error", [OpError("bad"), KeyboardInterrupt()])
def test_errors_of_the_package_and_interrupts_stay_themselves(error):
    assert raised_by(error) is error
    assert is_user_error(error)
    assert not is_user_error(KeyError("x"))
    assert not is_user_error(None)
