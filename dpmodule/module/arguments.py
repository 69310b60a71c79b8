"""The arguments of `bind`, `init_params` and `init_optimizer` as records, which modules are handed by `BaseModule`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ..base import ArgumentError
from ..ndarray import NDArray
from ..params import ParamStore

if TYPE_CHECKING:
    from ..types import GradReqLike
    from .protocol import Trainable
    from .types import InitializerLike, KVStoreLike, OptimizerLike, OptimizerParams, ShapesLike


@dataclass(slots=True, eq=False, repr=False)
class BindArguments:
    """The arguments of `BaseModule.bind`; see there."""

    data_shapes: ShapesLike
    label_shapes: ShapesLike | None = None
    for_training: bool = True
    inputs_need_grad: bool = False
    force_rebind: bool = False
    shared_module: Any = None
    grad_req: GradReqLike = "write"
    store: ParamStore | None = None

    def bind(self, module: Trainable) -> None:
        """Bind a module with these arguments; modules written for MXNet know no `store`."""
        given = [getattr(self, each.name) for each in fields(self) if each.name != "store"]
        more: dict[str, Any] = {} if self.store is None else {"store": self.store}
        module.bind(*given, **more)

    def refuse_store(self, module: object) -> None:
        """Complain about a store that a module cannot be bound to."""
        if self.store is not None:
            raise ArgumentError(
                f"bind: a {type(module).__name__} takes no store; Module and BucketingModule do"
            )


@dataclass(slots=True, eq=False, repr=False)
class ParamArguments:
    """The arguments of `BaseModule.init_params`; see there."""

    initializer: InitializerLike
    arg_params: Mapping[str, NDArray] | None
    aux_params: Mapping[str, NDArray] | None
    allow_missing: bool
    force_init: bool
    allow_extra: bool

    def init_params(self, module: Trainable) -> None:
        """Initialize the parameters of a module with these arguments."""
        module.init_params(*(getattr(self, each.name) for each in fields(self)))


@dataclass(slots=True, eq=False, repr=False)
class OptimizerArguments:
    """The arguments of `BaseModule.init_optimizer`; see there."""

    kvstore: KVStoreLike
    optimizer: OptimizerLike
    optimizer_params: OptimizerParams
    force_init: bool

    def init_optimizer(self, module: Trainable) -> None:
        """Install the optimizer of a module with these arguments."""
        module.init_optimizer(*(getattr(self, each.name) for each in fields(self)))
