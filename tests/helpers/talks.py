"""Teachers of made-up dialogues, students that note what they see, and runs of whole epochs in worlds."""

from dpmodule.agents import Agent, DialogTeacher, FixedDialogTeacher, create_task


def spec(kind, arguments=""):
    """Return the name of a task or agent of a class."""
    return f"{kind.__module__}:{kind.__name__}" + (f":{arguments}" if arguments else "")


class Texts(DialogTeacher):
    """Episodes of lengths that stand behind its name, such as ``a-3-1-2``; every text is there once."""

    def setup_data(self, path):
        name, *lengths = (path or "").split("-")
        for episode, length in enumerate(lengths):
            for entry in range(int(length)):
                filling = " x" * (episode * 7 % 5 + entry)
                yield (f"{name} {episode}.{entry}{filling}", [f"{episode}.{entry}"]), entry == 0


class Talks(FixedDialogTeacher):
    """Episodes that stand in ``opt["talks"]``, as lists of messages."""

    def get(self, episode_idx, entry_idx=0):
        episode = self.opt["talks"][episode_idx]
        return {**episode[entry_idx], "episode_done": entry_idx == len(episode) - 1}

    def num_episodes(self):
        return len(self.opt["talks"])

    def num_examples(self):
        return sum(map(len, self.opt["talks"]))


class Noting(Agent):
    """Keeps what it observes in `seen`, which all copies share, and answers with the first label."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "noting"
        self.seen = shared["seen"] if shared else []

    def observe(self, observation):
        self.seen.append(observation)
        return super().observe(observation)

    def share(self):
        return {**super().share(), "seen": self.seen}

    def answer(self, observation):
        labels = observation.get("labels") or observation.get("eval_labels")
        return {"id": self.id, "text": labels[0]} if labels else {"id": self.id}

    def act(self):
        return self.answer(self.observation)


class NotingBatch(Noting):
    """The same, for a whole batch at a time; `batches` are the observations of each."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.batches = []

    def batch_act(self, observations):
        self.batches.append(observations)
        return [self.answer(each) for each in observations]

    def act(self):
        raise AssertionError("act is not called where there is a batch_act")


def finish(world, most=10_000):
    """Parley until the epoch is done; return the number of parleys."""
    parleys = 0
    while not world.epoch_done():
        world.parley()
        parleys += 1
        assert parleys < most
    return parleys


def epoch(opt, student=None):
    """Run an epoch; return its world, its student and the number of parleys."""
    student = Noting(opt) if student is None else student
    world = create_task(opt, student)
    return world, student, finish(world)
