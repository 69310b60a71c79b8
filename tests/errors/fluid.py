"""Wrong calls of `dpmodule.fluid`."""

import json
from functools import partial, wraps

import numpy as np

import dpmodule.fluid as fluid
from dpmodule import base
from dpmodule import symbol as sym
from dpmodule.context import cpu
from helpers.fluid_programs import PROTOTXT, bow_net, programs, run, text_inputs, write_files

layers = fluid.layers
BATCH = {"words": [[1, 2], [30], []], "label": [[0], [1], [0]]}


def rows(error, make, *cases):
    """Return rows of calls of one function, each in programs of its own: arguments, and the pattern last."""

    @wraps(make)
    def call(*given):
        with programs():
            make(*given)

    return [(partial(call, *given), error, told) for *given, told in cases]


def dense(name="x", width=3):
    return layers.data(name, [width])


def words():
    return text_inputs()[0]


def fed(feed, fetch="mean_0"):
    bow_net(*text_inputs())
    run(feed, [fetch])


def on_files(trains, feed, fetch, folder):
    net = bow_net(*text_inputs())
    if trains:
        fluid.optimizer.SGD(0.1).minimize(net[0])
    executor = fluid.Executor()
    if trains != "unstarted":
        executor.run(fluid.default_startup_program())
    feed = fluid.DataFeedDesc(PROTOTXT) if feed is None else feed
    executor.run_from_files(None, feed, write_files(folder), 1, fetch)


def started():
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    return executor


def saved(change, folder):
    """Save a model with changed arguments."""
    prediction = bow_net(*text_inputs())[2]
    given = {"dirname": folder, "feeded_var_names": ["words"], "target_vars": [prediction], **change}
    fluid.io.save_inference_model(executor=started(), **given)


def without_values(folder):
    prediction = bow_net(*text_inputs())[2]
    fluid.io.save_inference_model(folder, ["words"], [prediction], fluid.Executor())


def lacking(folder):
    prediction = bow_net(*text_inputs())[2]
    executor = started()
    fluid.io.save_params(executor, folder)
    layers.fc(prediction, 3)
    fluid.io.load_params(executor, folder)


def damaged(key, text, folder):
    out = layers.fc([dense("a", 2), dense("b", 2)], 1)
    fluid.io.save_inference_model(folder, ["a", "b"], [out], started())
    path = folder / "model-symbol.json"
    graph = json.loads(path.read_text())
    next(row for row in graph["nodes"] if row["name"] == "a")["attrs"][key] = text
    path.write_text(json.dumps(graph))
    fluid.io.load_inference_model(folder)


def other_startup():
    layers.fc(dense(), 2)
    program = fluid.default_main_program()
    with fluid.program_guard(program, fluid.Program()):
        layers.fc(program.var("x"), 2)


def other_program():
    x = dense()
    with programs():
        layers.concat([x, dense("y")], axis=1)


def twice():
    loss = layers.mean(layers.fc(dense(), 1))
    for _ in range(2):
        fluid.optimizer.SGD(0.1).minimize(loss)


def image():
    return layers.data("image", [3, 8, 8])


def norm_of_some():
    loss = layers.mean(layers.fc(dense(), 1, bias_attr="b"))
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(1)).minimize(
        loss, no_grad_set=["b"]
    )


def l1_with_limit():
    sgd = fluid.optimizer.SGD(0.1, None, fluid.regularizer.L1Decay(1.0), fluid.clip.GradientClipByValue(1.0))
    sgd.minimize(layers.mean(layers.fc(dense(), 1)))


def decay(rate):
    return fluid.regularizer.L2Decay(rate)


def of_unknown_class(build, label):
    run({"x": np.ones((2, 3)), "ids": [[label], [0]]}, [build(dense(), numbers())])


def numbers(width=1, name="ids"):
    return layers.data(name, [width], dtype="int64")


