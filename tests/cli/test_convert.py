"""``dpmodule convert``: kinds are told from content, and what is written computes the same."""

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import dpmodule as mx
from dpmodule import checkpoint
from dpmodule.base import ArgumentError, FileFormatError
from dpmodule.cli.__main__ import main
from dpmodule.cli.convert import compare, random_inputs
from dpmodule.cli.models import find, wanted
from helpers import detection_nets
from helpers.pictures import NAMES, file_of

LENET = Path(__file__).parents[1] / "data" / "checkpoints" / "toy_lenet"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to work in, with a small network under the prefix "net"."""
    monkeypatch.chdir(tmp_path)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    net = mx.sym.SoftmaxOutput(mx.sym.BatchNorm(net, name="bn"), name="softmax")
    module = mx.mod.Module(net)
    module.bind([("data", (4, 5))], [("softmax_label", (4,))])
    module.init_params(mx.init.Xavier())
    module.save_checkpoint("net", 7)
    return tmp_path


def convert(*words):
    return main(["convert", *map(str, words)])


def same_params(one, other):
    assert set(one) == set(other)
    return all((one[name].asnumpy() == other[name].asnumpy()).all() for name in one)


# --- one kind to another


def test_around_all_kinds_of_our_own(here, capsys):
    way = [
        "net",
        "a.safetensors",
        "folder/",
        "b.pt",
        "c.pth",
        "deep/er-0012.safetensors",
        "deep/er-0012.params",
    ]
    for source, target in zip(way, way[1:]):
        assert convert(source, target) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    kinds = ("mxnet", "safetensors", "folder", "pt", "pt", "safetensors")
    assert [
        line.split("(")[1].split(")")[0] for line in shown.splitlines() if line.startswith("read")
    ] == list(kinds)
    assert "read: net (mxnet), 11 nodes, 30 parameters\ninput: data (1, 5)\nwritten: a.safetensors" in shown
    assert (
        shown.count("largest difference: 0 among 3 numbers up to 1 (dpmodule against dpmodule), within") == 6
    )
    one, other = checkpoint.load_checkpoint("net", 7), checkpoint.load_checkpoint("deep/er", 12)
    assert one[0].tojson() == other[0].tojson()
    assert same_params(one[1], other[1])
    assert same_params(one[2], other[2])


def test_a_published_checkpoint(here, capsys):
    assert convert(LENET / "toy_lenet-0010.params", "lenet/") == 0
    module = mx.mod.Module.from_pretrained("lenet")
    assert "data (1, 1, 28, 28)" in capsys.readouterr().out
    assert same_params(module.get_params()[0], checkpoint.load_params(str(LENET / "toy_lenet"), 10)[0])


def test_a_prefix_takes_the_last_epoch_or_the_one_asked_for(here):
    net, arg_params, aux_params = checkpoint.load_checkpoint("net", 7)
    checkpoint.save_checkpoint("net", 3, net, {k: v * 2 for k, v in arg_params.items()}, aux_params)
    assert convert("net", "last.safetensors") == 0
    assert convert("net", "third", "--epoch", 3, "--to", "safetensors") == 0
    wanted_bias = arg_params["fc_weight"].asnumpy()
    np.testing.assert_array_equal(mx.nd.load("last.safetensors")["arg:fc_weight"].asnumpy(), wanted_bias)
    np.testing.assert_array_equal(
        mx.nd.load("third-0003.safetensors")["arg:fc_weight"].asnumpy(), wanted_bias * 2
    )


def test_beside_the_other_format(here):
    assert convert("net", "net", "--to", "safetensors") == 0
    assert sorted(path.name for path in here.iterdir()) == [
        "net-0007.params",
        "net-0007.safetensors",
        "net-symbol.json",
    ]
    assert checkpoint.load_params("net", 7)[0]


def test_files_of_any_names(here):
    shutil.move("net-symbol.json", "graph")
    shutil.move("net-0007.params", "numbers")
    assert convert("graph", "a.safetensors", "--params", "numbers") == 0
    assert convert("numbers", "b.safetensors", "--symbol", "graph") == 0
    assert Path("a.safetensors").read_bytes() == Path("b.safetensors").read_bytes()


def test_what_is_looked_up_gets_whole_numbers(here):
    net = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=4, output_dim=2, name="e")
    assert set(random_inputs(net, {"data": (50,), "e_weight": (4, 2)}, ["data"])["data"]) == {0, 1, 2, 3}
    checkpoint.save_checkpoint("words", 0, net, {"e_weight": mx.nd.ones((4, 2))}, {})
    assert convert("words", "words.safetensors", "--shape", "data:3,6") == 0


@pytest.mark.parametrize("target", ["out", "folder/", "a.onnx", "a.pt2"])
def test_a_training_detector_takes_the_shape_of_its_label(here, capsys, target):
    net, shapes = detection_nets.ssd(mx)
    module = mx.mod.Module(net, label_names=["label"])
    module.bind([("data", shapes["data"])], [("label", shapes["label"])])
    module.init_params(mx.init.Xavier())
    module.save_checkpoint("ssd", 3)
    sizes = ("--shape", "label=1,4,6", "--shape", "data=1,3,24,24")
    assert convert("ssd", target, *sizes) == 0, capsys.readouterr().err
    # ONNX and torch.export do not have the two outputs that are computed from labels
    assert f"among {1_800 if target in ('a.onnx', 'a.pt2') else 2_700:,} numbers" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["folder/", "a.onnx", "a.pt2"])
def test_a_label_of_a_loss_by_hand_is_an_input(here, capsys, target):
    scores = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    loss = mx.sym.MakeLoss(mx.sym.square(scores - mx.sym.Variable("label")), name="loss")
    params = {"fc_weight": mx.nd.ones((3, 5)), "fc_bias": mx.nd.ones((3,))}
    checkpoint.save_checkpoint("pair", 0, mx.sym.Group([scores, loss]), params, {})
    assert convert("pair", target) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "input: data (1, 5)\ninput: label (1, 3)\n" in shown
    assert "among 6 numbers" in shown


@pytest.mark.parametrize("target", ["out", "folder/", "a.onnx", "a.pt2"])
def test_two_inputs_without_parameters(here, capsys, target):
    net = mx.sym.dot(mx.sym.Variable("a"), mx.sym.Variable("b"), transpose_b=True) * 2
    checkpoint.save_checkpoint("two", 0, net, {}, {})
    assert convert("two", target, "--shape", "a=2,3", "--shape", "b=4,3") == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "input: a (2, 3)\ninput: b (4, 3)\n" in shown
    assert "among 8 numbers" in shown
    assert convert("two", "out", "--shape", "a=2,3") == 2
    assert capsys.readouterr().err.endswith("set them: --shape b=...\n")


def test_parameters_without_prefixes(here, capsys):
    net, arg_params, aux_params = checkpoint.load_checkpoint("net", 7)
    net.save("bare-symbol.json")
    mx.nd.save(
        "bare-0000.params", {**arg_params, **aux_params}
    )  # as gluon's collect_params().save writes them
    assert convert("bare", "a.safetensors") == 0, capsys.readouterr().err
    assert convert("bare-symbol.json", "b.safetensors", "--params", "bare-0000.params") == 0
    assert convert("net", "c.safetensors") == 0
    assert Path("a.safetensors").read_bytes() == Path("c.safetensors").read_bytes()
    assert Path("b.safetensors").read_bytes() == Path("c.safetensors").read_bytes()


# --- kinds


def test_content_tells_kinds(here):
    convert("net", "a.safetensors")
    convert("net", "folder/")
    convert("net", "b.pt")
    torch.save({"a": torch.ones(2)}, "old.bin", _use_new_zipfile_serialization=False)
    (here / "m").write_bytes(b"\x08\x07\x12\x04test")
    for old, new, kind in (
        ("a.safetensors", "x1", "safetensors"),
        ("net-symbol.json", "x2", "mxnet"),
        ("net-0007.params", "x3", "mxnet"),
        ("b.pt", "x4", "pt"),
        ("old.bin", "x5", "pt"),
        ("m", "x6", "onnx"),
        ("folder", "x7", "folder"),
    ):
        shutil.move(old, new)
        assert find(new).kind == kind, old


def test_names_tell_what_is_written(here):
    (here / "there").mkdir()
    for path, kind in (
        ("a.onnx", "onnx"),
        ("a.PT2", "pt2"),
        ("a.pth", "pt"),
        ("there", "folder"),
        ("new/", "folder"),
        ("net", "mxnet"),
        ("net-0003.params", "mxnet"),
        ("net-symbol.json", "mxnet"),
        ("net-0003.safetensors", "safetensors"),
    ):
        assert wanted(path, None, 0).kind == kind, path
    assert wanted("net-0003.params", None, 0)[1:3] == ("net", 3)
    assert wanted("net", "safetensors", 4)[1:4] == ("net", 4, True)
    assert wanted("new", "folder", 0).path == "new"


def test_errors_say_what_to_do(here, capsys):
    mx.nd.save("list", [mx.nd.ones((1,))])
    mx.nd.save("other.safetensors", {"arg:x": mx.nd.ones((1,))})
    (here / "junk").write_text("what?")
    (here / "empty").mkdir()
    torch.save({"fc_weight": torch.ones(1)}, "alone.pt")
    for words, match in (
        (("missing", "a.onnx"), "missing: no such file, folder or saved prefix"),
        (("net", "x.pt", "--epoch", "5"), "the saved epochs are: 7"),
        (("junk", "a.onnx"), "junk: not a model"),
        (("empty", "a.onnx"), "a folder without config.json"),
        (("alone.pt", "a.onnx"), "alone-symbol.json does not exist; give the graph with --symbol FILE"),
        (
            ("other.safetensors", "a.onnx", "--symbol", "net-symbol.json"),
            "has x, which the graph does not have",
        ),
        (("list", "a.onnx", "--symbol", "net-symbol.json"), "has arrays without names"),
        (("net", "net"), "is the input net; choose another output"),
        (("net", "a.pt", "--opset", "17"), "--opset 17 is for ONNX outputs"),
        (("net", "empty", "--to", "onnx"), "empty is a folder, but the output kind is onnx"),
        (("net", "junk", "--to", "folder"), "junk is a file, but the output kind is folder"),
        (("net", "a.pt", "--shape", "data:1,6"), "does not fit the parameters"),
        (("net", "a.xyz", "--to", "keras"), "invalid choice"),
        (("net", "a.pt", "--tolerance", "-1"), "a number from 0"),
    ):
        assert convert(*words) == 2, words
        assert match in capsys.readouterr().err, words


# --- the comparison


def test_differences():
    one = [np.float32([1, 2]), np.float32([[3000]])]
    assert compare(one, one) == (0, 3000, 3)
    found = compare(one, [np.float32([1, 2.5]), one[1]])
    assert found == (0.5, 3000, 3)
    assert found.is_within(1e-3)
    assert not found.is_within(1e-4)
    nan, inf = np.float32([np.nan, np.inf]), np.float32([np.nan, 0])
    assert compare([nan], [nan]).largest == 0
    assert compare([nan], [inf]).largest == np.inf
    for other in ([one[0]], [one[1], one[0]]):
        with pytest.raises(ArgumentError, match="the outputs of the two models have different shapes"):
            compare(one, other)


def test_what_computes_something_else_exits_with_1(here, monkeypatch, capsys):
    save = checkpoint.save_checkpoint

    def spoil(prefix, epoch, net, arg_params, aux_params, **options):
        tripled = {name: value * 3 for name, value in arg_params.items()}
        save(prefix, epoch, net, tripled, aux_params, **options)

    monkeypatch.setattr(checkpoint, "save_checkpoint", spoil)
    assert convert("net", "spoiled") == 1
    assert "beyond the tolerance 0.0001" in capsys.readouterr().out
    assert convert("net", "spoiled", "--tolerance", "1") == 0


def test_damaged_archives(here):
    convert("net", "b.pt")
    (here / "b.pt").write_bytes((here / "b.pt").read_bytes()[:100])
    with pytest.raises(FileFormatError, match="a damaged zip archive"):
        find("b.pt")
    np.savez("c.pt", a=np.ones(2))
    shutil.move("c.pt.npz", "c.pt")
    with pytest.raises(FileFormatError, match="that torch did not write"):
        find("c.pt")


def test_onnx_out(here, capsys):
    assert convert("net", "a.onnx", "--opset", 13) == 0, capsys.readouterr().err
    assert "dpmodule against ONNX Runtime" in capsys.readouterr().out
    assert convert("a.onnx", "back", "--shape", "data:2,5") == 0, capsys.readouterr().err
    assert "(ONNX Runtime against dpmodule)" in capsys.readouterr().out


def lenet():
    """Return a network with pooling, and with BatchNorm whose scale is fixed and whose scale is not."""
    net = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=4, kernel=(3, 3), name="conv")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn1", momentum=0.75), act_type="relu")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.BatchNorm(mx.sym.FullyConnected(net, num_hidden=3, name="fc"), fix_gamma=False, name="bn2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


OTHERS = ["lenet", "a.onnx", "folder/", "b.pt2", "c.safetensors", "d.onnx", "back"]
TWICE = [*OTHERS[:-1], "e.pt2", "f.onnx", "back"]


@pytest.mark.parametrize("way", [OTHERS, pytest.param(TWICE, marks=pytest.mark.slow)], ids=["once", "twice"])
def test_around_the_kinds_of_others(way, here, capsys):
    module = mx.mod.Module(lenet())
    module.bind([("data", (4, 1, 8, 8))], [("softmax_label", (4,))])
    module.init_params(mx.init.Xavier())
    module.save_checkpoint("lenet", 1)
    for source, target in zip(way, way[1:]):
        shape = ("--shape", "data:1,1,8,8") if source == "lenet" else ()
        assert convert(source, target, *shape) == 0, (source, target, capsys.readouterr().err)
    net, arg_params, aux_params = checkpoint.load_checkpoint("back", 0)
    args, states = module.get_params()
    del args["bn1_gamma"]  # it stays 1, which torch has no word for
    assert same_params(arg_params, args)
    assert same_params(aux_params, states)
    norms = [node for node in net.graph.nodes if node.op is not None and node.op.name == "BatchNorm"]
    assert [(node.a.momentum, node.a.use_global_stats) for node in norms] == [
        (pytest.approx(0.75), False),
        (pytest.approx(0.9), False),
    ]


def test_networks_that_fix_their_batch(here, capsys):
    net = mx.sym.Reshape(mx.sym.Variable("data", dtype="int32"), shape=(2, 3))
    net = mx.sym.Embedding(net, input_dim=5, output_dim=2, name="embed")
    checkpoint.save_checkpoint("fixed", 0, net, {"embed_weight": mx.nd.ones((5, 2))}, {})
    for target in ("a.onnx", "a.pt2"):
        assert convert("fixed", target, "--shape", "data:2,3") == 0, capsys.readouterr().err
    assert convert("a.pt2", "again") == 0, capsys.readouterr().err


def test_branches_that_torch_cannot_record(here, capsys):
    x = mx.sym.Variable("data")
    net = mx.sym.contrib.cond(mx.sym.sum(x) > 0, lambda: x * 2, lambda: x + 1)
    checkpoint.save_checkpoint("branch", 0, net, {}, {})
    assert convert("branch", "a.pt2", "--shape", "data:2,3") == 2
    assert "_cond chooses by its data" in capsys.readouterr().err
    assert not Path("a.pt2").exists()


def test_onnx_in(here, capsys):
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, kind, ["n", size]) for name, size in (("x", 3), ("y", 2))]
    weight = onnx.numpy_helper.from_array(np.float32([[1, 2], [3, 4], [5, 6]]), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, "any.name")
    assert convert("any.name", "folder/") == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "read: any.name (onnx)" in shown
    assert "(ONNX Runtime against dpmodule)" in shown
    assert list(mx.interop.load_pretrained("folder").arg_params) == ["w"]


def test_programs_of_torch(here, capsys):
    assert convert("net", "a.pt2") == 0, capsys.readouterr().err
    assert "dpmodule against torch" in capsys.readouterr().out


def test_programs_of_torch_come_in(here, capsys):
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    sizes = ({0: torch.export.Dim.AUTO},)
    torch.export.save(torch.export.export(module, (torch.ones(3, 5),), dynamic_shapes=sizes), "program.pt2")
    assert convert("program.pt2", "ours") == 0, capsys.readouterr().err
    assert "torch against dpmodule" in capsys.readouterr().out
    net, arg_params, _ = checkpoint.load_checkpoint("ours", 0)
    np.testing.assert_array_equal(arg_params["0.weight"].asnumpy(), module[0].weight.detach())
    (name,) = (name for name in net.list_arguments() if name not in arg_params)
    assert net.infer_shape(**{name: (9, 5)})[1] == [(9, 2)]


# im2rec


@pytest.fixture
def folder(tmp_path):
    """Ten pictures of three classes, one of them in a folder below another's."""
    for kind, count in (("cats", 4), ("dogs", 4), ("cats/wild", 2)):
        (tmp_path / "photos" / kind).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            (tmp_path / "photos" / kind / f"{i}.png").write_bytes(file_of(NAMES[i % 3]))
    (tmp_path / "photos" / "notes.txt").write_text("no picture")
    (tmp_path / "photos" / "dogs" / ".hidden.png").write_text("no picture")
    return tmp_path / "photos"


