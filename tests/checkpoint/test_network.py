"""Checkpoints: files as MXNet names them, clear errors, and sets that survive kills and full disks."""

import json
import logging
import os
import resource
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import safetensors

import dpmodule as mx
from dpmodule import _files as files
from dpmodule import checkpoint
from dpmodule.base import ArgumentError, FileError, FileFormatError, MXNetError
from helpers.programs import run_file

TESTS = Path(__file__).parents[1]
HELPER = TESTS / "helpers" / "kill_saves.py"


@pytest.fixture
def prefix(tmp_path):
    return str(tmp_path / "net")


def network(width=2):
    return mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=width, name="fc")


def params(value=1.0):
    return {"fc_weight": mx.nd.full((2, 3), value), "fc_bias": mx.nd.full((2,), value)}


def names(prefix):
    return sorted(os.listdir(os.path.dirname(prefix)))


def test_round_trip_with_mxnets_file_names_and_keys(prefix):
    aux = {"moving_mean": mx.nd.array([1, 2])}
    checkpoint.save_checkpoint(prefix, 3, network(), params(), aux, states=b"state")
    assert names(prefix) == ["net-0003.params", "net-0003.states", "net-symbol.json"]
    assert sorted(mx.nd.load(f"{prefix}-0003.params")) == ["arg:fc_bias", "arg:fc_weight", "aux:moving_mean"]

    symbol, arg_params, aux_params = checkpoint.load_checkpoint(prefix, 3)
    assert symbol.tojson() == network().tojson()
    np.testing.assert_array_equal(arg_params["fc_weight"].asnumpy(), np.ones((2, 3)))
    np.testing.assert_array_equal(aux_params["moving_mean"].asnumpy(), [1, 2])
    assert checkpoint.load_states(prefix, 3) == b"state"


def test_epochs_share_the_graph_and_are_listed(prefix):
    for epoch in (2, 1, 12345):
        checkpoint.save_checkpoint(prefix, epoch, network(), params(epoch), {})
    assert checkpoint.epochs(prefix) == [1, 2, 12345]
    before = os.stat(f"{prefix}-symbol.json").st_mtime_ns
    checkpoint.save_checkpoint(prefix, 4, network(), params(), {})
    assert os.stat(f"{prefix}-symbol.json").st_mtime_ns == before
    checkpoint.save_checkpoint(prefix, 5, network(width=7), params(), {})
    assert "7" in Path(f"{prefix}-symbol.json").read_text()


def test_symbol_none_writes_parameters_only(prefix):
    checkpoint.save_checkpoint(prefix, 0, None, params(), {})
    assert names(prefix) == ["net-0000.params"]
    assert sorted(checkpoint.load_params(prefix, 0)[0]) == ["fc_bias", "fc_weight"]


def test_epochs_of_a_prefix_that_begins_like_another(prefix):
    checkpoint.save_checkpoint(prefix + "-a", 1, network(), params(), {})
    assert checkpoint.epochs(prefix) == []


def test_next_save_sweeps_left_overs_of_its_prefix_only(prefix):
    folder = Path(prefix).parent
    for name in ("net-0001.params", "net-symbol.json", "net-0002", "net-a-0001.params", "net"):
        (folder / f".{name}.0123abcd.tmp").write_bytes(b"torn")
    checkpoint.save_checkpoint(prefix, 3, network(), params(), {})
    assert names(prefix) == [
        ".net-a-0001.params.0123abcd.tmp",
        ".net.0123abcd.tmp",
        "net-0003.params",
        "net-symbol.json",
    ]


