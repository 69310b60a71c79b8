import json
import random
from pathlib import Path

import pytest

import dpmodule as mx
from dpmodule.base import FileFormatError, MXNetError, OpError
from dpmodule.graph import Graph, from_json, to_json

DATA = Path(__file__).parents[1] / "data" / "symbols"
EXPECTED = json.loads((DATA / "expected_attrs.json").read_text())
S = mx.sym


def nodes_of(symbol):
    return json.loads(symbol.tojson())["nodes"]


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


def test_numbers_of_versions_and_hidden_outputs():
    net = S.Dropout(S.BatchNorm(S.Variable("data"), name="bn"), name="drop")
    graph = json.loads(net.tojson())
    assert graph["node_row_ptr"] == [0, 1, 2, 3, 4, 5, 8, 10]
    assert graph["nodes"][5]["inputs"] == [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 1], [4, 0, 1]]
    assert graph["attrs"] == {"mxnet_version": ["int", 10901]}
    assert graph["arg_nodes"] == [0, 1, 2, 3, 4]
    assert graph["heads"] == [[6, 0, 0]]


def old(text_of_nodes, version=None, **more):
    root = {"nodes": text_of_nodes, "arg_nodes": [], **more}
    if version is not None:
        root["attrs"] = {"mxnet_version": ["int", version]}
    return json.dumps(root)


def test_each_place_in_which_attributes_have_stood():
    for key in ("param", "attr", "attrs"):
        rows = [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "_mul_scalar", "name": "m", key: {"scalar": "3.0"}, "inputs": [[0, 0]]},
        ]
        ((node, index),) = from_json(old(rows, heads=[[1, 0]]))
        assert (node.a.scalar, index) == (3.0, 0)


def test_missing_states_of_0_8_are_made():
    rows = [
        {"op": "null", "param": {}, "name": "x", "inputs": [], "backward_source_id": -1},
        {"op": "null", "param": {}, "name": "g", "inputs": [], "backward_source_id": -1},
        {"op": "null", "param": {}, "name": "b", "inputs": [], "backward_source_id": -1},
        {"op": "BatchNorm", "param": {"eps": "0.1"}, "name": "bn", "inputs": [[0, 0], [1, 0], [2, 0]]},
    ]
    symbol = S.load_json(old(rows, heads=[[3, 0]]))
    assert symbol.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    assert symbol.attr_dict()["bn_moving_var"]["__init__"] == '["one", {}]'
    newer = old(rows, 10000, heads=[[3, 0]])
    with pytest.raises(FileFormatError, match="3 inputs"):
        S.load_json(newer)


def test_old_keys_move_to_the_variable_they_speak_of():
    rows = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "null", "name": "w", "inputs": [], "attr": {"wd_mult": "2"}},
        {
            "op": "FullyConnected",
            "name": "fc",
            "param": {"num_hidden": "2", "no_bias": "True"},
            "attr": {"weight_lr_mult": "3", "ctx_group": "g"},
            "inputs": [[0, 0], [1, 0]],
        },
    ]
    symbol = S.load_json(old(rows, heads=[[2, 0]]))
    assert symbol.attr_dict()["w"] == {"__wd_mult__": "2", "wd_mult": "2", "__lr_mult__": "3", "lr_mult": "3"}
    assert symbol.attr("ctx_group") == "g"


def test_argmax_of_axis_minus_one_meant_flatten():
    rows = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "argmax", "name": "m", "attr": {"axis": "-1"}, "inputs": [[0, 0, 0]]},
    ]
    ((node, _),) = from_json(old(rows, 903, heads=[[1, 0, 0]]))
    assert node.a.axis is None
    ((node, _),) = from_json(old(rows, 905, heads=[[1, 0, 0]]))
    assert node.a.axis == -1


def test_a_file_without_heads_gives_the_last_node():
    rows = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "SliceChannel", "name": "s", "attr": {"num_outputs": "2"}, "inputs": [[0, 0, 0]]},
    ]
    assert [i for _, i in from_json(old(rows, 903))] == [0, 1]


ONE = {"op": "null", "name": "x", "inputs": []}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a symbol file"),
        ("<html><body>404</body></html>", "HTML page"),
        ("[]", "JSON object"),
        ("{}", "no 'nodes'"),
        ("3", "JSON object"),
        ('{"nodes": {}}', "no 'nodes' of type list"),
        ('{"nodes": [3]}', "node 0 has no 'op'"),
        ('{"nodes": [{"op": "null"}]}', "node 0 has no 'name'"),
        (old([{"op": "relu", "name": "r", "inputs": [[0, 0]]}]), "only 0 nodes come before"),
        (old([ONE, {"op": "relu", "name": "r", "inputs": [[0, 1, 0]]}]), "output 1 of 'x'"),
        (old([ONE, {"op": "relu", "name": "r", "inputs": [["0", 0]]}]), "expected \\[node, output"),
        (old([ONE, {"op": "relu", "name": "r", "inputs": [[False, 0]]}]), "expected \\[node, output"),
        (old([ONE, {"op": "relu", "name": "r", "inputs": 3}]), "no 'inputs' of type list"),
        (old([ONE, {"op": "relu", "name": "r", "inputs": [], "attrs": 3}]), "'attrs' of node 1"),
        (old([ONE], heads=[[7, 0]]), "heads refers to node 7"),
        (old([ONE], heads=[[0]]), "heads has an entry"),
        (old([ONE, {"op": "elemwise_add", "name": "p", "inputs": [[0, 0]]}], 10000), "has 1 inputs"),
        ("[" * 100_000, "not a symbol file"),
    ],
)
def test_damaged_text_says_what_is_wrong(text, said):
    with pytest.raises(FileFormatError, match=said):
        from_json(text)


