"""Wrong commands: each ends with one line that names what is wrong, and writes nothing."""

import contextlib
import os
import shlex
import sys
from functools import partial
from pathlib import Path

import numpy as np

import dpmodule as mx
from dpmodule.base import ArgumentError, FileFormatError, ShapeError
from dpmodule.cli import networks
from dpmodule.cli.data import read_csv, read_npz, read_sparse
from helpers.command import run_command
from helpers.hogwild import BAGS, described, write_bags
from helpers.pictures import file_of

DET2 = Path(__file__).parents[1] / "data" / "checkpoints" / "mtcnn_det2" / "mtcnn_det2"


class Refused(Exception):
    """The line that a command ended with."""


@contextlib.contextmanager
def within(folder):
    """Work in a folder, from which modules can be imported."""
    before = os.getcwd()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))


def tables():
    """Write samples, and networks that do not fit them."""
    np.savez("set.npz", x=np.eye(3).repeat(5, 0), y=np.arange(15) % 3)
    for name, labels in {
        "minus": [0, -1],
        "text": ["a", "b"],
        "more": [0, 1, 2],
        "gap": [0, 10**7],
        "ones": [1, 10**7],
    }.items():
        np.savez(f"{name}.npz", x=np.ones((2, 1)), y=labels)
    Path("d.csv").write_text("a,b,all,none,y\n1,2,1,0,0\n3,4,1,0,1\n")
    Path("other.csv").write_text("b,a,all,none,y\n1,2,1,0,0\n")
    Path("one.libsvm").write_text("1 1:1.5 3:2\n0 2:4\n")
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    net.save("open-symbol.json")
    mx.sym.SoftmaxOutput(net, name="softmax").save("two-symbol.json")
    (mx.sym.Variable("a") + mx.sym.Variable("b")).save("sum-symbol.json")


def saved():
    """Write a network of four inputs under the prefix "four", with two epochs, and odd files."""
    np.savez("four.npz", x=np.ones((4, 4)), y=np.arange(4) % 2)
    module = mx.mod.Module(networks.build("mlp", (4,), 2))
    module.bind([("data", (1, 4))], [("softmax_label", (1,))])
    module.init_params()
    for epoch in (1, 2):
        module.save_checkpoint("four", epoch)
    mx.nd.save("list", [mx.nd.ones((1,))])
    mx.nd.save("other.safetensors", {"arg:x": mx.nd.ones((1,))})
    Path("junk").write_text("what?")
    Path("empty").mkdir()


def bags():
    """Write files of lines and descriptions of them."""
    write_bags(Path())
    text = described(16, **BAGS).desc()
    contents = {
        "data": text,
        "empty": "",
        "outside": "1 3 1 2\n",
        "piped": text.replace('"cat"', '"zcat -f"'),
        "unused": text.replace("is_used: true", "is_used: false"),
    }
    for name, content in contents.items():
        Path(name).write_text(content)
    mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2).save("fc-symbol.json")


def pictures():
    Path("empty").mkdir()
    Path("cats").mkdir()
    for i in range(10):
        Path("cats", f"{i}.png").write_bytes(file_of("ramp"))
    Path("none").mkdir()
    Path("none", "1.png").write_bytes(b"none")
    Path("mine.idx").write_text("mine")


def programs():
    """Write old programs."""
    contents = {
        "two": b"print 'python 2'\n",
        "latin": b"import mxnet\nx = '\xff'\n",
        "numpy": b"import numpy\n",
        "long": b"import mxnet\n" + b"#" * 1_100_000,
        "good": b"import mxnet\n",
    }
    for name, content in contents.items():
        Path(f"{name}.py").write_bytes(content)


def command(prepare, words, folder):
    """Run a command in a folder with some files; raise the line of its error."""
    with within(folder):
        prepare()
        before = sorted(folder.rglob("*"))
        done = run_command(*shlex.split(words))
        after = sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    assert after == before, set(after) - set(before)
    raise Refused(done.error)


def rows(make, *cases, error=Refused):
    """Return rows of calls of one function: arguments, and a part of the error's text last."""
    return [(partial(make, *given), error, told) for *given, told in cases]


