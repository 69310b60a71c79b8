"""Wrong calls of `dpmodule.agents`."""

from functools import partial

import torch

import dpmodule as mx
from dpmodule import agents
from dpmodule.agents import FbDialogTeacher as Fb
from dpmodule.agents import ParlAIDialogTeacher as ParlAI
from dpmodule.agents import RepeatLabelAgent, Seq2seqAgent, SharedTable, StarspaceAgent, create_agent, vectors
from dpmodule.agents.examples import EpisodePositions
from dpmodule.agents.module_agent import build_dict
from dpmodule.agents.shared_state import SumColumns
from dpmodule.agents.teachers import is_training
from dpmodule.base import ArgumentError, DTypeError, FileError, FileFormatError, StateError
from helpers.hogwild_agents import NoShare, Questions
from helpers.small_tasks import SmallestAgent, examples, smallest
from helpers.talks import Noting, Talks, Texts, spec

Talk = agents.ConversationTeacher
VALID = {"task": spec(Texts, "a-3-1-2"), "datatype": "valid"}


def rows(error, make, *cases):
    """Return rows of calls of one function: arguments, and the pattern of the error last."""
    return [(partial(make, *given), error, told) for *given, told in cases]


# worlds


def world(**opt):
    return agents.create_task({**VALID, **opt}, Noting({**VALID, **opt}))


def named(task):
    world(task=task)


def option(name, value):
    world(**{"max_batch_tokens": 9} | {name: value} if "batch_" in name else {name: value})


def replies(kind, reply):
    """Hold a parley with an agent that acts in a wrong way."""
    agent = type("Wrong", (Noting,), {"act": lambda self: reply})(VALID)
    kind(VALID, [agents.create_task(VALID, agent).get_agents()[0], agent]).parley()


def batches(opt, reply):
    """Hold a parley of a batch with an agent that answers it in a wrong way, or whose `observe` returns None."""
    methods = (
        {"batch_act": lambda self, batch: reply(batch)} if reply else {"observe": lambda self, seen: None}
    )
    agents.create_task({**VALID, **opt}, type("Wrong", (Noting,), methods)({**VALID, **opt})).parley()


def unlabelled(batchsize):
    world(task=spec(Talks), talks=[[{"text": "two"}]], datatype="train:ordered", batchsize=batchsize).parley()


def hogwild(name, value, agent=None):
    mode = "fork" if name == "seed" else "thread"
    opt = {"task": "questions", "numthreads": 2, "episodes": [1, 2], "hogwild_mode": mode, name: value}
    plain = agents.DialogPartnerWorld(opt, [Questions(opt), agent or Noting(opt)])
    with agents.HogwildWorld(opt, plain) as made:
        agents.HogwildWorld(opt, made) if value == "twice" else getattr(made, value)()