def test_missing_files_say_what_there_is(prefix):
    with pytest.raises(FileError, match=r"net-symbol\.json.*|nothing is saved under the prefix"):
        checkpoint.load_checkpoint(prefix, 1)
    checkpoint.save_checkpoint(prefix, 3, network(), params(), {})
    checkpoint.save_checkpoint(prefix, 5, network(), params(), {})
    with pytest.raises(FileError, match="epochs 3, 5") as caught:
        checkpoint.load_checkpoint(prefix, 1)
    assert caught.value.filename == f"{prefix}-0001.params"
    assert isinstance(caught.value, MXNetError)
    with pytest.raises(FileError, match="epochs 3, 5"):
        checkpoint.load_states(prefix, 3)


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", None])
def test_epoch_is_a_whole_number(prefix, epoch):
    with pytest.raises(ArgumentError, match="epoch is"):
        checkpoint.save_checkpoint(prefix, epoch, network(), params(), {})
    assert names(prefix) == []


def test_what_is_saved_in_the_middle_of_an_epoch(prefix):
    word = checkpoint.LAST
    checkpoint.save_checkpoint(prefix, 3, network(), params(), {})
    position = {f"{prefix}-last.run": b"{}"}
    checkpoint.save_checkpoint(prefix, word, network(), params(), {}, states=b"states", more=position)
    assert checkpoint.epochs(prefix) == [3]
    assert checkpoint.load_checkpoint(prefix, word)[1].keys() == params().keys()
    assert checkpoint.load_states(prefix, word) == b"states"
    assert mx.mod.Module.load(prefix, word, label_names=None).symbol.tojson() == network().tojson()
    for stray in ("-0004", "-2024.txt", "-other-0003.params", "2-0003.params"):
        Path(prefix + stray).write_text("not ours")
    endings = [
        "-0003.params",
        "-last.params",
        "-last.run",
        "-last.states",
        "-symbol.json",
    ]
    assert checkpoint.files(prefix) == [prefix + ending for ending in endings]


def test_parameter_that_is_no_array_is_named(prefix):
    with pytest.raises(ArgumentError, match=r"arg_params\['w'\] is a ndarray"):
        checkpoint.save_checkpoint(prefix, 1, network(), {"w": np.ones(2)}, {})
    assert names(prefix) == []


def test_missing_folder_is_named(prefix):
    with pytest.raises(FileError, match="nowhere"):
        checkpoint.save_checkpoint(str(Path(prefix).parent / "nowhere" / "net"), 1, network(), params(), {})


def test_file_without_names_is_no_checkpoint(prefix):
    mx.nd.save(f"{prefix}-0001.params", [mx.nd.ones((2,))])
    with pytest.raises(FileFormatError, match=r"no names.*nd\.load"):
        checkpoint.load_params(prefix, 1)
    mx.nd.save(f"{prefix}-0001.params", {"weight": mx.nd.ones((2,))})
    with pytest.raises(FileFormatError, match="'weight'.*arg:fc1_weight"):
        checkpoint.load_params(prefix, 1)


def test_names_without_prefixes_as_gluon_writes_them(prefix):
    data = mx.sym.Variable("data")
    net = mx.sym.BatchNorm(mx.sym.FullyConnected(data, num_hidden=2, name="fc"), name="bn:0")
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (4, 3))])
    module.init_params(mx.init.One())
    arg_params, aux_params = module.get_params()
    net.save(checkpoint.symbol_file(prefix))
    path = checkpoint.params_file(prefix, 0)
    for named in (
        {**arg_params, **aux_params},
        {**{f"arg:{k}": v for k, v in arg_params.items()}, **aux_params},
    ):
        mx.nd.save(path, named)
        for args, aux in (
            checkpoint.load_params(prefix, 0),
            checkpoint.load_checkpoint(prefix, 0)[1:],
            mx.model.load_checkpoint(prefix, 0)[1:],
        ):
            assert args.keys() == {"fc_weight", "fc_bias", "bn:0_gamma", "bn:0_beta"}
            assert aux.keys() == {"bn:0_moving_mean", "bn:0_moving_var"}
        other = mx.mod.Module.load(prefix, 0, label_names=None)
        other.bind([("data", (1, 3))])
        other.init_params(mx.init.Zero())
        module.init_params(mx.init.Zero(), force_init=True)
        module.load_params(path)
        for one in (other, module):
            np.testing.assert_array_equal(
                one.get_params()[0]["bn:0_beta"].asnumpy(), arg_params["bn:0_beta"].asnumpy()
            )
            assert one.get_params()[1]["bn:0_moving_var"].asnumpy().tolist() == [1, 1]
    mx.nd.save(path, {"0.weight": mx.nd.ones((2, 3))})  # as save_parameters writes them
    with pytest.raises(FileFormatError, match=r"'0\.weight'.*save_parameters writes other names"):
        checkpoint.load_checkpoint(prefix, 0)


