import pickle

import pytest

from dpmodule.agents import Teacher, create_task, create_task_world
from dpmodule.agents.teachers import is_training
from dpmodule.base import ArgumentError
from helpers.talks import Noting, Talks, Texts, epoch, spec

TASK = spec(Texts, "a-3-1-2")


def create_teacher(datatype, **opt):
    return Texts({"task": "mine", "task_arguments": "a-3-1-2", "datatype": datatype, **opt})


@pytest.mark.parametrize(
    ("datatype", "trains"),
    [("train", True), ("train:ordered", True), ("train:stream", True), ("train:evalmode", False), ("valid", False),
     ("test:stream", False)],
)  # fmt: skip
def test_labels_become_eval_labels_outside_training(datatype, trains):
    action = create_teacher(datatype).act()
    assert ("labels" in action) is trains
    assert ("eval_labels" in action) is not trains


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("sort", [False, True])
def test_hide_labels_removes_them_and_the_teacher_still_counts(rows, sort):
    opt = {"task": TASK, "datatype": "valid", "hide_labels": True, "batchsize": rows, "batch_sort": sort}
    world, student, _ = epoch(opt)
    assert not any("labels" in each or "eval_labels" in each for each in student.seen)
    assert world.report() == {"total": 6}, "nobody answered"


def test_labels_are_not_hidden_in_training():
    assert "labels" in create_teacher("train", hide_labels=True).act()


def test_train_draws_episodes_with_replacement():
    teacher = Texts({"task_arguments": "a-1-1-1-1-1-1-1-1", "datatype": "train"})
    first = [teacher.act()["text"] for _ in range(8)]
    seen = {teacher.act()["text"] for _ in range(300)}
    assert len(seen) == 8
    assert len(set(first)) < 8 or len({teacher.act()["text"] for _ in range(8)}) < 8, (
        "1 in 170,000 that this fails"
    )
    assert not teacher.epoch_done(), "never ends by itself"


def test_an_episode_is_walked_to_its_end():
    teacher = create_teacher("train")
    for _ in range(20):
        texts = [teacher.act()]
        while not texts[-1]["episode_done"]:
            texts.append(teacher.act())
        episode = texts[0]["text"].split()[1][0]
        assert [each["text"].split()[1] for each in texts] == [f"{episode}.{n}" for n in range(len(texts))]


def test_train_ordered_goes_round():
    teacher = create_teacher("train:ordered")
    seen = [teacher.act()["text"].split()[1] for _ in range(12)]
    assert seen == ["0.0", "0.1", "0.2", "1.0", "2.0", "2.1"] * 2


def test_behind_the_last_example_there_is_an_empty_one():
    teacher = create_teacher("valid")
    for _ in range(6):
        assert "text" in teacher.act()
    assert teacher.epoch_done()
    assert teacher.act() == {"episode_done": True, "id": "mine"}
    teacher.observe({"text": "anything"})
    assert teacher.report()["total"] == 0


def test_a_reply_is_counted_once():
    teacher = create_teacher("valid")
    teacher.act()
    teacher.observe({"text": "0.0"})
    teacher.observe({"text": "wrong"})
    assert teacher.report() == {"total": 1, "accuracy": 1.0, "f1": 1.0}


@pytest.mark.parametrize("datatype", ["trian", "", "train:shuffled", "valid:ordered:", "Train"])
def test_datatypes_that_there_are_not(datatype):
    with pytest.raises(ArgumentError, match="expected train, valid or test"):
        is_training(datatype)


def test_the_example_is_announced_before_it_is_asked_for():
    calls = []

    class Loading(Talks):
        def submit_load_request(self):
            calls.append(("load", self.episode_idx, self.entry_idx))

        def get(self, episode_idx, entry_idx=0):
            calls.append(("get", episode_idx, entry_idx))
            return super().get(episode_idx, entry_idx)

    teacher = Loading({"datatype": "valid", "talks": [[{"text": "a", "labels": ["b"]}] * 2]})
    teacher.act()
    teacher.act()
    assert calls == [("load", 0, 0), ("get", 0, 0), ("load", 0, 1), ("get", 0, 1)]


class Pictures(Talks):
    """Loads what belongs to an example while the one before it is asked, as ParlAI's teachers with images do."""

    def reset(self):
        super().reset()
        self.waiting = None

    def submit_load_request(self, name):
        self.data_loader.request_load(self.receive_data, self.load, (name,))

    def load(self, name):
        if name == "bad":
            raise OSError("no picture")
        return name * 2

    def next_example(self):
        ready, example = getattr(self, "waiting", None), super().next_example()
        if "text" in example[0]:
            self.submit_load_request(example[0]["text"])
        self.waiting = example
        if ready is None:
            return self.next_example()
        return (
            {**ready[0], "image": self.data_queue.get(timeout=60)} if "text" in ready[0] else ready[0]
        ), ready[1]