def refused(prepare, *cases, start=""):
    return [(partial(command, prepare, f"{start} {words}"), Refused, told) for words, told in cases]


QUICK = "fit --epochs 2"
FILES = "train-files --feed data --files 'bag-*' --rows 50 --mode serial --epochs 2"
AGENT = "-t reverse -m repeat_label"
COMMANDS = [
    *refused(
        int,
        ("fti", r"invalid choice: 'fti' \(choose from.*; did you mean fit\? \(see dpmodule --help\)"),
        ("fit --epoch 3", "dpmodule fit: error: unrecognized arguments: --epoch 3; did you mean --epochs"),
        ("fit --optimizer sdg", "'sdg', expected one of adadelta, adagrad, adam"),
        ("fit --kvstore dist_magic", "expected local, device, dist_sync, dist_async or none"),
        ("fit --kvstore nccl", "'nccl'"),
        ("fit --contexts 'gpu(99)'", r"gpu\(99\) does not exist"),
        ("fit --data .", "'.', expected a file, not a folder"),
        ("fit --validation 1", "'1', expected a share from 0, below 1"),
        ("fit --validation 0.1 --validation-data /etc/passwd", "not allowed with argument --validation"),
        ("train-files", "no files are given; expected --feed FILE"),
        ("convert net a.pt --tolerance -1", "a number from 0"),
        ("train-agent -m repeat_label", "--task is not given"),
        ("train-agent -t reverse", "no agent is given"),
        ("train-agent -t reverse -m repeat_labl", "did you mean 'repeat_label'"),
        (f"train-agent {AGENT} --batch-siz 2", "no flag --batch-siz"),
        ("train-agent -t reverse:valid -m repeat_label", "agents learn only from train"),
        (f"train-agent {AGENT} -dt valid", "--datatype is 'valid'"),
        (f"train-agent {AGENT} -mf .", "a folder"),
        (f"train-agent {AGENT} -im gone", "no saved model"),
        (f"train-agent {AGENT} -mf m --resume -im x", "give only one of them"),
        (f"train-agent {AGENT} -mf m -stim 5 -dt train:stream", "they do not work with --datatype"),
        (f"train-agent {AGENT} -mf m -stim -1", "expected a number of seconds from 0"),
        (f"train-agent {AGENT} -stim 5", "need a --model-file"),
        ("interactive", "no agent is given"),
        ("interactive --candidates gone", "expected an existing file"),
    ),
    *refused(
        tables,
        ("--network mlp --load-epoch 3", "--load-epoch 3 and --epochs 2 leave nothing to do"),
        ("--network mlp --load-epoch 1", "nothing is saved under the prefix 'model'"),
        ("--contexts 'cpu(0),cpu(1)' --workload 1,2,3", "--workload has 3 shares, expected 2"),
        ("--shape 65", r"--shape \(65,\) has 65 values, but a sample of the digits has 64"),
        ("--validation-data set.npz", "--validation-data needs --data"),
        ("--label-column 1", "--label-column 1 needs --data"),
        ("--data set.npz --classes 2", "--classes is 2, but set.npz has a label 2; expected at least 3"),
        ("--data set.npz --symbol two-symbol.json", "the largest label is 2, but the network has 2"),
        ("--data d.csv --symbol two-symbol.json --classes 3", "but the network has 2 classes"),
        ("--data set.npz --symbol open-symbol.json", "the network has 0 inputs for labels"),
        ("--data set.npz --shape 4", r"--shape \(4,\) has 4 values, but a sample of .*set.npz has 3"),
        ("--network mlp --optimizer adam --momentum 0.5", "is not supported by --optimizer adam"),
        ("--data minus.npz", "the label -1 is not a class number"),
        ("--data text.npz", "the label a is not a class number"),
        ("--data more.npz", "one class number per sample"),
        ("--data gap.npz", "the smallest 0 and the largest 10000000; expected 0 to 1 for 2"),
        ("--data set.npz --validation 0.99", "--validation 0.99 of 15 samples leaves none for training"),
        ("--data d.csv --validation-column all", "--validation-column all marks every sample"),
        ("--data d.csv --validation-column none", "--validation-column none marks no sample"),
        ("--data d.csv --validation-data other.csv", "the columns b, a, all, none, expected a, b, all, none"),
        ("--data d.csv --label-column none", "d.csv has no labels; give"),
        ("--data d.csv --index-base 1", "--index-base 1 is for LibSVM files, and d.csv is not one"),
        ("--data d.csv --format npz", "d.csv: not a readable .npz file"),
        ("--data one.libsvm --label-column 1", "--label-column and --validation-column are for tables"),
        start=QUICK,
    ),
    *refused(
        saved,
        ("check", "no network is given; expected NET"),
        ("predict", "nothing is saved under the prefix 'model'"),
        ("predict --output junk/out.csv", "Not a directory$"),
        ("predict four --data four.npz --label-column none", "--label-column is for CSV files"),
        ("check four --prefix four", "got NET four and --prefix four, expected one network"),
        ("check four four-0001.params --params four-0002.params", "PARAMS four-0001.params and --params"),
        ("check four four-0001.params --epoch 2", "--epoch 2 and the parameters four-0001.params"),
        ("check four-symbol.json --epoch 2", "--epoch 2 is for a prefix"),
        ("check four --epoch 7", "--epoch is 7; the saved epochs of the prefix 'four' are: 1, 2"),
        ("check four-0001.params", "four-0001.params"),
        ("check four four-symbol.json", "four-symbol.json"),
        ("check four --shape 1x2", "data=1,3,224,224"),
        ("check empty", "no model in this folder"),
        ("predict four-symbol.json", "four-symbol.json has no parameters"),
        ("summary lenet four-0001.params", "is for saved networks"),
        ("summary four --classes 3", "--classes 3 is for built-in networks"),
        ("summary --shape 64", r"a sample has shape \(64,\)"),
        ("summary four --shape x=1,4", "--shape names x, expected some of data, "),
        ("explain lenet --shape dat=1,1,8,8", "--shape names dat, expected some of data, "),
        ("convert four x.pt --epoch 5", "the saved epochs are: 1, 2"),
        ("explain lenet --disable all", "'all', expected some of "),
        ("explain lenet --shape data", "expected a name and a shape"),
        ("explain lenet --context 'tpu(0)'", "expected devices"),
        ("explain lenet --context 'cpu(0),cpu(1)'", "expected one device"),
        (f"explain {DET2} --shape data=1,3,2,2", "conv"),
        ("convert missing a.onnx", "missing: no such file, folder or saved prefix"),
        ("convert junk a.onnx", "junk: not a model"),
        ("convert empty a.onnx", "a folder without config.json"),
        ("convert other.safetensors a.onnx --symbol four-symbol.json", "x, which the graph does not have"),
        ("convert list a.onnx --symbol four-symbol.json", "has arrays without names"),
        ("convert four four", "is the input four; choose another output"),
        ("convert four a.pt --opset 17", "--opset 17 is for ONNX outputs"),
        ("convert four junk --to folder", "junk is a file, but the output kind is folder"),
        ("convert four a.pt --shape data:1,6", "does not fit the parameters"),
        *[
            (f"{QUICK} --network mlp --data junk --prefix '{prefix}'", f"--prefix is '{prefix}'")
            for prefix in ("junk/net", "empty/", "x" * 250)
        ],
        (f"{QUICK} --network mlp --data junk --prefix a/net", "junk: the file has no samples"),
    ),
    *refused(
        bags,
        ("--files 'none-*'", r"--files 'none-\*' matches no file, expected a path or a pattern"),
        ("--files empty", "--files: the files have no lines to train on"),
        ("--validation 'none-*'", r"--validation 'none-\*' matches no file"),
        ("--momentum 0.5", "--momentum 0.5 is not supported by --optimizer adagrad"),
        ("--load-epoch 1", "nothing is saved under the prefix 'model'"),
        ("--prefix bag-0/net", "--prefix is 'bag-0/net', which cannot be written"),
        ("--feed empty", "empty: line 1, column 1"),
        ("--feed piped", "if you trust the description, use --allow-pipe-command"),
        ("--feed unused", "which slot is the label. 0 of the used slots have a name that ends in 'label'"),
        ("--label lable", "--label is 'lable', expected one of the used slots: words, label"),
        ("--rows wrods=5", "--rows wrods=5: 'wrods' is not a used id slot; these are words"),
        ("--rows 20", "--rows SLOT=COUNT sets the number of rows"),
        ("--files outside", "label 2 in 'label', .*--check-labels warn trains on such labels; --classes"),
        ("--hidden 5,x", "--hidden: '5,x', expected units such as '128,96', or none"),
        ("--net logistic --width 5", "--width 5 is not supported by --net logistic"),
        ("--symbol fc-symbol.json", "--rows 50 is not supported with --symbol, whose network has fixed"),
        start=FILES,
    ),
    *refused(
        pictures,
        ("nowhere a", "nowhere"),
        ("empty a", "there is no picture in empty; expected folders, one for each class"),
        (". a --train-ratio=0.99", "leaves no picture for a_val.rec"),
        (". out/", "OUT is 'out/', a folder"),
        ("cats mine", "mine.idx already exists; choose another OUT, or add --overwrite"),
        start="im2rec",
    ),
    *refused(
        programs,
        ("two.py", "two.py: not valid Python 3: line 1: "),
        ("latin.py", "not valid Python 3: "),
        ("numpy.py", "the program does not import mxnet, dynet, paddle, parlai or dpmodule"),
        ("long.py", "1,100,013 bytes, expected a program of at most 1,048,576"),
        ("/dev/zero", "got a device or a pipe"),
        ("good.py net", "a network, expected one of them"),
        start="check --program",
    ),
]