def test_foreign_keys_are_left_out_with_a_warning(prefix, caplog):
    mx.nd.save(f"{prefix}-0001.params", {"arg:w": mx.nd.ones((2,)), "grad:w": mx.nd.ones((2,))})
    with caplog.at_level(logging.WARNING):
        arg_params, aux_params = checkpoint.load_params(prefix, 1)
    assert (list(arg_params), aux_params) == (["w"], {})
    assert "grad:w" in caplog.text


def test_empty_file_gives_nothing_and_warns(prefix, caplog):
    checkpoint.save_checkpoint(prefix, 1, None, {}, {})
    with caplog.at_level(logging.WARNING):
        assert checkpoint.load_params(prefix, 1) == ({}, {})
    assert "is empty" in caplog.text


def test_truncated_parameters_are_refused(prefix):
    checkpoint.save_checkpoint(prefix, 1, network(), params(), {})
    path = Path(f"{prefix}-0001.params")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(FileFormatError, match=r"net-0001\.params"):
        checkpoint.load_checkpoint(prefix, 1)


def run_helper(*args):
    done = run_file(HELPER, *args, seconds=80)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(120)
def test_killed_at_every_step(tmp_path):
    result = run_helper("steps", tmp_path / "set")
    versions = result["versions"]
    assert set(versions) == {1, 2}, versions
    assert versions == sorted(versions), "a later kill must not bring the old set back"
    assert len(versions) > 20
    assert result["most_leftovers"] <= 4  # one temporary per file and the journal


@pytest.mark.timeout(120)
def test_error_at_every_step_keeps_the_old_set(tmp_path):
    outcomes = run_helper("errors", tmp_path / "set")["outcomes"]
    assert len(outcomes) > 30
    for outcome in outcomes:
        if outcome["raised"] is None:
            assert outcome["version"] == 2, outcome
        else:
            kind, code, path = outcome["raised"]
            assert outcome["version"] == 1, outcome
            assert (kind, code) == ("FileError", outcome["code"]), outcome
            assert "net" in path or path.endswith("set"), outcome
    assert {o["step"] for o in outcomes if o["raised"]} >= {"open", "write", "fsync", "replace"}


@pytest.mark.timeout(120)
def test_killed_at_random_moments(tmp_path):
    result = run_helper("kill", tmp_path / "set", 30, 1)
    assert result["torn"] == []
    assert result["last"] > 3
    assert result["left"] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_a_thousand_random_moments(tmp_path):
    result = run_helper("kill", tmp_path / "set", 1000, 2)
    assert result["torn"] == []
    assert result["most"] <= 4
    assert result["left"] == []