THREE = [Noting({})] * 3
ROWS, TOKENS = {"batchsize": 3}, {"max_batch_tokens": 30}
MANY = agents.MultiAgentDialogWorld(VALID, THREE)
WORLDS = [
    (lambda: agents.DialogPartnerWorld({}, THREE), "agents has 3 items, expected two"),
    (lambda: agents.DynamicBatchWorld(VALID, MANY), "world has 3 agents, expected two"),
    (lambda: agents.create_task_agent_from_taskname({}), "task is not set"),
    (lambda: agents.BatchWorld({"batchsize": 2.0}, world()), "batchsize is 2.0, expected an integer from 1"),
    (lambda: world(max_batch_tokens=30, numthreads=2), "max_batch_tokens is set with numthreads 2"),
    (lambda: world(**{"num-threads": 3}), "there is no option 'num-threads'; did you mean 'numthreads'"),
    (lambda: hogwild("note", "report", NoShare()), r"agent 'alone' \(NoShare\) has no share\(\)"),
    (lambda: EpisodePositions(3, [[0, 0]] * 2), "positions belong to 2 copies of the teacher, expected 3"),
    (lambda: unlabelled(1), "the example 'two' has neither labels nor a reward"),
    (lambda: unlabelled(2), "the example 'two' has neither labels nor a reward"),
]
ROWS_OF_WORLDS = [
    *[(call, ArgumentError, told) for call, told in WORLDS],
    *rows(
        ArgumentError,
        named,
        ("revers", "did you mean 'reverse'"),
        (" , ", "task is not set"),
        ("reverse:size=many", "size=many"),
        ("fromfile", "no file of dialogues is named"),
        ("nocandidate:letters=3", "letters=3"),
        ("reverse:shortest=5:length=4", "shortest is 5"),
        ("nocandidate:length=0", "length is 0"),
        ("nocandidate:tokens=1", "more words"),
    ),
    *[
        (partial(option, name, value), ArgumentError, f"{name} is {value!r}, expected an integer from 1")
        for name in ("batchsize", "numthreads", "max_batch_tokens", "batch_buffer")
        for value in (0, True)
    ],
    *[
        (partial(replies, kind, reply), ArgumentError, rf"'noting' \(Wrong\) returned {told} from its act")
        for kind in (agents.DialogPartnerWorld, agents.MultiAgentDialogWorld, agents.ExecutableWorld)
        for reply, told in ((None, "None"), ({"text": 7}, "a message whose text is of type int"))
    ],
    *rows(
        ArgumentError,
        batches,
        (ROWS, lambda batch: [{}] * 2, r"batch_act of agent .* \(Wrong\) returned 2 messages for 3 rows"),
        (ROWS, lambda batch: None, "returned something of type NoneType for 3 rows"),
        (ROWS, lambda batch: [{}, {}, {"text": 7}], "text is of type int from its act in row 2"),
        (ROWS, lambda batch: [{}, "text", {}], "something of type str from its act in row 1"),
        (ROWS, None, r"observe of agent 'noting' \(Wrong\) returned None in row 0; agents should return"),
        (TOKENS, lambda batch: [{"text": ["a"]}] * len(batch), "a message whose text is of type list"),
        (TOKENS, None, "observe of agent 'noting'.* returned None in row 0"),
    ),
    *rows(
        ArgumentError,
        hogwild,
        ("numthreads", 0, "numthreads is 0"),
        ("hogwild_mode", "threads", "hogwild_mode is 'threads'"),
        ("hogwild_timeout_s", 0, "hogwild_timeout_s is 0"),
        ("hogwild_ahead", 0, "hogwild_ahead is 0"),
        ("seed", 0.5, "seed is 0.5, expected an integer"),
        ("note", "twice", "world is a HogwildWorld, expected"),
    ),
    *rows(
        mx.base.NotSupportedError,
        hogwild,
        ("note", "display", r"HogwildWorld\.display.*numthreads"),
        ("note", "episode_done", r"\.episode_done.*numthreads"),
    ),
    (lambda: agents.World({}).parley(), NotImplementedError, "World must define parley"),
]

# agents and their options


