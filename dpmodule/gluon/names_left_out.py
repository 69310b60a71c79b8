"""Placeholders for Gluon's layers and other names, which raise when they are instantiated or called."""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Callable
from functools import cache
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from ..base import MXNetError

MODULES: dict[str, dict[str, str]] = {
    "": {
        "block": "Block HybridBlock",
        "parameter": "Constant",
    },
    "nn": {
        "": "Block HybridBlock",
        "activations": "Activation ELU GELU LeakyReLU PReLU SELU Swish",
        "basic_layers": """BatchNorm BatchNormReLU Dense Dropout Embedding Flatten GroupNorm HybridLambda
            HybridSequential InstanceNorm Lambda LayerNorm Sequential""",
        "conv_layers": """AvgPool1D AvgPool2D AvgPool3D Conv1D Conv1DTranspose Conv2D Conv2DTranspose Conv3D
            Conv3DTranspose GlobalAvgPool1D GlobalAvgPool2D GlobalAvgPool3D GlobalMaxPool1D GlobalMaxPool2D
            GlobalMaxPool3D MaxPool1D MaxPool2D MaxPool3D ReflectionPad2D""",
    },
    "rnn": {
        "rnn_cell": """BidirectionalCell DropoutCell GRUCell HybridRecurrentCell HybridSequentialRNNCell LSTMCell
            ModifierCell RNNCell RecurrentCell ResidualCell SequentialRNNCell ZoneoutCell""",
        "rnn_layer": "GRU LSTM RNN",
    },
    "data": {
        "dataloader": "DataLoader",
        "dataset": "ArrayDataset Dataset RecordFileDataset SimpleDataset",
        "sampler": "BatchSampler FilterSampler RandomSampler Sampler SequentialSampler",
    },
    "data.vision": {
        "datasets": "CIFAR10 CIFAR100 FashionMNIST ImageFolderDataset ImageRecordDataset MNIST",
    },
    "data.vision.transforms": {
        "": """Cast CenterCrop Compose CropResize Normalize RandomApply RandomBrightness RandomColorJitter
            RandomContrast RandomFlipLeftRight RandomFlipTopBottom RandomHue RandomLighting RandomResizedCrop
            RandomRotation RandomSaturation Resize Rotate ToTensor""",
    },
    "loss": {
        "": "CosineEmbeddingLoss PoissonNLLLoss SDMLLoss",
    },
    "utils": {"": "download replace_file"},
    "model_zoo": {"model_store": "get_model_file purge"},
    "model_zoo.vision": {
        "": "get_model",
        "alexnet": "AlexNet alexnet",
        "densenet": "DenseNet densenet121 densenet161 densenet169 densenet201",
        "inception": "Inception3 inception_v3",
        "mobilenet": """MobileNet MobileNetV2 get_mobilenet get_mobilenet_v2 mobilenet0_25 mobilenet0_5 mobilenet0_75
            mobilenet1_0 mobilenet_v2_0_25 mobilenet_v2_0_5 mobilenet_v2_0_75 mobilenet_v2_1_0""",
        "resnet": """BasicBlockV1 BasicBlockV2 BottleneckV1 BottleneckV2 ResNetV1 ResNetV2 get_resnet resnet101_v1
            resnet101_v2 resnet152_v1 resnet152_v2 resnet18_v1 resnet18_v2 resnet34_v1 resnet34_v2 resnet50_v1
            resnet50_v2""",
        "squeezenet": "SqueezeNet squeezenet1_0 squeezenet1_1",
        "vgg": "VGG get_vgg vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn",
    },
    "contrib.cnn": {"conv_layers": "DeformableConvolution ModulatedDeformableConvolution"},
    "contrib.data": {"sampler": "IntervalSampler", "text": "WikiText103 WikiText2"},
    "contrib.estimator": {
        "batch_processor": "BatchProcessor",
        "estimator": "Estimator",
        "event_handler": """BatchBegin BatchEnd CheckpointHandler EarlyStoppingHandler EpochBegin EpochEnd
            GradientUpdateHandler LoggingHandler MetricHandler StoppingHandler TrainBegin TrainEnd
            ValidationHandler""",
    },
    "contrib.nn": {
        "basic_layers": """Concurrent HybridConcurrent Identity PixelShuffle1D PixelShuffle2D PixelShuffle3D
            SparseEmbedding SyncBatchNorm""",
    },
    "contrib.rnn": {
        "": """Conv1DGRUCell Conv1DLSTMCell Conv1DRNNCell Conv2DGRUCell Conv2DLSTMCell Conv2DRNNCell Conv3DGRUCell
            Conv3DLSTMCell Conv3DRNNCell VariationalDropoutCell""",
    },
}
"""Names of each module, without the implemented ones; "" is the package itself."""


