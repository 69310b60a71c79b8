"""Wrong calls of `dpmodule.hogwild`: descriptions of slots, files of lines, data sets and runs over files."""

import gzip
from functools import partial

import dpmodule as mx
from dpmodule.base import ArgumentError, BoundsError, FileError, FileFormatError, ShapeError, StateError
from dpmodule.hogwild import FileBatches, FileRange, check_files
from helpers.hogwild import bag_net, counting_net, dense_module, dense_net, described, train, write_dense

ONE = 'multi_slot_desc { slots { name: "a" type: "float" } }'
SLOT = "multi_slot_desc { slots { "
DENSE = described(x="float dense", label="uint64 dense")
BAGS = described(words="uint64", label="uint64 dense")


def rows(error, make, *cases):
    """Return rows of calls of one function: arguments, and the pattern of the error last."""
    return [(partial(make, *given), error, told) for *given, told in cases]


# descriptions: the text, the line and the column of the mistake, and what was found and expected


def describe(text):
    return mx.DataFeedDesc(text, allow_pipe_command=True)


PLACES = [
    ("{", 1, 1, r"found '\{', expected a field of the description"),
    ("\n\n  nam: 'x'\n", 3, 3, r"found 'nam', expected a field .*\(name, .*did you mean name\?"),
    ("name 'x'\n", 1, 6, "found \"'x'\", expected ':' after name"),
    ("name: x\n", 1, 7, "found 'x', expected a string in quotes for name"),
    ("name: 'x'\n", 1, 7, "expected the name 'MultiSlotDataFeed'"),
    ("name: 'x\n", 1, 7, "expected a closing ' on the same line"),
    ("batch_size: 0\n", 1, 13, "found '0', expected a batch_size of 1 or more"),
    ("batch_size: 1.5\n", 1, 13, "found '1.5', expected an integer of 32 bits for batch_size"),
    ("batch_size: 2147483648\n", 1, 13, "expected an integer of 32 bits"),
    ("batch_size: 4\nbatch_size: 4\n", 2, 1, "found 'batch_size', expected batch_size only once"),
    ("batch_size:\n", 2, 1, "found the end of the text, expected an integer"),
    ("batch_size: 4\n@", 2, 1, "found '@', expected a name, number, string or brace"),
    (SLOT + "\n  name: 'a\\q' } }", 2, 11, "expected an escape such as"),
    (SLOT + "name: '\\377' } }", 1, 33, "expected UTF-8 in the string"),
    (SLOT + "name: 'a' type: 'int' } }", 1, 43, 'expected the type "uint64" or "float" of slot \'a\''),
    (SLOT + "type: 'float' } }", 1, 41, "found '}', expected the name of the slot"),
    (SLOT + "is_used: yes } }", 1, 36, "found 'yes', expected true or false for is_used"),
    (SLOT + "name: 'a' type: 'float' > }", 1, 51, "found '>', expected a field of slots or '}'"),
    (SLOT + "name: 'a' type: 'float' }", 1, 52, "found the end of the text, expected a field of"),
    (SLOT + "name: 'a' type: 'float' shape: [1 2] } }", 1, 61, "found '2', expected ','"),
    ("multi_slot_desc: 3\n", 1, 18, r"found '3', expected '\{' after multi_slot_desc"),
    ("multi_slot_desc { }", 1, 19, r"found '}', expected multi_slot_desc \{ slots"),
    (ONE[:-1] + "\nslots { type: 'float' name: 'a' } }", 2, 29, "another name, since an earlier slot"),
    (ONE + "\npipe_command: 'a \"b'", 2, 15, "expected a command in shell syntax"),
    (ONE + "\npipe_command: 'a\\000b'", 2, 15, "expected a command without the character 0"),
]


def from_file(content, folder):
    (folder / "data.prototxt").write_bytes(content)
    mx.DataFeedDesc(folder / "data.prototxt")


DESCRIPTIONS = [
    *[
        (
            partial(describe, text),
            FileFormatError,
            rf"^DataFeedDesc text: line {line}, column {column}: .*{told}",
        )
        for text, line, column, told in PLACES
    ],
    (
        partial(from_file, b"name: 'x'\n# \xff"),
        FileFormatError,
        "prototxt: line 2, column 3: found a byte 0xff",
    ),
    *rows(FileError, describe, *((path, "cannot read the description") for path in ("none", "a\0b"))),
    *rows(ArgumentError, describe, *((it, "expected a path or the text of") for it in (7, ""))),
    *rows(
        ArgumentError,
        lambda size: describe(ONE).set_batch_size(size),
        *((size, "set_batch_size: batch_size is .*, expected") for size in (0, True, 2**31)),
    ),
    *rows(
        ArgumentError,
        lambda call, names: getattr(describe(ONE), call)(names),
        ("set_use_slots", "a", r"set_use_slots: got 'a', expected a list of names, such as \['a'\]"),
        ("set_dense_slots", 7, "set_dense_slots: got 7"),
    ),
    (
        lambda: mx.DataFeedDesc(ONE + "\npipe_command: 'python clean.py'"),
        ArgumentError,
        r"line 2, column 15: pipe_command is 'python clean.py'.*allow_pipe_command=True",
    ),
]