def listed(path):
    """Return number, class and path of each line."""
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [(int(number), float(label), name) for number, label, name in rows]


WANTED = [
    *((i, 0, f"cats/{i}.png") for i in range(4)),
    *((4 + i, 1, f"cats/wild/{i}.png") for i in range(2)),
    *((6 + i, 2, f"dogs/{i}.png") for i in range(4)),
]


def read(prefix, shape=(3, 8, 8), **options):
    """Return the pixels and labels of all pictures."""
    it = mx.io.ImageRecordIter(
        path_imgrec=f"{prefix}.rec",
        path_imgidx=f"{prefix}.idx",
        data_shape=shape,
        batch_size=1,
        verbose=False,
        **options,
    )
    found = [(batch.data[0].asnumpy()[0], batch.label[0].asscalar(), int(batch.index[0])) for batch in it]
    return [each[0] for each in found], [each[1] for each in found], [each[2] for each in found]


def test_all_in_one_file(run, folder, tmp_path):
    done = run("im2rec", folder, tmp_path / "out" / "a")
    assert done.code == 0
    assert done.out.splitlines()[:3] == [
        "class 0: cats, 4 pictures",
        "class 1: cats/wild, 2 pictures",
        "class 2: dogs, 4 pictures",
    ]
    assert sorted(os.listdir(tmp_path / "out")) == ["a.idx", "a.lst", "a.rec"]
    assert listed(tmp_path / "out" / "a.lst") == WANTED
    _, labels, numbers = read(tmp_path / "out" / "a", (3, 20, 20))
    assert labels == [row[1] for row in WANTED]
    assert numbers == list(range(10))
    dataset = mx.recordio.RecordDataset(tmp_path / "out" / "a.rec", transform=mx.recordio.unpack)
    assert [dataset[i][1] for i in range(4)] == [file_of(NAMES[i % 3]) for i in range(4)]
    images = mx.image.ImageIter(
        1, (3, 20, 20), path_imglist=str(tmp_path / "out" / "a.lst"), path_root=str(folder)
    )
    assert [batch.label[0].asscalar() for batch in images] == labels


