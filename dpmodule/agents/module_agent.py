"""`ModuleAgent`: an agent that trains a Module or BucketingModule, in batches and with several workers."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..base import ArgumentError, StateError
from ..checkpoint import load_params
from ..context import Context, context_of, cpu
from ..ndarray import NDArray
from ..symbol import Symbol
from .agent import Agent, check_names, create_teacher, dictionary_file, dump_options, int_option, options_file
from .dictionary import DictionaryAgent
from .examples import DialogHistory
from .network import Network, NetworkSettings
from .parser import ParlaiParser
from .worlds import task_names

Message = dict[str, Any]
Observations = Sequence[Message]

_CONTEXT = re.compile(r"\s*(cpu|gpu)(?:\((\d{1,9})\)|:(\d{1,9}))?\s*")
_OPTIMIZER_OPTIONS = {
    "learningrate": "learning_rate",
    "momentum": "momentum",
    "weight_decay": "wd",
    "gradient_clip": "clip_gradient",
}


class ModuleAgent(Agent):
    """An agent whose answers are computed by a module, which is trained on the observed labels.

    A subclass defines the network and its inputs:

    - ``sym_gen(opt, dict)`` returns a symbol, or for buckets a function from a bucket key to
      ``(symbol, data_names, label_names)``;
    - ``vectorize(observations)`` returns a `DataBatch` that describes its arrays (`vectors.batch_of`), with labels if
      the observations have some; if the first batch may be without labels, their names must end in "label";
    - ``reply(observations, batch, outputs)`` returns a message for each observation; needed unless the first output
      has the probabilities of the dictionary's tokens.

    `batch_act` trains on all rows with ``labels`` in one forward and backward pass over all contexts, and predicts the
    others; `act` is a batch of one. Rows without text are skipped, and their reply has no text. The first batch binds
    the module.

    With several workers (``numthreads``) parameters and the optimizer's states are in shared memory from the first
    `share` on; each worker binds its own executors over them, with its own gradients and without locks. The rows of a
    batch use the module of the original agent.

    Args:
        opt: options:

            - ``dict_file``: file of the dictionary; without it one is built from the training examples of ``task``;
            - ``model_file``: path to save the agent to, and to load it from if it has been saved;
            - ``contexts``: devices of the module: a context, a list of them, or text such as "cpu(0),cpu(1)";
            - ``optimizer`` (default "sgd"), ``learningrate``, ``momentum``, ``weight_decay``, ``gradient_clip``, and
              ``optimizer_params``, a dict of other arguments; gradients are divided by ``batchsize``;
            - ``context_length`` and ``include_labels``: history that precedes a text; see `DialogHistory`;
            - ``initializer``: name of an initializer (default "xavier");
            - ``on_nonfinite``: see `BaseModule.fit`;
            - ``kvstore`` (default "local"): "dist_sync" trains with the processes that torchrun starts, which must have
              equal numbers of batches; see `DistKVStore`.

    Attributes:
        dict: the dictionary.
        network: the module, bound by the first batch.

    Raises:
        ArgumentError: an option has an invalid value, such as an unknown optimizer.
        FileError: a saved file cannot be read.
    """

    default_optimizer = "sgd"
    default_learningrate = 0.01
    default_initializer = "xavier"

    @staticmethod
    def add_cmdline_args(parser: Any) -> Any:
        """Add the options of modules to a parser, and return their group; the agent has the defaults.

        Args:
            parser: the `ParlaiParser`.
        """
        group = parser.add_argument_group("training of modules", argument_default=argparse.SUPPRESS)
        group.add_argument(
            "-lr",
            "--learningrate",
            type=float,
            help="learning rate (default: the agent's, or the optimizer's)",
        )
        group.add_argument(
            "-opt", "--optimizer", metavar="NAME", help="name of an optimizer, as for mx.optimizer.create"
        )
        group.add_argument("--momentum", type=float, help="momentum of sgd and nag")
        group.add_argument("--weight-decay", type=float, help="weight decay (default: the optimizer's)")
        group.add_argument(
            "--gradient-clip", type=float, help="largest element of a gradient (default: unlimited)"
        )
        group.add_argument(
            "--initializer", metavar="NAME", help="initializer of parameters, such as xavier or normal"
        )
        group.add_argument("--contexts", metavar="LIST", help="devices, such as 'gpu(0)' (default: cpu(0))")
        group.add_argument(
            "--on-nonfinite",
            choices=["raise", "warn", "ignore"],
            help="action on NaN and infinity (default: raise)",
        )
        group.add_argument(
            "--kvstore", metavar="NAME", help="store of several processes, such as dist_sync (default: local)"
        )
        return group

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = type(self).__name__
        self._history = DialogHistory(self.opt)
        if shared is None:
            check_names(self.opt, _option_names(type(self)))
            path = self.opt.get("model_file")
            is_saved = bool(path) and os.path.isfile(options_file(str(path)))
            self.dict: Any = self.build_dictionary(str(path) if is_saved else None)
            values = load_params(str(path), 0, fetch=False) if is_saved else None
            self.network = Network(self._generate, self._settings(values))
        else:
            self.dict = shared["dict"]
            network: Network = shared["network"]
            # a row of a batch uses the original's module; so does a copy that is neither row nor worker
            is_row = "batchindex" in shared or self._workers() == 1
            self.network = network if is_row else network.worker_copy(self._generate)

    # what a subclass defines

    def sym_gen(self, opt: Mapping[str, Any], dict: Any) -> Symbol | Callable[[Any], Any]:
        """Return the network: a symbol, or a function from a bucket key to (symbol, data names, label names).

        Args:
            dict: the `DictionaryAgent` with the indices of tokens.
        """
        raise NotImplementedError(f"{type(self).__name__} must define sym_gen(opt, dict)")

    def vectorize(self, observations: Observations) -> Any:
        """Return a `DataBatch` of observations that all have a text.

        Args:
            observations: messages, one for each row.
        """
        raise NotImplementedError(f"{type(self).__name__} must define vectorize(observations)")

    def reply(self, observations: Observations, batch: Any, outputs: Sequence[NDArray]) -> list[Message]:
        """Return a message for each observation: the likeliest token, and the loss if the batch has a label.

        Args:
            observations: the observations of the batch.
            batch: result of `vectorize`.
            outputs: outputs of the module; the first are probabilities of the dictionary's tokens, (N, C).
        """
        probabilities = outputs[0].asnumpy()
        replies: list[Message] = [
            {"text": self.dict.vec2txt([int(best)])} for best in probabilities.argmax(1)
        ]
        if batch.label:
            labels = batch.label[0].asnumpy().astype("int64")
            likely = np.maximum(
                probabilities[np.arange(len(labels)), labels], np.finfo(probabilities.dtype).tiny
            )
            for reply, loss in zip(replies, -np.log(likely)):
                reply["metrics"] = {"loss": float(loss)}
        return replies

    def sample(self) -> list[Message]:
        """Return typical observations with labels, which bind the module before workers share it.

        Raises:
            StateError: ``opt["task"]`` names no task, or one without training examples.
        """
        for example in training_examples(self.opt):
            return [example]
        raise StateError(
            f"{type(self).__name__}: workers share parameters, whose shapes depend on a first batch, and there is no "
            'task to take it from; set opt["task"], or define sample()'
        )

    def build_dictionary(self, model_file: str | None) -> Any:
        """Return the dictionary: the saved one, ``opt["dict_file"]``, or one built from the training examples.

        Args:
            model_file: path of the saved agent, None for a new one.
        """
        path = dictionary_file(model_file) if model_file else self.opt.get("dict_file")
        if path and os.path.isfile(path):
            return DictionaryAgent({**self.opt, "dict_file": path})
        return build_dict(self.opt)

    # acting

    def observe(self, observation: Any) -> Any:
        self.observation = self._history.extended(observation)
        return self.observation

    def reset(self) -> None:
        super().reset()
        self._history.clear()

    def act(self) -> Message:
        return self.batch_act([self.observation])[0]

    def batch_act(self, observations: Sequence[Any]) -> list[Message]:
        """Learn from the observations that have labels, answer the others, and return a message for each.

        Args:
            observations: messages, one for each row; those without ``text`` get an empty reply.

        Raises:
            ArgumentError: the network does not fit the result of `vectorize`.
            NonFiniteError: training gave NaN or infinity; the parameters are unchanged.
        """
        name = self.getID()
        replies: list[Message] = [{"id": name} for _ in observations]
        labelled: list[int] = []
        unlabelled: list[int] = []
        for row, observation in enumerate(observations):
            if observation and observation.get("text") is not None:
                (labelled if observation.get("labels") else unlabelled).append(row)
        if unlabelled:
            self._fill_replies(replies, observations, unlabelled, self.answer)
        if labelled:
            self._fill_replies(replies, observations, labelled, self.learn)
        return replies

    @staticmethod
    def _fill_replies(
        replies: list[Message],
        observations: Sequence[Any],
        rows: Sequence[int],
        step: Callable[[Observations], Sequence[Message]],
    ) -> None:
        for row, reply in zip(rows, step([*map(observations.__getitem__, rows)]), strict=True):
            replies[row].update(reply)

    def learn(self, observations: Observations) -> Sequence[Message]:
        """Train on observations with labels, and return the network's replies from before the update.

        Args:
            observations: messages with ``text`` and ``labels``, one for each row.
        """
        batch = self.vectorize(observations)
        return self.reply(observations, batch, self.network.train(batch))

    def answer(self, observations: Observations) -> Sequence[Message]:
        """Return the network's replies.

        Args:
            observations: messages with ``text``, one for each row.
        """
        batch = self.vectorize(observations)
        return self.reply(observations, batch, self.network.predict(batch))

    # sharing and saving

    def share(self) -> dict[str, Any]:
        if self._workers() > 1 and not self.network.is_bound:
            self.network.warm_up(self.vectorize(self.sample()))
        return {**super().share(), "dict": self.dict, "network": self.network}

    def state_dict(self) -> dict[str, Any]:
        """Return the history of the current episode, which `save` does not write."""
        return {"history": self._history.texts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the history of an episode.

        Args:
            state: result of `state_dict` of the same copy of the agent.
        """
        self._history.texts = state["history"]

    def save(self, path: str | None = None) -> None:
        path = path or self.opt.get("model_file")
        if not path:
            return
        cls = type(self)
        named = {"model": f"{cls.__module__}:{cls.__qualname__}", **self.opt}
        self.network.save(
            str(path),
            {dictionary_file(path): self.dict.packed(sort=False), options_file(path): dump_options(named)},
        )

    # options

    def _workers(self) -> int:
        return int_option(self.opt, "numthreads", 1)

    def _generate(self) -> Any:
        return self.sym_gen(self.opt, self.dict)

    def _settings(self, values: Any) -> NetworkSettings:
        store = self.opt.get("kvstore") or "local"
        if store != "local":
            if self._workers() > 1:
                raise ArgumentError(
                    f"kvstore {store!r} with numthreads={self._workers()}: workers of Hogwild worlds share parameters "
                    "without a store; omit one of the two"
                )
            from ..kvstore import create  # few agents train in several processes

            store = create(store)
        num_processes = getattr(store, "num_workers", 1)
        params = {"rescale_grad": 1.0 / (int_option(self.opt, "batchsize", 1) * num_processes)}
        if not self.opt.get("optimizer"):
            params["learning_rate"] = self.default_learningrate
        for key, name in _OPTIMIZER_OPTIONS.items():
            if self.opt.get(key) is not None:
                params[name] = self.opt[key]
        return NetworkSettings(
            _contexts(self.opt.get("contexts")),
            self.opt.get("optimizer") or self.default_optimizer,
            {**params, **(self.opt.get("optimizer_params") or {})},
            self.opt.get("initializer") or self.default_initializer,
            self._workers(),
            self.opt.get("on_nonfinite") or "raise",
            values,
            store,
        )


