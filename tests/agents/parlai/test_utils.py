import time
from collections import deque, namedtuple

import numpy as np
import pytest
import torch

from dpmodule.agents import DialogTeacher, DictionaryAgent
from dpmodule.agents.parlai import utils


class Pairs(DialogTeacher):
    def setup_data(self, path):
        yield ("a b c", ["x"]), True
        yield ("d", ["y z"]), False
        yield ("e f", ["w"]), True


@pytest.fixture
def words():
    made = DictionaryAgent({})
    made.add_to_dict(["a", "b", "c", "d", "e"])
    return made


def test_timer_stops_and_resumes():
    timer = utils.Timer()
    time.sleep(0.001)
    first = timer.stop().time()
    assert 0.001 <= first == timer.time()
    time.sleep(0.001)
    assert first < timer.resume().time() < first + 0.001
    assert timer.reset().time() < first


def test_time_logger_tells_what_is_left():
    log = utils.TimeLogger()
    time.sleep(0.001)
    text, found = log.log(25, 100, {"accuracy": 0.5, "exs": 3})
    assert (found["exs"], found["%done"], found["accuracy"]) == (25, 25.0, 0.5)
    assert found["time_left"] == "0s"
    assert "25" in text
    assert log.total_time() > log.time()


@pytest.mark.parametrize(
    ("number", "digits", "rounded"),
    [
        (0, 2, 0),
        (2353, 3, 2350),
        (0.00123, 1, 0.001),
        (torch.tensor([0.37]), 1, 0.4),
        (float("inf"), 2, float("inf")),
    ],
)
def test_round_sigfigs(number, digits, rounded):
    assert utils.round_sigfigs(number, digits) == pytest.approx(rounded)


def test_small_helpers():
    point = utils.set_namedtuple_defaults(namedtuple("point", "x y"), 3)()
    assert tuple(point) == (3, 3)
    opt = utils.AttrDict(a=1)
    opt.b = 2
    assert opt == {"a": 1, "b": 2}
    with utils.no_lock(), pytest.warns(UserWarning, match="once and"):
        utils.warn_once("once and")
    utils.warn_once("once and")  # a second warning would be an error


def test_padded_tensor_and_argsort():
    rows, lengths = utils.padded_tensor([[1, 2], torch.tensor([3, 4, 5])], pad_idx=9)
    assert rows.tolist() == [[1, 2, 9], [3, 4, 5]]
    assert rows.dtype == torch.int64
    assert lengths == [2, 3]
    assert utils.padded_tensor([[1, 2], [3, 4, 5]], left_padded=True)[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert utils.padded_tensor([[]])[0].tolist() == [[0]]
    keys = torch.tensor([2.0, 3.0, 1.0])
    names, numbers = utils.argsort(keys, ["b", "c", "a"], keys)
    assert names == ["a", "b", "c"]
    assert numbers.tolist() == [1, 2, 3]
    assert utils.argsort([2, 3, 1], [2, 3, 1], descending=True) == [[3, 2, 1]]


def test_flattened_examples_are_sorted_into_batches():
    data = utils.flatten(Pairs({"datatype": "train:ordered:stream", "task": "pairs"}))
    assert [each["text"] for each in data] == ["a b c", "a b c\nx\nd", "e f"]
    ordered = utils.sort_data(data)
    assert [each["text"].count(" ") for each in ordered] == [1, 2, 2]
    assert [len(batch) for batch in utils.make_batches(ordered, 2)] == [2, 1]


def test_history_of_a_dialogue(words):
    first = {"text": "a", "labels": ["b"], "episode_done": False}
    second = {"text": "c", "labels": ["d"], "episode_done": True}
    history = {}
    assert list(utils.maintain_dialog_history(history, first, historyLength=3)) == ["a"]
    assert list(utils.maintain_dialog_history(history, second, historyLength=3)) == ["a", "b", "c"]
    assert list(utils.maintain_dialog_history(history, first, historyLength=3)) == ["a"]  # a new episode
    history = {}
    for message, reply in ((first, ""), (second, "e")):
        found = utils.maintain_dialog_history(
            history, message, reply, 9, "model", dict=words, useStartEndIndices=False
        )
    assert found == deque(words.txt2vec("a e c"), 9)
    vector = utils.maintain_dialog_history({}, first, historyLength=9, dict=words)
    assert [words[index] for index in vector] == ["__START__", "a", "__END__"]


def test_padded_batches_and_their_replies(words):
    batch = [{"text": "a", "labels": ["b"]}, {"episode_done": True}, {"text": "a b c", "labels": ["d e"]}]
    end = words["__END__"]
    xs, ys, labels, rows, x_lens, y_lens = utils.PaddingUtils.pad_text(batch, words, end)
    assert (rows, labels, x_lens, y_lens) == ([2, 0], ["d e", "b"], [3, 1], [3, 2])
    assert xs == [words.txt2vec("a b c"), [*words.txt2vec("a"), 0, 0]]
    assert ys == [[*words.txt2vec("d e"), end], [*words.txt2vec("b"), end, 0]]
    replies, answers = [{"id": "x"} for _ in batch], [None] * 3
    utils.PaddingUtils.map_predictions(np.array(ys), rows, replies, batch, words, end, 0, labels, answers)
    assert [reply.get("text") for reply in replies] == ["b", None, "d e"]
    assert answers == ["b", None, "d e"]
    assert utils.PaddingUtils.pad_text([{}], words, end) == (None,) * 6


def test_predictor_answers_single_messages():
    predictor = utils.Predictor(["-m", "repeat_query"], batchsize=1)
    assert predictor.predict({"text": "hello"})["text"] == "hello"


def test_messages_are_shown_without_some_fields():
    message = {"id": "x", "text": "long text", "label_candidates": ["a", "b"]}
    assert utils.display_messages([message, None]) == "[x]:\n long text\n [label_candidates: a|b]"
    assert utils.display_messages([message], ignore_fields="label_candidates", max_len=4) == "[x]:\n long..."
