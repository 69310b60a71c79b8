import pytest

import dpmodule as mx


def test_importing_gluon_works_and_using_it_says_what_takes_its_place():
    from dpmodule import gluon

    assert mx.gluon is gluon
    with pytest.raises(mx.MXNetError, match=r"gluon\.nn\.Dense is not available: .*torch\.nn"):
        gluon.nn.Dense(3)
    with pytest.raises(mx.MXNetError, match=r"gluon\.Trainer is not available"):
        mx.gluon.Trainer({}, "sgd")
