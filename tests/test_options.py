"""No option is without effect: agents and teachers act otherwise, a resumed run takes another value or refuses it."""

import inspect
import re

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import agents
from dpmodule.base import MXNetError
from helpers.nets import blobs, mlp

NUMBERED = "1 Is it red, or blue?\tRED\t0.5\n2 Where?\there\n\n1 no number after\tx\n"
TALKS = '{"dialog": [{"text": "hi"}, {"text": "hello you"}, {"text": "bye"}]}\n'
CANDIDATES = "yes it is\nno, here\n"
WORDS = "The cat's New York; the  cat: and New York"


def acts(teacher):
    messages = [teacher.num_episodes()]
    while not teacher.epoch_done() and len(messages) < 20:
        messages.append(teacher.act())
    return messages


def read_twice(dictionary):
    """Return the tokens of a text whose pairs of words the dictionary knows, and the table after sorting."""
    dictionary.add_to_dict(["new york", "New York", "New York"])
    for message in ({"text": WORDS, "labels": ["one label"]}, {"text": WORDS, "extra": "field"}):
        dictionary.observe(message)
        dictionary.act()
    return dictionary.tokenize(WORDS), dictionary.sort(), dictionary.txt2vec(WORDS)


def answers(agent):
    told = {"label_candidates": ["the cat", "a dog", "a cat, a dog"], "labels": ["a dog", "more"]}
    replies = []
    for text in ("a cat", "dog?", "which?"):
        agent.observe({"text": text, "episode_done": False, **told})
        replies.append(agent.act())
        told.pop("labels", None)
    agent.observe({"text": "dog"})
    return [*replies, agent.act()]


CHANGES = {
    "DictionaryAgent": (
        read_twice,
        {
            "dict_file": "words.dict",
            "dict_initpath": "first.dict",
            "dict_minfreq": 2,
            "dict_maxtokens": 6,
            "dict_lower": True,
            "dict_tokenizer": ["split", "space"],
            "dict_max_ngram_size": 2,
            "dict_nulltoken": "<0>",
            "dict_starttoken": "<s>",
            "dict_endtoken": "",
            "dict_unktoken": "<?>",
            "dict_textfields": "text,extra",
        },
    ),
    "FbDialogTeacher": (acts, {"datafile": "other.txt", "cands_datafile": "cands.txt", "cloze": True}),
    "ConversationTeacher": (acts, {"label_turns": ["firstspeaker", "secondspeaker"]}),
    "ReverseTeacher": (acts, {"task_arguments": ["size=3", "shortest=4", "length=9", "letters=3", "seed=1"]}),
    "NoCandidateTeacher": (acts, {"task_arguments": ["size=3", "length=6", "tokens=9", "seed=1"]}),
    "RepeatLabelAgent": (
        answers,
        {"cantAnswerPercent": 1.0, ("cantAnswerPercent", "cantAnswerMessage"): (1.0, "no idea")},
    ),
    "IrBaselineAgent": (answers, {"label_candidates_file": "cands.txt", "history_size": 2}),
}
"""What is looked at, and for each documented option other values, all of which must differ from each other."""


@pytest.mark.parametrize("name", CHANGES)
def test_every_option_of_an_agent_changes_what_it_does(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"talk.txt": NUMBERED, "other.txt": "1 a\tb\n", "cands.txt": CANDIDATES, "talks.jsonl": TALKS}
    for file, text in {**files, "words.dict": "old\t3\n", "first.dict": "first\t3\n"}.items():
        (tmp_path / file).write_text(text)
    kind, (look, options) = getattr(agents, name), CHANGES[name]
    documented = set(
        re.findall(r"``(\w+)``: ", inspect.getdoc(kind).partition("opt: ")[2].partition("Raises:")[0])
    )
    tried = {key for keys in options for key in np.atleast_1d(keys)}
    tried |= {each.partition("=")[0] for each in options.get("task_arguments", ())}
    assert documented - {"on_bad_line"} <= tried
    data = "talks.jsonl" if name == "ConversationTeacher" else "talk.txt"
    plain = {"datatype": "valid", "task": "x", "datafile": data}
    plain |= {"label_candidates_file": None} if name == "IrBaselineAgent" else {}
    seen = [repr(look(kind(dict(plain))))]
    for key, values in options.items():
        for value in values if isinstance(values, list) else [values]:
            own = dict(zip(key, value)) if isinstance(key, tuple) else {key: value}
            seen.append(repr(look(kind(plain | own))))
            assert seen[-1] not in seen[:-1], f"{own} changes nothing"


FIRST = {"learning_rate": 0.1, "momentum": 0.5, "wd": 0.01}
CHANGED = {
    "optimizer": ["adam"],
    "optimizer_params": [
        FIRST | {"learning_rate": 0.02},
        FIRST | {"momentum": 0.9},
        FIRST | {"wd": 0.2},
        FIRST | {"clip_gradient": 1e-4},
        FIRST | {"rescale_grad": 0.5},
        FIRST | {"lr_scheduler": mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.1)},
    ],
    "num_epoch": [3],
    "accumulate": [2],
    "clip_global_norm": [1e-3],
    "contexts": [[mx.cpu(0), mx.cpu(1)]],
    "max_batches": [9],
    "rows": [48],
    "batch": [16],
    "hidden": [17],
    "fixed": [["fc1_weight"]],
}
"""Options of a run, and what a program sets instead before it resumes."""


def fitted(checkpoint, rows=64, batch=8, hidden=16, fixed=None, **options):
    mx.random.seed_all(3)
    module = mx.mod.Module(mlp(hidden=hidden), fixed_param_names=fixed)
    known = {"num_epoch": 2, "optimizer_params": FIRST if options.get("optimizer") is None else {}}
    known |= {"initializer": mx.init.Xavier(), "checkpoint": checkpoint, "resume": "auto"}
    module.fit(mx.io.NDArrayIter(*blobs(rows), batch), **known | options)
    return np.concatenate([each.asnumpy().ravel() for each in module.get_params()[0].values()])


@pytest.mark.parametrize(("name", "value"), [(key, v) for key, values in CHANGED.items() for v in values])
def test_what_a_program_changes_before_it_resumes_is_taken_or_refused(name, value, tmp_path):
    same, other = (mx.callback.Checkpoint(tmp_path / each) for each in ("same", "other"))
    for checkpoint in (same, other):
        fitted(checkpoint, num_epoch=1)
    try:
        resumed = fitted(other, **{name: value})
    except MXNetError:
        return
    assert not np.array_equal(resumed, fitted(same))
