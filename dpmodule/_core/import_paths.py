"""MXNet's module paths: where the modules are now, their contents, and the names of their star imports.

Most of MXNet's modules do not list their names, so that a star import of `mxnet.monitor` also brings what it imports
itself: `np`, `logging`, `NDArray`. Programs rely on it. Some names of MXNet's modules are defined elsewhere here.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

MOVED = {
    "contrib.ndarray": "ndarray.contrib",
    "contrib.symbol": "symbol.contrib",
    "engine": "executor.engine",
    "executor_manager": "module.executor_manager",
    "fluid.layers.control_flow": "fluid.layers",
    "fluid.layers.io": "fluid.layers",
    "fluid.layers.loss": "fluid.layers",
    "fluid.layers.nn": "fluid.layers",
    "fluid.layers.ops": "fluid.layers",
    "fluid.layers.rnn": "fluid.layers",
    "fluid.layers.sequence_lod": "fluid.layers",
    "module.executor_group": "module.group.executor_group",
}
"""New paths of moved modules by old path, both without the package's name."""

_GATHERED = """\
misc from lr_scheduler: MXNet's first import path of learning-rate schedules.
    FactorScheduler LRScheduler=LearningRateScheduler
contrib.io from io: Iterators that MXNet keeps under `mx.contrib.io`.
    DataLoaderIter
contrib.tensorboard from callback.loggers: Metrics for TensorBoard, under MXNet's name.
    LogMetricsCallback
contrib.amp.lists from symbol.mixed_precision: Operators by the precision they run in, by registry name.
    CONDITIONAL_FP32 FP32 LOSSES LP16 WIDEST
contrib.onnx from onnx: ONNX under the names that it had before MXNet 1.9; see `dpmodule.onnx`.
    export_model get_model_metadata import_model mx2onnx onnx2mx
contrib.onnx.mx2onnx from onnx: ONNX out under its old name.
    export_model
contrib.onnx.onnx2mx from onnx: Where MXNet keeps the import of ONNX files.
    import_model
contrib.onnx.onnx2mx.import_model from onnx: The import of ONNX files under MXNet's name of the module.
    get_model_metadata import_model
contrib.svrg_optimization.svrg_optimizer from contrib.svrg_optimization.svrg_module: The optimizers at MXNet's path.
    _AssignmentOptimizer _SVRGOptimizer
fluid.backward from fluid.optimizer: Gradients that a program changes before it applies them.
    append_backward
fluid.param_attr from fluid.variable: Attributes of parameters.
    ParamAttr
fluid.regularizer from fluid.variable: Weight decay of parameters.
    L1Decay L1DecayRegularizer L2Decay L2DecayRegularizer
image.detection from image: Detection under MXNet's module path, `mx.image.detection`.
    CreateDetAugmenter CreateMultiRandCropAugmenter DetAugmenter DetBorrowAug DetHorizontalFlipAug
    DetRandomCropAug DetRandomPadAug DetRandomSelectAug ImageDetIter
image.image from image: Single images under MXNet's module path, `mx.image.image`.
    Augmenter BrightnessJitterAug CastAug CenterCropAug ColorJitterAug ColorNormalizeAug ContrastJitterAug
    CreateAugmenter ForceResizeAug HorizontalFlipAug HueJitterAug ImageIter LightingAug RandomCropAug
    RandomGrayAug RandomOrderAug RandomSizedCropAug ResizeAug SaturationJitterAug SequentialAug center_crop
    color_normalize copyMakeBorder fixed_crop imdecode imread imresize imrotate random_crop random_rotate
    random_size_crop resize_short scale_down
io.io from io: MXNet's import path of the iterators (`mx.io.io`).
    CSVIter DataBatch DataDesc DataIter ImageDetRecordIter ImageRecordInt8Iter ImageRecordIter
    ImageRecordIter_v1 ImageRecordUInt8Iter ImageRecordUInt8Iter_v1 LibSVMIter MNISTIter MXDataIter
    NDArrayIter PrefetchingIter ResizeIter utils._init_data
optimizer.optimizer from optimizer: MXNet's import path of the optimizers (`mx.optimizer.optimizer`).
    DCASGD FTML LAMB LARS LBSGD NAG SGD SGLD AdaDelta AdaGrad Adam Adamax Ftrl Nadam Optimizer RMSProp Signum
    Test Updater ccSGD create get_updater register
rnn.rnn from rnn: MXNet's import path of unrolling and of checkpoints of cells (`mx.rnn.rnn`).
    BaseRNNCell do_rnn_checkpoint load_checkpoint load_rnn_checkpoint rnn_unroll save_checkpoint
    save_rnn_checkpoint
rnn.rnn_cell from rnn: The cells under MXNet's own path, `mx.rnn.rnn_cell`.
    BaseConvRNNCell BaseRNNCell BidirectionalCell ConvGRUCell ConvLSTMCell ConvRNNCell DropoutCell
    FusedRNNCell GRUCell LSTMCell ModifierCell RNNCell RNNParams ResidualCell SequentialRNNCell ZoneoutCell
"""
"""Modules that only re-export: path, source module and docstring, then the names.

``name=other`` is exported as ``other``, ``module.name`` as ``name``.
"""


