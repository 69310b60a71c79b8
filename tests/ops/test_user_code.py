"""Errors of users' code are known as such."""

import pytest

from dpmodule.ops.user_code import is_users, user_code


def test_what_is_raised_inside_is_marked_and_stays_itself():
    mine = KeyError("x")
    with pytest.raises(KeyError) as caught, user_code():
        raise mine
    assert caught.value is mine
    assert is_users(mine)


def test_others_are_not():
    assert not is_users(KeyError("x"))
    assert not is_users(None)
    with user_code():
        pass
