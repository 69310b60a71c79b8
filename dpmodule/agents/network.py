"""`Network`: the module of an agent, bound by its first batch; and over the same parameters, those of its workers."""

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

Generate = Callable[[], Any]
"""Returns a symbol, or a function from a bucket's key to (symbol, data names, label names)."""

Values = tuple[Mapping[str, NDArray], Mapping[str, NDArray]]

_quiet = logging.getLogger(__name__)
_quiet.setLevel(
    logging.ERROR
)  # that a bucket needs more memory than the first one had is nothing to warn of here


@dataclass(frozen=True, slots=True)
class Settings:
    """How an agent's module is made and trained.

    Args:
        initializer: what gives parameters their first values; an `Initializer`, or its name.
        on_nonfinite: what to do about NaN or infinity: "raise", before the parameters are changed; "warn", "ignore".
    """

    contexts: Sequence[Context]
    optimizer: Any
    optimizer_params: Mapping[str, Any]
    initializer: Any
    workers: int = 1
    on_nonfinite: str = "raise"
    values: Values | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_choice("on_nonfinite", self.on_nonfinite)
        optimizer.create(self.optimizer, **self.optimizer_params)


class _Buckets:
    """What `BucketingModule` asks for the symbols of buckets; their nodes have the same names in every process."""

    def __init__(self, sym_gen: Callable[[Any], Any]) -> None:
        self._sym_gen = sym_gen

    def __call__(self, key: Any) -> Any:
        with NameManager():
            return self._sym_gen(key)