def _entries(table: str) -> list[str]:
    """Return the entries of a table; indented lines continue an entry."""
    return re.split(r"\n(?=\S)", table.strip())


def _gathered(entry: str) -> tuple[str, tuple[str, str, str]]:
    """Return the path of a module, and its docstring, source module and names."""
    head, _, names = entry.partition("\n")
    path, _, rest = head.partition(" from ")
    home, _, about = rest.partition(": ")
    return path, (about, home, names)


GATHERED = dict(map(_gathered, _entries(_GATHERED)))

OPERATORS: dict[str, tuple[str, dict[str, str]]] = {
    "ndarray.image": ("Operators named ``_image_*``, as functions over arrays: ``nd.image.to_tensor``.", {}),
    "ndarray.linalg": ("Operators named ``_linalg_*``, as functions over arrays: ``nd.linalg.gemm2``.", {}),
    "ndarray.op": (
        "Every operator without leading underscore as a function over arrays; ``op.pyi`` lists them with signatures.",
        {"cached_op": "CachedOp"},
    ),
    "symbol._internal": ("Operators whose names begin with an underscore, as functions over symbols.", {}),
    "symbol.image": ("Operators named ``_image_*``, as functions over symbols: ``sym.image``.", {}),
    "symbol.linalg": ("Operators named ``_linalg_*``, as functions over symbols: ``sym.linalg``.", {}),
    "symbol.op": (
        "Every operator without leading underscore as a function over symbols; ``op.pyi`` lists them with signatures.",
        {},
    ),
    "symbol.sparse": ("Operators named ``_sparse_*``, as functions over symbols: ``sym.sparse``.", {}),
}
"""Namespaces of operators: docstring, and further names by the module that defines them."""

PATHS = frozenset([*MOVED, *GATHERED, *OPERATORS])


