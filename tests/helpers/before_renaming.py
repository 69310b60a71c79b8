"""Objects that were pickled, and files that were saved, before the package's files and names moved.

`PICKLED` makes an object of every public class that can be pickled, `SAVED` writes a file of every kind; each has a
second function, which shows that what was read works still. `record` has written what lies in `data/before_renaming`;
calling it again would make the test of that worthless.
"""

import base64
import inspect
import json
import pickle
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch

import dpmodule as mx

__all__ = ["PICKLED", "RECORDS", "SAVED", "UNPICKLED", "plain", "public_classes"]

RECORDS = Path(__file__).parents[1] / "data" / "before_renaming"

SOURCE = np.random.RandomState(7)
PICTURE = SOURCE.randint(0, 255, (40, 50, 3)).astype("uint8")


def public_classes(module=mx, name="mx", seen=None):
    """Return the public classes by a path under which they are found; errors are among them."""
    seen = {"modules": {mx}, "classes": {}} if seen is None else seen
    names = getattr(module, "__all__", None) or [each for each in dir(module) if not each.startswith("_")]
    for each in sorted(set(names)):
        try:
            value = getattr(module, each)
        except (AttributeError, ImportError):  # a feature that is left out, or not installed
            continue
        if inspect.isclass(value) and value.__module__.startswith("dpmodule"):
            seen["classes"].setdefault(value, f"{name}.{each}")
        elif (
            inspect.ismodule(value) and value.__name__.startswith("dpmodule") and value not in seen["modules"]
        ):
            seen["modules"].add(value)
            public_classes(value, f"{name}.{each}", seen)
    return {path: value for value, path in seen["classes"].items()}


