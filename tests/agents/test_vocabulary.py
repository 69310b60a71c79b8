import pytest

from dpmodule.agents import DictionaryAgent
from dpmodule.agents.vocabulary import build_dict, dictionary_file, training_examples
from dpmodule.base import ArgumentError
from helpers.small_tasks import smallest


def test_every_training_example_comes_once():
    opt = smallest(examples=50, datatype="valid", batchsize=8, batch_sort=True, numthreads=4)
    found = [example["text"] for example in training_examples(opt)]
    assert len(found) == 50
    assert found == [example["text"] for example in training_examples(opt)]


def test_several_tasks_follow_each_other():
    both = smallest(examples=5, task="helpers.small_tasks:Smallest,helpers.small_tasks:Letters")
    assert len(list(training_examples(both))) == 10
    assert list(training_examples({})) == []


def test_a_dictionary_has_the_words_of_texts_and_labels():
    found = build_dict(smallest(examples=200))
    assert {f"w{number:02}" for number in range(30)} <= set(found.keys())
    assert found["__NULL__"] == 0
    counts = [count for _, count in list(found.freqs().items())[4:]]
    assert counts == sorted(counts, reverse=True)


def test_fewer_examples_can_be_read():
    few = build_dict(smallest(examples=200, dict_maxexs=2))
    assert 4 < len(few) < 24


def test_a_dictionary_is_written_where_a_file_is_named(tmp_path):
    path = str(tmp_path / "words")
    made = build_dict(smallest(dict_file=path))
    assert DictionaryAgent({"dict_file": path}).tok2ind == made.tok2ind
    assert dictionary_file("net") == "net.dict"


def test_there_is_no_dictionary_without_a_task():
    with pytest.raises(ArgumentError, match=r'opt\["dict_file"\].*opt\["task"\]'):
        build_dict({})