def _option_names(cls: type) -> list[str]:
    """Return the options of a class, or of its nearest base class in this package, from its flags."""
    parser = ParlaiParser(False)
    own: Any = next(base for base in cls.__mro__ if base.__module__.startswith(__package__))
    own.add_cmdline_args(parser)
    return [action.dest for action in parser._actions if action.dest != "help"]


def _contexts(option: Any) -> list[Context]:
    """Return the contexts of an option."""
    if option is None:
        return [cpu()]
    devices = option.split(",") if isinstance(option, str) else option
    devices = devices if isinstance(devices, (list, tuple)) else [devices]
    return [_context(device) for device in devices]


def _context(device: Any) -> Context:
    if not isinstance(device, str):
        return context_of(device)
    match = _CONTEXT.fullmatch(device)
    if match is None:
        raise ArgumentError(
            f"contexts names {device!r}, expected devices such as 'cpu(0),cpu(1)' or 'gpu(0)'"
        )
    return Context(match[1], int(match[2] or match[3] or 0))


_MAX_UNCOUNTED = 100_000
"""Number of examples that are taken from a task of unknown size."""


def training_examples(opt: Mapping[str, Any], datatype: str = "train:ordered") -> Iterator[dict[str, Any]]:
    """Yield each training example of the tasks in the options once; without a task there are none.

    Args:
        opt: options; ``task`` and the options of its teacher.
        datatype: the examples, if not those of training.
    """
    plain = {**opt, "datatype": datatype, "batchsize": 1, "numthreads": 1, "batch_sort": False}
    for name in task_names(opt.get("task") or ""):
        yield from _examples_of(create_teacher(plain, name))


def _examples_of(teacher: Any) -> Iterator[dict[str, Any]]:
    left = teacher.num_examples() or _MAX_UNCOUNTED
    try:
        while left and not teacher.epoch_done():
            example = teacher.act()
            left -= 1
            if example.get("text") is not None:
                yield example
    finally:
        teacher.shutdown()


def build_dict(opt: Mapping[str, Any]) -> DictionaryAgent:
    """Return a dictionary of the training examples, sorted by falling count, and write ``opt["dict_file"]`` if set.

    All rows and workers use one dictionary, whose indices are rows of tables, so it must be complete before training.

    Args:
        opt: options; see `DictionaryAgent`; ``dict_maxexs``: number of examples to read (default -1: all).
    """
    if not task_names(opt.get("task") or ""):
        raise ArgumentError(
            'there is no dictionary; set opt["dict_file"] to one, or opt["task"] to a task to build one from its '
            "training examples"
        )
    dictionary = DictionaryAgent(opt)
    most = int(opt.get("dict_maxexs") or -1)
    for example in islice(training_examples(opt), None if most < 0 else most):
        dictionary.observe(example)
        dictionary.act()
    dictionary.sort()
    if opt.get("dict_file"):
        dictionary.save(sort=False)
    return dictionary
