"""`Teacher` and `FixedDialogTeacher`: examples for another agent, each exactly once in evaluation."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from random import Random
from typing import Any

from .._core.overrides import overrides
from ..base import ArgumentError
from ..streams.synchronization import SharedCounter
from .agent import Agent
from .examples import DataLoader, EpisodePositions, LoadedQueue, flatten, make_batches, sort_data
from .metrics import Metrics
from .shared_state import LocalCounter, counter_for

Message = dict[str, Any]

_DATATYPES = ("train", "valid", "test")
_MODES = frozenset({"ordered", "stream", "evalmode"})
_SHUFFLE_SEED = 42
_MEMORY_HINT = (
    "not enough memory to flatten the episodes. --context-length 3 keeps less of each, --batch-sort false does not "
    "flatten them, and --datatype {}:stream reads the file on demand"
)


def is_training(datatype: str) -> bool:
    """Return True if an agent may learn from the labels: the type begins with "train", without "evalmode"."""
    first, *modes = str(datatype).split(":")
    if first not in _DATATYPES or not _MODES.issuperset(modes):
        raise ArgumentError(
            f"datatype is {datatype!r}, expected train, valid or test, optionally with :ordered, :stream or :evalmode"
        )
    return first == "train" and "evalmode" not in modes


class _SortedBatches:
    """Sorted batches, in the order of each epoch."""

    def __init__(self, batches: Sequence[list[Message]], reshuffles: bool) -> None:
        self.count = len(batches)
        self.rows = sum(map(len, batches))
        self._batches = list(batches)
        self.reshuffles = reshuffles
        self._order: tuple[int, Sequence[int]] = (-1, ())

    def batch(self, number: int, loop: bool) -> list[Message]:
        """Return a batch; an empty one after the last.

        Args:
            number: number of batches that all copies have requested before.
        """
        if number >= self.count and not (loop and self.count):
            return []
        epoch, index = divmod(number, self.count)
        return self._batches[self._order_of(epoch)[index] if self.reshuffles else index]

    def _order_of(self, epoch: int) -> Sequence[int]:
        known, order = self._order
        if known != epoch:
            order = list(range(self.count))
            Random(_SHUFFLE_SEED + epoch).shuffle(order)
            self._order = epoch, order  # one assignment, for threads
        return order

    def is_last(self, number: int, loop: bool) -> bool:
        """Return True if a batch is the last one of an epoch; see `batch`."""
        last = self.count - 1
        return number >= last if not (loop and self.count) else number % self.count == last

    def __deepcopy__(self, memo: Any) -> _SortedBatches:
        return self


class Teacher(Agent):
    """An agent that asks, and measures the answers of other agents.

    Args:
        opt: options; ``task`` is its name; see also `Metrics`.
        shared: state of another instance; copies share its `metrics`.

    Attributes:
        metrics: the `Metrics` of the answers.
        epochDone: whether the epoch has no examples left.
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = str(self.opt.get("task", "teacher")) if self.id == "agent" else self.id
        if not hasattr(self, "metrics"):
            self.metrics = _metrics_of(self.opt, shared)
        self.epochDone = False

    def act(self) -> Message:
        if self.observation is not None and "text" in self.observation:
            return {"id": self.getID(), "text": "Hello agent!"}
        return {"id": self.getID()}

    def epoch_done(self) -> bool:
        return self.epochDone

    def num_examples(self) -> int | None:
        """Return the number of examples, None if it is unknown."""
        return None

    def num_episodes(self) -> int | None:
        """Return the number of episodes, None if it is unknown."""
        return None

    def report(self) -> dict[str, Any]:
        """Return the metrics."""
        return self.metrics.report()

    def reset(self) -> None:
        super().reset()
        self.reset_metrics()
        self.epochDone = False

    def reset_metrics(self) -> None:
        self.metrics.clear()

    def expect_workers(self, workers: int) -> None:
        """Move the common state of copies to shared memory.

        Args:
            workers: number of workers.
        """
        if isinstance(self.metrics, Metrics):
            self.metrics.expect_workers(workers)

    def share(self) -> dict[str, Any]:
        return {**super().share(), "metrics": self.metrics}


def _metrics_of(opt: Mapping[str, Any], shared: Mapping[str, Any] | None) -> Metrics:
    """Return the metrics of a copy: those of the original, the column of a worker, or new ones."""
    metrics = (shared or {}).get("metrics")
    if metrics is None:
        return Metrics(opt)
    worker = (shared or {}).get("threadindex")
    return metrics.for_worker(worker) if isinstance(metrics, Metrics) and worker is not None else metrics


