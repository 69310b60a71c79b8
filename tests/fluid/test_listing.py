"""The listing of Paddle's description of AsyncExecutor, as printed but for Python 3 and the download."""

import json

import pytest

import dpmodule as mx
from helpers.programs import run_program

LISTING = '''
import json
import random
import tarfile

import dpmodule.fluid as fluid


def make_data():
    """Stand for the download: twelve files in an archive."""
    import os

    draw = random.Random(0)
    os.makedirs("made/train_data")
    with open("made/train_data/data.prototxt", "w") as file:
        file.write("""name: "MultiSlotDataFeed"
batch_size: 2
multi_slot_desc {
    slots { name: "words" type: "uint64" is_dense: false is_used: true }
    slots { name: "label" type: "uint64" is_dense: false is_used: true }
}
""")
    for i in range(12):
        with open("made/train_data/part-%d" % i, "w") as file:
            for _ in range(140):
                label = draw.randrange(2)
                words = [draw.randrange(50) + 50 * (label if draw.random() < 0.8 else 1 - label) for _ in range(9)]
                print(len(words), *words, 1, label, file=file)
    with tarfile.open("made.tar", "w") as tarf:
        tarf.add("made/train_data", "train_data")
    return "made.tar"


def bow_net(data, label, dict_dim=100, emb_dim=128, hid_dim=128, hid_dim2=96, class_dim=2):
    emb = fluid.layers.embedding(input=data, size=[dict_dim, emb_dim])
    bow = fluid.layers.sequence_pool(input=emb, pool_type='sum')
    bow_tanh = fluid.layers.tanh(bow)
    fc_1 = fluid.layers.fc(input=bow_tanh, size=hid_dim, act="tanh")
    fc_2 = fluid.layers.fc(input=fc_1, size=hid_dim2, act="tanh")
    prediction = fluid.layers.fc(input=[fc_2], size=class_dim, act="softmax")
    cost = fluid.layers.cross_entropy(input=prediction, label=label)
    avg_cost = fluid.layers.mean(x=cost)
    acc = fluid.layers.accuracy(input=prediction, label=label)
    return avg_cost, acc, prediction


results = []


def train_loop():
    # Download data
    with tarfile.open(make_data()) as tarf:
        tarf.extractall(path='./', filter='data')
        tarf.close()
     # Initialize dataset description
    dataset = fluid.DataFeedDesc('train_data/data.prototxt')
    dataset.set_batch_size(128)  # See API doc for how to change other fields
    print(dataset.desc())  # Debug purpose: see what we get
     # define network
    # input text data
    data = fluid.layers.data(
        name="words", shape=[1], dtype="int64", lod_level=1)
    # label data
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
     avg_cost, acc, prediction = bow_net(data, label)
    sgd_optimizer = fluid.optimizer.Adagrad(learning_rate=0.002)
    opt_ops, weight_and_grad = sgd_optimizer.minimize(avg_cost)
     # Run startup program
    startup_program = fluid.default_startup_program()
    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(startup_program)
    main_program = fluid.default_main_program()
    epochs = 10
    filelist = ["train_data/part-%d" % i for i in range(12)]
    for i in range(epochs):
        thread_num = 4
        results.append(executor.run_from_files(
            main_program,  # This can be changed during iteration
            dataset,  # This can be changed during iteration
            filelist,  # This can be changed during iteration
            thread_num,  # This can be changed during iteration
            [data, acc],  # Multiple fetch targets can be specified
            debug=False))
        fluid.io.save_inference_model('imdb/epoch%d.model' % i,
                                      [data.name, label.name], [acc], executor)


if __name__ == "__main__":
    train_loop()
    print(json.dumps([[*one, one.examples, one.workers] for one in results]))
'''


@pytest.mark.parametrize("native", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_listing(tmp_path, native):
    text = LISTING.replace("     # ", "    # ").replace("     avg_cost", "    avg_cost")
    done = run_program(text, cwd=tmp_path, **{} if native else {"DPMODULE_NATIVE": "0"})
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith('name: "MultiSlotDataFeed"\nbatch_size: 128\n')
    results = json.loads(done.stdout.splitlines()[-1])
    assert [one[2:] for one in results] == [[1680, 4]] * 10
    assert results[0][1] < results[-1][1] > 0.95
    assert 30 < results[0][0] < 70
    folder = tmp_path / "imdb" / "epoch9.model"
    mod = mx.mod.Module.load(f"{folder}/model", 0, data_names=["words", "label"], label_names=None)
    mod.bind(
        [mx.io.DataDesc("words", (2,), "int64", stype="ragged"), mx.io.DataDesc("label", (2, 1), "int64")],
        for_training=False,
    )
    mod.init_params()
    words = mx.nd.ragged_array([list(range(1, 10)), list(range(60, 69))], dtype="int64")
    mod.forward(mx.io.DataBatch([words, mx.nd.array([[0], [1]], dtype="int64")], []))
    assert mod.get_outputs()[0].asnumpy().tolist() == [1.0]
