"""Checkpoints: files as MXNet names them, clear errors, and sets that survive kills and full disks."""

import errno
import json
import logging
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors

import dpmodule as mx
from dpmodule import _files as files
from dpmodule import checkpoint
from dpmodule.base import ArgumentError, FileError, FileFormatError
from helpers.interrupted import interrupted
from helpers.small_fits import ready


@pytest.fixture
def prefix(tmp_path):
    return str(tmp_path / "net")


def network(width=2):
    return mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=width, name="fc")


def params(value=1.0):
    return {"fc_weight": mx.nd.full((2, 3), value), "fc_bias": mx.nd.full((2,), value)}


def names(prefix):
    return sorted(os.listdir(os.path.dirname(prefix)))


KEYS = ["arg:fc_bias", "arg:fc_weight", "aux:moving_mean"]


@pytest.mark.parametrize("kind", checkpoint.FORMATS)
def test_round_trip(prefix, kind):
    aux = {"moving_mean": mx.nd.array([1, 2])}
    checkpoint.save_checkpoint(prefix, 3, network(), params(), aux, states=b"state", format=kind)
    if kind == "params":  # MXNet's names and keys
        assert names(prefix) == ["net-0003.params", "net-0003.states", "net-symbol.json"]
        assert sorted(mx.nd.load(f"{prefix}-0003.params")) == KEYS
    else:  # one file holds graph and parameters
        assert names(prefix) == ["net-0003.safetensors", "net-0003.states"]
        with safetensors.safe_open(f"{prefix}-0003.safetensors", "np") as file:
            assert sorted(file.keys()) == KEYS
            assert mx.sym.load_json(file.metadata()["symbol"]).tojson() == network().tojson()
    symbol, arg_params, aux_params = checkpoint.load_checkpoint(prefix, 3)
    assert symbol.tojson() == network().tojson()
    np.testing.assert_array_equal(arg_params["fc_weight"].asnumpy(), np.ones((2, 3)))
    np.testing.assert_array_equal(aux_params["moving_mean"].asnumpy(), [1, 2])
    assert (checkpoint.load_states(prefix, 3), checkpoint.epochs(prefix)) == (b"state", [3])
    assert [os.path.basename(path) for path in checkpoint.files(prefix)] == names(prefix)


def test_epochs_share_the_graph_and_are_listed(prefix):
    for epoch in (2, 1, 12345):
        checkpoint.save_checkpoint(prefix, epoch, network(), params(epoch), {})
    assert checkpoint.epochs(prefix) == [1, 2, 12345]
    before = os.stat(f"{prefix}-symbol.json").st_mtime_ns
    checkpoint.save_checkpoint(prefix, 4, network(), params(), {})
    assert os.stat(f"{prefix}-symbol.json").st_mtime_ns == before
    checkpoint.save_checkpoint(prefix, 5, network(width=7), params(), {})
    assert "7" in Path(f"{prefix}-symbol.json").read_text()


def test_without_a_graph_the_prefix_has_it(prefix):
    checkpoint.save_checkpoint(prefix, 0, None, params(), {})
    assert names(prefix) == ["net-0000.params"]
    assert sorted(checkpoint.load_params(prefix, 0)[0]) == ["fc_bias", "fc_weight"]
    network(5).save(f"{prefix}-symbol.json")
    checkpoint.save_checkpoint(prefix, 1, None, params(), {}, format="safetensors")
    assert checkpoint.load_checkpoint(prefix, 1)[0].tojson() == network(5).tojson()