class Network:
    """Trains and runs a symbol, or one for each bucket, with one set of parameters.

    It is bound when the first batch comes, or to a batch given to `bind`. With several workers the parameters and the
    optimizer's states then lie in shared memory, and a network that is sent to another process, or made by `follower`,
    binds executors of its own over them: gradients are each worker's own, updates take no locks.

    Args:
        generate: makes the symbol; None in a network that was sent, see `follower`.
    """

    def __init__(self, generate: Generate | None, settings: Settings) -> None:
        self._generate = generate
        self._settings = settings
        self._module: Module | BucketingModule | None = None
        self._finite: NonFiniteCheck | None = None
        self._store: ParamStore | None = None
        self._symbol: Any = None
        self._has_labels = False
        self._states: bytes | None = None

    def follower(self, generate: Generate) -> Network:
        """Return a worker's network over the same parameters."""
        if self._store is None:
            raise StateError(
                "the agent has no parameters to share yet; call share() in the process that made it"
            )
        # schedules of the learning rate count in themselves
        params = deepcopy(dict(self._settings.optimizer_params))
        found = Network(generate, replace(self._settings, optimizer_params=params, values=None))
        found._store = self._store.with_own_gradients()  # the workers may be threads
        return found

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
        """Whether there are parameters."""
        return self._store is not None

    @property
    def is_ready(self) -> bool:
        """Whether the module is bound here."""
        return self._module is not None

    @property
    def module(self) -> Module | BucketingModule:
        """The module."""
        if self._module is None:
            raise StateError("the module is bound when the first batch comes; train or predict first")
        return self._module

    # binding

    def bind(self, batch: Any) -> Module | BucketingModule:
        """Make the module for a batch like those to come, unless that has been done; return it.

        Args:
            batch: what `vectorize` returned; the first with labels binds those, too.
        """
        if self._module is not None and batch.provide_label and not self._has_labels:
            self._module.bind(batch.provide_data, batch.provide_label, force_rebind=True)
        self._has_labels = self._has_labels or bool(batch.provide_label)
        if self._module is None:
            module = self._made(batch)
            module.bind(batch.provide_data, batch.provide_label, for_training=True, store=self._store)
            is_first, self._store = self._store is None, module.store
            if is_first:
                self._initialize(module)
            settings = self._settings
            module.init_optimizer("local", settings.optimizer, dict(settings.optimizer_params))
            if self._states is not None:
                load_states_only(module.all_updates()[0], self._states)
            module.start_epoch(0, None)  # the memory of one batch is kept for the next
            self._module, self._finite = module, NonFiniteCheck(module)
        return self._module

    def _made(self, batch: Any) -> Module | BucketingModule:
        if not getattr(batch, "provide_data", None):
            raise ArgumentError(
                "vectorize returned a batch that does not describe its arrays; give DataBatch(provide_data=[...], "
                "provide_label=[...]), as dpmodule.agents.vectors.batch_of does"
            )
        with NameManager():
            found = self._generate() if self._generate is not None else None
        contexts = list(self._settings.contexts)
        if isinstance(found, Symbol):
            self._symbol = found
            names = [desc[0] for desc in batch.provide_data]
            labels = _check_names(found, names, batch.provide_label)
            return Module(found, names, labels, context=contexts, logger=_quiet)
        if not callable(found):
            raise ArgumentError(
                f"sym_gen returned something of type {type(found).__name__}, expected a Symbol, or a function from a "
                "bucket's key to (symbol, data_names, label_names)"
            )
        if batch.bucket_key is None:
            raise ArgumentError(
                "sym_gen returned a function of bucket keys, but vectorize a batch without bucket_key; give one, or "
                "return a Symbol"
            )
        buckets = _Buckets(found)
        symbol, names, _ = buckets(batch.bucket_key)
        _check_names(symbol, [desc[0] for desc in batch.provide_data], batch.provide_label)
        self._symbol = symbol
        return BucketingModule(buckets, batch.bucket_key, logger=_quiet, context=contexts)

    def _initialize(self, module: Any) -> None:
        """Give the parameters their first values, and move them to where the workers have them, too."""
        arg_params, aux_params = self._settings.values or (None, None)
        module.init_params(self._settings.initializer, arg_params, aux_params)
        if self._settings.workers > 1:
            module.store.share_memory()

    def rehearse(self, batch: Any) -> None:
        """Bind, and run a batch that changes nothing, before workers are forked.

        What does not fit, is said here; and what is imported and compiled on the way, the workers share.
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
            self._check(module, self._finite or NonFiniteCheck(module))
        module.update()
        return module.get_outputs()

    def predict(self, batch: Any) -> list[NDArray]:
        """Run forward on a batch, and return the outputs."""
        module = self._module or self.bind(batch)
        module.forward(batch, is_train=False)
        return module.get_outputs()

    def _check(self, module: Any, finite: NonFiniteCheck) -> None:
        what = finite.first()
        if what is None:
            return
        text = f"{what} is not finite in a batch of training"
        if self._settings.on_nonfinite == "raise":
            module.restore_aux_states()
            raise NonFiniteError(
                f"{text}; the parameters are those before it. A smaller learningrate, gradient_clip or a look at the "
                'data may help; opt["on_nonfinite"] = "warn" or "ignore" goes on'
            )
        logging.warning("%s; training goes on, and may spoil the parameters", text)

    def optimizer_states(self) -> bytes | None:
        """Return the optimizer's states and counts; None before the first batch, and with several workers."""
        if self._module is None or self._settings.workers > 1:
            return None
        return optimizer_bytes(self._module.all_updates()[0])

    def preload_states(self, states: bytes) -> None:
        """Give the optimizer these states now, or when it is installed, which is with the first batch."""
        self._states = states
        if self._module is not None:
            load_states_only(self._module.all_updates()[0], states)

    def save(self, prefix: str, more: Mapping[str, bytes]) -> None:
        """Write MXNet's checkpoint, ``prefix-symbol.json`` and ``prefix-0000.params``, and other files, as one set."""
        save_checkpoint(prefix, 0, self._symbol, *self.module.get_params(), more=more)


def _check_names(symbol: Symbol, names: Sequence[str], provide_label: Any) -> list[str]:
    """Return the names of a symbol's labels, after looking for the names of a batch among its arguments."""
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