def _needs_no_arguments(function: Callable[..., Any]) -> bool:
    """Return True if a function can be called without arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    return True


class FixedDialogTeacher(Teacher):
    """A teacher of a fixed set of episodes, which all rows and workers share.

    In evaluation every example is seen exactly once by one of the copies; after the end they return
    ``{"episode_done": True}``, which is not counted. In training (``train``) episodes are drawn with replacement;
    ``train:ordered`` repeats them in order. Labels are ``labels`` in training and ``eval_labels`` in evaluation, where
    ``hide_labels`` drops them.

    With ``batch_sort`` and a batch size above 1, episodes are flattened into single examples and sorted by length into
    batches, which `batch_act` returns (`dpmodule.agents.examples`).

    A subclass defines `get`, `num_episodes` and `num_examples`. If its examples take long to load, it requests them
    ahead of time in `submit_load_request`, by ``data_loader.request_load(self.receive_data, function, arguments)``, and
    takes the results from `data_queue`.

    With the option ``positions``, which may be empty, it records the position of each copy: `positions_dict` returns
    them, and as the option ``positions``, by the name of the task, they let another teacher resume there.

    Args:
        opt: options: ``datatype``, ``batchsize``, ``batch_sort``, ``context_length``, ``include_labels``,
            ``hide_labels``, ``numthreads``, ``positions``.

    Attributes:
        index: counter of episodes or batches, shared by all copies; ``index.value`` is the number taken last, -1 before
            the first; change it under `_lock`.
        data_loader: calls functions one after the other in a thread.
        data_queue: results given to `receive_data`; its `get` waits for them, and raises errors of loading.

    Raises:
        ArgumentError: an option has an invalid value.

    Example:
        >>> class Squares(FixedDialogTeacher):
        ...     def get(self, episode_idx, entry_idx=0):
        ...         return {"text": f"{episode_idx}", "labels": [f"{episode_idx**2}"], "episode_done": True}
        ...     def num_episodes(self):
        ...         return 10
        ...     num_examples = num_episodes
        >>> teacher = Squares({"datatype": "valid", "task": "squares"})
        >>> teacher.act()
        {'text': '0', 'episode_done': True, 'id': 'squares', 'eval_labels': ['0']}
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.datatype = str(self.opt.get("datatype") or "train")
        self.training = is_training(self.datatype)
        self.random = self.datatype == "train"
        self.bsz = int(self.opt.get("batchsize") or 1)
        self.batchindex = int(self.opt.get("batchindex") or 0)
        self.use_batch_act = bool(self.opt.get("batch_sort", False)) and self.bsz > 1
        self.use_batch_act = self.use_batch_act and "stream" not in self.datatype.split(":")
        self._hides = bool(self.opt.get("hide_labels", False))
        self._is_copy = shared is not None
        self.index = shared["index"] if shared else counter_for(int(self.opt.get("numthreads") or 1))
        self.data_loader = shared["data_loader"] if shared else DataLoader()
        self._preloads = _needs_no_arguments(self.submit_load_request)
        self._batches: _SortedBatches | None = shared.get("batches") if shared else None
        is_row = shared is not None and "batchindex" in shared
        self.lastYs: list[Any] = shared["lastYs"] if shared and is_row else [None] * self.bsz
        self._acts_alone = False
        self._restart()
        self._positions: EpisodePositions | None = (
            shared.get("positions") if shared else self._positions_from_options()
        )
        self._position: Any = None
        if self._positions is not None:
            self._resume(self._positions)

    def _positions_from_options(self) -> EpisodePositions | None:
        """Return positions if the options ask for them, and restore saved ones and the counter."""
        option = self.opt.get("positions")
        if option is None:
            return None
        saved = option.get(self.getID(), {})
        self.index.reset(saved.get("index", 0))
        return EpisodePositions(int(self.opt.get("numthreads") or 1) * self.bsz, saved.get("rows"))

    def _resume(self, positions: EpisodePositions) -> None:
        """Continue the episode of the copy with the same number."""
        position = positions.row(int(self.opt.get("threadindex") or 0) * self.bsz + self.batchindex)
        episode, entry, continues = position.tolist()
        self._position = position
        if continues:
            self.episode_idx, self.entry_idx, self.episode_done = episode, entry, False

    def positions_dict(self) -> dict[str, Any] | None:
        """Return the next number of `index` and the position of each copy; None if positions are not recorded."""
        positions = self._positions
        return None if positions is None else {"index": self.index.peek(), "rows": positions.state()}

    def _restart(self) -> None:
        self.lastY: Any = None
        self.last_act: Message | None = None
        self.episode_done = True
        self.episode_idx = self.entry_idx = -1
        self.epochDone = False
        self.lastYs[:] = [None] * len(self.lastYs)
        self.data_queue = LoadedQueue()

    def _lock(self) -> AbstractContextManager[Any]:
        """Return a context manager to hold while ``index.value`` is read and set."""
        return self.index.get_lock()

    def reset(self) -> None:
        super().reset()
        self._restart()
        if not self._is_copy:
            self.index.reset(self._next_epoch())

    def _next_epoch(self) -> int:
        """Return the number of the first batch of the next epoch; with reshuffling, numbers continue."""
        batches = self._batches
        if batches is None or not batches.reshuffles or not batches.count:
            return 0
        return -(-self.index.peek() // batches.count) * batches.count

    def reset_metrics(self) -> None:
        if not self._is_copy:
            super().reset_metrics()

    def expect_workers(self, workers: int) -> None:
        super().expect_workers(workers)
        if isinstance(self.index, LocalCounter):
            number, self.index = self.index.peek(), SharedCounter()
            self.index.reset(number)
            if self._positions is not None:
                self._positions.expect_workers()

    def share(self) -> dict[str, Any]:
        shared = {
            **super().share(), "index": self.index, "lastYs": self.lastYs, "data_loader": self.data_loader
        }  # fmt: skip
        if self.use_batch_act:
            shared["batches"] = self._sorted()
        if self._positions is not None:
            shared["positions"] = self._positions
        return shared

    # what a subclass defines

    def get(self, episode_idx: int, entry_idx: int = 0) -> Message:
        """Return an example: a message with ``episode_done``, and ``labels`` if there are any.

        Args:
            entry_idx: index of the example in the episode.
        """
        raise NotImplementedError(f"{type(self).__name__} must define get(episode_idx, entry_idx)")

    def num_examples(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define num_examples()")

    def num_episodes(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define num_episodes()")

    def submit_load_request(self) -> None:
        """Request loading of the next example; called before each example, does nothing by default.

        A method that takes arguments is not called by this class, as in ParlAI.
        """

    def receive_data(self, future: Future[Any]) -> None:
        """Put a loaded example into `data_queue`; called by `data_loader` in its thread."""
        self.data_queue.put(future)

    # going through the examples

    def epoch_size(self) -> tuple[int, int]:
        """Return the numbers of examples and episodes of an epoch, which are equal for flattened episodes."""
        if self._is_batched():
            rows = self._sorted().rows
            return rows, rows
        return self.num_examples(), self.num_episodes()

    def next_episode_idx(self, num_eps: int | None = None, loop: bool | None = None) -> int:
        """Return the index of the next episode; at least `num_eps` if none is left.

        Args:
            num_eps: number of episodes (default: `num_episodes`).
            loop: whether to start over after the last episode (default: in training).
        """
        count = self.num_episodes() if num_eps is None else num_eps
        if count == 0:
            return 0
        if self.random:
            return random.randrange(count)
        number = self.index.take()
        return number % count if (self.training if loop is None else loop) else number

    def next_example(self) -> tuple[Message, bool]:
        """Return the next example, and whether it is the last one of the epoch."""
        if self.episode_done:
            self.episode_idx, self.entry_idx = self.next_episode_idx(), 0
            if self.episode_idx >= self.num_episodes():
                return {"episode_done": True}, True
        else:
            self.entry_idx += 1
        if self._preloads:
            self.submit_load_request()
        example = self.get(self.episode_idx, self.entry_idx)
        self.episode_done = bool(example["episode_done"])
        is_last = self.training and not self.random and self.episode_idx == self.num_episodes() - 1
        return example, is_last and self.episode_done

    def next_batch(self) -> list[Message]:
        """Return the next sorted batch; an empty one if none is left."""
        batches = self._sorted()
        number = self.index.take()
        batch = batches.batch(number, loop=self.training)
        self.epochDone = batches.is_last(number, loop=self.training)
        return batch

    def epoch_done(self) -> bool:
        if self._is_batched():
            count = self._sorted().count
            return self.epochDone or count == 0 or not self.training and self.index.peek() >= count
        count = self.num_episodes()
        if self.training:
            return self.epochDone or count == 0
        return self.epochDone or self.episode_done and self.index.peek() >= count

    def _sorted(self) -> _SortedBatches:
        if self._batches is None:
            self._batches = self._make_batches()
        return self._batches

    def _make_batches(self) -> _SortedBatches:
        context = int(self.opt.get("context_length", -1))
        try:
            rng = Random(_SHUFFLE_SEED)
            rows = flatten(self._episodes(), context, bool(self.opt.get("include_labels", True)), rng)
            batches = make_batches(sort_data(rows, self.training, rng), self.bsz)
        except MemoryError as error:
            raise MemoryError(_MEMORY_HINT.format(self.datatype.partition(":")[0])) from error
        rng.shuffle(batches)
        return _SortedBatches(batches, reshuffles=self.random)

    def _episodes(self) -> Iterator[Iterator[Message]]:
        return (self._episode(number) for number in range(self.num_episodes()))

    def _episode(self, number: int) -> Iterator[Message]:
        entry, is_done = 0, False
        while not is_done:
            example = self.get(number, entry)
            yield example
            entry, is_done = entry + 1, bool(example["episode_done"])

    # acting and observing

    def _is_batched(self) -> bool:
        """Return True if it returns sorted batches, and not single examples as in a plain world."""
        return self.use_batch_act and not self._acts_alone

    def act(self) -> Message:
        self._acts_alone = True
        example, self.epochDone = self.next_example()
        if self._position is not None:
            self._position[:] = self.episode_idx, self.entry_idx, not self.episode_done
        action = {**example, "id": self.getID()}
        self.last_act = action
        self.lastY = self._hide(action)
        return action

    def batch_act(self, observations: Any) -> list[Message]:
        """Return the next sorted batch, one message for each row; rows without an example are not counted.

        Args:
            observations: replies to the last batch; not used, since they are already counted.
        """
        self._acts_alone = False
        name = self.getID()
        batch = [{**example, "id": name} for example in self.next_batch()]
        batch += [{"episode_done": True, "id": name} for _ in range(self.bsz - len(batch))]
        self.lastYs[:] = map(self._hide, batch)
        return batch

    def _hide(self, action: Message) -> Any:
        """Return the labels of a message, after renaming or dropping them in evaluation."""
        labels = action.get("labels")
        if self.training:
            if not labels and "text" in action and "reward" not in action:
                raise ArgumentError(
                    f"teacher {self.getID()!r}: the example {action['text']!r} has neither labels nor a reward, but "
                    f'the datatype is {self.datatype!r}; add labels, or use the datatype "valid"'
                )
            return labels
        if labels is None:
            return action.get("eval_labels")
        del action["labels"]
        if not self._hides:
            action["eval_labels"] = labels
        return labels

    def observe(self, observation: Any) -> Any:
        labels = self._take_labels(observation)
        if labels is not None:
            self.metrics.update(observation, labels)
        return observation

    def _take_labels(self, observation: Any) -> Any:
        """Store a reply, and return and clear the labels that it is compared with."""
        self.observation = observation
        if self._is_batched():
            labels, self.lastYs[self.batchindex] = self.lastYs[self.batchindex], None
        else:
            labels, self.lastY = self.lastY, None
        return labels

    @staticmethod
    def observes_rows(rows: Sequence[Any]) -> bool:
        """Return True if copies of an agent can use `observe_rows`: none overrides `observe` or `metrics`.

        Args:
            rows: the copies, one for each row of a batch.
        """
        return all(
            isinstance(row, FixedDialogTeacher)
            and not overrides(row, FixedDialogTeacher, "observe")
            and type(row.metrics) is Metrics
            for row in rows
        )

    @staticmethod
    def observe_rows(rows: Sequence[FixedDialogTeacher], observations: Sequence[Any]) -> None:
        """Let the copies of a teacher observe one reply each; faster than `observe` for each of them.

        Args:
            rows: the copies, which share their metrics.
        """
        labels = [row._take_labels(observation) for row, observation in zip(rows, observations)]
        if None in labels:
            observations = [reply for reply, label in zip(observations, labels) if label is not None]
            labels = [label for label in labels if label is not None]
        rows[0].metrics.update_all(observations, labels)