def test_names_without_prefixes_as_gluon_writes_them(prefix):
    net = mx.sym.BatchNorm(network(), name="bn:0")
    module = ready(net, shapes=[[("data", (4, 3))]], init="ones")
    arg_params, aux_params = module.get_params()
    net.save(checkpoint.symbol_file(prefix))
    path = checkpoint.params_file(prefix, 0)
    for start in ("", "arg:"):
        mx.nd.save(path, {**{start + k: v for k, v in arg_params.items()}, **aux_params})
        args, aux = checkpoint.load_params(prefix, 0)
        assert args.keys() == {"fc_weight", "fc_bias", "bn:0_gamma", "bn:0_beta"}
        assert aux.keys() == {"bn:0_moving_mean", "bn:0_moving_var"}
        other = mx.mod.Module.load(prefix, 0, label_names=None)
        other.bind([("data", (1, 3))])
        other.init_params(mx.init.Zero())
        module.init_params(mx.init.Zero(), force_init=True)
        module.load_params(path)
        for args, aux in (other.get_params(), module.get_params()):
            assert args["bn:0_beta"].asnumpy().tolist() == arg_params["bn:0_beta"].asnumpy().tolist()
            assert aux["bn:0_moving_var"].asnumpy().tolist() == [1, 1]
    mx.nd.save(path, {"0.weight": mx.nd.ones((2, 3))})  # as save_parameters writes them
    with pytest.raises(FileFormatError, match=r"'0\.weight'.*save_parameters writes other names"):
        checkpoint.load_checkpoint(prefix, 0)


def test_foreign_keys_and_empty_files_warn(prefix, caplog):
    mx.nd.save(f"{prefix}-0001.params", {"arg:w": mx.nd.ones((2,)), "grad:w": mx.nd.ones((2,))})
    checkpoint.save_checkpoint(prefix, 2, None, {}, {})
    with caplog.at_level(logging.WARNING):
        arg_params, aux_params = checkpoint.load_params(prefix, 1)
        assert checkpoint.load_params(prefix, 2) == ({}, {})
    assert (list(arg_params), aux_params) == (["w"], {})
    assert "grad:w" in caplog.text
    assert "is empty" in caplog.text


def save_version(prefix, version, size=64):
    """Save a checkpoint whose graph, parameters, auxiliary and optimizer states all have a version."""
    value = mx.nd.full((size,), version)
    parts = {"w": value}, {"m": value}
    checkpoint.save_checkpoint(prefix, 7, network(version), *parts, states=b"%d;" % version * size)


def load_version(prefix):
    """Return the version that all parts have, or the versions of the parts if they differ."""
    net, args, auxs = checkpoint.load_checkpoint(prefix, 7)
    found = {int(net.attr_dict()["fc"]["num_hidden"])}
    found |= {int(value) for array in (args["w"], auxs["m"]) for value in np.unique(array.asnumpy())}
    found |= {int(each) for each in checkpoint.load_states(prefix, 7).rstrip(b";").split(b";")}
    return found.pop() if len(found) == 1 else sorted(found)


def leftovers(prefix):
    return set(names(prefix)) - {"net-symbol.json", "net-0007.params", "net-0007.states"}


def in_child(function):
    """Run a function in a process that may kill itself, with the status 9; returns its id."""
    child = os.fork()
    if child == 0:
        try:
            function()
        finally:
            os._exit(0)
    return child


@pytest.mark.timeout(120)
def test_killed_at_every_step(prefix):
    def killed():
        with interrupted("kill", last):
            save_version(prefix, 2)

    versions, status, last = [], 9, 0
    while status == 9:
        last += 1
        save_version(prefix, 1)
        status = os.waitstatus_to_exitcode(os.waitpid(in_child(killed), 0)[1])
        assert len(leftovers(prefix)) <= 4  # one temporary per file and the journal
        versions.append(load_version(prefix))
        save_version(prefix, 3)
        assert (load_version(prefix), leftovers(prefix)) == (3, set())
    assert (len(versions) > 20, set(versions), versions) == (True, {1, 2}, sorted(versions))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["once", "for good"])