def test_file_size_limit_keeps_the_old_set(prefix):
    checkpoint.save_checkpoint(prefix, 1, network(), params(1), {}, states=b"1")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(FileError, match=r"net-0001\.params"):
            checkpoint.save_checkpoint(prefix, 1, network(3), {"w": mx.nd.ones((9999,))}, {}, states=b"2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    symbol, arg_params, _ = checkpoint.load_checkpoint(prefix, 1)
    assert symbol.tojson() == network().tojson()
    assert sorted(arg_params) == ["fc_bias", "fc_weight"]
    assert checkpoint.load_states(prefix, 1) == b"1"
    assert names(prefix) == ["net-0001.params", "net-0001.states", "net-symbol.json"]


def test_every_reader_finishes_a_save_that_was_killed_in_the_switch(prefix):
    checkpoint.save_checkpoint(prefix, 1, network(2), params(1), {}, states=b"1")
    checkpoint.save_checkpoint(prefix + "x", 1, network(5), params(2), {}, states=b"2")
    readers = {
        "net-0001.params": lambda path: mx.nd.load(path)["arg:fc_bias"].asnumpy()[0],
        "net-symbol.json": lambda path: int(mx.sym.load(path).attr_dict()["fc"]["num_hidden"]),
        "net-0001.states": lambda path: files.read_committed(path),
    }
    folder = Path(prefix).parent
    for name, expected in (("net-0001.params", 2), ("net-symbol.json", 5), ("net-0001.states", b"2")):
        temporaries = {target: f".{target}.0123abcd.tmp" for target in readers}
        for target, temporary in temporaries.items():
            shutil.copy(folder / target.replace("net", "netx"), folder / temporary)
        (folder / ".net-0001.89abcdef.commit").write_text(json.dumps({"version": 1, "moves": temporaries}))
        assert readers[name](str(folder / name)) == expected
        assert [n for n in names(prefix) if n.startswith(".")] == []
        checkpoint.save_checkpoint(prefix, 1, network(2), params(1), {}, states=b"1")


def test_reads_what_mxnet_wrote():
    data = TESTS / "data" / "goldens" / "module"
    symbol, arg_params, aux_params = checkpoint.load_checkpoint(str(data / "mlp"), 10)
    assert symbol.list_outputs() == ["softmax_output"]
    assert aux_params == {}
    with np.load(data / "module.npz") as expected:
        for name, array in arg_params.items():
            np.testing.assert_array_equal(array.asnumpy(), expected[f"mlp@1ctx/final/{name}"])
    assert len(checkpoint.load_states(str(data / "mlp"), 10)) > 1000


# --- safetensors


def test_one_safetensors_file_holds_graph_and_parameters(prefix):
    aux = {"moving_mean": mx.nd.array([1, 2])}
    checkpoint.save_checkpoint(prefix, 3, network(), params(), aux, states=b"state", format="safetensors")
    assert names(prefix) == ["net-0003.safetensors", "net-0003.states"]
    with safetensors.safe_open(f"{prefix}-0003.safetensors", "np") as file:
        assert sorted(file.keys()) == ["arg:fc_bias", "arg:fc_weight", "aux:moving_mean"]
        assert mx.sym.load_json(file.metadata()["symbol"]).tojson() == network().tojson()
    symbol, arg_params, aux_params = checkpoint.load_checkpoint(prefix, 3)
    assert symbol.tojson() == network().tojson()
    np.testing.assert_array_equal(arg_params["fc_weight"].asnumpy(), np.ones((2, 3)))
    np.testing.assert_array_equal(aux_params["moving_mean"].asnumpy(), [1, 2])
    assert checkpoint.epochs(prefix) == [3]
    assert [os.path.basename(path) for path in checkpoint.files(prefix)] == names(prefix)


def test_both_formats_under_one_prefix(prefix):
    checkpoint.save_checkpoint(prefix, 1, network(), params(1), {})
    checkpoint.save_checkpoint(prefix, 2, network(4), params(2), {}, format="safetensors")
    assert checkpoint.epochs(prefix) == [1, 2]
    for epoch, width in ((1, 2), (2, 4)):
        symbol, arg_params, _ = checkpoint.load_checkpoint(prefix, epoch)
        assert symbol.tojson() == network(width).tojson()
        assert (arg_params["fc_bias"].asnumpy() == epoch).all()
    with pytest.raises(FileError, match="the epochs 1, 2"):
        checkpoint.load_checkpoint(prefix, 3)


def test_an_epoch_in_both_formats_has_to_be_the_same(prefix):
    nan = {name: value * float("nan") for name, value in params().items()}
    for values in (params(), nan):
        for kind in checkpoint.FORMATS:
            checkpoint.save_checkpoint(prefix, 1, network(), values, {}, format=kind)
        found = checkpoint.load_params(prefix, 1)[0]
        np.testing.assert_array_equal(found["fc_bias"].asnumpy(), values["fc_bias"].asnumpy())
    for other in (params(5), {"fc_weight": nan["fc_weight"]}):
        checkpoint.save_checkpoint(prefix, 1, network(), other, {})
        os.utime(f"{prefix}-0001.params", (1, 1))
        with pytest.raises(
            ArgumentError, match=r"different parameters .*the newer is .*net-0001\.safetensors"
        ):
            checkpoint.load_checkpoint(prefix, 1)


def test_without_a_graph_the_prefix_has_it(prefix):
    network(5).save(f"{prefix}-symbol.json")
    checkpoint.save_checkpoint(prefix, 0, None, params(), {}, format="safetensors")
    assert checkpoint.load_checkpoint(prefix, 0)[0].tojson() == network(5).tojson()


def test_other_formats_and_damaged_graphs_are_refused(prefix):
    with pytest.raises(ArgumentError, match="format is 'onnx', expected one of params, safetensors"):
        checkpoint.save_checkpoint(prefix, 0, network(), params(), {}, format="onnx")
    sparse = {"fc_weight": mx.nd.sparse.zeros("row_sparse", (2, 3))}
    with pytest.raises(ArgumentError, match=r"'arg:fc_weight' is of storage type 'row_sparse'.*\.params"):
        checkpoint.save_checkpoint(prefix, 0, network(), sparse, {}, format="safetensors")
    assert names(prefix) == []
    with open(f"{prefix}-0000.safetensors", "wb") as file:
        mx.nd.safetensors.write(file, {"arg:a": mx.nd.ones((1,))}, {"symbol": "[]"})
    with pytest.raises(FileFormatError, match=r"net-0000\.safetensors: the text 'symbol'"):
        checkpoint.load_checkpoint(prefix, 0)


def test_modules_and_callbacks_save_and_load_safetensors(prefix):
    module = mx.mod.Module(mx.sym.SoftmaxOutput(network(), name="softmax"))
    module.bind([("data", (2, 3))], [("softmax_label", (2,))])
    module.init_params()
    module.init_optimizer()
    module.save_checkpoint(prefix, 1, save_optimizer_states=True, format="safetensors")
    mx.callback.module_checkpoint(module, prefix, format="safetensors")(1)
    mx.callback.do_checkpoint(prefix, format="safetensors")(2, module.symbol, *module.get_params())
    assert names(prefix) == [
        "net-0001.safetensors",
        "net-0001.states",
        "net-0002.safetensors",
        "net-0003.safetensors",
    ]
    for epoch in (1, 2, 3):
        again = mx.mod.Module.load(prefix, epoch, load_optimizer_states=epoch == 1)
        again.bind([("data", (2, 3))], [("softmax_label", (2,))])
        again.init_params()
        again.init_optimizer()
        for name, value in module.get_params()[0].items():
            np.testing.assert_array_equal(again.get_params()[0][name].asnumpy(), value.asnumpy())


def test_buckets_share_a_safetensors_file(prefix):
    def sym_gen(key):
        return mx.sym.SoftmaxOutput(network(), name="softmax"), ["data"], ["softmax_label"]

    module = mx.mod.BucketingModule(sym_gen, 3)
    module.bind([("data", (2, 3))], [("softmax_label", (2,))])
    module.init_params()
    module.save_checkpoint(prefix, 1, format="safetensors")
    assert "net-0001.safetensors" in names(prefix)
    assert "net-0001.params" not in names(prefix)
    again = mx.mod.BucketingModule.load(prefix, 1)
    again.bind([("data", (2, 3))], [("softmax_label", (2,))])
    again.init_params()
    for name, value in module.get_params()[0].items():
        np.testing.assert_array_equal(again.get_params()[0][name].asnumpy(), value.asnumpy())