# files of lines


def read(name, content, folder, command=None, mode="error", span=()):
    """Read a file of one slot as batches."""
    path = folder / name
    if content is not None:
        path.write_bytes(content)
    text = 'multi_slot_desc { slots { name: "a" type: "uint64" is_used: true } }'
    desc = describe(text + (f" pipe_command: '{command}'" if command else ""))
    parts = iter([FileRange(str(path), *span)])
    list(FileBatches(desc, lambda: next(parts, None), mode))


WHOLE = gzip.compress(b"1 5\n" * 1000)
DAMAGED = (b"plain", WHOLE[:-3], WHOLE[:40] + b"xxxx" + WHOLE[44:], WHOLE + b"rest")
LINES = b"1 5\n"
FILES = [
    (partial(read, "a", LINES, mode="ignore"), ArgumentError, "on_bad_line is 'ignore', expected 'error' or"),
    (
        lambda: FileBatches(describe(ONE), None),
        ArgumentError,
        r"no slot of \['a'\] is used; call set_use_slots",
    ),
    (
        partial(read, "a.gz", WHOLE, span=(3,)),
        ArgumentError,
        "cannot be read alone, since the file is compressed",
    ),
    (partial(read, "a", LINES, command="tac", span=(0, 7)), ArgumentError, "is read by a program"),
    (partial(read, "none", None), FileError, "No such file.*none"),
    (partial(read, "a", LINES, command="no-such -x"), FileError, "a: pipe_command .* cannot be started"),
    *[(partial(read, "a.gz", data), FileFormatError, r"a\.gz: not a complete gzip file") for data in DAMAGED],
    *rows(
        ArgumentError,
        check_files,
        *((it, r"filelist is .*, expected a list of paths, such as \[") for it in ("part-0", 7)),
        *(([it], "filelist contains .*, expected paths") for it in (7, "")),
    ),
]


def loaded(mode, folder):
    (folder / "a").write_bytes(b"1 5\n\nx\n")
    made = mx.InMemoryDataset(describe(ONE.replace("}", "is_used: true }", 1)))
    made.set_filelist([folder / "a"])
    made.load_into_memory(mode)


DATASETS = [
    (lambda: mx.InMemoryDataset("x"), ArgumentError, "InMemoryDataset: data_feed is 'x', expected"),
    *rows(
        StateError,
        lambda kind, call, *given: getattr(kind(describe(ONE)), call)(*given),
        (mx.QueueDataset, "reading", 2, "QueueDataset has no files yet; call set_filelist"),
        (mx.InMemoryDataset, "load_into_memory", "InMemoryDataset has no files yet"),
        (mx.InMemoryDataset, "local_shuffle", "no lines are loaded; call load_into_memory"),
    ),
    (partial(loaded, "error"), FileFormatError, "a: line 3, slot 'a', count: found 'x'"),
]

# runs


def run(change, folder):
    files, _, _ = write_dense(folder)
    given = {"program": dense_module(), "data_feed": DENSE, "filelist": files, "thread_num": 2, "fetch": ()}
    with mx.AsyncExecutor() as executor:
        executor.run_from_files(**{"mode": "process", **given, **change})


def one(net, content, feed, folder, **more):
    """Train on one file of lines."""
    (folder / "part").write_text(content)
    with mx.AsyncExecutor() as executor:
        executor.run_from_files(net, feed, [folder / "part"], 1, **more)


def executor(call, *given, **more):
    with mx.AsyncExecutor() as made:
        list(getattr(made, call)(*given, **more))


def infer(folder, **more):
    executor("infer_from_files", dense_module(), DENSE, write_dense(folder)[0], 1, "p", **more)


def closed():
    made = mx.AsyncExecutor()
    made.close()
    made.run_from_files(dense_module(), DENSE, [__file__], 1)


def two_contexts():
    return mx.mod.Module(dense_net(), ["x"], ["label"], context=[mx.cpu(0), mx.cpu(1)])