_ROOT = __name__.partition(".")[0]
_STAR_IMPORTS = """\
attribute: collections.defaultdict .base.string_types threading warnings
autograd: ctypes.CFUNCTYPE threading.Lock .ndarray.NDArray .base.NDArrayHandle ctypes.POINTER .symbol.Symbol
    array.array ctypes.c_int ctypes.c_void_p ctypes.cast ctypes .base.string_types traceback
callback: logging math .model.save_checkpoint time
context: ctypes threading warnings
contrib.autograd: .ndarray.NDArray .base.NDArrayHandle array.array ctypes functools .base.string_types
    .ndarray.zeros_like
contrib.io: .io.DataDesc .io.DataIter .ndarray=nd
contrib.svrg_optimization.svrg_module: .module.Module logging .=mx time
contrib.svrg_optimization.svrg_optimizer: .=mx
contrib.tensorboard: logging
engine: ctypes
executor: .ndarray.NDArray .base.NDArrayHandle copy ctypes .ndarray numpy=np array.array=py_array
    .base.py_str
executor_manager: .io.DataDesc .context.cpu logging .base.mx_real_t .ndarray=nd numpy=np
image: numbers.Number .image.detection=det .io .util.is_np_array json logging .ndarray=nd numpy=np
    .base.numeric_types os random .recordio sys warnings
image.detection: .image.Augmenter .image.CastAug .image.ColorJitterAug .image.ColorNormalizeAug
    .image.ForceResizeAug .image.HueJitterAug .image.ImageIter .image.LightingAug .image.RandomGrayAug
    .image.RandomOrderAug .image.ResizeAug .image.fixed_crop .io .util.is_np_array json logging .ndarray=nd
    numpy=np .base.numeric_types random warnings
image.image: numbers.Number .io .util.is_np_array json logging .ndarray=nd numpy=np .base.numeric_types os
    random .recordio sys warnings
initializer: .ndarray.NDArray .util.is_np_array json .ndarray.load logging .ndarray numpy=np .random re
    .registry math.sqrt .base.string_types warnings
io.io: .ndarray.sparse.CSRNDArray .ndarray.NDArray .base.NDArrayHandle .ndarray.array .ndarray.concat ctypes
    logging .base.mx_real_t collections.namedtuple numpy=np .base.py_str sys threading .ndarray.tile
io.utils: .ndarray.sparse.CSRNDArray .ndarray.NDArray collections.OrderedDict .ndarray.array numpy=np
    .ndarray.sparse.array=sparse_array
libinfo: logging os platform
log: logging warnings
lr_scheduler: math.cos logging math.pi
metric: collections.OrderedDict math .ndarray .base.numeric_types numpy .registry .base.string_types
misc: logging math
model: builtins.object=BASE_ESTIMATOR .context.Context .io.DataDesc
    .executor_manager.DataParallelExecutorManager .callback.LogValidationMetricsCallback
    .initializer.Uniform .context.cpu .optimizer.get_updater .io .kvstore=kvs logging .metric
    .base.mx_real_t collections.namedtuple .ndarray=nd numpy=np .optimizer=opt os .symbol=sym time warnings
module.base_module: .callback.BatchEndParam .io.DataBatch .io.DataDesc .io.DataIter .initializer.Uniform
    .context.cpu logging .metric .ndarray numpy=np time warnings
module.bucketing_module: .module.BaseModule .module.Module .name.NameManager .initializer.Uniform
    .context=ctx .model.load_params logging .ndarray=nd numpy=np .symbol=sym warnings
module.executor_group: .io.DataDesc collections.OrderedDict .context=ctx logging .ndarray=nd
module.module: .module.DataParallelExecutorGroup .module.BaseModule .io.DataDesc .initializer.InitDesc
    .initializer.Uniform .context=ctx .model.load_checkpoint logging .ndarray=nd .optimizer=opt warnings
    .ndarray.zeros
module.python_module: .module.BaseModule .initializer.Uniform logging .ndarray=nd
module.sequential_module: .module.BaseModule .initializer.Uniform copy logging
monitor: .ndarray.NDArray .base.NDArrayHandle ctypes logging .ndarray .base.py_str re math.sqrt
name: threading warnings
ndarray: .ndarray.ndarray._DTYPE_MX_TO_NP .ndarray.ndarray._DTYPE_NP_TO_MX
ndarray.ndarray: .ndarray.ndarray._DTYPE_MX_TO_NP .ndarray.ndarray._DTYPE_NP_TO_MX .ndarray.CachedOp
    .ndarray.add .ndarray.arange .ndarray.array .ndarray.concatenate .ndarray.divide .ndarray.empty
    .ndarray.equal .ndarray.eye .ndarray.from_dlpack .ndarray.from_numpy .ndarray.full .ndarray.greater
    .ndarray.greater_equal .ndarray.histogram .ndarray.imdecode .ndarray.lesser .ndarray.lesser_equal
    .ndarray.linspace .ndarray.logical_and .ndarray.logical_or .ndarray.logical_xor .ndarray.maximum
    .ndarray.minimum .ndarray.modulo .ndarray.moveaxis .ndarray.multiply .ndarray.not_equal
    .ndarray.onehot_encode .ndarray.ones .ndarray.power .ndarray.split_v2 .ndarray.subtract
    .ndarray.to_dlpack_for_read .ndarray.to_dlpack_for_write .ndarray.true_divide .ndarray.waitall
    .ndarray.zeros
symbol.symbol: .symbol.arange .symbol.eye .symbol.full .symbol.histogram .symbol.hypot .symbol.linspace
    .symbol.maximum .symbol.minimum .symbol.ones .symbol.pow .symbol.power .symbol.split_v2 .symbol.zeros
operator: .base.NDArrayHandle .base.py_str .context .ndarray.NDArray .symbol .util.is_np_array array.array
    collections ctypes ctypes.CFUNCTYPE ctypes.POINTER ctypes.Structure ctypes.c_bool ctypes.c_char
    ctypes.c_char_p ctypes.c_int ctypes.c_void_p ctypes.cast ctypes.pointer threading.Lock traceback
    warnings
optimizer: .ndarray.abs=NDabs
optimizer.optimizer: .ndarray.abs=NDabs
profiler: ctypes .base.py_str warnings
random: .context.Context ctypes .base.integer_types
recordio: ctypes multiprocessing.current_process collections.namedtuple numpy=np numbers struct
registry: json .base.string_types warnings
rnn: .io.DataBatch .io.DataDesc .io.DataIter bisect functools .initializer=init .model.load_checkpoint
    .ndarray numpy=np .base.numeric_types random .model.save_checkpoint .base.string_types .symbol warnings
rnn.io: .io.DataBatch .io.DataDesc .io.DataIter bisect .ndarray numpy=np random
rnn.rnn: warnings
rnn.rnn_cell: functools .initializer=init .ndarray .base.numeric_types .base.string_types .symbol warnings
runtime: collections ctypes
test_utils: .=mx .context.Context .context.current_context .ndarray.array .runtime.Features .symbol.Symbol
    .util.get_cuda_compute_capability .util.getenv .util.setenv .util.use_np bz2 collections.OrderedDict
    contextlib.contextmanager errno gzip json logging numbers numpy=np numpy.testing=npt os platform
    random=rnd struct sys time traceback zipfile
util: ctypes functools inspect .base.py_str threading
visualization: .symbol.Symbol copy json re warnings
"""
"""Imports of MXNet 1.9.1's modules, as far as they exist; a leading dot means this package, = a new name."""
_IMPORTED = dict(entry.split(":", 1) for entry in _entries(_STAR_IMPORTS))


_OLD = {new: old for old, new in MOVED.items()}


def paths(owner: str) -> dict[str, str]:
    """Return the names of a module's star import and their paths.

    Args:
        owner: the module's ``__name__``.
    """
    found, place = {}, owner.partition(".")[2]
    for text in _IMPORTED.get(_OLD.get(place, place), "").split():
        path, _, alias = text.partition("=")
        found[alias or path.rpartition(".")[2]] = path
    return found


def find(path: str) -> Any:
    """Return the module or attribute at a path."""
    source, dot, name = path.rpartition(".")
    if not dot:
        return import_module(name)
    home = import_module(_ROOT + source if path.startswith(".") else source)
    return getattr(home, name) if name else home
