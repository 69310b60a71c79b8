"""Networks of Paddle's text classification demos, and files for them."""

import random

import numpy as np

import dpmodule.fluid as fluid

PROTOTXT = """name: "MultiSlotDataFeed"
batch_size: 2
multi_slot_desc {
    slots { name: "words" type: "uint64" is_dense: false is_used: true }
    slots { name: "label" type: "uint64" is_dense: false is_used: true }
}
"""


def programs():
    """Return a guard of programs of one's own."""
    return fluid.program_guard(fluid.Program(), fluid.Program())


def write_files(folder, files=3, lines=60, rows=40, length=(1, 9), seed=0):
    """Write text whose label is what most of its words say; return the paths."""
    draw = random.Random(seed)
    paths = []
    for i in range(files):
        text = []
        for _ in range(lines):
            label = draw.randrange(2)
            sides = [label if draw.random() < 0.8 else 1 - label for _ in range(draw.randrange(*length))]
            words = [draw.randrange(rows // 2) + rows // 2 * side for side in sides]
            text.append(f"{len(words)} {' '.join(map(str, words))} 1 {label}\n")
        paths.append(folder / f"part-{i}")
        paths[-1].write_text("".join(text))
    return [str(path) for path in paths]


def text_inputs():
    """Declare words and label."""
    words = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
    return words, fluid.layers.data(name="label", shape=[1], dtype="int64")


def bow_net(data, label, dict_dim=40, emb_dim=8, hid_dim=8, hid_dim2=6, class_dim=2):
    """Return loss, accuracy and prediction of a bag of words."""
    emb = fluid.layers.embedding(input=data, size=[dict_dim, emb_dim], is_sparse=True)
    bow_tanh = fluid.layers.tanh(fluid.layers.sequence_pool(input=emb, pool_type="sum"))
    fc_1 = fluid.layers.fc(input=bow_tanh, size=hid_dim, act="tanh")
    fc_2 = fluid.layers.fc(input=fc_1, size=hid_dim2, act="tanh")
    prediction = fluid.layers.fc(input=[fc_2], size=class_dim, act="softmax")
    cost = fluid.layers.cross_entropy(input=prediction, label=label)
    return fluid.layers.mean(x=cost), fluid.layers.accuracy(input=prediction, label=label), prediction


def run(feed, fetch, **more):
    """Initialize what the present program has, and run it on a batch."""
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=fetch, **more)


def values(*names):
    """Return the values of parameters of the present program."""
    store = fluid.default_main_program().store
    return [np.array(store.array(name, 0).asnumpy()) for name in names]