def plain(value):
    """Return arrays and numbers as lists, rounded to what all machines give."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (mx.nd.NDArray, torch.Tensor)):
        value = value.asnumpy() if isinstance(value, mx.nd.NDArray) else value.numpy()
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
        return plain(value) if isinstance(value, list) else value
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)


# how an object shows that it works


def measures(metric):
    """Go on measuring."""
    prediction = mx.nd.array([[0.3, 0.7], [0.6, 0.4], [0.2, 0.8]])
    label = mx.nd.array([1, 0, 0])
    if isinstance(metric, (mx.metric.MAE, mx.metric.MSE, mx.metric.RMSE, mx.metric.PearsonCorrelation)):
        prediction, label = prediction[:, 1], mx.nd.array([1, 0, 0.5])
    metric.update([label], [prediction])
    return metric.get()


def updates(optimizer):
    """Make two updates."""
    weight, gradient = mx.nd.array([[1.0, -2.0], [0.5, 3.0]]), mx.nd.array([[0.1, 0.2], [-0.3, 0.4]])
    mx.random.seed(3)
    state = optimizer.create_state_multi_precision(0, weight)
    for _ in range(2):
        optimizer.update_multi_precision(0, weight, gradient, state)
    return weight


def initializes(initializer):
    """Fill an array."""
    mx.random.seed(3)
    special = {"Bilinear": (2, 2, 4, 4), "LSTMBias": (8,)}
    filled = mx.nd.zeros(special.get(type(initializer).__name__, (3, 4)))
    initializer(mx.init.InitDesc("fc_weight"), filled)
    return filled.shape, initializer.dumps() if hasattr(initializer, "dumps") else None


def schedules(scheduler):
    """Give rates."""
    return [scheduler(number) for number in (1, 2, 5, 9, 20)]


def augments(augmenter):
    """Change a picture; what is drawn at random is left to other tests."""
    made = augmenter(mx.nd.array(PICTURE, dtype="uint8").astype("float32"))
    return made.shape, len(augmenter.dumps())  # the parts of a jitter come in a random order


def augments_boxes(augmenter):
    """Change a picture with boxes."""
    box = np.array([[0, 0.1, 0.1, 0.9, 0.9]])
    made, _ = augmenter(mx.nd.array(PICTURE, dtype="uint8").astype("float32"), box)
    return len(made.shape), augmenter.dumps()


def unrolls(cell):
    """Make a graph."""
    outputs, states = cell.unroll(2, mx.sym.Variable("x"), layout="NTC", merge_outputs=True)
    return outputs.list_arguments(), len(states)


def yields(iterator):
    """Give the rest of an epoch."""
    return [[plain(each) for each in (*batch.data, *(batch.label or ()))] for batch in iterator]


def says(error):
    """Tell its text, and whose kind it is."""
    return str(error), [each.__name__ for each in type(error).__mro__]


def holds(thing):
    """Tell its public attributes."""
    return {name: plain(value) for name, value in vars(thing).items() if not name.startswith("_")}


def _hits(label, prediction):
    return float((prediction.argmax(1) == label).mean())


def looks(thing):
    """Tell what it prints."""
    return repr(thing)


def _net():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def _data():
    x = np.arange(40, dtype="float32").reshape(10, 4)
    return x, np.arange(10, dtype="float32") % 3


def _begun(iterator):
    next(iterator)
    return iterator


def _updater(optimizer):
    updater = mx.optimizer.get_updater(optimizer)
    updater(0, mx.nd.array([0.1, 0.2]), mx.nd.array([1.0, 2.0]))
    return updater


def _goes_on(updater):
    weight = mx.nd.array([1.0, 2.0])
    updater(0, mx.nd.array([0.1, 0.2]), weight)
    return weight


def _trained(module):
    module.fit(mx.io.NDArrayIter(*_data(), 5), num_epoch=1, initializer=mx.init.One())
    return module


def _predicts(module):
    return module.predict(mx.io.NDArrayIter(_data()[0], batch_size=5))


METRICS = {
    "Accuracy": {}, "TopKAccuracy": {"top_k": 2}, "F1": {}, "MCC": {}, "PCC": {}, "MAE": {}, "MSE": {}, "RMSE": {},
    "CrossEntropy": {}, "NegativeLogLikelihood": {}, "PearsonCorrelation": {}, "Perplexity": {"ignore_label": None},
    "Loss": {}, "Caffe": {}, "Torch": {}, "AUC": {"num_thresholds": 8}, "LogLoss": {},
}  # fmt: skip
OPTIMIZERS = {
    "SGD": {"momentum": 0.9, "wd": 0.01}, "ccSGD": {}, "NAG": {"momentum": 0.9}, "Signum": {}, "FTML": {}, "LBSGD": {},
    "DCASGD": {}, "SGLD": {}, "Adam": {}, "AdaGrad": {}, "RMSProp": {"centered": True}, "AdaDelta": {}, "Ftrl": {},
    "Adamax": {}, "Nadam": {}, "LAMB": {}, "LARS": {}, "Test": {},
}  # fmt: skip
AUGMENTERS = {
    "ResizeAug": (30,), "ForceResizeAug": ((20, 22),), "CenterCropAug": ((20, 22),), "RandomCropAug": ((20, 22),),
    "RandomSizedCropAug": ((20, 22), (0.5, 1.0), (0.8, 1.2)), "BrightnessJitterAug": (0.2,),
    "ContrastJitterAug": (0.2,),
    "SaturationJitterAug": (0.2,), "HueJitterAug": (0.2,), "ColorJitterAug": (0.1, 0.1, 0.1), "CastAug": (),
    "LightingAug": (0.1, np.ones(3), np.ones((3, 3))), "ColorNormalizeAug": ([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]),
    "RandomGrayAug": (0.5,), "HorizontalFlipAug": (0.5,),
}  # fmt: skip
SCHEDULERS = {
    "FactorScheduler": (3,), "MultiFactorScheduler": ([3, 8],), "PolyScheduler": (15,), "CosineScheduler": (15,),
    "OneCycle": (0.5, 30), "ReduceOnPlateau": ("train-accuracy",),
}  # fmt: skip
INITIALIZERS = {
    "Zero": (), "One": (), "Constant": (0.5,), "Uniform": (0.1,), "Normal": (0.1,), "Orthogonal": (), "Xavier": (),
    "MSRAPrelu": (), "Bilinear": (), "LSTMBias": (1.0,),
}  # fmt: skip
CELLS = {
    "RNNCell": (4,), "LSTMCell": (4,), "GRUCell": (4,), "FusedRNNCell": (4, 2, "lstm"), "DropoutCell": (0.3,),
}  # fmt: skip
ERRORS = [
    "MXNetError", "ArgumentError", "BoundsError", "DTypeError", "DeviceError", "FileError", "FileFormatError",
    "LostWorkerError", "MissingPackageError", "NodeError", "NonFiniteError", "OpError", "ShapeError", "SignatureError",
    "StateError",
]  # fmt: skip
STREAM_ERRORS = [
    "ConformanceError", "FunctorError", "LoopClosedError", "PipeBroken", "PipeClosed", "PipeTimeout", "PoolClosedError",
    "StreamStopped", "StructureError", "WorkerDied", "WorkerError", "WorkerStuck",
]  # fmt: skip


def _stack(*cells):
    stack = mx.rnn.SequentialRNNCell()
    for cell in cells:
        stack.add(cell)
    return stack


def _in(module, names, use):
    return {name: (lambda name=name: getattr(module, name)(*names[name]), use) for name in names}


PICKLED = {
    **{name: (lambda n=name, a=args: getattr(mx.metric, n)(**a), measures) for name, args in METRICS.items()},
    "CompositeEvalMetric": (lambda: mx.metric.create(["acc", "ce"]), measures),
    "CustomMetric": (lambda: mx.metric.CustomMetric(_hits, name="hits"), measures),
    **{
        name: (lambda n=name, a=args: getattr(mx.optimizer, n)(**a), updates)
        for name, args in OPTIMIZERS.items()
    },
    "TorchOptimizer": (lambda: mx.optimizer.create(torch.optim.AdamW), updates),
    "Updater": (lambda: _updater(mx.optimizer.Adam()), _goes_on),
    **_in(mx.image, AUGMENTERS, augments),
    "SequentialAug": (lambda: mx.image.SequentialAug([mx.image.ResizeAug(30), mx.image.CastAug()]), augments),
    "RandomOrderAug": (lambda: mx.image.RandomOrderAug([mx.image.CastAug()]), augments),
    "DetBorrowAug": (lambda: mx.image.DetBorrowAug(mx.image.CastAug()), augments_boxes),
    "DetRandomSelectAug": (lambda: mx.image.DetRandomSelectAug([]), augments_boxes),
    "DetHorizontalFlipAug": (lambda: mx.image.DetHorizontalFlipAug(0.5), augments_boxes),
    "DetRandomCropAug": (lambda: mx.image.DetRandomCropAug(), augments_boxes),
    "DetRandomPadAug": (lambda: mx.image.DetRandomPadAug(), augments_boxes),
    **_in(mx.lr_scheduler, SCHEDULERS, schedules),
    **_in(mx.init, INITIALIZERS, initializes),
    "Mixed": (lambda: mx.init.Mixed([".*"], [mx.init.One()]), initializes),
    "Load": (lambda: mx.init.Load({"fc_weight": mx.nd.ones((3, 4))}), initializes),
    "InitDesc": (lambda: mx.init.InitDesc("fc_weight", {"a": "b"}), lambda desc: [desc, desc.attrs]),
    **_in(mx.rnn, CELLS, unrolls),
    "RNNParams": (lambda: mx.rnn.RNNParams("p_"), lambda params: params.get("w").name),
    **{name: (lambda n=name: getattr(mx.base, n)("what happened"), says) for name in ERRORS},
    **{name: (lambda n=name: getattr(mx.streams, n)("what happened"), says) for name in STREAM_ERRORS},
    "Context": (lambda: mx.cpu(1), looks),
    "NDArray": (
        lambda: mx.nd.array([[1, 2], [3, 4]], dtype="int32"),
        lambda array: [array, str(array.dtype)],
    ),
    "CSRNDArray": (lambda: mx.nd.array([[0, 2], [3, 0]]).tostype("csr"), lambda array: [array, array.stype]),
    "RowSparseNDArray": (
        lambda: mx.nd.array([[0, 0], [3, 0]]).tostype("row_sparse"),
        lambda array: [array, array.stype],
    ),
    "Symbol": (_net, lambda symbol: symbol.list_arguments()),
    "DataDesc": (
        lambda: mx.io.DataDesc("data", (2, 3), "float16", "NC"),
        lambda d: [d, str(d.dtype), d.layout],
    ),
    "DataBatch": (
        lambda: mx.io.DataBatch([mx.nd.ones((2,))], [mx.nd.zeros((2,))], pad=1),
        lambda b: [b.data, b.pad],
    ),
    "NDArrayIter": (lambda: _begun(mx.io.NDArrayIter(*_data(), 4)), yields),
    "ResizeIter": (lambda: mx.io.ResizeIter(mx.io.NDArrayIter(*_data(), 4), 2), yields),
    "BucketSentenceIter": (lambda: mx.rnn.BucketSentenceIter([[1, 2], [2, 1]], 2, [2], layout="TN"), yields),
    "BatchEndParam": (lambda: mx.callback.BatchEndParam(1, 2, None, None), list),
    "Speedometer": (lambda: mx.callback.Speedometer(32), holds),
    "ProgressBar": (lambda: mx.callback.ProgressBar(10), holds),
    "LogValidationMetricsCallback": (lambda: mx.callback.LogValidationMetricsCallback(), holds),
    "IRHeader": (lambda: mx.recordio.IRHeader(0, 1.0, 2, 3), list),
    "FeedForward": (
        lambda: mx.model.FeedForward(_net(), num_epoch=1),
        lambda model: model.symbol.list_arguments(),
    ),
    "DataFeedDesc": (
        lambda: mx.DataFeedDesc('multi_slot_desc { slots { name: "w" type: "uint64" is_used: true } }'),
        lambda desc: desc.desc(),
    ),
    "EarlyStopping": (lambda: mx.callback.EarlyStopping("train-accuracy"), holds),
    "EMA": (lambda: mx.callback.EMA(0.9), lambda each: each.state_dict()),
    "CSVLogger": (lambda: mx.callback.CSVLogger("log.csv"), holds),
    "Checkpoint": (lambda: mx.callback.Checkpoint("prefix"), holds),
    "BidirectionalCell": (
        lambda: mx.rnn.BidirectionalCell(mx.rnn.LSTMCell(4, "l_"), mx.rnn.LSTMCell(4, "r_")),
        unrolls,
    ),
    "ResidualCell": (lambda: mx.rnn.ResidualCell(mx.rnn.GRUCell(4)), unrolls),
    "ZoneoutCell": (lambda: mx.rnn.ZoneoutCell(mx.rnn.RNNCell(4), 0.1, 0.1), unrolls),
    "SequentialRNNCell": (
        lambda: _stack(mx.rnn.RNNCell(4, prefix="a_"), mx.rnn.GRUCell(4, prefix="b_")),
        unrolls,
    ),
    "ConvLSTMCell": (lambda: mx.rnn.ConvLSTMCell((1, 3, 8, 8), 4), lambda cell: plain(cell.state_info)),
    "FusedRNN": (lambda: mx.init.FusedRNN(mx.init.One(), 4, 1, "lstm"), lambda each: each.dumps()),
    "GroupAdaGrad": (lambda: mx.optimizer.contrib.GroupAdaGrad(), updates),
    "RaggedNDArray": (lambda: mx.nd.ragged_array([[1, 2], [3]]), lambda array: [array.values, array.stype]),
    "Compression": (lambda: mx.kv.Compression({"type": "2bit", "threshold": 0.3}), holds),
    "Prefix": (lambda: mx.name.Prefix("net_"), lambda names: names.get(None, "fc")),
    "AttrScope": (lambda: mx.AttrScope(lr_mult="2"), lambda scope: scope.get(None)),
    "Feature": (lambda: mx.runtime.Features()["CPU_SSE"], looks),
    "CPUPlace": (lambda: mx.fluid.CPUPlace(), looks),
    "ParamAttr": (lambda: mx.fluid.ParamAttr(name="w", learning_rate=0.5), holds),
    "L2Decay": (lambda: mx.fluid.regularizer.L2Decay(0.1), holds),
    "UnpicklableError": (lambda: mx.streams.UnpicklableError("what happened"), says),
    "UnknownSlotError": (lambda: mx.hogwild.UnknownSlotError("what happened"), says),
    "NotImplementedForSymbol": (lambda: mx.base.NotImplementedForSymbol(len, None), says),
    "NotSupportedForSparseNDArray": (lambda: mx.base.NotSupportedForSparseNDArray(len, None), says),
}

UNPICKLED = {
    "only derived from": """
        Augmenter BaseAsyncExtendableStream BaseAsyncWorker BaseAsyncWorkerPool BaseConvRNNCell BaseModule BaseRNNCell
        BaseSparseNDArray Callback CustomOp CustomOpProp DataIter Dataset DetAugmenter EvalMetric Function FunctorLike
        GroupedOptimizer Initializer KVStoreBase LRScheduler ModifierCell NDArrayOp NumpyOp Optimizer PythonModule
        PythonOp Stream Worker WorkerPool
        """,
    "holds a network that is bound, which is saved by save_checkpoint": """
        AutobatchModule BucketingModule CachedOp DataParallelExecutorGroup DataParallelExecutorManager Executor Module
        Monitor PythonLossModule SVRGModule SequentialModule TorchModule
        """,
    "holds threads, processes, pipes or other memory of this process": """
        AsyncExecutor Channel ChildProcess CompletionExtendableStream CompressFunctor CppWorker CppWorkerPool
        Crc32cFunctor DecompressFunctor DistKVStore InMemoryDataset KVStore MemcpyFunctor MultiSlotFunctor NoopFunctor
        PrefetchingIter PriorityExtendableStream ProcessPrefetchingIter ProcessWorkerPool QueueDataset ReadAhead Reading
        ReadyFunctor RecordsFunctor SignalSocketBus SortedExtendableStream StringHandle Supervisor TensorPipeReader
        TensorPipeWriter TestStore ThreadPool ThreadWorker ThreadWorkerPool
        """,
    "opens files, by paths that only one machine has": """
        CSVIter DataFeeder DataLoaderIter ImageDetIter ImageDetRecordIter ImageIter ImageRecordInt8Iter ImageRecordIter
        ImageRecordIter_v1 ImageRecordUInt8Iter ImageRecordUInt8Iter_v1 LibSVMIter LogMetricsCallback MNISTIter
        MXDataIter MXIndexedRecordIO MXRecordIO Part Pretrained RecordDataset TensorBoard
        """,
    "lives as long as what made it": """
        Counter Domain DummyIter Event Features FeedBatch FileBatches FluidNormal FluidUniform Frame LiveCurve Marker
        MultiSlotLines NameManager OperatorArguments Parameter PipeStats Program Records Registry RemoteTraceback Slot
        SlotValues SymbolDoc Task TqdmBar Update Variable np_array np_shape
        """,
    "another name, or the like, of one that is pickled": """
        ConvGRUCell ConvRNNCell InternalError LSTMPCell SoftmaxCrossEntropyLoss
        """,
}
UNPICKLED = {name: reason for reason, names in UNPICKLED.items() for name in names.split()}


def _checkpoint(folder):
    module = mx.mod.Module(_net())
    module.fit(
        mx.io.NDArrayIter(*_data(), 5),
        num_epoch=2,
        optimizer="adam",
        initializer=mx.init.One(),
        checkpoint=mx.callback.Checkpoint(f"{folder}/run", every_n_epochs=2),
    )
    module.save_checkpoint(f"{folder}/plain", 2, save_optimizer_states=True)
    module.save_checkpoint(f"{folder}/tensors", 2, format="safetensors")
    module.save_pretrained(f"{folder}/pretrained", preprocessor={"mean": 0.5})


def _read_checkpoint(folder):
    found = []
    for prefix, epochs in (("plain", 3), ("run", 3)):
        module = mx.mod.Module.load(f"{folder}/{prefix}", 2, load_optimizer_states=True)
        data = mx.io.NDArrayIter(*_data(), 5)
        more = {"checkpoint": f"{folder}/run", "resume": "auto"} if prefix == "run" else {}
        module.fit(data, begin_epoch=2, num_epoch=epochs, optimizer="adam", **more)
        found.append(module.get_params()[0])
    found.append(mx.model.load_checkpoint(f"{folder}/tensors", 2)[1])
    found.append(mx.interop.load_pretrained(f"{folder}/pretrained").arg_params)
    return found


def _autobatch(folder):
    import dpmodule.autobatch as dy

    dy.reset_random_seed(3)
    collection = dy.ParameterCollection()
    builders = [dy.LSTMBuilder(1, 2, 3, collection), dy.GRUBuilder(1, 2, 3, collection)]
    dy.save(f"{folder}/builders", [*builders, collection.add_parameters((2, 2), name="w")])
    collection.save(f"{folder}/collection.txt")


def _read_autobatch(folder):
    import dpmodule.autobatch as dy

    found = []
    for builder in dy.load(f"{folder}/builders", dy.ParameterCollection())[:2]:
        dy.renew_cg()
        found.append(builder.initial_state().add_input(dy.inputVector([1.0, 2.0])).output().npvalue())
    return found


def _agent(folder):
    from .small_tasks import SmallestAgent, examples, smallest

    agent = SmallestAgent(smallest())
    agent.batch_act(examples(4))
    agent.save(f"{folder}/agent")


def _read_agent(folder):
    from .small_tasks import SmallestAgent, examples, smallest

    agent = SmallestAgent(smallest(model_file=f"{folder}/agent"))
    return [reply["text"] for reply in agent.batch_act([{"text": each["text"]} for each in examples(4, 1)])]


def _records(folder):
    writer = mx.recordio.MXIndexedRecordIO(f"{folder}/few.idx", f"{folder}/few.rec", "w")
    for number in range(3):
        writer.write_idx(number, mx.recordio.pack(mx.recordio.IRHeader(0, number, number, 0), b"x" * number))
    writer.close()


def _read_records(folder):
    reader = mx.recordio.MXIndexedRecordIO(f"{folder}/few.idx", f"{folder}/few.rec", "r")
    return [
        [list(header), len(text)] for header, text in (mx.recordio.unpack(reader.read_idx(i)) for i in (2, 0))
    ]


def _store(folder):
    store = mx.kv.create("local")
    store.set_optimizer(mx.optimizer.Adam())
    store.init("w", mx.nd.ones((2,)))
    store.push("w", mx.nd.array([1, 2]))
    store.save_optimizer_states(f"{folder}/store.states", dump_optimizer=True)


def _read_store(folder):
    store = mx.kv.create("local")
    store.set_optimizer(mx.optimizer.Adam())
    store.load_optimizer_states(f"{folder}/store.states")
    store.init("w", mx.nd.ones((2,)))
    store.push("w", mx.nd.array([1, 2]))
    found = mx.nd.zeros((2,))
    store.pull("w", out=found)
    return found


SAVED = {
    "checkpoint": (_checkpoint, _read_checkpoint),
    "autobatch": (_autobatch, _read_autobatch),
    "agent": (_agent, _read_agent),
    "records": (_records, _read_records),
    "store": (_store, _read_store),
}


def record():
    """Write pickles, files, and what they showed."""
    pickles = {}
    for name, (make, use) in PICKLED.items():
        mx.random.seed(3)
        data = pickle.dumps(make(), protocol=4)
        pickles[name] = {"pickle": base64.b64encode(data).decode(), "shows": plain(use(pickle.loads(data)))}
    RECORDS.mkdir(exist_ok=True)
    (RECORDS / "pickles.json").write_text(json.dumps(pickles, indent=1) + "\n")
    shown = {}
    for name, (write, read) in SAVED.items():
        folder = RECORDS / name
        folder.mkdir()
        write(folder)
        with tempfile.TemporaryDirectory() as copy:
            shown[name] = plain(read(shutil.copytree(folder, copy, dirs_exist_ok=True)))
    (RECORDS / "saved.json").write_text(json.dumps(shown, indent=1) + "\n")
