"""Programs of the forms of public Paddle programs, run as they are, against NumPy and torch."""

import json
import sys

import numpy as np
import pytest
import torch

from helpers.programs import run_program

START = """
import json, sys
import numpy as np
import paddle, paddle.fluid as fluid
import paddle.fluid.layers.nn as nn, paddle.fluid.layers.tensor as tensor, paddle.fluid.layers.control_flow as cf
paddle.enable_static()
fluid.require_version("1.6.1")
def first(*names):
    return {name: np.array(fluid.global_scope().find_var(name).get_tensor()).tolist() for name in names}
"""

READER = """
import paddle.fluid.incubate.data_generator as dg
class Clicks(dg.MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            label, *ids = map(int, line.split("\\t"))
            yield [("ids", ids), ("weights", [1.0, 0.5, 2.0]), ("label", [label])]
        return samples
Clicks().run_from_stdin()
"""

CLICKS = """
ids = fluid.data(name="ids", shape=[None, 3], dtype="int64")
weights = fluid.data(name="weights", shape=[None, 3], dtype="float32")
label = fluid.data(name="label", shape=[None, 1], dtype="float32")
rows = fluid.embedding(fluid.layers.reshape(ids, [-1, 1]), size=[20, 4], param_attr="rows")
rows = fluid.layers.reshape(rows, [-1, 3, 4]) * fluid.layers.reshape(weights, [-1, 3, 1])
whole = fluid.layers.reduce_sum(rows, 1)
pairs = 0.5 * fluid.layers.reduce_sum(fluid.layers.square(whole) - fluid.layers.reduce_sum(
    fluid.layers.square(rows), 1), 1, keep_dim=True)
share = fluid.layers.sigmoid(pairs + fluid.layers.reduce_sum(whole, 1, keep_dim=True))
loss = fluid.layers.reduce_mean(fluid.layers.log_loss(share, label, epsilon=1e-7))
area, _, states = fluid.layers.auc(fluid.layers.concat([1 - share, share], 1), fluid.layers.cast(label, "int64"),
                                   slide_steps=0)
grads = fluid.backward.append_backward(loss)
fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(clip_norm=0.1))
fluid.optimizer.SGD(0.5).apply_gradients(fluid.clip.append_gradient_clip_ops(grads))
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
begin = first("rows")
dataset = fluid.DatasetFactory().create_dataset()
dataset.set_use_var([ids, weights, label])
dataset.set_pipe_command(sys.executable + " reader.py")
dataset.set_batch_size(10)
dataset.set_filelist(["clicks.txt"])
exe.train_from_dataset(fluid.default_main_program(), dataset, fetch_list=[loss, area], print_period=1000)
fluid.save(fluid.default_main_program(), "models/epoch_1/checkpoint")
scope = fluid.Scope()
with fluid.scope_guard(scope):
    fluid.load(fluid.default_main_program(), "models/epoch_1/checkpoint", exe)
    for state in states:
        held = scope.var(state.name).get_tensor()
        held.set(np.zeros(held._get_dims()).astype("int64"), fluid.CPUPlace())
    print(json.dumps([begin["rows"], first("rows")["rows"], float(np.sum(first(states[2].name)[states[2].name]))]))
"""


def run(tmp_path, source, **files):
    for name, text in {"program": START + source, **files}.items():
        (tmp_path / f"{name}.{'txt' if name == 'clicks' else 'py'}").write_text(text)
    command = [sys.executable, "-m", "dpmodule", "--as", "paddle", "program.py"]
    code = f"import subprocess, sys; sys.exit(subprocess.run({command!r}).returncode)"
    done = run_program(code, cwd=tmp_path, DPMODULE_ALLOW_PIPE_COMMAND="1")
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    return json.loads(lines[-1])


def test_clicks_from_a_dataset_whose_program_reads_lines(tmp_path):
    draw = np.random.RandomState(0)
    labels, ids = draw.randint(0, 2, 30), draw.randint(0, 20, (30, 3))
    text = "".join(f"{label}\t{a}\t{b}\t{c}\n" for label, (a, b, c) in zip(labels, ids))
    begin, end, positives = run(tmp_path, CLICKS, reader=READER, clicks=text)
    rows = torch.tensor(begin, requires_grad=True)
    for i in range(0, 30, 10):
        picked = rows[torch.tensor(ids[i : i + 10])] * torch.tensor([1.0, 0.5, 2.0])[:, None]
        whole = picked.sum(1)
        score = 0.5 * (whole.square() - picked.square().sum(1)).sum(1) + whole.sum(1)
        target = torch.tensor(labels[i : i + 10], dtype=torch.float32)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(score, target)
        (step,) = torch.autograd.grad(loss, rows)
        with torch.no_grad():
            rows -= 0.5 * step * min(1.0, 0.1 / float(step.norm()))
    np.testing.assert_allclose(end, rows.detach(), atol=1e-5)
    assert positives == 0


