import pickle

import pytest

from dpmodule.agents import Teacher, create_task
from helpers.talks import Noting, Talks, Texts, epoch, spec

PLACES = ["0.0", "0.1", "0.2", "1.0", "2.0", "2.1"]


def create_teacher(datatype, **opt):
    return Texts({"task": "mine", "task_arguments": "a-3-1-2", "datatype": datatype, **opt})


def asked(teacher, count):
    return [teacher.act()["text"].split()[1] for _ in range(count)]


def test_labels_become_eval_labels_outside_training_or_are_hidden():
    for datatype, hides, name in (("train:stream", True, "labels"), ("train:evalmode", False, "eval_labels")):
        assert {"labels", "eval_labels"} & {*create_teacher(datatype, hide_labels=hides).act()} == {name}
    assert not {"labels", "eval_labels"} & {*create_teacher("valid", hide_labels=True).act()}


def test_train_draws_episodes_with_replacement_and_walks_each_to_its_end():
    teacher = Texts({"task_arguments": "a-1-1-1-1-1-1-1-1", "datatype": "train"})
    rounds = [{*asked(teacher, 8)} for _ in range(40)]
    assert len(set.union(*rounds)) == 8
    assert min(map(len, rounds)) < 8
    assert not teacher.epoch_done(), "never ends by itself"
    teacher = create_teacher("train")
    for _ in range(20):
        first = teacher.act()
        episode, length = first["text"][2], {"0": 3, "1": 1, "2": 2}[first["text"][2]]
        assert first["text"].split()[1] == f"{episode}.0"
        assert asked(teacher, length - 1) == [f"{episode}.{n}" for n in range(1, length)]


def test_behind_the_last_example_there_is_an_empty_one_and_a_reply_counts_once():
    teacher = create_teacher("valid")
    for text in ("0.0", "wrong"):
        teacher.act()
        teacher.observe({"text": text})
        teacher.observe({"text": "again"})
    assert asked(teacher, 4) == PLACES[2:]
    assert teacher.epoch_done()
    assert teacher.act() == {"episode_done": True, "id": "mine"}
    teacher.observe({"text": "anything"})
    assert teacher.report() == {"total": 2, "accuracy": 0.5, "f1": 0.5}
    assert asked(create_teacher("train:ordered"), 12) == PLACES * 2, "goes round"


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
        image = {"image": self.data_queue.get(timeout=60)} if "text" in ready[0] else {}
        return {**ready[0], **image}, ready[1]


def pictures(*texts):
    talks = [[{"text": text, "labels": [text]}] for text in texts]
    return {"task": spec(Pictures), "talks": talks, "datatype": "valid"}


@pytest.mark.parametrize("mode", ["fork", "thread"])
def test_examples_are_loaded_ahead_in_every_process(mode):
    opt = pictures(*"abc")
    teacher = Pictures(opt)
    assert [teacher.act().get("image") for _ in range(4)] == ["aa", "bb", "cc", None]
    teacher.reset()
    assert teacher.act()["image"] == "aa"
    teacher.data_loader = pickle.loads(pickle.dumps(teacher.data_loader))
    assert teacher.act()["image"] == "bb"
    opt.update(numthreads=2, hogwild_mode=mode)
    with create_task(opt, Noting(opt)) as world:
        world.parley()
        world.parley()
        assert world.report()["total"] == 2


def test_an_error_of_loading_is_raised_to_the_teacher():
    teacher = Pictures(pictures("a", "bad", "c"))
    assert teacher.act()["image"] == "aa"
    with pytest.raises(OSError, match="no picture"):
        teacher.act()
    teacher.data_loader.request_load(teacher.receive_data, dict, {"a": 1})
    assert [teacher.data_queue.get() for _ in range(2)] == ["cc", {"a": 1}]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_teacher_takes_numbers_by_the_value_of_its_index(workers):
    class ByValue(Texts):
        def next_episode_idx(self, num_eps=None, loop=None):
            with self._lock():
                self.index.value += 1
                if self.training:
                    self.index.value %= self.num_episodes()
                return self.index.value

    teacher = ByValue({"task_arguments": "a-1-1-1", "numthreads": workers, "datatype": "train:ordered"})
    copy = ByValue(teacher.opt, teacher.share())
    assert teacher.index.value == -1
    assert [asked(each, 1)[0] for _ in range(2) for each in (teacher, copy)] == ["0.0", "1.0", "2.0", "0.0"]
    teacher.reset()
    assert copy.index.value == -1
    plain = create_teacher("valid", numthreads=workers)
    assert [plain.next_episode_idx() for _ in range(4)] == [0, 1, 2, 3]
    assert [plain.next_episode_idx(3, loop=True) for _ in range(3)] == [1, 2, 0]


@pytest.mark.parametrize("more", [{}, {"batchsize": 5, "batch_sort": False}, {"max_batch_tokens": 9}])
@pytest.mark.parametrize("datatype", ["train", "train:ordered", "valid"])
def test_no_examples_are_an_epoch_of_no_parleys(more, datatype):
    for task in ({"task": spec(Talks), "talks": []}, {"task": spec(Texts, "a")}):
        world, student, parleys = epoch({**task, "datatype": datatype, **more})
        assert (parleys, student.seen, world.report()) == (0, [], {"total": 0})
        assert (world.num_examples(), world.num_episodes()) == (0, 0)
        world.parley()
        assert all("text" not in each for each in student.seen), "a parley all the same does no harm"


def test_too_little_memory_for_squashing_names_other_options():
    class Greedy(Texts):
        def get(self, episode_idx, entry_idx=0):
            raise MemoryError

    opt = {"task_arguments": "a-1", "datatype": "train", "batchsize": 4, "batch_sort": True}
    told = r"--context-length 3 .*--batch-sort false .*--datatype train:stream"
    with pytest.raises(MemoryError, match=told):
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
