"""`Network`: the module of an agent, bound by its first batch, and copies for workers over the same parameters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from .. import optimizer
from ..base import ArgumentError, NonFiniteError, StateError
from ..checkpoint import save_checkpoint
from ..context import Context
from ..module import BucketingModule, Module
from ..module.nonfinite import NonFiniteCheck, check_choice
from ..module.run_state import load_states_only, optimizer_bytes
from ..name import NameManager
from ..ndarray import NDArray
from ..params import ParamStore
from ..symbol import Symbol

SymbolFactory = Callable[[], Any]
"""Function that returns a symbol, or a function from a bucket key to (symbol, data names, label names)."""

InitialParams = tuple[Mapping[str, NDArray], Mapping[str, NDArray]]

_quiet = logging.getLogger(__name__)
_quiet.setLevel(logging.ERROR)  # no warning that a bucket needs more memory than the first one


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Settings of the module of an agent and of its training.

    Args:
        initializer: an `Initializer` or its name.
        on_nonfinite: action on NaN or infinity: "raise", before the parameters change; "warn", "ignore".
        kvstore: store of the processes that train together, or its type.
    """

    contexts: Sequence[Context]
    optimizer: Any
    optimizer_params: Mapping[str, Any]
    initializer: Any
    workers: int = 1
    on_nonfinite: str = "raise"
    values: InitialParams | None = field(default=None, repr=False)
    kvstore: Any = "local"

    def __post_init__(self) -> None:
        check_choice("on_nonfinite", self.on_nonfinite)
        optimizer.create(self.optimizer, **self.optimizer_params)


class _BucketSymbols:
    """Function for the symbols of buckets; their nodes have the same names in every process."""

    def __init__(self, sym_gen: Callable[[Any], Any]) -> None:
        self._sym_gen = sym_gen

    def __call__(self, key: Any) -> Any:
        with NameManager():
            return self._sym_gen(key)