TOWERS = """
class Encoder(object):
    def forward(self, words, name):
        rows = fluid.embedding(words, size=[12, 3], param_attr="rows")
        return nn.fc(nn.sequence_pool(rows, "sum"), size=2, param_attr=name + ".w", bias_attr=name + ".b")
slots = [fluid.data(name=name, shape=[None, 1], dtype="int64", lod_level=1) for name in ("user", "good", "bad")]
user, good, bad = [Encoder().forward(slot, name) for slot, name in zip(slots, ("user", "item", "item"))]
right, wrong = nn.cos_sim(user, good), nn.cos_sim(user, bad)
margin = nn.elementwise_sub(tensor.fill_constant_batch_size_like(right, [-1, 1], "float32", 0.8), right)
loss = nn.mean(nn.relu(nn.elementwise_add(margin, wrong)))
correct = nn.reduce_sum(tensor.cast(cf.less_than(wrong, right), dtype="float32"))
fluid.optimizer.SGD(0.1).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
begin = first("rows", "user.w", "item.w")
def samples():
    for line in DATA:
        yield line
loader = fluid.io.DataLoader.from_generator(feed_list=slots, capacity=8, iterable=True)
loader.set_sample_list_generator(fluid.io.batch(samples, batch_size=2), places=fluid.CPUPlace())
found = [[float(value) for value in exe.run(feed=data, fetch_list=[loss.name, correct.name])] for data in loader()]
print(json.dumps([begin, found]))
"""
DATA = [[[1, 2], [3], [4]], [[5], [6, 7], [8]], [[9, 1, 2], [10], [11]], [[0], [2], [3, 3]]]


def test_two_towers_with_a_generator(tmp_path):
    begin, found = run(tmp_path, f"DATA = {DATA}" + TOWERS)
    rows, user, item = (torch.tensor(value, requires_grad=True) for value in begin.values())
    biases = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    cos = torch.nn.functional.cosine_similarity
    for i, values in enumerate(found):
        us, goods, bads = (
            torch.stack([rows[line[j]].sum(0) for line in DATA[2 * i : 2 * i + 2]]) for j in range(3)
        )
        towers = [us @ user.T + biases[0], goods @ item.T + biases[1], bads @ item.T + biases[1]]
        right, wrong = cos(towers[0], towers[1]), cos(towers[0], towers[2])
        loss = torch.relu(0.8 - right + wrong).mean()
        assert values == pytest.approx([loss.item(), (wrong < right).sum().item()], rel=1e-5)
        parameters = [rows, user, item, *biases]
        with torch.no_grad():
            for each, step in zip(parameters, torch.autograd.grad(loss, parameters)):
                each -= 0.1 * step


WORDS = """
centre = fluid.layers.data(name="centre", shape=[1], dtype="int64")
near = fluid.layers.data(name="near", shape=[1], dtype="int64")
far = fluid.layers.data(name="far", shape=[3], dtype="int64")
reader = fluid.layers.create_py_reader_by_data(capacity=4, feed_list=[centre, near, far], name="py_reader")
words = fluid.layers.read_file(reader)
def look_up(word, name):
    start = fluid.initializer.Uniform(-0.5, 0.5)
    return fluid.layers.embedding(word, size=[9, 4], param_attr=fluid.ParamAttr(name=name, initializer=start))
one = look_up(words[0], "emb")
true = fluid.layers.reduce_sum(fluid.layers.elementwise_mul(one, look_up(words[1], "emb_w")), dim=1, keep_dim=True)
others = fluid.layers.reshape(look_up(fluid.layers.reshape(words[2], [-1, 1]), "emb_w"), [-1, 3, 4])
false = fluid.layers.reshape(
    fluid.layers.matmul(fluid.layers.reshape(one, [-1, 1, 4]), others, transpose_y=True), [-1, 3])
def cost(scores, label, width):
    labels = fluid.layers.fill_constant_batch_size_like(scores, [-1, width], "float32", label)
    return fluid.layers.reduce_sum(fluid.layers.sigmoid_cross_entropy_with_logits(scores, labels), dim=1)
loss = fluid.layers.reduce_mean(fluid.layers.elementwise_add(cost(true, 1.0, 1), cost(false, 0.0, 3)))
fluid.optimizer.SGD(learning_rate=fluid.layers.exponential_decay(0.5, 1, 0.5, staircase=True)).minimize(loss)
def batches():
    for i in range(3):
        tensors = [fluid.Tensor() for _ in range(3)]
        for each, values in zip(tensors, DATA[i]):
            each.set(np.array(values, dtype="int64"), fluid.CPUPlace())
        yield tensors
reader.decorate_tensor_provider(batches)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
begin = first("emb", "emb_w")
build = fluid.BuildStrategy()
build.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.AllReduce
parallel = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name, build_strategy=build,
                                  exec_strategy=fluid.ExecutionStrategy())
found = []
reader.start()
try:
    while True:
        found.append(np.mean(parallel.run(fetch_list=[loss.name])).item())
        assert reader.queue.size() <= 4
except fluid.core.EOFException:
    reader.reset()
print(json.dumps([begin, found]))
"""


