"""Files of each format that the package writes, made now and read by later versions.

To store those of a version, in tests: ``python -m helpers.stored_files data/stored/VERSION``.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

import dpmodule as mx
from dpmodule import autobatch
from dpmodule.agents import Seq2seqAgent, create_agent, create_task

X = np.linspace(-1, 1, 96).reshape(24, 4).astype("float32")
Y = (np.arange(24) * 7 % 3).astype("float32")
FEED = """multi_slot_desc {
  slots { name: "words" type: "uint64" is_used: true }
  slots { name: "label" type: "uint64" is_dense: true is_used: true }
}"""
RULE = {"learning_rate": 0.1, "momentum": 0.9}
QUESTION = {"text": "5 1 2", "episode_done": True}


def network():
    hidden = mx.sym.BatchNorm(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="a"), name="norm"
    )
    hidden = mx.sym.Activation(hidden, act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=3, name="b"), name="softmax")


def data(shuffle=False):
    return mx.io.NDArrayIter(X, Y, 8, shuffle=shuffle)


def values(params):
    """Return the sums of arrays, weighted by position."""
    return [float((np.arange(1, a.size + 1) * a.asnumpy().ravel()).sum()) for _, a in sorted(params.items())]


def trained(**options):
    mx.random.seed_all(1)
    module = mx.mod.Module(network())
    module.fit(data(True), num_epoch=3, optimizer_params=RULE, **options)
    return module


def write_run():
    trained(checkpoint=mx.callback.Checkpoint("net", every_n_batches=2), max_batches=5)


def read_run():
    """Resume within the second epoch."""
    module = trained(checkpoint=mx.callback.Checkpoint("net"), resume="net")
    return values(module.get_params()[0]) + values(module.get_params()[1])


def write_checkpoints():
    module = trained()
    module.save_checkpoint("net", 3, save_optimizer_states=True)
    module.save_checkpoint("own", 3, format="safetensors")


def read_checkpoints():
    found = []
    for prefix in ("net", "own"):
        module = mx.mod.Module.load(prefix, 3)
        module.bind(data().provide_data, for_training=False)
        found += values({"out": module.predict(mx.io.NDArrayIter(X, batch_size=8))})
    module = mx.mod.Module.load("net", 3, load_optimizer_states=True)
    module.fit(data(), num_epoch=1, optimizer_params=RULE)
    return found + values(module.get_params()[0])


def sentences():
    return mx.rnn.BucketSentenceIter([[1, 2, 3], [2, 3, 1, 2]] * 4, 4, buckets=[3, 4], invalid_label=0)


def bucket(length):
    words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=4, output_dim=3, name="words")
    states, _ = mx.rnn.LSTMCell(3, prefix="lstm_").unroll(length, words, merge_outputs=True)
    scores = mx.sym.FullyConnected(mx.sym.reshape(states, (-1, 3)), num_hidden=4, name="out")
    label = mx.sym.reshape(mx.sym.Variable("softmax_label"), (-1,))
    return mx.sym.SoftmaxOutput(scores, label, name="softmax"), ("data",), ("softmax_label",)


def write_buckets():
    mx.random.seed_all(1)
    module = mx.mod.BucketingModule(bucket, default_bucket_key=4)
    module.fit(
        sentences(), num_epoch=2, eval_metric=mx.metric.Perplexity(0), optimizer_params={"learning_rate": 0.5}
    )
    module.save_checkpoint("net", 2)


def read_buckets():
    module = mx.mod.BucketingModule.load("net", 2)
    module.bind(sentences().provide_data, sentences().provide_label, for_training=False)
    return [module.score(sentences(), mx.metric.Perplexity(0))[0][1]]


def clicks():
    rows = mx.sym.Embedding(
        mx.sym.Variable("words", stype="ragged"), input_dim=7, output_dim=1, sparse_grad=True, name="w"
    )
    pooled = mx.sym.sequence_pool(rows, pool_type="sum", name="pool")
    return mx.sym.LogisticRegressionOutput(pooled, mx.sym.Variable("label", shape=(0, 1)), name="p")


def write_snapshot():
    Path("clicks").write_text("".join(f"2 {i % 7} {i % 3} 1 {i % 2}\n" for i in range(100)))
    with mx.AsyncExecutor() as run:
        run.run_from_files(clicks(), mx.DataFeedDesc(FEED), ["clicks"], 1, optimizer="adagrad", mode="serial")
        run.snapshot("net", 4)


def read_snapshot():
    last = mx.AsyncExecutor.last_snapshot("net")
    return [last.epoch, len(last.done), *values(mx.model.load_checkpoint("net", last.epoch)[1])]


def hashed():
    rows = mx.sym.Embedding(mx.sym.Variable("data"), hash_rows=True, output_dim=2, name="ids")
    return mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(mx.sym.sum(rows, axis=1), num_hidden=2, name="b"), name="softmax"
    )


def write_tables():
    mx.random.seed_all(1)
    ids = mx.nd.array(np.arange(24).reshape(12, 2) % 9 * 10**12, dtype="int64")
    module = mx.mod.Module(hashed())
    module.fit(mx.io.NDArrayIter(ids, np.arange(12) % 2, 4), num_epoch=1, optimizer="adagrad")
    module.save_checkpoint("net", 1, save_optimizer_states=True)


def read_tables():
    params = mx.model.load_checkpoint("net", 1)[1]
    rows = params.pop("ids_weight")
    order = np.argsort(rows.indices.asnumpy())
    return [len(order), *rows.data.asnumpy()[order].ravel().tolist(), *values(params)]


def collection():
    model = autobatch.ParameterCollection()
    first = model.add_parameters((2, 3), name="first")
    return model, first, model.add_lookup_parameters((4, 2), name="table")


def write_autobatch():
    model, first, table = collection()
    model.save("model.txt")
    autobatch.save("parts", [first, table])


def read_autobatch():
    model, first, table = collection()
    model.populate("model.txt")
    found = [first.as_array(), table.as_array()]
    found += [each.as_array() for each in autobatch.load("parts", autobatch.ParameterCollection())]
    return np.concatenate([each.ravel() for each in found]).tolist()


def write_agent():
    mx.random.seed_all(1)
    opt = {
        "task": "reverse:size=100",
        "datatype": "train",
        "batchsize": 10,
        "model": "seq2seq",
        "hiddensize": 8,
    }
    agent = Seq2seqAgent(opt | {"embeddingsize": 8})
    with create_task(opt, agent) as world:
        while world.get_total_epochs() < 1:
            world.parley()
    agent.save("agent")


def read_agent():
    agent = create_agent({"model_file": "agent", "datatype": "valid"})
    agent.observe(QUESTION)
    return [agent.act()["text"]]


def write_arrays():
    rows = mx.nd.sparse.row_sparse_array((X[:2], [1, 4]), shape=(6, 4))
    arrays = {"float": mx.nd.array(X), "half": mx.nd.array(X, dtype="float16"), "rows": rows}
    arrays["csr"] = mx.nd.array(np.eye(4)).tostype("csr")
    mx.nd.save("arrays.params", arrays)
    mx.nd.save("arrays.safetensors", {name: arrays[name] for name in ("float", "half")})
    record = mx.recordio.MXIndexedRecordIO("a.idx", "a.rec", "w")
    for key in range(3):
        record.write_idx(key, mx.recordio.pack(mx.recordio.IRHeader(0, [key, 2.0], key, 0), b"content" * key))
    record.close()


def read_arrays():
    found = []
    for suffix in ("params", "safetensors"):
        arrays = mx.nd.load(f"arrays.{suffix}")
        found += [f"{name} {a.stype} {np.dtype(a.dtype)}" for name, a in sorted(arrays.items())] + values(
            arrays
        )
    record = mx.recordio.MXIndexedRecordIO("a.idx", "a.rec", "r")
    header, content = mx.recordio.unpack(record.read_idx(2))
    record.close()
    return [*found, *header.label.tolist(), content.decode()]


FORMATS = {
    name.removeprefix("write_"): (write, globals()[name.replace("write", "read")])
    for name, write in list(globals().items())
    if name.startswith("write_")
}
"""Each format's functions: that which writes its files to the current folder, and that which reads them."""


if __name__ == "__main__":
    start, expected = os.getcwd(), {}
    for name, (write, read) in FORMATS.items():
        folder = Path(sys.argv[1], name)
        folder.mkdir(parents=True)
        os.chdir(folder)
        write()
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(".", copy, dirs_exist_ok=True)
            os.chdir(copy)
            expected[name] = read()
            os.chdir(start)
    Path(sys.argv[1], "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
