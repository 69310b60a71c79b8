"""`Teacher` and `FixedDialogTeacher`: examples for another agent, each exactly once where they count."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from random import Random
from typing import Any

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
    "squashing the episodes needs more memory than there is: --context-length 3 keeps less of each, --batch-sort false "
    "does without, and --datatype {}:stream reads from the file as it goes"
)


def is_training(datatype: str) -> bool:
    """Say whether an agent may learn from the labels: the type begins with "train", and is not evaluated."""
    first, *modes = str(datatype).split(":")
    if first not in _DATATYPES or not _MODES.issuperset(modes):
        raise ArgumentError(
            f"datatype is {datatype!r}, expected train, valid or test, with :ordered, :stream or :evalmode behind it"
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
        """Return a batch, an empty one behind the last.

        Args:
            number: how many have been asked for before, by all copies.
        """
        if number >= self.count and not (loop and self.count):
            return []
        epoch, place = divmod(number, self.count)
        return self._batches[self._order_of(epoch)[place] if self.reshuffles else place]

    def _order_of(self, epoch: int) -> Sequence[int]:
        known, order = self._order
        if known != epoch:
            order = list(range(self.count))
            Random(_SHUFFLE_SEED + epoch).shuffle(order)
            self._order = epoch, order  # in one step, for threads
        return order

    def is_last(self, number: int, loop: bool) -> bool:
        """Say whether an epoch ends with a batch; see `batch`."""
        last = self.count - 1
        return number >= last if not (loop and self.count) else number % self.count == last

    def __deepcopy__(self, memo: Any) -> _SortedBatches:
        return self


class Teacher(Agent):
    """An agent that asks, and counts how well the others answer.

    Args:
        opt: options; ``task`` is its name; see `Metrics` for what it counts.
        shared: of another instance; the copies count in the same `metrics`.

    Attributes:
        metrics: what is counted.
        epochDone: whether there is nothing left to ask.
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
        """Return how many examples there are, None where that is not known."""
        return None

    def num_episodes(self) -> int | None:
        """Return how many episodes there are, None where that is not known."""
        return None

    def report(self) -> dict[str, Any]:
        """Return what has been counted."""
        return self.metrics.report()

    def reset(self) -> None:
        super().reset()
        self.reset_metrics()
        self.epochDone = False

    def reset_metrics(self) -> None:
        self.metrics.clear()

    def expect_workers(self, workers: int) -> None:
        """Move what copies have in common to where workers of other processes find it, if it is not there.

        Args:
            workers: how many there will be.
        """
        if isinstance(self.metrics, Metrics):
            self.metrics.expect_workers(workers)

    def share(self) -> dict[str, Any]:
        return {**super().share(), "metrics": self.metrics}


def _metrics_of(opt: Mapping[str, Any], shared: Mapping[str, Any] | None) -> Metrics:
    """Return a copy's metrics: those of its original, a worker's own column of them, or new ones."""
    found = (shared or {}).get("metrics")
    if found is None:
        return Metrics(opt)
    worker = (shared or {}).get("threadindex")
    return found.for_worker(worker) if isinstance(found, Metrics) and worker is not None else found