def test_words_with_negative_samples_and_a_py_reader(tmp_path):
    data = [[[[i], [i + 1]], [[i + 2], [i]], [[3, 4, 5], [i, 7, 8]]] for i in range(3)]
    begin, found = run(tmp_path, f"DATA = {data}" + WORDS)
    emb, weight = (torch.tensor(value, requires_grad=True) for value in begin.values())
    losses = []
    for i, (centre, near, far) in enumerate(data):
        one = emb[torch.tensor(centre)[:, 0]]
        true = (one * weight[torch.tensor(near)[:, 0]]).sum(1)
        false = (one[:, None] * weight[torch.tensor(far)]).sum(2)
        softplus = torch.nn.functional.softplus
        loss = (softplus(-true) + softplus(false).sum(1)).mean()
        losses.append(loss.item())
        with torch.no_grad():
            for each, step in zip((emb, weight), torch.autograd.grad(loss, (emb, weight))):
                each -= 0.5 * 0.5**i * step
    assert found == pytest.approx(losses, rel=1e-5)


SESSIONS = """
reader = fluid.layers.py_reader(
    capacity=4, shapes=[[-1, 1], [-1, 1]], dtypes=["int64", "int64"], lod_levels=[1, 0], name="sessions")
items, label = fluid.layers.double_buffer(reader) and fluid.layers.read_file(reader)
with fluid.name_scope("network"):
    rows = fluid.layers.embedding(items, size=[12, 4], param_attr="rows")
    gates = fluid.layers.fc(rows, size=9, param_attr="gates", bias_attr=False)
    states = fluid.layers.dynamic_gru(gates, size=3, param_attr="hidden")
    share = fluid.layers.fc(fluid.layers.sequence_last_step(states), size=2, act="softmax", param_attr="out")
loss = fluid.layers.mean(fluid.layers.cross_entropy(share, label))
fluid.optimizer.Adagrad(0.1, regularization=fluid.regularizer.L2Decay(0.01)).minimize(loss)
def samples():
    yield from DATA
reader.decorate_paddle_reader(paddle.batch(samples, batch_size=2))
exe = fluid.Executor(fluid.cpu_places()[0])
exe.run(fluid.default_startup_program())
begin = first("rows", "gates", "hidden", "out")
program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
    loss_name=loss.name, places=fluid.cpu_places())
found = []
for epoch in range(2):
    reader.start()
    try:
        while True:
            found += exe.run(program, fetch_list=[loss])[0].tolist()
    except fluid.core.EOFException:
        reader.reset()
print(json.dumps([begin, found]))
"""


def test_sessions_with_a_gru_and_a_compiled_program(tmp_path):
    data = [[[1, 2, 3], [0]], [[4], [1]], [[5, 6], [1]], [[7, 1, 1, 8], [0]]]
    begin, found = run(tmp_path, f"DATA = {data}" + SESSIONS)
    rows, gates, hidden, out = (torch.tensor(value, requires_grad=True) for value in begin.values())
    biases = [torch.zeros(n, requires_grad=True) for n in (9, 2)]
    parameters, losses = [rows, gates, hidden, out, *biases], []
    adagrad = torch.optim.Adagrad(parameters, lr=0.1, weight_decay=0.01, eps=1e-6)
    for i in (0, 2, 0, 2):
        scores = []
        for items, _ in data[i : i + 2]:
            state = torch.zeros(3)
            for row in rows[torch.tensor(items)] @ gates.T + biases[0]:
                update, reset = torch.sigmoid(row[:6] + hidden[:6] @ state).chunk(2)
                state = (1 - update) * state + update * torch.tanh(row[6:] + hidden[6:] @ (reset * state))
            scores.append(out @ state + biases[1])
        labels = torch.tensor([label[0] for _, label in data[i : i + 2]])
        loss = torch.nn.functional.cross_entropy(torch.stack(scores), labels)
        losses.append(loss.item())
        adagrad.zero_grad()
        loss.backward()
        adagrad.step()
    assert found == pytest.approx(losses, rel=1e-5)


def test_missing_data_sets_say_what_takes_their_place(tmp_path):
    source = """
texts = []
for line in ("paddle.dataset.imdb", "from paddle import dataset", "import paddle.dataset.mnist"):
    try:
        exec(line)
    except (AttributeError, ImportError) as error:
        texts.append(str(error))
print(json.dumps(texts))
"""
    texts = run(tmp_path, source)
    assert ["nothing is downloaded: give paddle.batch a function" in text for text in texts] == [True] * 3