@pytest.mark.parametrize("version", [[], None, ["int"], ["int", "x"], {"a": 1}, "10901"])
def test_an_odd_version_reads_as_the_oldest(version):
    root = {"nodes": [ONE], "heads": [[0, 0]], "attrs": {"mxnet_version": version}}
    assert from_json(json.dumps(root))[0][0].name == "x"


def test_an_unknown_operator_is_named():
    with pytest.raises(MXNetError, match="does not have: NoSuchThing \\('q'\\)"):
        from_json(old([ONE, {"op": "NoSuchThing", "name": "q", "inputs": [[0, 0]]}]))


@pytest.mark.parametrize(
    "value", ["", "x", "1 2", "(" * 5000, "9" * 5000, "1e400", "__import__('os')", "[1", "-1", "3.5"]
)
def test_an_unreadable_attribute_is_named(value):
    rows = [ONE, {"op": "SliceChannel", "name": "s", "attrs": {"num_outputs": value}, "inputs": [[0, 0, 0]]}]
    with pytest.raises(MXNetError, match="num_outputs"):
        from_json(old(rows, 10901))


def test_a_load_error_names_the_file(tmp_path):
    path = tmp_path / "net-symbol.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FileFormatError, match="net-symbol.json: not UTF-8 text at byte 0"):
        S.load(str(path))
    path.write_text("{")
    with pytest.raises(FileFormatError, match="net-symbol.json"):
        S.load(str(path))
    with pytest.raises(OSError, match="missing.json") as caught:
        S.load(str(tmp_path / "missing.json"))
    assert isinstance(caught.value, MXNetError)


TEXTS = [
    (DATA / "save_000800.json").read_text(),
    (DATA / "attrs-symbol.json").read_text(),
    (DATA / "miraclewkf_lenet_output-symbol.json").read_text(),
    S.Concat(*S.SliceChannel(S.BatchNorm(S.Variable("x"), name="b"), num_outputs=2), dim=0).tojson(),
]
WORDS = [
    "null",
    "-1",
    "1e999",
    '"x"',
    "[]",
    "{}",
    "true",
    "99999999999999999999",
    "(1,",
    "\x00",
    "\ud800",
    "Concat",
]


def mutated(seed):
    """Damage one of the texts: characters, words, or values of the parsed JSON."""
    rng = random.Random(seed)
    text = rng.choice(TEXTS)
    if rng.random() < 0.5:
        for _ in range(rng.randint(1, 4)):
            at, length = rng.randrange(len(text)), rng.choice([0, 1, 1, 5, 60])
            text = text[:at] + rng.choice([*WORDS, "", chr(rng.randrange(1, 300))]) + text[at + length :]
        return text
    root = json.loads(text)
    for _ in range(rng.randint(1, 3)):
        place = root
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                break
            key = rng.choice(list(keys))
            if isinstance(place[key], (dict, list)) and rng.random() < 0.8:
                place = place[key]
                continue
            kind = rng.random()
            if kind < 0.2:
                del place[key]
            elif kind < 0.3 and isinstance(place, list):
                place.append(place[key])
            else:
                values = [
                    None,
                    -1,
                    10**12,
                    1.5,
                    "",
                    "x",
                    [],
                    {},
                    True,
                    rng.randrange(30),
                    [rng.randrange(30), 0, 0],
                ]
                place[key] = rng.choice([*values, "(1, 2", "(0, 0)", "1000000000", "BatchNorm", "nan"])
            break
    return json.dumps(root)


def check_mutation(seed):
    try:
        heads = from_json(mutated(seed))
    except MXNetError:
        return False
    if heads:
        text = to_json(Graph(heads))
        assert to_json(Graph(from_json(text))) == text
    return True


def test_damaged_files_are_read_or_refused_but_nothing_else():
    read = sum(check_mutation(seed) for seed in range(200))
    assert 10 < read < 190


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_damaged_files():
    assert sum(check_mutation(seed) for seed in range(1000, 11000)) > 500


def test_foreign_attributes_of_a_file():
    text = mx.sym.clip(mx.sym.Variable("x"), 0, 1, name="node").tojson()
    marked = text.replace('"a_max"', '"__mark__": "1", "a_max"')
    assert mx.sym.load_json(marked).attr("__mark__") == "1"
    with pytest.raises(
        OpError, match=r"node 1 \('node'\).*clip has no attribute 'foreign'; it takes a_min, a_max"
    ):
        mx.sym.load_json(text.replace('"a_max"', '"foreign": "1", "a_max"'))
