"""Paths of modules at which no file lies: where they have gone, or what they are made of.

Programs written for MXNet import them.
"""

MOVED = {
    "contrib.ndarray": "ndarray.contrib",
    "contrib.symbol": "symbol.contrib",
    "engine": "executor.engine",
    "executor_manager": "module.executor_manager",
    "libinfo": "compat.libinfo",
    "log": "compat.log",
    "module.executor_group": "module.group.executor_group",
    "symbol_doc": "compat.symbol_doc",
}
"""Where modules are that had another path, both without the package's name."""

GATHERED = {
    "misc": (
        "MXNet's first import path of learning-rate schedules.",
        "lr_scheduler",
        "FactorScheduler LRScheduler=LearningRateScheduler",
    ),
    "contrib.io": ("Iterators that MXNet keeps under `mx.contrib.io`.", "io", "DataLoaderIter"),
    "contrib.tensorboard": (
        "Metrics for TensorBoard, under MXNet's name.",
        "callback.loggers",
        "LogMetricsCallback",
    ),
    "contrib.amp.lists": (
        "Which operators run in which precision, by registry name.",
        "symbol.half",
        "CONDITIONAL_FP32 FP32 LOSSES LP16 WIDEST",
    ),
    "contrib.onnx": (
        "ONNX under the names that it had before MXNet 1.9; see `dpmodule.onnx`.",
        "onnx",
        "export_model get_model_metadata import_model mx2onnx onnx2mx",
    ),
    "contrib.onnx.mx2onnx": ("ONNX out under its old name.", "onnx", "export_model"),
    "contrib.onnx.onnx2mx": ("Where MXNet keeps the import of ONNX files.", "onnx", "import_model"),
    "contrib.onnx.onnx2mx.import_model": (
        "The import of ONNX files under MXNet's name of the module.",
        "onnx",
        "get_model_metadata import_model",
    ),
    "contrib.svrg_optimization.svrg_optimizer": (
        "The optimizers under MXNet's module path.",
        "contrib.svrg_optimization.svrg_module",
        "_AssignmentOptimizer _SVRGOptimizer",
    ),
    "fluid.nets": ("Several layers at once.", "fluid.layers", "sequence_conv_pool"),
    "fluid.regularizer": ("Weight decay of parameters.", "fluid.variable", "L2Decay L2DecayRegularizer"),
    "image.detection": (
        "Detection under MXNet's module path, `mx.image.detection`.",
        "image",
        """
            CreateDetAugmenter CreateMultiRandCropAugmenter DetAugmenter DetBorrowAug DetHorizontalFlipAug
            DetRandomCropAug DetRandomPadAug DetRandomSelectAug ImageDetIter
        """,
    ),
    "image.image": (
        "Single images under MXNet's module path, `mx.image.image`.",
        "image",
        """
            Augmenter BrightnessJitterAug CastAug CenterCropAug ColorJitterAug ColorNormalizeAug ContrastJitterAug
            CreateAugmenter ForceResizeAug HorizontalFlipAug HueJitterAug ImageIter LightingAug RandomCropAug
            RandomGrayAug RandomOrderAug RandomSizedCropAug ResizeAug SaturationJitterAug SequentialAug center_crop
            color_normalize copyMakeBorder fixed_crop imdecode imread imresize imrotate random_crop random_rotate
            random_size_crop resize_short scale_down
        """,
    ),
    "io.io": (
        "MXNet's import path of the iterators (`mx.io.io`).",
        "io",
        """
            CSVIter DataBatch DataDesc DataIter ImageDetRecordIter ImageRecordInt8Iter ImageRecordIter
            ImageRecordIter_v1 ImageRecordUInt8Iter ImageRecordUInt8Iter_v1 LibSVMIter MNISTIter MXDataIter
            NDArrayIter PrefetchingIter ResizeIter utils._init_data
        """,
    ),
    "optimizer.optimizer": (
        "MXNet's import path of the optimizers (`mx.optimizer.optimizer`).",
        "optimizer",
        """
            DCASGD FTML LAMB LARS LBSGD NAG SGD SGLD AdaDelta AdaGrad Adam Adamax Ftrl Nadam Optimizer RMSProp
            Signum Test Updater ccSGD create get_updater register
        """,
    ),
    "rnn.rnn": (
        "MXNet's import path of unrolling and of checkpoints of cells (`mx.rnn.rnn`).",
        "rnn",
        """
            BaseRNNCell do_rnn_checkpoint load_checkpoint load_rnn_checkpoint rnn_unroll save_checkpoint
            save_rnn_checkpoint
        """,
    ),
    "rnn.rnn_cell": (
        "The cells under MXNet's own path, `mx.rnn.rnn_cell`.",
        "rnn",
        """
            BaseConvRNNCell BaseRNNCell BidirectionalCell ConvGRUCell ConvLSTMCell ConvRNNCell DropoutCell
            FusedRNNCell GRUCell LSTMCell ModifierCell RNNCell RNNParams ResidualCell SequentialRNNCell ZoneoutCell
        """,
    ),
}
"""Modules that only name what others define: what they say of themselves, the other module, and names in it.

``name=other`` is shown as the other name, ``module.name`` as the name.
"""

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
"""Namespaces of operators: what they say of themselves, and what else they show, by the module that defines it."""

PATHS = frozenset([*MOVED, *GATHERED, *OPERATORS])
