"""``dpmodule convert``: kinds are told from content, and what is written computes the same; ``im2rec``."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import checkpoint
from dpmodule.base import ArgumentError, FileFormatError
from dpmodule.cli.convert import compare, random_inputs
from dpmodule.cli.models import find
from helpers import detection_nets
from helpers.interrupted import interrupted
from helpers.nets import NETS
from helpers.pictures import NAMES, file_of
from helpers.walk import walks

LENET = Path(__file__).parents[1] / "data" / "checkpoints" / "toy_lenet"


@pytest.fixture
def convert(run):
    """Return a function that converts, in a folder with a small network under the prefix "net"."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    save("net", mx.sym.SoftmaxOutput(mx.sym.BatchNorm(net, name="bn"), name="softmax"), 7, data=(4, 5))

    def call(*words, code=0):
        done = run("convert", *words)
        assert done.code == code, (words, done)
        return done.out

    return call


def save(prefix, net, epoch=0, label="softmax_label", label_shape=None, **data):
    """Save a network with random parameters; return its module."""
    module = mx.mod.Module(net, label_names=[label])
    module.bind([*data.items()], [(label, label_shape or (next(iter(data.values()))[0],))])
    module.init_params(mx.init.Xavier())
    module.save_checkpoint(prefix, epoch)
    return module


def same_params(one, other):
    assert set(one) == set(other)
    return all((one[name].asnumpy() == other[name].asnumpy()).all() for name in one)


# --- one kind to another


def test_around_all_kinds_of_our_own(convert):
    way = ["net", "a.safetensors", "folder/", "b.pt", "deep/er-0012.safetensors", "deep/er-0012.params"]
    shown = "".join(convert(source, target) for source, target in zip(way, way[1:]))
    kinds = [line.split("(")[1].split(")")[0] for line in shown.splitlines() if line.startswith("read")]
    assert kinds == ["mxnet", "safetensors", "folder", "pt", "safetensors"]
    assert "read: net (mxnet), 11 nodes, 30 parameters\ninput: data (1, 5)\nwritten: a.safetensors" in shown
    told = "largest difference: 0 among 3 numbers up to 1 (dpmodule against dpmodule), within"
    assert shown.count(told) == 5
    one, other = checkpoint.load_checkpoint("net", 7), checkpoint.load_checkpoint("deep/er", 12)
    assert one[0].tojson() == other[0].tojson()
    assert same_params(one[1], other[1])
    assert same_params(one[2], other[2])


def lenet():
    """Return a network with pooling, and with BatchNorm whose scale is fixed and whose scale is not."""
    net = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=4, kernel=(3, 3), name="conv")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn1", momentum=0.75), act_type="relu")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.BatchNorm(mx.sym.FullyConnected(net, num_hidden=3, name="fc"), fix_gamma=False, name="bn2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def test_around_the_kinds_of_others(convert):
    module = save("lenet", lenet(), data=(4, 1, 8, 8))
    shown = convert("lenet", "a.onnx", "--shape", "data:1,1,8,8", "--opset", 13)
    assert "dpmodule against ONNX Runtime" in shown
    way = ["a.onnx", "folder/", "b.pt2", "c.safetensors", "d.onnx", "back"]
    shown = [convert(source, target) for source, target in zip(way, way[1:])]
    assert "(ONNX Runtime against dpmodule)" in shown[0]
    assert "(dpmodule against torch)" in shown[1]
    assert "(torch against dpmodule)" in shown[2]
    net, arg_params, aux_params = checkpoint.load_checkpoint("back", 0)
    args, states = module.get_params()
    del args["bn1_gamma"]  # it stays 1, which torch has no word for
    assert same_params(arg_params, args)
    assert same_params(aux_params, states)
    norms = [node.a for node in net.graph.nodes if node.op is not None and node.op.name == "BatchNorm"]
    assert [norm.momentum for norm in norms] == pytest.approx([0.75, 0.9])
    assert not any(norm.use_global_stats for norm in norms)