_ROOT = __package__


class LeftOutType(ABCMeta):
    """Metaclass of the placeholders.

    Programs may name placeholders, derive from them, decorate the subclasses, and use `isinstance`: a program that
    defines a network both for Gluon and as a symbol does all that before it uses either. Calling one raises.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise; nothing is there to be made or called."""
        own = next(base for base in cls.__mro__ if "__left_out_path__" in vars(base))
        what = vars(own)["__left_out_path__"] + (
            "" if own is cls else f", from which {cls.__name__} derives,"
        )
        raise MXNetError(
            f"{what} is not available: Gluon's layers, data sets and model zoo are not part of this package. To run or "
            "fine-tune a network made of them, export it once with MXNet 1.9.1 (net.hybridize(), net(x), "
            "net.export('net')), then open it here by gluon.SymbolBlock.imports('net-symbol.json', ['data'], "
            "'net-0000.params'). For new networks use mx.sym or torch.nn, and mx.mod.TorchModule to train a torch "
            "module like a symbol"
        )

    def __getattr__(cls, name: str) -> LeftOutType:
        if name.startswith("__") or "__left_out_path__" not in vars(cls):
            raise AttributeError(f"{cls.__name__} has no attribute {name!r}")
        return _left_out(f"{vars(cls)['__left_out_path__']}.{name}")


@cache
def _left_out(path: str) -> LeftOutType:
    place, _, name = path.rpartition(".")
    bases = (MXNetError,) if name.endswith("Error") else ()  # so that `except` accepts it
    return LeftOutType(name, bases, {"__module__": place, "__left_out_path__": path})


_HOMES = {
    name: f"gluon.{package}" if package else "gluon"
    for package, modules in reversed(MODULES.items())
    for text in modules.values()
    for name in text.split()
}
"""Module in the message of each name, so that a name of several modules is one class."""


def left_out_getattr(place: str) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that returns a placeholder for every unknown name.

    Args:
        place: the module's path as programs write it, such as ``gluon.utils``.
    """

    def get(name: str) -> Any:
        if name.startswith("__"):  # read by the import system and tools
            raise AttributeError(name)
        return _left_out(f"{_HOMES.get(name, place)}.{name}")

    return get


def register_as(kind: type, *names: str) -> None:
    """Make `isinstance` accept a class for placeholders of Gluon, such as "Block"."""
    for name in names:
        _left_out(f"gluon.{name}").register(kind)


def names_of(package: str) -> list[str]:
    """Return the unavailable names of a package of Gluon and its modules; "" is Gluon itself."""
    return sorted(name for text in MODULES[package].values() for name in text.split())


def names_of_module(package: str, module: str) -> list[str]:
    """Return the unavailable names of one module; "" is the package itself."""
    return sorted(MODULES[package].get(module, "").split())


def add_left_out_modules(also: dict[str, list[type]]) -> None:
    """Make the unavailable modules of Gluon importable, with placeholders for their names.

    Args:
        also: classes that exist, by the module that shows them, too.
    """
    for package, modules in MODULES.items():
        if package:
            _module(package, names_of(package))
        for name, text in modules.items():
            if name:
                _module(f"{package}.{name}".lstrip("."), text.split())
    for path, classes in also.items():
        module: Any = sys.modules[f"{_ROOT}.{path}"]
        for each in classes:
            setattr(module, each.__name__, each)
            module.__all__.append(each.__name__)


def _module(path: str, names: list[str]) -> None:
    """Create a module and its parent packages unless it exists."""
    full = f"{_ROOT}.{path}"
    if full in sys.modules:
        return
    above, _, name = path.rpartition(".")
    if above:
        _module(above, [])
    module = ModuleType(full, f"Placeholder for MXNet's gluon.{path}, which is not part of this package.")
    module.__spec__ = ModuleSpec(full, None, is_package=True)
    module.__path__, module.__package__ = [], full
    shown = sorted(names)
    vars(module).update(__getattr__=left_out_getattr(f"gluon.{path}"), __all__=shown, __dir__=shown.copy)
    sys.modules[full] = module
    parent = sys.modules[f"{_ROOT}.{above}".rstrip(".")]
    setattr(parent, name, module)
    if parent.__spec__ is not None and parent.__spec__.loader is None:  # made here too
        parent.__all__.append(name)