def test_error_at_every_step_keeps_the_old_set(prefix, how):
    for last in range(1, 200):
        save_version(prefix, 1)
        raised = None
        with interrupted(how, last):
            try:
                save_version(prefix, 2)
            except FileError as error:
                raised = error
        assert load_version(prefix) == (1 if raised else 2), last
        if raised:
            assert raised.errno == (errno.EIO if how == "once" else errno.ENOSPC)
            assert Path(raised.filename) == Path(prefix).parent or "net" in raised.filename
        elif last > 25:
            return


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("count", "seed"), [(8, 1), pytest.param(1000, 2, marks=pytest.mark.slow)])
def test_killed_at_random_moments(count, seed, prefix):
    def save_on():
        for version in range(last + 1, 1 << 30):
            save_version(prefix, version, size=100_000)

    draw, last, kills, start = random.Random(seed), 1, 0, time.perf_counter()
    save_version(prefix, 1, size=100_000)
    once_s = time.perf_counter() - start
    while kills < count or last == 1:  # a child on a busy machine may not come to a save
        kills += 1
        child = in_child(save_on)
        time.sleep(draw.uniform(0, 4 * once_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert len(leftovers(prefix)) <= 4
        version = load_version(prefix)
        assert isinstance(version, int)
        assert version >= last
        last = version
    save_version(prefix, 1)
    assert leftovers(prefix) == set()


def killed_in_the_switch(prefix):
    """Leave the files that a killed save of an epoch leaves, which only had to rename them."""
    checkpoint.save_checkpoint(prefix, 1, network(2), params(1), {}, states=b"1")
    checkpoint.save_checkpoint(prefix + "x", 1, network(5), params(2), {}, states=b"2")
    folder, moves = Path(prefix).parent, {}
    for target in ("net-0001.params", "net-symbol.json", "net-0001.states"):
        moves[target] = f".{target}.0123abcd.tmp"
        (folder / target.replace("net", "netx")).rename(folder / moves[target])
    (folder / ".net-0001.89abcdef.commit").write_text(json.dumps({"version": 1, "moves": moves}))


READERS = {
    "0001.params": (lambda path: mx.nd.load(path)["arg:fc_bias"].asnumpy()[0], 2),
    "symbol.json": (lambda path: int(mx.sym.load(path).attr_dict()["fc"]["num_hidden"]), 5),
    "0001.states": (files.read_committed, b"2"),
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_finishes_a_save_that_was_killed_in_the_switch(prefix, name):
    killed_in_the_switch(prefix)
    read, expected = READERS[name]
    assert (read(f"{prefix}-{name}"), [n for n in names(prefix) if n.startswith(".")]) == (expected, [])


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
        with pytest.raises(ArgumentError, match=r"different parameters .*the newer is .*1\.safetensors"):
            checkpoint.load_checkpoint(prefix, 1)


def test_a_save_finishes_a_killed_one_of_another_epoch(prefix):
    killed_in_the_switch(prefix)
    checkpoint.save_checkpoint(prefix, 2, network(2), params(3), {})
    assert checkpoint.load_checkpoint(prefix, 2)[0].tojson() == network(2).tojson()
    assert checkpoint.load_checkpoint(prefix, 1)[1]["fc_bias"].asnumpy()[0] == 2


def test_casts_of_mixed_precision_are_not_saved_unless_wanted(prefix):
    casts = mx.sym.amp_cast(mx.sym.var("x"), dtype="float16", name="cast")
    for options, names in (({}, []), ({"remove_amp_cast": False}, ["cast"])):
        checkpoint.save_checkpoint(prefix, 1, mx.sym.exp(casts, name="exp"), {}, {}, **options)
        found = [node["name"] for node in json.loads(Path(prefix + "-symbol.json").read_text())["nodes"]]
        assert found == ["x", *names, "exp"]


def test_each_file_has_one_line_in_the_log(prefix, caplog):
    with caplog.at_level(logging.INFO):
        ready(optimizer={}).save_checkpoint(prefix, 3, save_optimizer_states=True)
    lines = [
        f'Saved checkpoint to "{prefix}-0003.params"',
        f'Saved optimizer state to "{prefix}-0003.states"',
    ]
    assert caplog.messages == lines