def own(optimizer):
    from dpmodule.params import ParamStore

    program = type("Own", (), {"symbol": dense_net(), "optimizer": optimizer})()
    program.store = ParamStore([mx.cpu()])
    return program


def averaged(name, value, folder):
    with mx.AsyncExecutor() as executor:
        (folder / "lines").write_text("1 0 1 1\n")
        train(executor, counting_net(5), [folder / "lines"], 1, "serial", **{name: value})


X = mx.sym.Variable("x")
Y = mx.sym.FullyConnected(mx.sym.broadcast_mul(X, mx.sym.Variable("y")), num_hidden=1)
Y = mx.sym.LinearRegressionOutput(Y, mx.sym.Variable("label"))
RUNS = [
    *[
        (partial(run, change), error, told)
        for change, error, told in (
            ({"filelist": []}, ArgumentError, "empty"),
            ({"thread_num": 0}, ArgumentError, "thread_num is 0"),
            ({"data_feed": "data.prototxt"}, ArgumentError, "expected a DataFeedDesc"),
            ({"program": "net"}, ArgumentError, "of type str"),
            ({"program": two_contexts()}, ArgumentError, "one CPU"),
            ({"program": own(None)}, StateError, "no optimizer"),
            ({"fetch": ["fc2"]}, ShapeError, r"'fc2' has shape \(8, 2\)"),
            ({"fetch": ["lable"]}, ArgumentError, "did you mean label"),
            ({"fetch": mx.sym.Group([X, X])}, ArgumentError, "has 2 outputs; give one output"),
            ({"fetch": [3]}, ArgumentError, "of type int"),
            ({"fetch": mx.sym.Variable("other")}, ArgumentError, "depends on other"),
            ({"mode": "fast"}, ArgumentError, "mode is 'fast'"),
            ({"check_labels": "stop"}, ArgumentError, "check_labels is 'stop', expected one of raise, warn"),
            ({"callback": 1}, ArgumentError, "callback is 1"),
            ({"on_bad_line": "ignore"}, ArgumentError, "on_bad_line is 'ignore'"),
            ({"callback_s": 0}, ArgumentError, "callback_s is 0"),
            (
                {"program": Y},
                ArgumentError,
                "no slot y; .* slots x, label, the network the variables x, y, label",
            ),
            ({"eval_metric": "acuracy"}, ArgumentError, "acuracy"),
            ({"resume": 3}, ArgumentError, "resume is 3, expected the prefix"),
            ({"resume": "other"}, FileError, "no snapshot is saved under this prefix"),
        )
    ],
    *[
        (
            partial(executor, call, bag_net(), described(word="uint64", label="uint64 dense"), *more),
            ArgumentError,
            "no slot words; .* slots word, label,.*; did you mean word",
        )
        for call, *more in (
            ("run_from_files", [__file__], 1, []),
            ("explain",),
            ("infer_from_files", [__file__], 1, []),
        )
    ],
    (
        partial(executor, "train_from_dataset", bag_net(), mx.QueueDataset(BAGS), 1, eval_metrik="acc"),
        mx.base.SignatureError,
        "did you mean eval_metric",
    ),
    (partial(executor, "train_from_dataset", bag_net(), ["a"], 1), ArgumentError, "QueueDataset"),
    (infer, StateError, "no parameters yet"),
    (partial(infer, mode="native"), ArgumentError, "mode is 'native', which supports only training"),
    (partial(executor, "module", bag_net()), StateError, "has not been run"),
    (partial(executor, "snapshot", "a"), StateError, "there was no run"),
    (partial(executor, "explain", bag_net()), StateError, "has not been run"),
    (closed, StateError, "closed"),
    (lambda: mx.AsyncExecutor(timeout_s=-1), ArgumentError, "timeout_s"),
    (lambda: mx.AsyncExecutor(start_method="thread"), ArgumentError, "start_method"),
    (lambda: mx.AsyncExecutor(mx.gpu(0)), ArgumentError, "train on the CPU"),
    (partial(averaged, "average_every_n_batches", 0), ArgumentError, "average_every_n_batches"),
    (partial(averaged, "average_every_s", 0), ArgumentError, "average_every_s"),
    (
        partial(one, bag_net(), "2 1 2 1 0\n1 3 1 0\n3 4 50 2 1 1\n", BAGS, mode="serial"),
        BoundsError,
        "slot 'words' has the value 50, .* 'table_weight' with 50 rows.* row 2 ",
    ),
]

ROWS = [*DESCRIPTIONS, *FILES, *DATASETS, *RUNS]