def test_resized_and_encoded(run, folder, tmp_path):
    assert run("im2rec", folder, tmp_path / "a", "--resize", 12).code == 0
    assert run("im2rec", folder, tmp_path / "b", "--resize=12", "--quality=20", "--threads=4").code == 0
    fine, coarse = (mx.recordio.RecordDataset(tmp_path / f"{name}.rec") for name in "ab")
    for one, other in zip(fine, coarse, strict=True):
        (_, large), (_, small) = mx.recordio.unpack_img(one), mx.recordio.unpack_img(other)
        assert min(large.shape[:2]) == min(small.shape[:2]) == 12
        assert len(other) < len(one)
    header, pixels = mx.recordio.unpack_img(fine[1])  # wide
    whole = mx.image.imdecode(file_of(NAMES[1]))
    want = mx.image.resize_short(whole, 12).asnumpy()
    assert header.id == 1
    assert abs(pixels.shape[1] - want.shape[1]) <= 1
    assert abs(float(pixels.mean()) - float(want.mean())) < 3


def test_parts_and_order(run, folder, tmp_path):
    assert run("im2rec", folder, tmp_path / "a", "--train-ratio", "0.5").code == 0
    train, validation = (listed(tmp_path / f"a_{name}.lst") for name in ("train", "val"))
    assert train == [row for row in WANTED if row[0] in (0, 1, 4, 6, 7)]
    assert validation == [row for row in WANTED if row not in train]
    orders = []
    for name, seed in (("b", 1), ("c", 1), ("d", 2)):
        words = ("--train-ratio=0.5", "--shuffle", f"--seed={seed}")
        assert run("im2rec", folder, tmp_path / name, *words).code == 0
        rows = [listed(tmp_path / f"{name}_{part}.lst") for part in ("train", "val")]
        assert sorted(rows[0] + rows[1]) == WANTED
        assert [sum(row[1] == label for row in rows[0]) for label in range(3)] == [2, 1, 2]
        _, labels, numbers = read(tmp_path / f"{name}_train")
        assert numbers == [row[0] for row in rows[0]]
        assert labels == [row[1] for row in rows[0]]
        orders.append(rows)
    assert orders[0] == orders[1] != orders[2]
    assert orders[0][0] != sorted(orders[0][0])