# files of samples


def csv(text, label, held, folder):
    path = folder / "data.csv"
    path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)
    read_csv(str(path), label, held)


def npz(content, folder):
    path = folder / "d.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(path, **content)
    else:
        with open(path, "wb") as file:
            np.save(file, content)
    read_npz(str(path), "c" if isinstance(content, dict) and "y" in content else None)


def sparse(text, base, width, folder):
    (folder / "data").write_text(text)
    read_sparse([str(folder / "data")], base, width)


ZERO, ONE = "1 0:1.5 2:2 # note\n0 1:4\n", "1 qid:3 1:1.5 3:2\n0 qid:4 2:4\n"
SAMPLES = [
    *rows(
        csv,
        ("", None, None, "no sample"),
        ("1,2,0\n\n3,1\n", None, None, "line 3 has 2 columns, expected 3"),
        ("a,b\n1,0\nx,1\n", None, None, "line 3, column 0 'a': 'x' is not a number"),
        ("a,b,c\n1,y,0\n", None, "b", "line 2, column 1 'b': 'y' is not a number; expected 1 or 'val"),
        (b"\xff\xfe\x00", None, None, r"data\.csv: not a readable CSV"),
        error=FileFormatError,
    ),
    *rows(
        csv,
        ("1,2,0\n", "z", None, "--label-column is 'z'.*a number from 0 to 2"),
        ("a,b\n1,0\n", None, "c", "--validation-column is 'c'.*has a, b"),
        ("a,b\n1,0\n", "b", "b", "the same column"),
        ("a,b\n1,0\n2,1\n", None, "a", "holds 2.0, expected 1 or 'validation'"),
        error=ArgumentError,
    ),
    *rows(
        npz,
        (b"", r"d\.npz.*the file is empty"),
        ({"images": np.ones(3)}, "holds images"),
        ({"x": np.array(["a"])}, "expected numbers"),
        ({"x": np.array([{}], dtype=object)}, r"d\.npz"),
        error=FileFormatError,
    ),
    *rows(npz, ({"x": [0, 1], "y": [0, 1]}, "--validation-column is 'c'.*holds x, y"), error=ArgumentError),
    *rows(
        sparse,
        (ZERO, 1, None, "names column 0, but --index-base 1"),
        (ONE, None, 2, "names column 3, but a sample has 2 values: columns 1 to 2, counted from 1"),
        ("1 99999999999:1\n" * 1000, None, None, "more than this machine has"),
        ("1 1:1 1e300:1\n", None, None, "line 1: '1e300:1'"),
        error=FileFormatError,
    ),
    (lambda: networks.build("lenet", (64,), 10), ShapeError, r"lenet takes images.*\(64,\).*--shape"),
]

ROWS = [*COMMANDS, *SAMPLES]