def saved(text, folder):
    """Create an agent from a file of options."""
    (folder / "m.opt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return create_agent({"model_file": str(folder / "m")})


def parse(*words):
    return agents.ParlaiParser(True, True).parse_args(list(words), print_args=False)


def words_of(*tokens, **opt):
    words = agents.DictionaryAgent(opt)
    words.add_to_dict(tokens)
    return words


def dictionary(line, folder):
    (folder / "words.dict").write_bytes(b"good\t1\n" + line + b"\n")
    return agents.DictionaryAgent({"dict_file": str(folder / "words.dict")})


def missing(folder, **more):
    return create_agent({"model_file": str(folder / "none"), **more})


ROWS_OF_AGENTS = [
    *rows(
        ArgumentError,
        lambda model: create_agent({"model": model}),
        (None, "model is not set"),
        ("repeat_lable", "did you mean 'repeat_label'"),
        ("no.such:Agent", "there is no module 'no.such'"),
        ("helpers.talks:epoch", "expected a class"),
        (7, "model is 7, expected a name"),
    ),
    *rows(
        ArgumentError,
        parse,
        ("--batchsise", "3", "there is no flag --batchsise; did you mean --batchsize"),
        ("-lr", "0.5", "there is no flag -lr.*--model or --task"),
        ("-bs", "0", "batchsize.*'0', expected an integer from 1"),
        ("-bsrt", "maybe", "'maybe', expected true or false"),
        ("-dt", "trian", "datatype is 'trian', expected train, valid or test"),
        ("-t", "dpmodule.agents", "the module 'dpmodule.agents' has no 'DefaultTeacher'"),
    ),
    (lambda: agents.str2class("dpmodule.agents"), ArgumentError, "does not name a class"),
    (lambda: agents.validate(None), ArgumentError, "an agent returned None from its act, expected a dict"),
    *[
        (partial(saved, text), FileFormatError, r"m\.opt")
        for text in ("{", "[1]", "[" * 100_000, b"\xff\xfe")
    ],
    (missing, FileError, r"there is no saved model; correct model_file, or set model.*none\.opt"),
    *rows(
        ArgumentError,
        lambda name, value: agents.DictionaryAgent({name: value}),
        (
            "dict_tokenizer",
            "bpe",
            "dict_tokenizer is 'bpe', expected one of nltk, re, space, spacy, split; a sub",
        ),
        ("dict_minfreq", True, "dict_minfreq is True"),
    ),
    *[
        (partial(dictionary, line), FileFormatError, r"words\.dict: line 2: .*expected a token, a tab")
        for line in (b"word", b"word\t-1", b"word\t" + b"9" * 40)
    ],
    (partial(dictionary, b"\xff\t1"), FileFormatError, "not UTF-8 at byte 7"),
    (lambda: words_of("the").parse("the", str), ArgumentError, "vec_type is <class 'str'>, expected list"),
    (lambda: words_of("the").save(), ArgumentError, "dict_file"),
    (lambda: agents.IrBaselineAgent({"history_size": 0}), ArgumentError, "history_size is 0"),
    (lambda: agents.IrBaselineAgent({"label_candidates_file": "none.txt"}), FileError, r"none\.txt"),
    (lambda: vectors.bags([[-1]], 3), ArgumentError, "expected 0 to 2"),
    (lambda: vectors.classes([{}], {"a": 0, "b": 1}), ArgumentError, "row 0 has no label, expected one of 2"),
    *[
        (partial(agents.Metrics({}).update, {"metrics": wrong}, ["a"]), ArgumentError, "metrics of a reply")
        for wrong in ({"loss": "much"}, {3: 1.0})
    ],
    (lambda: agents.Metrics({"metrics": "rouge"}), ArgumentError, "metrics names rouge"),
]

# numbers that workers share


def table(**change):
    SharedTable({"count": 0, "done": False, "text": "x", "w": torch.zeros(2)}).update(change)


def add(*names):
    column = SumColumns().column(0)
    for name in names:
        column.add(name, 1)


ROWS_OF_TABLES = [
    (lambda: add("x" * 121), ArgumentError, "121 bytes, expected at most 120"),
    (lambda: add(*map(str, range(129))), ArgumentError, "one too many"),
    (lambda: table(new=2**63), ArgumentError, "at most 64 bits"),
    (lambda: table(count=2**63), ArgumentError, "at most 64 bits"),
    *rows(
        DTypeError,
        lambda change: table(**change),
        ({"count": 1.5}, "'count' is of type int, which cannot change, got 1.5 of type float"),
        ({"w": torch.zeros(3)}, r"'w' is a tensor of shape \(2,\) and torch.float32, .* got .*shape .3,"),
        ({"w": torch.zeros(2).int()}, "got .*int32"),
        ({"w": 1.5}, "'w' is a tensor .* got .*1.5 of type"),
        ({"name": b"x"}, "'name' is b'x' of type bytes, expected an int, a float, a bool, a str or a torch"),
        ({"text": 3}, "'text' is a str, which cannot change, got 3 of type int"),
    ),
    (
        lambda: SharedTable({"a": "é" * 509}),
        ArgumentError,
        "'a' is a text of 1018 bytes, expected at most 1016",
    ),
    (lambda: SharedTable({"a": 1})["other"], KeyError, "no key 'other'.*'a'"),
    (lambda: SharedTable({"a": 1}).__delitem__("other"), KeyError, "no key 'other'.*'a'"),
]

# dialogues


def data(kind, example):
    kind({}, lambda path: [(("fine", "y"), True), example], cands=["y"]).num_examples()


def talk(kind, text, opt, folder):
    """Read a file of dialogues."""
    (folder / "talk.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return kind({"task": "t", "datatype": "train", "datafile": str(folder / "talk.txt"), **opt}).act()


def from_file(name, text, folder):
    if text:
        (folder / name).write_text(text)
    opt = {"task": f"fromfile:{folder}/{name}", "datatype": "test"}
    agents.create_task(opt, RepeatLabelAgent({}))


BAD_LINES = [
    (Fb, "1 a\tb\nno number\n", "line 2: number: 'no number'"),
    (Fb, "0 a\tb\n", "line 1: number"),
    (Fb, "1 a\tb\tmuch\n", "line 1: reward: 'much', expected a number"),
    (Fb, "1 a\tb\tnan\n", "line 1: reward"),
    (Fb, "1 a\tb\t1\tc|d\n", "line 1: labels: 'b' is not among the candidates"),
    (Fb, "1 a\tb\t1\tb|d\te\n", "line 1: fields: 5 of them"),
    (Fb, b"1 a\tb\n2 \xff\tb\n", "line 2: byte 3: not UTF-8"),
    (ParlAI, "text:a\tlabels:b\nhello\n", "line 2: fields: 'hello', expected name:text"),
    (ParlAI, "labels:a\n", "line 1: text: missing"),
    (ParlAI, "text:a\ttext:b\n", "line 1: text: the field is given twice"),
    (ParlAI, "text:a\tlabels:b\tepisode_done:maybe\n", "line 1: episode_done: 'maybe'"),
    (ParlAI, "text:a\tlabels:b\tlabel_candidates:c|d\n", "line 1: labels: 'b' is not among"),
    (Talk, "{\n", "line 1: JSON"),
    (Talk, "[" * 100_000 + "\n", "line 1: JSON"),
    (Talk, "[1]\n", r"line 1: JSON: '\[1\]', expected an object"),
    (Talk, "{}\n", "line 1: dialog: missing"),
    (Talk, '{"dialog": 3}\n', "line 1: dialog: '3', expected a list"),
    (Talk, '{"dialog": ["alone"]}\n', "line 1: dialog: .*expected a list of at least two turns"),
    (Talk, '{"dialog": ["a", {"id": 1}]}\n', r"line 1: dialog\[1\]: .*expected an object with a text"),
    (Talk, '{"dialog": ["a", "\\ud800"]}\n', r"line 1: dialog\[1\]: .*not valid Unicode"),
]
"""Teacher, lines, and the place and reason of the error; test_dialog_files.py skips these lines."""

ROWS_OF_DATA = [
    *[
        row
        for kind in (agents.DialogData, agents.StreamDialogData)
        for row in rows(
            ArgumentError,
            partial(data, kind),
            ((("a", ["b", "c"], None, ["c"]), True), "example 1 .*the label 'b' is not among its candidates"),
            ((("a", "b", 0, None, None, "f"), True), "expected up to five"),
            (("text", True), "expected up to five"),
            (("a", "b", True), r"expected \(\(text, labels, \.\.\.\), new_episode\)"),
            (((7,), True), "example 1 .*text is '7', expected a string"),
            ((("a", 7), True), "labels is '7', expected strings"),
            ((("a", "y", 0, [None]), True), "label_candidates is"),
        )
    ],
    (lambda: agents.DialogData({}, lambda path: [], cands=[1]), ArgumentError, r"label_candidates\(\)"),
    *[
        (partial(is_training, datatype), ArgumentError, "expected train, valid or test")
        for datatype in ("trian", "train:shuffled")
    ],
    *rows(
        ArgumentError,
        talk,
        (Fb, "1 a\tb\n", {"on_bad_line": "cry"}, "on_bad_line is 'cry', expected 'error' or 'skip'"),
        (Talk, "", {"label_turns": "all"}, "label_turns is 'all'"),
        (Fb, "", {"datafile": None}, "datafile"),
    ),
    *rows(FileError, talk, (Fb, "", {"datafile": "/"}, "cannot read dialogues")),
    *[
        (partial(talk, kind, text, {}), FileFormatError, rf"talk\.txt: {told}.*--on-bad-line skip")
        for kind, text, told in BAD_LINES
    ],
    (partial(from_file, "", ""), ArgumentError, r"no test\.txt"),
    (partial(from_file, "talk.jsonl", "[]\n"), FileFormatError, r"talk\.jsonl: line 1"),
    (partial(from_file, "talk", "text:a\tlabels:b\nnothing\n"), FileFormatError, "line 2"),
    (
        lambda: agents.StreamDialogData({}, shared={**agents.StreamDialogData({}, iter).share()}).episode(0),
        StateError,
        "data_loader",
    ),
    (lambda: agents.DialogTeacher({}), NotImplementedError, "setup_data"),
    (lambda: agents.FixedDialogTeacher({}).get(0), NotImplementedError, r"get\("),
    (lambda: agents.FixedDialogTeacher({}).num_examples(), NotImplementedError, "num_examples"),
    (lambda: agents.FixedDialogTeacher({}).num_episodes(), NotImplementedError, "num_episodes"),
]

# agents with networks


def trained(name, method, observations=None):
    """Train an agent that has a method of its own."""
    agent = type("Other", (SmallestAgent,), {name: method})(smallest())
    agent.batch_act(examples(1) if observations is None else observations)


def learner(kind, opt, row=None):
    task = {"task": "helpers.small_tasks:Letters", "examples": 20, "embeddingsize": 8, "datatype": "train"}
    kind({**task, **opt}).batch_act([row] if row else examples(1))


def without_task(folder):
    (folder / "words").write_text("w01\t1\n")
    SmallestAgent(smallest(task=None, dict_file=str(folder / "words"), numthreads=2)).share()


ROWS_OF_NETWORKS = [
    (lambda: SmallestAgent(smallest(optimizer_params={"no_such": 1})), mx.base.SignatureError, "no_such"),
    *rows(
        ArgumentError,
        lambda opt: SmallestAgent(smallest(**opt)),
        ({"optimizer": "sdg"}, "sdg"),
        ({"contexts": "tpu"}, "tpu"),
        ({"contexts": 3}, "ctx is 3"),
        ({"on_nonfinite": "sing"}, "sing"),
        ({"grad_clip": 1, "gradientClip": 1}, "no option 'gradientClip'; did you mean 'gradient_clip'"),
    ),
    *rows(
        ArgumentError,
        trained,
        ("vectorize", lambda self, seen: vectors.batch_of({"wrods": vectors.ragged([[1]])}), "it has words"),
        ("vectorize", lambda self, seen: mx.io.DataBatch([mx.nd.zeros((1, 2))]), r"provide_data=\["),
        ("sym_gen", lambda self, opt, dict: "net", "sym_gen returned something of type str"),
        ("sym_gen", lambda self, opt, dict: lambda key: None, "without bucket_key"),
    ),
    *rows(
        ArgumentError,
        partial(learner, Seq2seqAgent),
        ({"attention": "cross"}, "attention is 'cross'"),
        ({"buckets": [1]}, "buckets"),
        ({"truncate": 1}, "truncate is 1"),
        ({"dropout": 1.0}, "from 0 and below 1"),
        ({"beam_size": 0}, "beam_size is 0"),
        ({"dict_nulltoken": ""}, "null, start or end"),
        ({"rank_candidates": True}, {"text": "a b"}, "'Seq2seq' ranks candidates, but .*'a b' has no"),
    ),
    *rows(
        ArgumentError,
        partial(learner, StarspaceAgent),
        ({"similarity": "cosinus"}, "similarity is .*, expected"),
        ({"negatives": 0}, "negatives is .*, expected"),
        ({"temperature": 0}, "temperature is .*, expected"),
        ({"embeddingsize": "x"}, "embeddingsize is .*, expected"),
        ({}, {"text": "a"}, "'Starspace' ranks candidates.*'a'.*fixed_candidates_file"),
    ),
    (lambda: build_dict({}), ArgumentError, r'opt\["dict_file"\].*opt\["task"\]'),
    (lambda: agents.ModuleAgent(smallest()).batch_act(examples(1)), NotImplementedError, "vectorize"),
    (lambda: agents.ModuleAgent(smallest()).sym_gen({}, None), NotImplementedError, "must define sym_gen"),
    (without_task, StateError, r"set opt\[\"task\"\], or define sample\(\)"),
    (lambda: SmallestAgent(smallest(model_file="net")).save(), StateError, "train or predict first"),
]

ROWS = [*ROWS_OF_WORLDS, *ROWS_OF_AGENTS, *ROWS_OF_TABLES, *ROWS_OF_DATA, *ROWS_OF_NETWORKS]