def test_pictures_that_cannot_be_used(run, folder, tmp_path):
    (folder / "cats" / "1.png").write_bytes(b"no picture")
    (folder / "dogs" / "a\tb.png").write_bytes(file_of("ramp"))
    done = run("im2rec", folder, tmp_path / "a")
    assert done.code == 1
    assert "skipped: " in done.err
    assert "1.png" in done.err
    assert "rename the file" in done.err
    assert listed(tmp_path / "a.lst") == [row for row in WANTED if row[0] != 1]
    assert read(tmp_path / "a")[2] == [row[0] for row in WANTED if row[0] != 1]


def test_links_are_followed_once(run, folder, tmp_path):
    (folder / "dogs" / "again").symlink_to(folder, target_is_directory=True)
    (tmp_path / "more").mkdir()
    shutil.copy(folder / "dogs" / "0.png", tmp_path / "more" / "x.PNG")
    (folder / "owls").symlink_to(tmp_path / "more", target_is_directory=True)
    assert run("im2rec", folder, tmp_path / "a").code == 0
    assert listed(tmp_path / "a.lst") == [*WANTED, (10, 3, "owls/x.PNG")]


def test_refusals(run, folder, tmp_path):
    assert "nowhere" in run("im2rec", "nowhere", "a").error
    (tmp_path / "empty").mkdir()
    assert (
        "there is no picture in empty; expected folders, one for each class"
        in run("im2rec", "empty", "a").error
    )
    assert "--train-ratio" in run("im2rec", folder, "a", "--train-ratio=1.5").error
    assert "leaves no picture for a_val.rec" in run("im2rec", folder, "a", "--train-ratio=0.99").error
    assert "OUT is 'out/', a folder" in run("im2rec", folder, "out/").error
    for path in folder.rglob("*.png"):
        path.write_bytes(b"none")
    assert "a.rec would be empty: none of its 10 pictures" in run("im2rec", folder, "a").error
    assert sorted(os.listdir(tmp_path)) == ["empty", "photos"]
    (tmp_path / "a.idx").write_text("mine")
    assert "a.idx already exists; choose another OUT, or add --overwrite" in run("im2rec", folder, "a").error
    (folder / "cats" / "0.png").write_bytes(file_of("ramp"))
    assert run("im2rec", folder, "a", "--overwrite").code == 1
    assert len(listed(tmp_path / "a.lst")) == 1
