"""`ModuleAgent`: any Module or BucketingModule as an agent that learns from batches, and from several workers."""

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
from .examples import History
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
    """An agent whose answers a module computes, and which the labels of what it observes train.

    A subclass says what the network is and what it gets:

    - ``sym_gen(opt, dict)`` returns a symbol, or for buckets a function from a bucket's key to
      ``(symbol, data_names, label_names)``;
    - ``vectorize(observations)`` returns a `DataBatch` that describes its arrays (`vectors.batch_of`), with labels if
      the observations have some; where the first batch may come without, the names of labels end in "label";
    - ``reply(observations, batch, outputs)``, if the first output is no row of probabilities of the dictionary's tokens
      for each row of the batch, returns a message for each observation.

    `batch_act` trains on all rows with ``labels`` in one forward and backward over all contexts, and predicts the rows
    without; `act` is a batch of one. Rows without text are left out, and get a reply without text. The module is bound
    by the first batch.

    With several workers (``numthreads``) parameters and the optimizer's states lie in shared memory from the first
    `share` on, and each worker binds executors of its own over them, with gradients of its own; nothing is locked. The
    rows of a batch use the module of the agent that shares with them.

    Args:
        opt: options:

            - ``dict_file``: the dictionary's file; without it one is built of the training examples of ``task``;
            - ``model_file``: where the agent is saved, and what it is loaded from if that has been done;
            - ``contexts``: where the module runs: a context, a list of them, or text such as "cpu(0),cpu(1)";
            - ``optimizer`` (default "sgd"), ``learningrate``, ``momentum``, ``weight_decay``, ``gradient_clip``, and
              ``optimizer_params``, a dict of its other arguments; gradients are divided by ``batchsize``;
            - ``context_length`` and ``include_labels``: how much of an episode a text has in front; see `History`;
            - ``initializer``: name of an initializer (default "xavier");
            - ``on_nonfinite``: see `BaseModule.fit`.

    Attributes:
        dict: the dictionary.
        network: the module, bound by the first batch.

    Raises:
        ArgumentError: an option is no such thing, such as an unknown optimizer.
        FileError: a saved file cannot be read.
    """

    default_optimizer = "sgd"
    default_learningrate = 0.01
    default_initializer = "xavier"

    @staticmethod
    def add_cmdline_args(parser: Any) -> Any:
        """Add the options of modules to a parser, and return their group; what is not given is left to the agent.

        Args:
            parser: the `ParlaiParser`.
        """
        group = parser.add_argument_group("training of modules", argument_default=argparse.SUPPRESS)
        group.add_argument(
            "-lr", "--learningrate", type=float, help="default: the agent's, or the optimizer's"
        )
        group.add_argument("-opt", "--optimizer", metavar="NAME", help="as mx.optimizer.create takes it")
        group.add_argument("--momentum", type=float, help="of sgd and nag")
        group.add_argument("--weight-decay", type=float, help="default: the optimizer's")
        group.add_argument("--gradient-clip", type=float, help="largest element of a gradient (default: any)")
        group.add_argument("--initializer", metavar="NAME", help="of parameters, such as xavier or normal")
        group.add_argument("--contexts", metavar="LIST", help="devices, such as 'gpu(0)' (default: cpu(0))")
        group.add_argument(
            "--on-nonfinite",
            choices=["raise", "warn", "ignore"],
            help="about NaN and infinity (default: raise)",
        )
        return group

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = type(self).__name__
        self._history = History(self.opt)
        if shared is None:
            check_names(self.opt, _option_names(type(self)))
            path = self.opt.get("model_file")
            is_saved = bool(path) and os.path.isfile(options_file(str(path)))
            self.dict: Any = self.build_dictionary(str(path) if is_saved else None)
            values = load_params(str(path), 0) if is_saved else None
            self.network = Network(self._generate, self._settings(values))
        else:
            self.dict = shared["dict"]
            network: Network = shared["network"]
            # a row of a batch runs nothing by itself, and a copy for nobody in particular is one, too
            is_row = "batchindex" in shared or self._workers() == 1
            self.network = network if is_row else network.worker_copy(self._generate)

    # what a subclass defines

    def sym_gen(self, opt: Mapping[str, Any], dict: Any) -> Symbol | Callable[[Any], Any]:
        """Return the network: a symbol, or a function from a bucket's key to (symbol, data names, label names).

        Args:
            dict: the `DictionaryAgent` with the tokens' numbers.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define sym_gen(opt, dict)")

    def vectorize(self, observations: Observations) -> Any:
        """Return a `DataBatch` of observations, all of which have a text.

        Args:
            observations: messages, one for each row.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define vectorize(observations)")

    def reply(self, observations: Observations, batch: Any, outputs: Sequence[NDArray]) -> list[Message]:
        """Return a message for each observation: the likeliest token, and the loss if the batch has a label.

        Args:
            observations: what was asked.
            batch: what `vectorize` made of it.
            outputs: those of the module; the first are probabilities of the dictionary's tokens, (N, C).
        """
        found = outputs[0].asnumpy()
        replies: list[Message] = [{"text": self.dict.vec2txt([int(best)])} for best in found.argmax(1)]
        if batch.label:
            labels = batch.label[0].asnumpy().astype("int64")
            likely = np.maximum(found[np.arange(len(labels)), labels], np.finfo(found.dtype).tiny)
            for each, loss in zip(replies, -np.log(likely)):
                each["metrics"] = {"loss": float(loss)}
        return replies

    def sample(self) -> list[Message]:
        """Return observations with labels like those to come, which bind the module before it is shared with workers.

        Raises:
            StateError: ``opt["task"]`` names no task, or one without training examples.
        """
        for example in training_examples(self.opt):
            return [example]
        raise StateError(
            f"{type(self).__name__}: workers share parameters, whose shapes a first batch tells, and there is no "
            'task to take it from; set opt["task"], or define sample()'
        )

    def build_dictionary(self, model_file: str | None) -> Any:
        """Return the dictionary: the saved one, that of ``opt["dict_file"]``, or one of the training examples.

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
            ArgumentError: the network does not fit what `vectorize` returned.
            NonFiniteError: training gave NaN or infinity; the parameters are as before.
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
        for row, said in zip(rows, step([*map(observations.__getitem__, rows)]), strict=True):
            replies[row].update(said)

    def learn(self, observations: Observations) -> Sequence[Message]:
        """Train on observations with labels, and return what the network said to each before it learned of them.

        Args:
            observations: messages with ``text`` and ``labels``, one for each row.
        """
        batch = self.vectorize(observations)
        return self.reply(observations, batch, self.network.train(batch))

    def answer(self, observations: Observations) -> Sequence[Message]:
        """Return what the network says to observations.

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
        """Return what was said so far in the episode, which the files of `save` do not have."""
        return {"history": self._history.texts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the episode that `state_dict` returned.

        Args:
            state: what it returned, of the same copy of the agent.
        """
        self._history.texts = state["history"]

    def save(self, path: str | None = None) -> None:
        path = path or self.opt.get("model_file")
        if not path:
            return
        kind = type(self)
        named = {"model": f"{kind.__module__}:{kind.__qualname__}", **self.opt}
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
        params = {"rescale_grad": 1.0 / int_option(self.opt, "batchsize", 1)}
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
        )


def _option_names(kind: type) -> list[str]:
    """Return the options of a class of this package, or of the nearest base that is one: those of its flags."""
    parser = ParlaiParser(False)
    own: Any = next(base for base in kind.__mro__ if base.__module__.startswith(__package__))
    own.add_cmdline_args(parser)
    return [action.dest for action in parser._actions if action.dest != "help"]


def _contexts(given: Any) -> list[Context]:
    """Return the contexts of an option."""
    if given is None:
        return [cpu()]
    parts = given.split(",") if isinstance(given, str) else given
    parts = parts if isinstance(parts, (list, tuple)) else [parts]
    return [_context(each) for each in parts]


def _context(given: Any) -> Context:
    if not isinstance(given, str):
        return context_of(given)
    found = _CONTEXT.fullmatch(given)
    if found is None:
        raise ArgumentError(f"contexts names {given!r}, expected devices such as 'cpu(0),cpu(1)' or 'gpu(0)'")
    return Context(found[1], int(found[2] or found[3] or 0))


_MAX_UNCOUNTED = 100_000
"""How many examples are taken of a task that does not say how many it has."""


def training_examples(opt: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the training examples of the tasks that options name, each once; none without a task.

    Args:
        opt: options; ``task``, and what its teacher reads.
    """
    plain = {**opt, "datatype": "train:ordered", "batchsize": 1, "numthreads": 1, "batch_sort": False}
    for name in task_names(opt.get("task") or ""):
        yield from _examples_of(create_teacher(plain, name))


def _examples_of(teacher: Any) -> Iterator[dict[str, Any]]:
    most = teacher.num_examples() or _MAX_UNCOUNTED
    try:
        while most and not teacher.epoch_done():
            example = teacher.act()
            most -= 1
            if example.get("text") is not None:
                yield example
    finally:
        teacher.shutdown()


def build_dict(opt: Mapping[str, Any]) -> DictionaryAgent:
    """Return a dictionary of the training examples, sorted by falling count, and write ``opt["dict_file"]`` if set.

    Rows of batches and workers use one dictionary, whose ids are positions in tables; so it is complete before anything
    is learned.

    Args:
        opt: options; see `DictionaryAgent`; ``dict_maxexs``: how many examples are read (default -1: all).
    """
    if not task_names(opt.get("task") or ""):
        raise ArgumentError(
            'there is no dictionary: set opt["dict_file"] to one, or opt["task"] to the task whose training examples '
            "it is to be built of"
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