def test_published_checkpoints_epochs_and_names(convert):
    assert "data (1, 1, 28, 28)" in convert(LENET / "toy_lenet-0010.params", "lenet/")
    module = mx.mod.Module.from_pretrained("lenet")
    assert same_params(module.get_params()[0], checkpoint.load_params(str(LENET / "toy_lenet"), 10)[0])
    net, arg_params, aux_params = checkpoint.load_checkpoint("net", 7)
    checkpoint.save_checkpoint("net", 3, net, {k: v * 2 for k, v in arg_params.items()}, aux_params)
    convert("net", "last.safetensors")
    convert("net", "third", "--epoch", 3, "--to", "safetensors")
    for name, times in (("last", 1), ("third-0003", 2)):
        found = mx.nd.load(f"{name}.safetensors")["arg:fc_weight"].asnumpy()
        np.testing.assert_array_equal(found, arg_params["fc_weight"].asnumpy() * times)


def test_files_of_any_names_and_parameters_without_prefixes(convert):
    convert("net", "whole.safetensors")
    net, arg_params, aux_params = checkpoint.load_checkpoint("net", 7)
    net.save("bare-symbol.json")
    mx.nd.save(
        "bare-0000.params", {**arg_params, **aux_params}
    )  # as gluon's collect_params().save writes them
    shutil.move("net-symbol.json", "graph")
    shutil.move("net-0007.params", "numbers")
    bare = ("bare-symbol.json", "--params", "bare-0000.params")
    for words in (("graph", "--params", "numbers"), ("numbers", "--symbol", "graph"), ("bare",), bare):
        convert(words[0], "a.safetensors", *words[1:])
        assert Path("a.safetensors").read_bytes() == Path("whole.safetensors").read_bytes()


PRODUCT = mx.sym.dot(mx.sym.Variable("a"), mx.sym.Variable("b"), transpose_b=True) * 2
WORDS = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=4, output_dim=2, name="e")


SCORES = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")


LOSS = mx.sym.MakeLoss(mx.sym.square(SCORES - mx.sym.Variable("label")), name="loss")


