"""Names for what arguments of modules may be: batches, data, devices, metrics, callbacks, optimizers.

For annotations alone, so that nothing is imported when a program runs: take them under ``if TYPE_CHECKING``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

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
    """What modules log to: a `logging.Logger`, or the module `logging` itself."""

    def info(self, msg: object, /, *args: object) -> None:
        """Say how training goes."""

    def warning(self, msg: object, /, *args: object) -> None:
        """Say what is odd."""


class Batch(Protocol):
    """A batch: a `DataBatch`, or what looks like one, such as a named tuple with the field ``data``.

    Further attributes of a `DataBatch` (``label``, ``pad``, ``bucket_key``, ``provide_data``, ...) are read where there
    are some; training needs ``label``, and a `BucketingModule` all of them.
    """

    @property
    def data(self) -> Sequence[Any] | None:
        """Arrays in the order of the module's ``data_names``."""


class MonitorLike(Protocol):
    """A `monitor.Monitor`, or what has its methods."""

    def install(self, exe: Any, /) -> None:
        """Watch an executor."""

    def tic(self) -> None:
        """Begin with a batch."""

    def toc_print(self) -> None:
        """Show what was seen in the batch."""


class HasCollection(Protocol):
    """What has parameters, such as a cell of `autobatch`."""

    @property
    def collection(self) -> ParameterCollection:
        """The parameters."""


BatchLike: TypeAlias = "Batch | Sequence[Batch]"
"""A batch; for a group that is bound by shapes of its own for each context, a list of one for each."""

ContextsLike: TypeAlias = "ContextLike | Sequence[ContextLike] | None"
"""Where a module is: a context, or a list of them; None is ``cpu(0)``."""

DescLike: TypeAlias = "DataDesc | tuple[Any, ...]"
"""What describes an input: a `DataDesc`, or a tuple of its arguments, ``(name, shape)`` at least."""

ShapesLike: TypeAlias = "Sequence[Any]"
"""What describes several inputs: a `DescLike` for each, or a list of such lists, one for each context."""

DataLike: TypeAlias = "Iterable[Any]"
"""Batches: a DataIter, a torch DataLoader, or anything that yields ``(x, y)``, dicts or DataBatches."""

EvalDataLike: TypeAlias = "DataLike | Mapping[str, DataLike] | None"
"""Data to evaluate on: one, several by name, or None."""

Labels: TypeAlias = "Sequence[Any]"
"""Arrays of a batch's labels, in the order of ``label_names``; a list of such lists where each context has its own."""

OutGrads: TypeAlias = "NDArray | Sequence[Any] | None"
"""Gradients of outputs: of a single one, or a list, in which those of losses may be None or missing at the end."""

StatesLike: TypeAlias = "Sequence[Sequence[NDArray]] | None"
"""For each state its array on every context, as ``get_states(merge_multi_context=False)`` gives them."""

Params: TypeAlias = "tuple[Mapping[str, NDArray], Mapping[str, NDArray]]"
"""Parameters and auxiliary states, by name."""

GroupContextsLike: TypeAlias = (
    "Mapping[str, Context | Sequence[Context]] | Sequence[Mapping[str, Context] | None] | None"
)
"""Where groups of ``AttrScope(ctx_group=...)`` live: by name, one or one for each context; or such a dict for each."""

CompressionLike: TypeAlias = "Mapping[str, Any] | None"
"""How gradients are compressed, such as ``{"type": "2bit", "threshold": 0.5}``; None = not at all."""

CompileLike: TypeAlias = "bool | str | Mapping[str, Any] | None"
"""Whether `torch.compile` is used: a bool, the name of a backend, or a dict of its arguments."""

AmpLike: TypeAlias = "bool | str | HalfRules | None"
"""Training in 16 bits: "bf16", "fp16", rules of one's own, or False; None = as `contrib.amp.init` says."""

InitializerLike: TypeAlias = "Initializer | str | Callable[[InitDesc, NDArray], Any] | None"
"""What gives first values: an `Initializer`, its name, or a function that fills an array; None leaves them."""

OptimizerLike: TypeAlias = "Optimizer | str | Callable[..., Any]"
"""An `Optimizer`, its name, or a class of `torch.optim`."""

OptimizerParams: TypeAlias = "Mapping[str, Any] | Sequence[tuple[str, Any]]"
"""Arguments of an optimizer, a dict or pairs."""

KVStoreLike: TypeAlias = "KVStoreBase | str | None"
"""What adds gradients up over devices: a store, its name, or None: every device is by itself."""

CheckpointLike: TypeAlias = "Checkpoint | str | os.PathLike[str] | None"
"""What saves a run: a `callback.Checkpoint`, or the prefix of its files; None = nothing."""

RowIdFunction: TypeAlias = "Callable[[Any], Mapping[str, Any]] | None"
"""From a batch to the numbers of the rows that it needs of row-sparse parameters, by their names."""

BucketKey: TypeAlias = "Hashable"
"""What tells buckets apart: a number, a tuple of numbers, a text, ..."""

PathLike: TypeAlias = "str | os.PathLike[str]"
"""Where a file is."""

DynamicAxes: TypeAlias = "bool | Mapping[str, Mapping[int, str]] | None"
"""Which lengths of an ONNX file may differ, by input and axis; None = the axis of the batch, False = none."""

CollectionLike: TypeAlias = "ParameterCollection | HasCollection"
"""Parameters of `autobatch`: a `ParameterCollection`, or what has one as ``collection``, such as a cell."""