def _needs_no_arguments(function: Callable[..., Any]) -> bool:
    """Say whether a function can be called without arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    return True


class FixedDialogTeacher(Teacher):
    """A teacher with a fixed set of episodes, which any number of rows and workers go through together.

    Outside training every example is seen exactly once, whoever asks for it, and whoever comes too late gets
    ``{"episode_done": True}``, which is not counted. In training (``train``) episodes are drawn with replacement;
    ``train:ordered`` goes round in order. Labels are ``labels`` in training, ``eval_labels`` elsewhere, and left out
    there with ``hide_labels``.

    With ``batch_sort`` and a batch size above 1 episodes are squashed into examples of their own, sorted by length into
    batches, and `batch_act` returns one batch after the other (`dpmodule.agents.examples`).

    A subclass defines `get`, `num_episodes` and `num_examples`. One whose examples take long to load asks for them
    ahead of time in `submit_load_request`, by ``data_loader.request_load(self.receive_data, function, arguments)``, and
    takes what was loaded from `data_queue`.

    With the option ``positions``, which may be empty, it keeps note of which example each copy is at: `positions_dict` tells
    it, and given as that option, by the name of the task, lets another teacher go on there.

    Args:
        opt: options: ``datatype``, ``batchsize``, ``batch_sort``, ``context_length``, ``include_labels``,
            ``hide_labels``, ``numthreads``, ``positions``.

    Attributes:
        index: the place among the episodes or batches, which all copies share; ``index.value`` is the number that was
            taken last, -1 before the first, and is changed under `_lock`.
        data_loader: calls functions in a thread, one after the other.
        data_queue: what `receive_data` was given; its `get` waits for it, and raises what the loading raised.

    Raises:
        ArgumentError: an option is no such thing.

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
        """Return places as the options want them, None if they do not; the numbers go on, too."""
        every = self.opt.get("positions")
        if every is None:
            return None
        given = every.get(self.getID(), {})
        self.index.reset(given.get("index", 0))
        return EpisodePositions(int(self.opt.get("numthreads") or 1) * self.bsz, given.get("rows"))

    def _resume(self, positions: EpisodePositions) -> None:
        """Go on within the episode that a copy of the same number was in."""
        place = positions.row(int(self.opt.get("threadindex") or 0) * self.bsz + self.batchindex)
        episode, entry, continues = place.tolist()
        self._position = place
        if continues:
            self.episode_idx, self.entry_idx, self.episode_done = episode, entry, False

    def positions_dict(self) -> dict[str, Any] | None:
        """Return which number is taken next, and which example each copy is at; None: nothing is noted."""
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
        """Return what a ``with`` statement holds while ``index.value`` is read and set."""
        return self.index.get_lock()

    def reset(self) -> None:
        super().reset()
        self._restart()
        if not self._is_copy:
            self.index.reset(self._next_epoch())

    def _next_epoch(self) -> int:
        """Return the number at which an epoch begins: a new one where each of them has an order of its own."""
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
            entry_idx: number of the example in it.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define get(episode_idx, entry_idx)")

    def num_examples(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has to define num_examples()")

    def num_episodes(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has to define num_episodes()")

    def submit_load_request(self) -> None:
        """Begin to load the example behind this one; called before each example. Nothing here.

        One that takes arguments is not called by this class, as in ParlAI.
        """

    def receive_data(self, future: Future[Any]) -> None:
        """Put what has been loaded into `data_queue`; called by `data_loader`, in its thread."""
        self.data_queue.put(future)

    # going through the examples

    def epoch_size(self) -> tuple[int, int]:
        """Return how many examples and episodes an epoch has; squashed ones are both."""
        if self._is_batched():
            rows = self._sorted().rows
            return rows, rows
        return self.num_examples(), self.num_episodes()

    def next_episode_idx(self, num_eps: int | None = None, loop: bool | None = None) -> int:
        """Return the number of the next episode; from `num_eps` on: there is none left.

        Args:
            num_eps: how many there are (default: `num_episodes`).
            loop: whether to go round (default: in training).
        """
        count = self.num_episodes() if num_eps is None else num_eps
        if count == 0:
            return 0
        if self.random:
            return random.randrange(count)
        number = self.index.take()
        return number % count if (self.training if loop is None else loop) else number

    def next_example(self) -> tuple[Message, bool]:
        """Return the next example, and whether the epoch is done with it."""
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
        """Return the next of the sorted batches; an empty one when none is left."""
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
        """Say whether sorted batches are asked for, and not, in a plain world, single examples."""
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
            observations: the replies to the last batch, one for each row; they have been counted already and
                are not read.
        """
        self._acts_alone = False
        name = self.getID()
        batch = [{**example, "id": name} for example in self.next_batch()]
        batch += [{"episode_done": True, "id": name} for _ in range(self.bsz - len(batch))]
        self.lastYs[:] = map(self._hide, batch)
        return batch

    def _hide(self, action: Message) -> Any:
        """Return the labels of a message, after moving them to where the agent may see them."""
        labels = action.get("labels")
        if self.training:
            if not labels and "text" in action and "reward" not in action:
                raise ArgumentError(
                    f"teacher {self.getID()!r}: the example {action['text']!r} has neither labels nor a reward, and "
                    f'the datatype is {self.datatype!r}; give it labels, or ask with datatype "valid"'
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
        """Keep a reply, and return the labels that it is held against, which are then gone."""
        self.observation = observation
        if self._is_batched():
            labels, self.lastYs[self.batchindex] = self.lastYs[self.batchindex], None
        else:
            labels, self.lastY = self.lastY, None
        return labels

    @staticmethod
    def observes_rows(rows: Sequence[Any]) -> bool:
        """Say whether the copies of an agent may observe by `observe_rows`: each counts replies as this class does.

        Args:
            rows: the copies, one for each row of a batch.
        """
        return all(
            isinstance(row, FixedDialogTeacher)
            and type(row).observe is FixedDialogTeacher.observe
            and "observe" not in vars(row)
            and type(row.metrics) is Metrics
            for row in rows
        )

    @staticmethod
    def observe_rows(rows: Sequence[FixedDialogTeacher], observations: Sequence[Any]) -> None:
        """Let the copies of a teacher observe a reply each, as `observe` would one by one, in less time.

        Args:
            rows: the copies, which count in one place.
        """
        labels = [row._take_labels(observation) for row, observation in zip(rows, observations)]
        if None in labels:
            observations = [each for each, label in zip(observations, labels) if label is not None]
            labels = [label for label in labels if label is not None]
        rows[0].metrics.update_all(observations, labels)