@pytest.mark.parametrize("mode", ["fork", "thread"])
def test_examples_are_loaded_ahead_in_every_process(mode):
    opt = {
        "task": spec(Pictures),
        "talks": [[{"text": text, "labels": [text]}] for text in "abc"],
        "datatype": "valid",
    }
    teacher = Pictures(opt)
    acts = [teacher.act() for _ in range(4)]
    assert [act.get("image") for act in acts] == ["aa", "bb", "cc", None]
    teacher.reset()
    assert teacher.act()["image"] == "aa"
    teacher.data_loader = pickle.loads(pickle.dumps(teacher.data_loader))
    assert teacher.act()["image"] == "bb"
    opt.update(numthreads=2, hogwild_mode=mode)
    with create_task(opt, Noting(opt)) as world:
        world.parley()
        world.parley()
        assert world.report()["total"] == 2


def test_what_loading_raised_is_raised_to_the_teacher():
    talks = [[{"text": text, "labels": ["x"]}] for text in ("a", "bad", "c")]
    teacher = Pictures({"talks": talks, "datatype": "valid"})
    assert teacher.act()["image"] == "aa"
    with pytest.raises(OSError, match="no picture"):
        teacher.act()
    teacher.data_loader.request_load(teacher.receive_data, dict, {"a": 1})
    assert teacher.data_queue.get() == "cc"
    assert teacher.data_queue.get() == {"a": 1}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_teacher_takes_numbers_by_the_value_of_its_index(workers):
    class ByValue(Texts):
        def next_episode_idx(self, num_eps=None, loop=None):
            with self._lock():
                self.index.value += 1
                if self.training:
                    self.index.value %= self.num_episodes()
                return self.index.value

    opt = {"task": spec(Texts, "a-1-1-1"), "task_arguments": "a-1-1-1", "numthreads": workers}
    teacher = ByValue({**opt, "datatype": "train:ordered"})
    copy = ByValue(teacher.opt, teacher.share())
    assert teacher.index.value == -1
    texts = [each.act()["text"].strip(" x") for _ in range(2) for each in (teacher, copy)]
    assert texts == ["a 0.0", "a 1.0", "a 2.0", "a 0.0"]
    teacher.reset()
    assert copy.index.value == -1


def test_next_episode_idx_takes_numbers_and_goes_round_if_asked():
    teacher = create_teacher("valid")
    assert [teacher.next_episode_idx() for _ in range(4)] == [0, 1, 2, 3]
    assert [teacher.next_episode_idx(3, loop=True) for _ in range(3)] == [1, 2, 0]


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("datatype", ["train", "train:ordered", "valid", "test:stream"])
def test_no_examples_are_an_epoch_of_no_parleys(rows, sort, datatype):
    opt = {
        "task": spec(Talks),
        "talks": [],
        "datatype": datatype.replace(":stream", ""),
        "batchsize": rows,
        "batch_sort": sort,
    }
    for given in (opt, {**opt, "task": spec(Texts, "a"), "datatype": datatype}):
        world, student, parleys = epoch(given)
        assert (parleys, student.seen) == (0, [])
        assert world.report() == {"total": 0}
        assert (world.num_examples(), world.num_episodes()) == (0, 0)
        world.parley()
        assert all("text" not in each for each in student.seen), "a parley all the same does no harm"


def test_too_little_memory_for_squashing_says_what_to_do():
    class Greedy(Texts):
        def get(self, episode_idx, entry_idx=0):
            raise MemoryError

    opt = {"task_arguments": "a-1", "datatype": "train", "batchsize": 4, "batch_sort": True}
    with pytest.raises(
        MemoryError, match=r"--context-length 3 .*--batch-sort false .*--datatype train:stream"
    ):
        Greedy(opt).share()


def test_a_plain_teacher():
    teacher = Teacher({"task": "talk"})
    assert teacher.act() == {"id": "talk"}
    teacher.observe({"text": "hi"})
    assert teacher.act()["text"] == "Hello agent!"
    assert teacher.num_examples() is teacher.num_episodes() is None
    world = create_task({"task": "dpmodule.agents:Teacher"}, Noting({}))
    world.parley()
    assert (world.num_examples(), world.get_total_epochs()) == (0, 0.0)


def test_a_plain_world_with_options_of_a_batch_asks_and_counts_single_examples():
    opt = {"task": TASK, "datatype": "valid", "batchsize": 4, "batch_sort": True}
    student = Noting(opt)
    world = create_task_world(opt, [student])
    for _ in range(2):
        student.seen.clear()
        while not world.epoch_done():
            world.parley()
        assert [each["text"].split()[1] for each in student.seen] == [
            "0.0",
            "0.1",
            "0.2",
            "1.0",
            "2.0",
            "2.1",
        ]
        assert world.report()["total"] == world.num_examples() == 6
        world.reset()
