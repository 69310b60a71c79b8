"""Teachers and students for tests of several workers; spawned processes can import them."""

import os
import random
import signal
import threading
import time

import torch

from dpmodule.agents import Agent, FixedDialogTeacher, Teacher


def pids(world):
    """Return the ids of a HogwildWorld's worker processes."""
    return [child.pid for child in world._workers._group._supervisor.children]


def no_threads():
    """Return True if no thread of a HogwildWorld runs."""
    return not any(thread.name.startswith("hogwild-") for thread in threading.enumerate())


class Questions(FixedDialogTeacher):
    """Episodes of the sizes in ``opt["episodes"]``; "number" numbers the examples of all of them."""

    def __init__(self, opt, shared=None):
        self.sizes, self.first = opt["episodes"], 0
        super().__init__(opt, shared)
        if "base" in opt.get("task_arguments", ""):
            self.sizes, self.first = self.sizes[::-1], 1000

    def get(self, episode_idx, entry_idx=0):
        number = sum(self.sizes[:episode_idx]) + entry_idx
        done = entry_idx == self.sizes[episode_idx] - 1
        example = {"text": "a " * (number % 7) + "b", "labels": [f"{number % 3}"]}
        return {**example, "number": number + self.first, "episode_done": done}

    def num_episodes(self):
        return len(self.sizes)

    def num_examples(self):
        return sum(self.sizes)


class Answers(Agent):
    """Says "0", and reports numbers whose sum depends on its order unless it is exact."""

    def act(self):
        return self.reply(self.observation or {})

    def reply(self, seen):
        if "text" not in seen:
            return {"id": self.id}
        number = seen["number"]
        return {"id": self.id, "text": "0", "metrics": {"third": number / 3, "large": 1e17 * (-1) ** number}}


class Seen(Answers):
    """Counts each example it sees, and each parley of each worker, in shared memory."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.worker, self.saved = (shared or {}).get("threadindex", 0), None
        kinds = {"seen": (2000, torch.int64), "parleys": (8, torch.int64), "draws": (24, torch.float64)}
        for name, (size, dtype) in kinds.items():
            setattr(self, name, shared[name] if shared else torch.zeros(size, dtype=dtype).share_memory_())

    def share(self):
        return {**super().share(), "seen": self.seen, "parleys": self.parleys, "draws": self.draws}

    def save(self, path=None):
        self.saved = int(self.parleys.sum())

    def act(self):
        return self.batch_act([self.observation or {}])[0]

    def batch_act(self, observations):
        if not self.parleys[self.worker]:
            torch_draw = torch.nn.functional.dropout(torch.ones(50), 0.5).nonzero().sum()
            drawn = [random.random(), float(torch_draw), torch.get_num_threads()]
            self.draws.view(8, 3)[self.worker] = torch.tensor(drawn)
        self.parleys[self.worker] += 1
        for each in observations:
            if "number" in each:
                self.seen[each["number"]] += 1
        spare = [{"text": "of no row"}] * int(self.parleys[self.worker] % 2)
        return [self.reply(each) for each in observations] + spare


class Misbehaves(Seen):
    """Does what ``opt["how"]`` says in the first parley of the worker ``opt["who"]``."""

    def act(self):
        reply = super().act()
        if self.worker == self.opt.get("who", 0) and self.parleys[self.worker] == 1:
            getattr(self, self.opt["how"])()
        return reply

    def fail(self):
        raise LookupError("the answer is not known")

    def stop(self):
        os.kill(os.getpid(), signal.SIGSTOP)

    def hang(self):
        time.sleep(self.opt.get("hang_s", 1.5))


class NoShare:
    """Has everything that one needs alone."""

    opt = {}

    def getID(self):
        return "alone"

    def observe(self, observation):
        return observation

    def act(self):
        return {"text": "0"}


class Unpicklable(Answers):
    """Shares what no other process can have."""

    def share(self):
        return {**super().share(), "guard": threading.Lock()}


class OwnPart(Teacher):
    """Asks in each worker what belongs to that; the original does not know when they are done."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        worker = (shared or {}).get("threadindex", 0)
        self.left = list(range(worker, opt["examples"] * (worker + 1), opt["numthreads"]))
        self.is_copy = shared is not None

    def act(self):
        if not self.left:
            return {"id": self.id, "episode_done": True}
        return {"id": self.id, "text": "x", "number": self.left.pop(), "episode_done": True}

    def epoch_done(self):
        return self.is_copy and not self.left

    def reset_metrics(self):
        if not self.is_copy:
            super().reset_metrics()