WRONG_LAYERS = [
    (lambda: layers.auc(dense(), numbers(), curve="PR"), "auc: curve is 'PR', expected \"ROC\""),
    (
        lambda: layers.auc(dense(), numbers(), num_thresholds=0),
        "num_thresholds is 0, expected an integer from 1",
    ),
    (lambda: layers.topk(dense(), 4), "topk: k is 4, expected at most 3, the last axis of 'x'"),
    (lambda: layers.batch_norm(words()), "batch_norm: 'words' holds sequences"),
    (lambda: layers.batch_norm(dense(), data_layout="NC"), "data_layout is 'NC'"),
    (lambda: layers.batch_norm(dense(), moving_mean_name="x"), "'x' is of type Data, expected a LayerState"),
    (lambda: layers.prelu(dense(), "some"), "mode is 'some', expected one of all, channel, element"),
    (lambda: fluid.nets.img_conv_group(image(), [1, 2], 2, conv_filter_size=[3]), "has 1 values for 2"),
    (lambda: layers.fill_constant([2], "float32", "x"), "value is 'x', expected a number"),
    (lambda: layers.fill_constant(2, "float32", 0), "shape is 2, expected a list of sizes"),
    (lambda: layers.zeros([-1, 2], "float32"), "an axis of shape is -1, expected an integer from 1"),
    (lambda: layers.assign([1, 2]), "expected a variable of fluid or a NumPy array"),
    (lambda: layers.assign(dense(), dense()), "is not a result of create_tensor"),
    (lambda: layers.uniform_random([2], seed=3), "seed is 3, expected 0"),
    (
        lambda: layers.fill_constant_batch_size_like(dense(), [-1, 2], "float32", 0, 2),
        "input_dim_idx is 2 and output_dim_idx 0",
    ),
    (lambda: layers.hash(numbers(), 0), "hash_size is 0, expected an integer from 1"),
    (lambda: layers.sequence_pad(words(), 0), "maxlen is None, expected the length of all rows"),
    (lambda: layers.sequence_mask(numbers()), "maxlen is None, expected the number of positions"),
    (lambda: layers.sequence_expand_as(words(), words()), "x 'words' holds sequences, expected rows"),
    (lambda: layers.dynamic_gru(dense(), 1), "does not hold sequences; declare its data with lod_level=1"),
    (lambda: layers.gru_unit(dense(), dense("h", 1), 3, activation="no"), "act is 'no'"),
    (lambda: layers.gru_unit(dense(), dense("h", 1), 3, bias_attr=False), "bias_attr is False"),
    (lambda: layers.nce(words(), numbers(), 5), "only one of 'words' and 'ids' holds sequences"),
    (lambda: layers.nce(dense(), numbers(), 5, sampler="custom_dist"), "sampler is 'custom_dist'"),
    (lambda: layers.nce(dense(), numbers(), 5, custom_dist=[1]), "custom_dist is not supported"),
    (lambda: layers.nce(dense(), numbers(), 5, seed=1), "nce: seed is 1, which is not supported"),
    (lambda: layers.hsigmoid(dense(), numbers(), 1), "num_classes is 1, expected an integer from 2"),
    (lambda: layers.hsigmoid(dense(), numbers(), 4, path_table=1), "path_table is not supported"),
    (lambda: layers.hsigmoid(dense(), numbers(), 4, is_custom=True), "is_custom is True, which is not"),
    (
        lambda: layers.sampled_softmax_with_cross_entropy(dense(), numbers(), 4),
        "num_samples is 4 and num_true 1 for 3 classes",
    ),
    (lambda: layers.linear_chain_crf(dense(), numbers()), "input 'x' does not hold sequences"),
    (lambda: layers.warpctc(dense(), numbers()), "input 'x' does not hold sequences"),
    (lambda: layers.warpctc(dense(), numbers(), blank=3), "blank is 3, expected 0 to 2"),
    (lambda: layers.argsort("x"), "argsort: input is 'x', expected a variable of fluid"),
    (lambda: layers.less_than(dense(), dense(), cond=dense()), "less_than: cond is not supported"),
    (lambda: layers.kldiv_loss(dense(), dense("y"), "most"), "reduction is 'most'"),
    (lambda: layers.pad(dense(), [1, 0, 0, 0]), "those of the batch 0"),
    (lambda: layers.softmax_with_cross_entropy(dense(), numbers(), axis=0), "axis is 0, expected -1"),
    (lambda: fluid.regularizer.L1Decay("x"), "L1Decay: the coefficient is 'x', expected a number from 0"),
    (lambda: fluid.clip.GradientClipByNorm(0), "clip_norm is 0, expected a number above 0"),
    (
        lambda: fluid.optimizer.SGD(0.1, parameter_list=3),
        "parameter_list is 3, expected a list of parameters",
    ),
    (lambda: fluid.optimizer.Lamb(regularization=decay(1)), "lamb_weight_decay and regularization both set"),
    (lambda: fluid.initializer.Xavier(fan_in=3), "only one of fan_in and fan_out is given"),
    (lambda: fluid.initializer.MSRA(fan_in=0), "MSRA: fan_in is 0, expected a number above 0 or None"),
    (lambda: fluid.initializer.MSRA(seed=3), "MSRA: seed is 3, expected 0"),
    (l1_with_limit, "L1Decay and limits of gradients are not supported together"),
]
"""Wrong calls of layers and optimizers."""