class Network:
    """Trains and runs a symbol, or one for each bucket, with one set of parameters.

    The first batch, or `bind`, binds it. With several workers the parameters and the optimizer's states are then in
    shared memory, and a network in another process, or made by `worker_copy`, binds its own executors over them: each
    worker has its own gradients, and updates take no locks.

    Args:
        generate: makes the symbol; None after unpickling, see `worker_copy`.
    """

    def __init__(self, generate: SymbolFactory | None, settings: NetworkSettings) -> None:
        self._generate = generate
        self._settings = settings
        self._module: Module | BucketingModule | None = None
        self._finite: NonFiniteCheck | None = None
        self._store: ParamStore | None = None
        self._symbol: Any = None
        self._has_labels = False
        self._states: bytes | None = None

    def worker_copy(self, generate: SymbolFactory) -> Network:
        """Return a network over the same parameters, for a worker."""
        if self._store is None:
            raise StateError(
                "the agent has no parameters to share yet; call share() in the process that created it"
            )
        # learning rate schedules have state
        params = deepcopy(dict(self._settings.optimizer_params))
        network = Network(generate, replace(self._settings, optimizer_params=params, values=None))
        network._store = self._store.with_own_gradients()  # the workers may be threads
        return network

    def __getstate__(self) -> dict[str, Any]:
        nothing = {
            "_generate": None,
            "_module": None,
            "_finite": None,
            "_symbol": None,
            "_has_labels": False,
            "_states": None,
        }
        settings = replace(self._settings, values=None)
        return {**nothing, "_settings": settings, "_store": self._store}

    @property
    def is_bound(self) -> bool:
        """True if there are parameters."""
        return self._store is not None

    @property
    def is_ready(self) -> bool:
        """True if the module is bound in this process."""
        return self._module is not None

    @property
    def module(self) -> Module | BucketingModule:
        """The module."""
        if self._module is None:
            raise StateError("the first batch binds the module; train or predict first")
        return self._module

    # binding

    def bind(self, batch: Any) -> Module | BucketingModule:
        """Return the module, after binding it for batches like this one if it is not bound.

        Args:
            batch: result of `vectorize`; the first batch with labels also binds those.
        """
        if self._module is not None and batch.provide_label and not self._has_labels:
            self._module.bind(batch.provide_data, batch.provide_label, force_rebind=True)
        self._has_labels = self._has_labels or bool(batch.provide_label)
        if self._module is None:
            module = self._build_module(batch)
            module.bind(batch.provide_data, batch.provide_label, for_training=True, store=self._store)
            is_first, self._store = self._store is None, module.store
            if is_first:
                self._initialize(module)
            settings = self._settings
            module.init_optimizer(settings.kvstore, settings.optimizer, dict(settings.optimizer_params))
            if self._states is not None:
                load_states_only(module.all_updates()[0], self._states)
            module.start_epoch(0, None)  # keep the memory of a batch for the next one
            self._module, self._finite = module, NonFiniteCheck(module)
        return self._module

    def _build_module(self, batch: Any) -> Module | BucketingModule:
        if not getattr(batch, "provide_data", None):
            raise ArgumentError(
                "vectorize returned a batch without descriptions of its arrays; return DataBatch(provide_data=[...], "
                "provide_label=[...]), as dpmodule.agents.vectors.batch_of does"
            )
        with NameManager():
            generated = self._generate() if self._generate is not None else None
        contexts = list(self._settings.contexts)
        if isinstance(generated, Symbol):
            self._symbol = generated
            names = [desc[0] for desc in batch.provide_data]
            labels = _check_names(generated, names, batch.provide_label)
            return Module(generated, names, labels, context=contexts, logger=_quiet)
        if not callable(generated):
            raise ArgumentError(
                f"sym_gen returned something of type {type(generated).__name__}, expected a Symbol or a function from "
                "a bucket key to (symbol, data_names, label_names)"
            )
        if batch.bucket_key is None:
            raise ArgumentError(
                "sym_gen returned a function of bucket keys, but vectorize returned a batch without bucket_key; set "
                "bucket_key, or return a Symbol"
            )
        buckets = _BucketSymbols(generated)
        symbol, names, _ = buckets(batch.bucket_key)
        _check_names(symbol, [desc[0] for desc in batch.provide_data], batch.provide_label)
        self._symbol = symbol
        return BucketingModule(buckets, batch.bucket_key, logger=_quiet, context=contexts)

    def _initialize(self, module: Any) -> None:
        """Initialize the parameters, and move them to shared memory if there are several workers."""
        arg_params, aux_params = self._settings.values or (None, None)
        module.init_params(self._settings.initializer, arg_params, aux_params)
        if self._settings.workers > 1:
            module.store.share_memory()

    def warm_up(self, batch: Any) -> None:
        """Bind the module, and run a batch without an update, before workers are forked.

        Errors are raised early, and workers share what is imported and compiled.
        """
        module = self.bind(batch)
        module.forward_backward(batch)
        module.restore_aux_states()

    # running

    def train(self, batch: Any) -> list[NDArray]:
        """Run forward and backward on a batch, update the parameters, and return the outputs."""
        module = self.bind(batch) if self._module is None or not self._has_labels else self._module
        module.forward_backward(batch)
        if self._settings.on_nonfinite != "ignore":
            self._check_finite(module, self._finite or NonFiniteCheck(module))
        module.update()
        return module.get_outputs()

    def predict(self, batch: Any) -> list[NDArray]:
        """Run forward on a batch, and return the outputs."""
        module = self._module or self.bind(batch)
        module.forward(batch, is_train=False)
        return module.get_outputs()

    def _check_finite(self, module: Any, finite: NonFiniteCheck) -> None:
        what = finite.first()
        if what is None:
            return
        text = f"{what} is not finite in a batch of training"
        if self._settings.on_nonfinite == "raise":
            module.restore_aux_states()
            raise NonFiniteError(
                f"{text}; the parameters are unchanged. Try a smaller learningrate or gradient_clip, or check the "
                'data; opt["on_nonfinite"] = "warn" or "ignore" continues training'
            )
        logging.warning("%s; training continues, and the parameters may become useless", text)

    def optimizer_states(self) -> bytes | None:
        """Return the optimizer's states and counts; None before the first batch."""
        if self._module is None:
            return None
        return optimizer_bytes(self._module.all_updates()[0])

    def preload_states(self, states: bytes) -> None:
        """Set the states of the optimizer, now or when the first batch creates it."""
        self._states = states
        if self._module is not None:
            load_states_only(self._module.all_updates()[0], states)

    def save(self, prefix: str, more: Mapping[str, bytes]) -> None:
        """Write MXNet's checkpoint, ``prefix-symbol.json`` and ``prefix-0000.params``, and other files, atomically."""
        save_checkpoint(prefix, 0, self._symbol, *self.module.live_params(), more=more)


def _check_names(symbol: Symbol, names: Sequence[str], provide_label: Any) -> list[str]:
    """Return the names of a symbol's labels, after checking that it has the arguments of a batch."""
    arguments = symbol.list_arguments()
    labels = [desc[0] for desc in provide_label or ()]
    unknown = [name for name in (*names, *labels) if name not in arguments]
    if unknown:
        raise ArgumentError(
            f"vectorize returned a batch with {', '.join(map(repr, (*names, *labels)))}, but the network of sym_gen "
            f"has no argument {', '.join(map(repr, unknown))}; it has {', '.join(arguments)}"
        )
    if labels:
        return [name for name in labels if name in arguments]
    return [name for name in arguments if name.endswith("label") and name not in names]
