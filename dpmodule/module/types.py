"""Type aliases for arguments of modules: batches, data, devices, metrics, callbacks, optimizers.

For annotations only: import them under ``if TYPE_CHECKING``, so that nothing is imported at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    import torch

    from ..autobatch.collection import ParameterCollection
    from ..callback.checkpoint import Checkpoint
    from ..context import Context
    from ..initializer import InitDesc, Initializer
    from ..io import DataDesc
    from ..kvstore import KVStoreBase
    from ..ndarray import NDArray
    from ..optimizer import Optimizer
    from ..symbol.mixed_precision import HalfRules
    from ..types import ContextLike


class LoggerLike(Protocol):
    """A `logging.Logger`, or the module `logging`."""

    def info(self, msg: object, /, *args: object) -> None:
        """Log the progress of training."""

    def warning(self, msg: object, /, *args: object) -> None:
        """Log a warning."""


class Batch(Protocol):
    """A batch: a `DataBatch` or a similar object, such as a named tuple with the field ``data``.

    Further attributes of a `DataBatch` (``label``, ``pad``, ``bucket_key``, ``provide_data``, ...) are read if
    present; training needs ``label``, and a `BucketingModule` all of them.
    """

    @property
    def data(self) -> Sequence[Any] | None:
        """Arrays in the order of the module's ``data_names``."""


class MonitorLike(Protocol):
    """A `monitor.Monitor`, or an object with its methods."""

    def install(self, exe: Any, /) -> None:
        """Watch an executor."""

    def tic(self) -> None:
        """Start a batch."""

    def toc_print(self) -> None:
        """Print the results of the batch."""


class HasCollection(Protocol):
    """An object with parameters, such as a cell of `autobatch`."""

    @property
    def collection(self) -> ParameterCollection:
        """The parameters."""


BatchLike: TypeAlias = "Batch | Sequence[Batch]"
"""A batch; for a group that is bound to separate shapes for each context, a list of batches."""

ContextsLike: TypeAlias = "ContextLike | Sequence[ContextLike] | None"
"""Devices of a module: a context or a list of contexts; None is ``cpu(0)``."""

DescLike: TypeAlias = "DataDesc | tuple[Any, ...]"
"""Description of an input: a `DataDesc`, or a tuple of its arguments, ``(name, shape)`` at least."""

ShapesLike: TypeAlias = "Sequence[Any]"
"""Descriptions of inputs: a `DescLike` for each, or a list of such lists, one for each context."""

DataLike: TypeAlias = "Iterable[Any]"
"""Batches: a DataIter, a torch DataLoader, or anything that yields ``(x, y)``, dicts or DataBatches."""

EvalDataLike: TypeAlias = "DataLike | Mapping[str, DataLike] | None"
"""Data to evaluate on: one, several by name, or None."""

Labels: TypeAlias = "Sequence[Any]"
"""Arrays of a batch's labels, in the order of ``label_names``; a list of such lists for inputs per context."""

OutGrads: TypeAlias = "NDArray | Sequence[Any] | None"
"""Gradients of the outputs: one, or a list, in which gradients of losses may be None or missing at the end."""

StatesLike: TypeAlias = "Sequence[Sequence[NDArray]] | None"
"""Arrays of each state on every context, as returned by ``get_states(merge_multi_context=False)``."""

Params: TypeAlias = "tuple[Mapping[str, NDArray], Mapping[str, NDArray]]"
"""Parameters and auxiliary states, by name."""

GroupContextsLike: TypeAlias = (
    "Mapping[str, Context | Sequence[Context]] | Sequence[Mapping[str, Context] | None] | None"
)
"""Contexts of groups of ``AttrScope(ctx_group=...)`` by name, one or one for each context; or a list of such dicts."""

CompressionLike: TypeAlias = "Mapping[str, Any] | None"
"""Compression of gradients, such as ``{"type": "2bit", "threshold": 0.5}``; None = no compression."""

CompileLike: TypeAlias = "bool | str | Mapping[str, Any] | None"
"""Use of `torch.compile`: a bool, the name of a backend, or a dict of its arguments."""

AmpLike: TypeAlias = "bool | str | HalfRules | None"
"""Training in 16 bits: "bf16", "fp16", custom rules, or False; None = as set by `contrib.amp.init`."""

InitializerLike: TypeAlias = "Initializer | str | Callable[[InitDesc, NDArray], Any] | None"
"""Initialization: an `Initializer`, its name, or a function that fills an array; None leaves arrays unchanged."""

OptimizerLike: TypeAlias = "Optimizer | str | Callable[..., Any]"
"""An `Optimizer`, its name, or a class of `torch.optim`."""

OptimizerParams: TypeAlias = "Mapping[str, Any] | Sequence[tuple[str, Any]]"
"""Arguments of an optimizer, a dict or pairs."""

KVStoreLike: TypeAlias = "KVStoreBase | str | None"
"""The store that sums gradients over devices: a store, its name, or None for independent devices."""

CheckpointLike: TypeAlias = "Checkpoint | str | os.PathLike[str] | None"
"""Saving of a run: a `callback.Checkpoint`, or the prefix of its files; None = not saved."""

RowIdFunction: TypeAlias = "Callable[[Any], Mapping[str, Any]] | None"
"""Function from a batch to the row numbers that it needs of row-sparse parameters, by name."""

BucketKey: TypeAlias = "Hashable"
"""Key of a bucket: a number, a tuple of numbers, a text, ..."""

PathLike: TypeAlias = "str | os.PathLike[str]"
"""Path of a file."""

DynamicAxes: TypeAlias = "bool | Mapping[str, Mapping[int, str]] | None"
"""Variable axes of an ONNX file, by input and axis; None = the batch axis, False = none."""

CollectionLike: TypeAlias = "ParameterCollection | HasCollection | torch.nn.Module"
"""Parameters of `autobatch`: a `ParameterCollection`, or an object with one as ``collection``, such as a cell."""