def lstm(size, more):
    layers.dynamic_lstm(layers.data("x", [8], lod_level=1), size, **more)


def dense_lstm():
    names = ("data", "weight", "bias")
    sym.sequence_lstm(*map(sym.Variable, names))[0].simple_bind(cpu(), data=(4, 8))


ROWS = [
    *rows(
        base.ArgumentError,
        lambda call: call(),
        (lambda: layers.fc(3, 4), "fc: input is 3"),
        (lambda: layers.fc(dense(), 4, act="tahn"), "did you mean tanh"),
        (lambda: layers.fc(dense(), 4, num_flatten_dims=2), "num_flatten_dims is 2"),
        (lambda: layers.fc([dense()], 4, param_attr=[None, None]), "2 entries for 1 inputs"),
        (lambda: layers.data("a", [1], lod_level=2), "lod_level is 2"),
        (lambda: (dense(), dense(width=4)), "already has <Data x"),
        (lambda: layers.data(layers.tanh(dense()).name, [3]), "already has a variable 'tanh_0'"),
        (lambda: layers.embedding(dense(), [3, 2], padding_idx=3), "padding_idx is 3"),
        (lambda: layers.sequence_pool(dense(), "sum"), "does not hold sequences"),
        (lambda: layers.fc([], 4), "empty list"),
        (lambda: layers.embedding(dense(), [3, 2], param_attr=3), "param_attr is 3"),
        (lambda: fluid.io.save_params(fluid.Executor(), "folder", 3), "main_program is 3"),
        (lambda: layers.accuracy(words(), dense("y")), "only one of 'words' and 'y' holds sequences"),
        (lambda: fluid.ParamAttr(initializer=3), "initializer is 3"),
        (lambda: layers.sequence_pool(words(), "median"), "'median'"),
        (lambda: layers.accuracy(dense(), dense("y"), k=7), "k is 7"),
        (lambda: layers.dropout(dense(), 0.5, seed=1), "mx.random.seed"),
        (lambda: layers.split(dense(), 2, dim=9), "split: dim is 9 for 'x' of shape"),
        (lambda: layers.unstack(dense(), axis=-4), "unstack: axis is -4 for 'x' of shape"),
        (lambda: layers.data("ids", [1], "int64"), "append_batch_size is 'int64', expected True or False"),
        (
            lambda: layers.dropout(dense(), 0.5, dropout_implementation="scale"),
            "dropout_implementation is 'scale', expected 'downgrade_in_infer' or 'upscale_in_train'",
        ),
        (
            lambda: fluid.Executor().run(fluid.default_startup_program(), scope=1),
            "scope is 1, expected a Scope",
        ),
        (lambda: dense()["a"], "expected up to 2 integers or slices of integers"),
        (lambda: words()[0], r"words\[0\]: 'words' holds sequences; pool them first"),
        (lambda: layers.sums([dense()], out=dense()), "is not a result of create_tensor"),
        (lambda: layers.fc(words(), 4, num_flatten_dims=2), "is 2, expected 1 for sequences"),
        (lambda: layers.cross_entropy(dense(), dense("y"), True, 2), "ignore_index is 2, which is not"),
        (lambda: layers.accuracy(dense(), dense("y"), correct=dense()), "is not a result of create_tensor"),
        (lambda: layers.sequence_conv(words(), 2, filter_stride=2), "filter_stride is 2, expected 1"),
        (lambda: dense() + "x", "neither a variable"),
        (lambda: layers.reduce_max(words()), "pool them first"),
        (lambda: fluid.program_guard(3).__enter__(), "main_program is 3"),
        (lambda: fluid.ParamAttr(name=""), "name is ''"),
        (lambda: fluid.ParamAttr(regularizer=3), "regularizer is 3"),
        (lambda: fluid.initializer.Uniform(2, 1), "low <= high"),
        (lambda: fluid.initializer.Normal(0, -1), "from 0"),
        (lambda: fluid.Executor().run(layers.mean(dense())), "expected a Program"),
        (lambda: fluid.create_lod_tensor([[1]], [[1], [1]]), "levels of lengths"),
        (lambda: fluid.DataFeeder([*text_inputs()]).feed([(1,)]), "does not have 2 values"),
        (other_program, "different programs"),
        (lambda: fluid.optimizer.SGD("fast"), "learning_rate is 'fast'"),
        *WRONG_LAYERS,
        (lambda: layers.conv2d(image(), "4", 3), "num_filters is '4', expected an integer from 1"),
        (lambda: layers.matmul(dense(), dense(), alpha="x"), "matmul: alpha is 'x', expected a number"),
        (lambda: layers.pow(dense(), None), "pow: factor is None, expected a number"),
        (lambda: layers.piecewise_decay([1, 2], 0.1), "values is 0.1, expected a list of numbers"),
        (lambda: layers.conv2d(image(), 4, "3"), "filter_size is '3', expected an integer from 1, or two"),
        (lambda: layers.conv2d(image(), 4, 3, padding=-1), "padding is -1, expected an integer from 0"),
        (lambda: layers.conv2d(image(), 4, 3, groups=2), "groups is 2, expected a divisor of 3 channels"),
        (lambda: layers.pool2d(image(), 2, "sum"), "pool_type is 'sum'"),
        (lambda: layers.pool2d(image(), 2, data_format="NHWC"), "data_format is 'NHWC'"),
        (lambda: layers.layer_norm(image(), begin_norm_axis=4), "begin_norm_axis is 4 for 'image'"),
        (lambda: fluid.clip.GradientClipByValue(0), "max is 0, expected a number above 0"),
        (lambda: fluid.clip.GradientClipByValue(1, -2), "min is -2, expected -max, -1"),
        (lambda: fluid.clip.GradientClipByGlobalNorm("1"), "clip_norm is '1', expected a number above 0"),
        (lambda: fluid.clip.GradientClipByGlobalNorm(1, "a"), "group_name is 'a'"),
        (lambda: fluid.clip.set_gradient_clip(1.0), "clip is 1.0, expected a GradientClipByValue"),
        (lambda: fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(1), []), "param_list is"),
        (lambda: fluid.optimizer.SGD(0.1, grad_clip=5), "grad_clip is 5, expected a GradientClipByValue"),
        (norm_of_some, "is not trained, but would count in the global norm"),
        (lambda: fluid.optimizer.Adamax(0.1, epsilon=1e-6), "epsilon is 1e-06, expected 1e-08"),
        (lambda: layers.exponential_decay(0.1, 0, 0.5), "decay_steps is 0, expected a number above 0"),
        (lambda: layers.cosine_decay("0.1", 2, 3), "cosine_decay: learning_rate is '0.1', expected a number"),
        (lambda: layers.linear_lr_warmup(None, 2, 0, 1), "learning_rate is None, expected a number"),
        (lambda: layers.piecewise_decay([1, 2], [0.1, 0.2]), "values has 2 rates, expected 3"),
        (lambda: layers.piecewise_decay([2, 1], [1, 2, 3]), "expected increasing steps"),
        (lambda: fluid.optimizer.SGD(0.1, regularization=0.1), "regularization is 0.1"),
        (lambda: fluid.optimizer.Ftrl(0.1, lr_power=-0.4), "lr_power is -0.4"),
        (lambda: fluid.optimizer.Ftrl(0.1, l2=1, regularization=decay(1)), "give only one"),
        (lambda: fluid.optimizer.RMSProp(0.1, momentum=0.9), "centered=True"),
        (lambda: fluid.optimizer.Adagrad(0.1, initial_accumulator_value=0.1), "expected 0"),
        (lambda: fluid.optimizer.SGD(0.1).minimize(dense()), "a scalar variable"),
        (lambda: fluid.optimizer.SGD(0.1).minimize(layers.mean(dense())), "does not depend on a parameter"),
        (lambda: decay(-1), "from 0"),
    ),
    *rows(
        base.StateError,
        lambda call: call(),
        (lambda: fluid.Program().symbol, "no layers"),
        (other_startup, "another startup program"),
        (twice, "has an optimizer"),
    ),
    *rows(
        base.ShapeError,
        lambda call: call(),
        (lambda: layers.data("a", 3), "shape is 3"),
        (lambda: layers.data("a", [-1, 0]), "sizes from 1"),
        (lambda: layers.embedding(dense(), [3]), "size is"),
        (lambda: layers.conv2d(dense(), 4, 3), r"expected \(N, C, H, W\) with a known C"),
        (lambda: layers.layer_norm(layers.data("s", [2, 3], lod_level=1)), "must have known sizes"),
        (
            lambda: [layers.fc(dense(f"x{n}", n), 2, param_attr="w") for n in (3, 4)],
            r"'w' has shape \(2, 3\), but",
        ),
        (lambda: fluid.create_lod_tensor(np.zeros((3, 1)), [[1, 1]]), "the sum of lengths is 2"),
    ),
    (lambda: fluid.Executor("gpu"), base.DeviceError, "place is 'gpu'"),
    *rows(base.ShapeError, lstm, (7, {}, "4H features")),
    *rows(
        base.ArgumentError,
        lstm,
        (8, {"h_0": 1}, "only one of h_0 and c_0 is given, expected both or none"),
        (8, {"bias_attr": False}, "bias_attr"),
    ),
    (dense_lstm, base.OpError, "sequence_lstm takes ragged data"),
    *rows(
        base.ArgumentError,
        fed,
        ({"words": [[1]]}, "label is missing"),
        ({**BATCH, "lable": 1}, "no data 'lable'; did you mean label"),
        (3, "expected a dict"),
        (BATCH, "mean_1", "did you mean mean_0"),
        (BATCH, 3, "neither a variable"),
    ),
    *rows(
        base.ShapeError,
        fed,
        ({"words": [], "label": np.zeros((0, 1))}, "is empty"),
        ({**BATCH, "label": [0, 1, 0]}, r"'label' has shape \(3,\)"),
        ({**BATCH, "label": [[0], [1]]}, "different sizes"),
    ),
    *rows(
        base.DTypeError,
        fed,
        ({**BATCH, "label": [[0], [0.5], [1]]}, "'label' is not an array of int64: it has fractions"),
        ({**BATCH, "words": 3}, "list of sequences"),
        ({**BATCH, "words": [[1], ["a"], []]}, "'words' is not an array"),
        (BATCH, "words", "return_numpy=False"),
    ),
    *rows(
        base.BoundsError,
        fed,
        ({**BATCH, "words": [[1], [40], []]}, "'words' has the value 40, but the table 'embedding_0_weight'"),
    ),
    *rows(
        base.BoundsError,
        of_unknown_class,
        (
            lambda x, y: layers.nce(x, y, 5),
            5,
            "'ids' has the value 5, but the table 'nce_0_weight' has 5 rows",
        ),
        (
            lambda x, y: layers.hsigmoid(x, y, 5),
            -1,
            "the label -1 in 'ids', which is not one of the 5 classes",
        ),
        (
            lambda x, y: layers.sampled_softmax_with_cross_entropy(x, y, 2),
            3,
            "the label 3 in 'ids', which is not one of the 3 classes",
        ),
    ),
    *[
        row
        for error, *case in (
            (base.StateError, "unstarted", None, "mean_0", "startup program first"),
            (base.StateError, False, None, [], "no optimizer"),
            (base.ArgumentError, True, None, ["nothing"], "no variable 'nothing'"),
            (base.ShapeError, True, None, ["fc_2"], r"'fc_2' has shape \(2, 2\)"),
            (base.ArgumentError, True, "data.prototxt", [], "data_feed is 'data.prototxt'"),
        )
        for row in rows(error, on_files, case)
    ],
    *rows(
        base.ArgumentError,
        saved,
        ({"feeded_var_names": ["words", "label"]}, "'label'\\], but the targets depend on words"),
        ({"target_vars": ["words"]}, "expected computed variables"),
        ({"target_vars": []}, "target_vars is"),
        ({"model_filename": "__model__"}, "file names are not supported"),
        ({"dirname": None}, "dirname is None"),
    ),
    *rows(base.StateError, without_values, ("have no values",)),
    *rows(base.ArgumentError, lacking, ("lacks fc_3_weight, fc_3_bias",)),
    *rows(base.FileError, lambda folder: fluid.io.load_inference_model(folder / "nothing"), ("nothing",)),
    *rows(base.ShapeError, damaged, ("__shape__", "5x", "__shape__ is '5x', expected")),
    *rows(base.DTypeError, damaged, ("__dtype__", "x", "unknown dtype 'x'")),
    *rows(base.FileFormatError, damaged, ("__feed__", "1", "input 'b' has __feed__='1', expected its index")),
]