ROWS = mx.sym.Reshape(mx.sym.Variable("data", dtype="int32"), shape=(2, 3))
FIXED = mx.sym.Embedding(ROWS, input_dim=5, output_dim=2)
SPECIAL = {
    "words": (WORDS, "data:3,6", ["words.safetensors"], "among 36 numbers"),
    "loss": (mx.sym.Group([SCORES, LOSS]), "data=1,5", ["folder/", "a.onnx", "a.pt2"], "label (1, 3).*among 6 numbers"),
    "product": (PRODUCT, "a=2,3 b=4,3", ["out", "folder/", "a.onnx", "a.pt2"], "input: b (4, 3)\n.*among 8 numbers"),
    "fixed": (FIXED, "data:2,3", ["a.onnx", "a.pt2"], "among 12 numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_networks(name, convert):
    net, shapes, targets, told = SPECIAL[name]
    given = dict(re.split("[:=]", shape) for shape in shapes.split())
    sizes, _, _ = net.infer_shape(**{key: tuple(map(int, shape.split(","))) for key, shape in given.items()})
    params = {k: mx.nd.ones(v) for k, v in zip(net.list_arguments(), sizes) if k not in (*given, "label")}
    checkpoint.save_checkpoint("special", 0, net, params, {})
    for target in targets:
        shown = convert("special", target, *(word for shape in shapes.split() for word in ("--shape", shape)))
        assert all(each in shown for each in told.split(".*"))
    if name in ("loss", "fixed"):
        convert("a.pt2", "again")


def test_a_training_detector_takes_the_shape_of_its_label(convert):
    """ONNX and torch.export do not have the two outputs that are computed from labels."""
    net, shapes = detection_nets.ssd(mx)
    save("ssd", net, 3, "label", shapes["label"], data=shapes["data"])
    for target, count in (("folder/", 2700), ("a.onnx", 1800), ("a.pt2", 1800)):
        shown = convert("ssd", target, "--shape", "label=1,4,6", "--shape", "data=1,3,24,24")
        assert f"among {count:,} numbers" in shown


def test_refusals_that_leave_nothing(convert, run):
    x = mx.sym.Variable("data")
    branch = mx.sym.contrib.cond(mx.sym.sum(x) > 0, lambda: x * 2, lambda: x + 1)
    checkpoint.save_checkpoint("branch", 0, branch, {}, {})
    assert "_cond chooses by its data" in run("convert", "branch", "a.pt2", "--shape", "data:2,3").error
    assert not Path("a.pt2").exists()
    checkpoint.save_checkpoint("two", 0, PRODUCT, {}, {})
    assert run("convert", "two", "out", "--shape", "a=2,3").error.endswith("set them: --shape b=...")
    net, arg_params, aux_params = checkpoint.load_checkpoint("net", 7)
    checkpoint.save_checkpoint("half", 0, net, {"fc_weight": arg_params["fc_weight"]}, aux_params)
    told = "the arrays lack parameters of the graph: bn_beta, bn_gamma, fc_bias (3,)"
    assert told in run("convert", "half", "a.onnx").error
    checkpoint.save_checkpoint("wide", 0, net, {**arg_params, "fc_bias": mx.nd.ones(4)}, aux_params)
    assert "(4,)" in run("convert", "wide", "a.onnx").error
    assert not Path("a.onnx").exists()
    torch.save({"fc_weight": torch.ones(1)}, "alone.pt")
    told = "alone-symbol.json does not exist; give the graph with --symbol FILE"
    assert told in run("convert", "alone.pt", "a.onnx").error


@pytest.mark.parametrize("target", ["a.onnx", "a.pt2", "a.pt", "a.safetensors", "folder/", "deep/prefix"])
def test_a_conversion_that_fails_leaves_nothing(target, convert, run, monkeypatch, tmp_path):
    before = sorted(tmp_path.rglob("*"))

    def left():
        return [path for path in sorted(tmp_path.rglob("*")) if path not in before]

    for error, code in ((ArgumentError("not comparable"), 2), (KeyboardInterrupt(), 130)):
        monkeypatch.setattr(
            "dpmodule.cli.convert.run_model", lambda *_, error=error: (_ for _ in ()).throw(error)
        )
        assert run("convert", "net", target).code == code
        assert left() == []
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    for step in range(1, 4):
        with interrupted("for good", step):
            assert "No space left on device" in run("convert", "net", target, "--no-check").error
        assert [path for path in left() if path.is_file()] == []
    assert "largest difference" not in convert("net", target, "--no-check")
    convert(target.rstrip("/"), "again.safetensors")
    Path("b.onnx").write_text("old")
    with interrupted("for good", 1):
        assert run("convert", "net", "b.onnx").code == 2
    assert Path("b.onnx").read_text() == "old"


def rows_of_words(kind):
    words = mx.sym.Variable("words", stype="ragged")
    pooled = mx.sym.sequence_pool(
        mx.sym.Embedding(words, input_dim=9, output_dim=4, name="e"), pool_type=kind, name="pool"
    )
    return mx.sym.FullyConnected(pooled, num_hidden=2, name="fc")


def test_rows_of_different_lengths(convert, run):
    params = {
        "e_weight": mx.nd.random.uniform(shape=(9, 4)),
        "fc_weight": mx.nd.ones((2, 4)),
        "fc_bias": mx.nd.ones(2),
    }
    shape = ("--shape", "words=3")
    for kind in ("mean", "max"):
        checkpoint.save_checkpoint(kind, 0, rows_of_words(kind), params, {})
        assert "among 6 numbers" in convert(kind, f"{kind}.safetensors", *shape)
        assert "among 6 numbers" in convert(kind, f"{kind}-folder/", *shape)
        assert (
            "to_torch: a PyTorch module cannot have variable 'words'"
            in run("convert", kind, "a.pt2", *shape).error
        )
    assert "(dpmodule against ONNX Runtime)" in convert("mean", "a.onnx", *shape)
    told = "sequence_pool 'pool': works on rows of different lengths, which ONNX lacks"
    assert told in run("convert", "max", "b.onnx", *shape).error
    assert (Path("a.pt2").exists(), Path("b.onnx").exists()) == (False, False)


def test_created_states_of_the_size_of_the_batch(convert):
    x = mx.sym.Variable("data")
    state = mx.sym.zeros(shape=(0, 3)) + mx.sym.FullyConnected(x, num_hidden=3, name="fc")
    params = {"fc_weight": mx.nd.ones((3, 5)), "fc_bias": mx.nd.ones(3)}
    checkpoint.save_checkpoint("states", 0, state, params, {})
    for target in ("a.onnx", "a.pt2"):
        assert "among 12 numbers" in convert("states", target, "--shape", "data=4,5")


@pytest.mark.slow
@walks(list(NETS))
def test_every_network_converts_or_is_refused_by_name(name, run, tmp_path, monkeypatch):
    net = NETS[name]
    symbol = net.symbol()
    arrays = {key: mx.nd.array(value) for key, value in net.arrays(symbol).items() if key not in net.shapes}
    states = {key: arrays.pop(key) for key in symbol.list_auxiliary_states()}
    checkpoint.save_checkpoint("net", 0, symbol, arrays, states)
    names = symbol.list_arguments()
    shapes = [
        f"--shape={key}={','.join(map(str, shape))}" for key, shape in net.shapes.items() if key in names
    ]
    for number, target in enumerate(("a.onnx", "a.pt2", "a.safetensors", "folder/")):
        done = run("convert", "net", target, *shapes)
        path = Path(target)
        if net.ragged and number < 2 and done.code == 2:
            assert "which ONNX lacks" in done.error or "a PyTorch module cannot have" in done.error
            assert not path.exists()
            continue
        assert done.code == 0, (target, done)
        assert "within the tolerance" in done.out
        shutil.rmtree(path) if path.is_dir() else path.unlink()


# --- kinds


def test_content_tells_kinds(convert, tmp_path):
    for target in ("a.safetensors", "folder/", "b.pt"):
        convert("net", target)
    torch.save({"a": torch.ones(2)}, "old.bin", _use_new_zipfile_serialization=False)
    (tmp_path / "m").write_bytes(b"\x08\x07\x12\x04test")
    kinds = {"a.safetensors": "safetensors", "net-symbol.json": "mxnet", "net-0007.params": "mxnet"}
    for old, kind in {**kinds, "b.pt": "pt", "old.bin": "pt", "m": "onnx", "folder": "folder"}.items():
        shutil.move(old, f"x-{old[0]}{len(old)}")
        assert find(f"x-{old[0]}{len(old)}").kind == kind, old


def test_arrays_of_mxnet_2_are_a_zip_file(convert, tmp_path):
    np.savez(tmp_path / "a.npz", **{"arg:fc_weight": np.ones((3, 5), "f4")})
    shutil.move("a.npz", "net-0009.params")
    assert find("net-0009.params")[:3] == ("mxnet", "net", 9)


def test_damaged_archives(convert, tmp_path):
    convert("net", "b.pt")
    (tmp_path / "b.pt").write_bytes((tmp_path / "b.pt").read_bytes()[:100])
    with pytest.raises(FileFormatError, match="a damaged zip archive"):
        find("b.pt")
    np.savez("c.pt", a=np.ones(2))
    shutil.move("c.pt.npz", "c.pt")
    with pytest.raises(FileFormatError, match="that torch did not write"):
        find("c.pt")


# --- the comparison


def test_differences():
    one = [np.float32([1, 2]), np.float32([[3000]])]
    assert compare(one, one) == (0, 3000, 3)
    found = compare(one, [np.float32([1, 2.5]), one[1]])
    assert (found, found.is_within(1e-3), found.is_within(1e-4)) == ((0.5, 3000, 3), True, False)
    nan, inf = np.float32([np.nan, np.inf]), np.float32([np.nan, 0])
    assert (compare([nan], [nan]).largest, compare([nan], [inf]).largest) == (0, np.inf)
    for other in ([one[0]], [one[1], one[0]]):
        with pytest.raises(ArgumentError, match="the outputs of the two models have different shapes"):
            compare(one, other)
    inputs = random_inputs(WORDS, {"data": (50,), "e_weight": (4, 2)}, ["data"])
    assert set(inputs["data"]) == {0, 1, 2, 3}  # rows of a table


def test_a_model_that_computes_something_else_exits_with_1(convert, monkeypatch):
    write = checkpoint.save_checkpoint

    def spoil(prefix, epoch, net, arg_params, aux_params, **options):
        tripled = {name: value * 3 for name, value in arg_params.items()}
        write(prefix, epoch, net, tripled, aux_params, **options)

    monkeypatch.setattr(checkpoint, "save_checkpoint", spoil)
    assert "beyond the tolerance 0.0001" in convert("net", "spoiled", code=1)
    convert("net", "spoiled", "--tolerance", "1")


# im2rec


@pytest.fixture
def folder(tmp_path):
    """Ten pictures of three classes, one of them in a folder below another's, which is there twice."""
    photos = tmp_path / "photos"
    for kind, count in (("cats", 4), ("dogs", 4), ("cats/wild", 2)):
        (photos / kind).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            (photos / kind / f"{i}.png").write_bytes(file_of(NAMES[i % 3]))
    for name in ("notes.txt", "dogs/.hidden.png"):
        (photos / name).write_text("no picture")
    (photos / "dogs" / "again").symlink_to(photos, target_is_directory=True)
    return photos


def listed(name):
    """Return number, class and path of each line."""
    rows = [line.split("\t") for line in Path(f"{name}.lst").read_text().splitlines()]
    return [(int(number), float(label), name) for number, label, name in rows]


WANTED = [
    *((i, 0, f"cats/{i}.png") for i in range(4)),
    *((4 + i, 1, f"cats/wild/{i}.png") for i in range(2)),
    *((6 + i, 2, f"dogs/{i}.png") for i in range(4)),
]


def read(prefix):
    """Return the numbers and labels of all pictures."""
    more = {"path_imgidx": f"{prefix}.idx", "data_shape": (3, 20, 20), "batch_size": 1, "verbose": False}
    it = mx.io.ImageRecordIter(path_imgrec=f"{prefix}.rec", **more)
    return [(int(batch.index[0]), batch.label[0].asscalar()) for batch in it]


def test_all_in_one_file(run, folder):
    done = run("im2rec", folder, "out/a")
    classes = ["class 0: cats, 4 pictures", "class 1: cats/wild, 2 pictures", "class 2: dogs, 4 pictures"]
    assert (done.code, done.out.splitlines()[:3]) == (0, classes)
    assert (sorted(os.listdir("out")), listed("out/a")) == (["a.idx", "a.lst", "a.rec"], WANTED)
    assert read("out/a") == [row[:2] for row in WANTED]
    dataset = mx.recordio.RecordDataset("out/a.rec", transform=mx.recordio.unpack)
    assert [dataset[i][1] for i in range(4)] == [file_of(NAMES[i % 3]) for i in range(4)]
    images = mx.image.ImageIter(1, (3, 20, 20), path_imglist="out/a.lst", path_root=str(folder))
    assert [batch.label[0].asscalar() for batch in images] == [row[1] for row in WANTED]


def test_resized_and_encoded(run, folder):
    assert run("im2rec", folder, "a", "--resize", 12).code == 0
    assert run("im2rec", folder, "b", "--resize=12", "--quality=20", "--threads=4").code == 0
    fine, coarse = (mx.recordio.RecordDataset(f"{name}.rec") for name in "ab")
    for one, other in zip(fine, coarse, strict=True):
        (_, large), (_, small) = mx.recordio.unpack_img(one), mx.recordio.unpack_img(other)
        assert min(large.shape[:2]) == min(small.shape[:2]) == 12
        assert len(other) < len(one)
    header, pixels = mx.recordio.unpack_img(fine[1])  # wide
    want = mx.image.resize_short(mx.image.imdecode(file_of(NAMES[1])), 12).asnumpy()
    assert header.id == 1
    assert abs(pixels.shape[1] - want.shape[1]) <= 1
    assert abs(float(pixels.mean()) - float(want.mean())) < 3


def test_parts_and_order(run, folder):
    assert run("im2rec", folder, "a", "--train-ratio", "0.5").code == 0
    train = listed("a_train")
    assert train == [row for row in WANTED if row[0] in (0, 1, 4, 6, 7)]
    assert listed("a_val") == [row for row in WANTED if row not in train]
    orders = []
    for name, seed in (("b", 1), ("c", 1), ("d", 2)):
        assert run("im2rec", folder, name, "--train-ratio=0.5", "--shuffle", f"--seed={seed}").code == 0
        rows = [listed(f"{name}_{part}") for part in ("train", "val")]
        assert sorted(rows[0] + rows[1]) == WANTED
        assert [sum(row[1] == label for row in rows[0]) for label in range(3)] == [2, 1, 2]
        assert read(f"{name}_train") == [row[:2] for row in rows[0]]
        orders.append(rows)
    assert orders[0] == orders[1] != orders[2]
    assert orders[0][0] != sorted(orders[0][0])


def test_pictures_that_cannot_be_used_are_skipped(run, folder):
    (folder / "cats" / "1.png").write_bytes(b"no picture")
    (folder / "dogs" / "a\tb.png").write_bytes(file_of("ramp"))
    done = run("im2rec", folder, "a")
    assert done.code == 1
    assert all(told in done.err for told in ("skipped: ", "1.png", "rename the file"))
    left = [row for row in WANTED if row[0] != 1]
    assert (listed("a"), read("a")) == (left, [row[:2] for row in left])
    assert run("im2rec", folder, "a", "--overwrite").code == 1
    for path in folder.rglob("*.png"):
        path.write_bytes(b"none")
    assert "b.rec would be empty: none of its 11 pictures" in run("im2rec", folder, "b").error
    assert not list(Path().glob("b*"))
