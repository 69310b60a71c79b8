import json
from pathlib import Path

import pytest

import dpmodule as mx
from dpmodule.base import FileFormatError
from dpmodule.graph import from_json

DATA = Path(__file__).parents[1] / "data" / "symbols"
EXPECTED = json.loads((DATA / "expected_attrs.json").read_text())
S = mx.sym


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_attributes_of_old_files_are_upgraded_as_in_mxnet(name):
    symbol, want = S.load(str(DATA / name)), EXPECTED[name]
    assert symbol.list_arguments() == want["arguments"]
    assert symbol.list_outputs() == want["outputs"]
    assert symbol.get_internals().list_outputs() == want["internals"]
    assert symbol.attr_dict() == want["attr_dict"]
    assert symbol.list_auxiliary_states() == want.get("aux", [])


def test_a_file_of_0_8_infers_shapes_as_in_mxnet():
    want = EXPECTED["save_000800.json"]["infer_shape"]
    found = S.load(str(DATA / "save_000800.json")).infer_shape(data=tuple(want["input"]["data"]))
    assert json.loads(json.dumps(found)) == [want["arguments"], want["outputs"], want["aux"]]


def text_of(*nodes, version=None, **more):
    attrs = {} if version is None else {"attrs": {"mxnet_version": ["int", version]}}
    return json.dumps({"nodes": nodes, "arg_nodes": [], **attrs, **more})


def variable(name="x", **more):
    return {"op": "null", "name": name, "inputs": [], **more}


def op(name, *inputs, **more):
    return {"op": name, "name": "n", "inputs": [list(each) for each in inputs or [(0, 0)]], **more}


def test_missing_states_of_0_8_are_made():
    norm = op("BatchNorm", (0, 0), (1, 0), (2, 0), param={"eps": "0.1"})
    rows = [*(variable(name, param={}, backward_source_id=-1) for name in "xgb"), norm]
    symbol = S.load_json(text_of(*rows, heads=[[3, 0]]))
    assert symbol.list_auxiliary_states() == ["n_moving_mean", "n_moving_var"]
    assert symbol.attr_dict()["n_moving_var"]["__init__"] == '["one", {}]'
    with pytest.raises(FileFormatError, match="3 inputs"):
        S.load_json(text_of(*rows, version=10000, heads=[[3, 0]]))


def test_old_keys_move_to_the_variable_they_speak_of():
    moved = {"weight_lr_mult": "3", "ctx_group": "g"}
    dense = op("FullyConnected", (0, 0), (1, 0), param={"num_hidden": "2", "no_bias": "True"}, attr=moved)
    symbol = S.load_json(text_of(variable(), variable("w", attr={"wd_mult": "2"}), dense, heads=[[2, 0]]))
    assert symbol.attr_dict()["w"] == {"__wd_mult__": "2", "wd_mult": "2", "__lr_mult__": "3", "lr_mult": "3"}
    assert symbol.attr("ctx_group") == "g"
    computed = {**op("exp", (1, 0)), "name": "e"}
    dense = op("FullyConnected", (0, 0), (2, 0), param={"num_hidden": "2", "no_bias": "True"}, attr=moved)
    symbol = S.load_json(text_of(variable(), variable("w"), computed, dense, heads=[[3, 0]]))
    assert not {"w", "e"} & symbol.attr_dict().keys()  # a weight that is computed has no rate


@pytest.mark.parametrize(("version", "axis"), [(903, None), (905, -1)])
def test_argmax_of_axis_minus_one_meant_flatten(version, axis):
    argmax = op("argmax", (0, 0, 0), attr={"axis": "-1"})
    ((node, _),) = from_json(text_of(variable(), argmax, version=version, heads=[[1, 0, 0]]))
    assert node.a.axis == axis


def test_a_file_without_heads_gives_the_last_node():
    pieces = op("SliceChannel", (0, 0, 0), attr={"num_outputs": "2"})
    assert [i for _, i in from_json(text_of(variable(), pieces, version=903))] == [0, 1]
    ((node, _),) = from_json(text_of(variable(), op("Concat", (0, 0), (0, 0))))
    assert node.a.num_args == 2  # not in the file


@pytest.mark.parametrize("version", [[], None, ["int"], ["int", "x"], {"a": 1}, "10901"])
def test_an_odd_version_reads_as_the_oldest(version):
    root = {"nodes": [variable()], "heads": [[0, 0]], "attrs": {"mxnet_version": version}}
    assert from_json(json.dumps(root))[0][0].name == "x"


def test_numbers_of_versions_and_hidden_outputs():
    net = S.Dropout(S.BatchNorm(S.Variable("data"), name="bn"), name="drop")
    graph = json.loads(net.tojson())
    assert graph["node_row_ptr"] == [0, 1, 2, 3, 4, 5, 8, 10]
    assert graph["nodes"][5]["inputs"] == [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 1], [4, 0, 1]]
    assert graph["attrs"] == {"mxnet_version": ["int", 10901]}
    assert (graph["arg_nodes"], graph["heads"]) == ([0, 1, 2, 3, 4], [[6, 0, 0]])
