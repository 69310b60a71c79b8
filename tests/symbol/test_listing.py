import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, OpError

S = mx.sym


def scoped():
    with mx.AttrScope(__x__="1", ctx_group="dev"):
        d = S.Variable("d", lr_mult=2, attr={"wd_mult": "3"})
        return d, S.FullyConnected(d, num_hidden=2, name="q")


def test_attributes_of_one_node():
    d, q = scoped()
    assert (q.attr("num_hidden"), q.attr("__x__"), q.attr("ctx_group"), q.attr("nope")) == (
        "2",
        "1",
        "dev",
        None,
    )
    assert d.attr("lr_mult") == d.attr("__lr_mult__") == "2"
    assert q.list_attr() == {"num_hidden": "2", "__x__": "1", "__ctx_group__": "dev", "ctx_group": "dev"}


def test_attributes_of_all_nodes_include_what_variables_inherit():
    _, q = scoped()
    found = q.attr_dict()
    assert found["q_weight"] == found["q_bias"] == found["q"]
    assert found["d"]["wd_mult"] == "3"
    assert (S.Variable("a") + S.Variable("b")).attr_dict() == {}


def test_a_group_has_no_attributes_of_its_own():
    d, q = scoped()
    group = S.Group([d, q])
    assert group.attr("num_hidden") is None
    assert group.list_attr() == {}
    assert set(group.attr_dict()) == {"d", "q", "q_weight", "q_bias"}
    with pytest.raises(ArgumentError, match="group"):
        group._set_attr(__x__="2")


def test_list_attr_recursive_is_gone():
    with pytest.raises(ArgumentError, match="attr_dict"):
        S.Variable("x").list_attr(recursive=True)


def test_setting_attributes():
    d, q = scoped()
    q._set_attr(__mood__="calm", lr_mult="4")
    assert (q.attr("__mood__"), q.attr("lr_mult"), q.list_attr()["__lr_mult__"]) == ("calm", "4", "4")
    d._set_attr(note="any key on a variable")
    assert d.attr("note") == "any key on a variable"


def test_setting_an_operators_own_attribute():
    _, q = scoped()
    q._set_attr(num_hidden="7")
    assert q.attr("num_hidden") == "7"
    assert q.infer_shape(d=(2, 3))[1] == [(2, 7)]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"__x__": 3}, ArgumentError, "expected a string"),
        ({"mood": "calm"}, OpError, "no attribute 'mood'"),
        ({"num_hidden": "few"}, OpError, "num_hidden"),
    ],
)
def test_setting_refuses(given, error, said):
    _, q = scoped()
    with pytest.raises(error, match=said):
        q._set_attr(**given)
    assert q.attr("num_hidden") == "2"


def test_scopes_nest_and_end():
    with mx.AttrScope(__a__="1", __b__="1"):
        with mx.AttrScope(__b__="2"):
            x = S.Variable("x", attr={"__c__": "3"})
        y = S.Variable("y")
    z = S.Variable("z")
    assert x.list_attr() == {"__a__": "1", "__b__": "2", "__c__": "3"}
    assert y.list_attr() == {"__a__": "1", "__b__": "1"}
    assert z.list_attr() == {}
    with pytest.raises(ArgumentError, match="expected a string"):
        mx.AttrScope(__a__=1)


def test_a_users_initializer_stays_and_a_missing_one_is_set():
    mine, bare = S.Variable("mine", init="ones"), S.Variable("bare")
    S.BatchNorm(S.Variable("x"), moving_mean=mine, moving_var=bare)
    assert mine.attr("__init__") == "ones"
    assert bare.attr("__init__") == '["one", {}]'
