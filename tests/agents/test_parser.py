import pytest

from dpmodule.agents import (
    Agent,
    DictionaryAgent,
    FromFileTeacher,
    IrBaselineAgent,
    ModuleAgent,
    MultiTaskTeacher,
    ParlaiParser,
    RepeatLabelAgent,
    Seq2seqAgent,
    StarspaceAgent,
    Teacher,
    class2str,
    create_agent,
    create_task,
    create_task_agent_from_taskname,
    str2class,
    validate,
)
from dpmodule.base import ArgumentError


class Learner(RepeatLabelAgent):
    @staticmethod
    def add_cmdline_args(parser):
        parser.add_argument_group("learner").add_argument("-lr", "--learning-rate", type=float, default=0.1)


class Library(Teacher):
    @staticmethod
    def add_cmdline_args(parser):
        parser.add_argument("--shelf", type=int, default=3)


class DefaultTeacher(Library):
    """What the name of this module stands for as a task."""


def parse(*words, **more):
    return ParlaiParser(True, True).parse_args(list(words), print_args=False, **more)


def test_defaults():
    opt = parse()
    expected = {
        "batch_sort": True, "include_labels": True, "context_length": -1, "batchsize": 1, "numthreads": 1,
        "datatype": "train", "hide_labels": False, "task": None, "model": None, "model_file": None,
        "dict_lower": False, "dict_minfreq": 0, "dict_maxtokens": -1, "dict_file": None, "on_bad_line": "error",
    }  # fmt: skip
    assert {name: opt[name] for name in expected} == expected
    assert opt["override"] == {}


@pytest.mark.parametrize(
    ("short", "long", "value", "name", "read"),
    [
        ("-t", "--task", "reverse,nocandidate", "task", None),
        ("-dt", "--datatype", "valid:stream", "datatype", "valid:stream"),
        ("-bs", "--batchsize", "32", "batchsize", 32),
        ("-nt", "--numthreads", "2", "numthreads", 2),
        ("-bsrt", "--batch-sort", "no", "batch_sort", False),
        ("-clen", "--context-length", "-1", "context_length", -1),
        ("-incl", "--include-labels", "0", "include_labels", False),
        ("-m", "--model", "repeat_label", "model", "repeat_label"),
        ("-mf", "--model-file", "folder/m", "model_file", "folder/m"),
        ("-dp", "--datapath", "data", "datapath", "data"),
        ("-eps", "--num-epochs", "2.5", "num_epochs", 2.5),
    ],
)
def test_short_and_long_flags_of_2018(short, long, value, name, read):
    if name == "task":
        value = read = f"{__name__}:Library,{__name__}:Library"
    for words in ((short, value), (long, value), (f"{long}={value}",)):
        assert parse(*words)[name] == read


@pytest.mark.parametrize("text", ["true", "True", "yes", "1", "false", "NO", "0"])
def test_truths(text):
    assert parse("--hide-labels", text)["hide_labels"] is (text.lower() in ("true", "yes", "1"))


def test_agents_and_tasks_on_the_line_add_their_own_flags():
    opt = parse("-m", f"{__name__}:Learner", "-t", f"{__name__}:Library", "-lr", "0.5", "--shelf", "7")
    assert (opt["learning_rate"], opt["shelf"]) == (0.5, 7)
    with pytest.raises(ArgumentError, match="there is no flag -lr.*--model or --task"):
        parse("-lr", "0.5")


def test_agents_and_tasks_by_default_add_their_own_flags():
    parser = ParlaiParser(True, True)
    parser.set_defaults(task=f"{__name__}:Library", model=f"{__name__}:Learner")
    opt = parser.parse_args(["--shelf", "7"], print_args=False)
    assert (opt["learning_rate"], opt["shelf"], opt["override"]) == (0.1, 7, {"shelf": 7})


def test_an_agent_saved_in_the_model_file_adds_its_flags(tmp_path):
    (tmp_path / "m.opt").write_text('{"model": "repeat_label", "mood": "good"}')
    opt = parse("-mf", str(tmp_path / "m"), "--dict-lower", "yes")
    agent = create_agent(opt)
    assert type(agent) is RepeatLabelAgent
    assert agent.opt["mood"] == "good"
    assert agent.opt["dict_lower"] is True


def test_a_saved_class_of_another_module_is_not_imported(tmp_path):
    (tmp_path / "m.opt").write_text('{"model": "antigravity:fly"}')
    with pytest.raises(ArgumentError, match="modules that only a file names are not imported"):
        parse("-mf", str(tmp_path / "m"))


def test_what_stands_on_the_line_counts_more_than_what_is_saved(tmp_path):
    (tmp_path / "m.opt").write_text(f'{{"model": "{__name__}:Learner", "learning_rate": 0.3}}')
    line = ["-m", f"{__name__}:Learner", "-mf", str(tmp_path / "m")]
    assert create_agent(parse(*line)).opt["learning_rate"] == 0.3
    assert create_agent(parse(*line, "-lr", "0.5")).opt["learning_rate"] == 0.5


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--batchsise", "3"], "there is no flag --batchsise; did you mean --batchsize"),
        (["-mx", "3"], "there is no flag -mx"),
        (["-bs", "0"], "batchsize.*'0', expected an integer from 1"),
        (["-nt", "-1"], "numthreads.*'-1', expected an integer from 1"),
        (["-bs", "many"], "expected an integer from 1"),
        (["-bsrt", "maybe"], "'maybe', expected true or false"),
        (["-dt", "trian"], "datatype is 'trian', expected train, valid or test"),
        (["-nt"], "expected one argument"),
        (["stray"], "stray"),
        (["-t", "revers"], "task is 'revers'.*did you mean 'reverse'"),
        (["-m", "repeat_labl"], "did you mean 'repeat_label'"),
        (["-m", "no.such.module:Agent"], "there is no module"),
        (["--on-bad-line", "cry"], "invalid choice"),
    ],
)
def test_wrong_lines(words, told):
    with pytest.raises(ArgumentError, match=told):
        parse(*words)


def test_a_program_adds_flags_of_its_own():
    parser = ParlaiParser(False, description="mine")
    parser.add_argument("--shout", type="bool", default=False)
    assert parser.parse_args(["--shout", "yes"], print_args=False)["shout"] is True
    with pytest.raises(ArgumentError, match="--task"):
        parser.parse_args(["--task", "reverse"], print_args=False)


def test_options_are_shown(capsys):
    ParlaiParser().parse_args(["-bs", "4"])
    assert "[ batchsize: 4 ]" in capsys.readouterr().out.splitlines()


def test_options_are_shown_without_naming_them(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["program", "-bs", "3"])
    ParlaiParser().print_args()
    parser = ParlaiParser()
    parser.parse_args(["-bs", "5"], print_args=False)
    parser.print_args()
    shown = capsys.readouterr().out
    assert shown.index("[ batchsize: 3 ]") < shown.index("[ batchsize: 5 ]")
    assert parser.opt["batchsize"] == 5


def test_folders_of_programs_of_parlai(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("PARLAI_HOME", "PARLAI_DATAPATH"):
        monkeypatch.delenv(name, raising=False)
    opt = parse()
    assert (opt["parlai_home"], opt["datapath"]) == (str(tmp_path), str(tmp_path / "data"))
    monkeypatch.setenv("PARLAI_HOME", "elsewhere")
    assert parse()["datapath"] == "elsewhere/data"
    monkeypatch.setenv("PARLAI_DATAPATH", "/data")
    assert (parse()["datapath"], parse("-dp", "mine")["datapath"]) == ("/data", "mine")
    bare = ParlaiParser(False)
    assert "datapath" not in bare.parse_args([], print_args=False)
    bare.add_parlai_data_path(bare.add_argument_group("data"))
    assert bare.parse_args([], print_args=False)["datapath"] == "/data"


def test_flags_are_added_by_hand_as_in_parlai():
    parser = ParlaiParser(False)
    parser.add_parlai_args(["-bs", "3"])
    parser.add_model_args()
    parser.add_task_args(f"{__name__}:Library,reverse")
    parser.add_model_subargs("seq2seq")
    parser.add_extra_args(["-m", f"{__name__}:Learner"])
    parser.add_arg("--reader", type="class", default=None)
    line = ["--shelf", "2", "-hs", "7", "--learning-rate", "0.5", "--reader", "dpmodule.agents:Teacher"]
    opt = parser.parse_args(line, print_args=False)
    assert (opt["shelf"], opt["hiddensize"], opt["learning_rate"], opt["reader"]) == (2, 7, 0.5, Teacher)


@pytest.mark.parametrize(
    "kind", [DictionaryAgent, ModuleAgent, Seq2seqAgent, StarspaceAgent, IrBaselineAgent, FromFileTeacher]
)
def test_subclasses_add_flags_to_the_group_of_their_base(kind):
    parser = ParlaiParser()
    kind.add_cmdline_args(parser).add_argument("--mood", type="bool", default=True)
    assert parser.parse_args(["--mood", "no"], print_args=False)["mood"] is False


def test_names_that_programs_of_parlai_import():
    assert str2class(class2str(Library)) is Library
    assert class2str(Teacher) == "dpmodule.agents.teachers:Teacher"
    for name, told in (("dpmodule.agents", "does not name a class"), ("dpmodule.agents:No", "has no 'No'")):
        with pytest.raises(ArgumentError, match=told):
            str2class(name)
    message = {"text": "hi"}
    assert validate(message) is message
    with pytest.raises(RuntimeError, match="an agent returned None from its act, expected a dict"):
        validate(None)
    (one,) = create_task_agent_from_taskname({"task": "reverse:size=3", "datatype": "valid"})
    assert (one.num_examples(), one.getID()) == (3, "reverse:size=3")
    (two,) = create_task_agent_from_taskname({"task": "reverse, nocandidate", "datatype": "valid"})
    assert (type(two), len(two.tasks)) == (MultiTaskTeacher, 2)
    with pytest.raises(ArgumentError, match="task is not set"):
        create_task_agent_from_taskname({})


def test_a_module_alone_means_its_default_teacher():
    assert parse("-t", __name__, "--shelf", "5")["shelf"] == 5
    world = create_task({"task": __name__}, RepeatLabelAgent({}))
    assert type(world.get_agents()[0]) is DefaultTeacher
    with pytest.raises(ArgumentError, match="the module 'dpmodule.agents' has no 'DefaultTeacher'"):
        parse("-t", "dpmodule.agents")


def test_help_tells_the_default_that_counts(capsys):
    parser = ParlaiParser()
    parser.set_defaults(datatype="valid")
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    assert "(default: valid)" in " ".join(capsys.readouterr().out.split())


def test_help_lists_the_flags_of_the_agent(capsys):
    with pytest.raises(SystemExit):
        parse("-m", f"{__name__}:Learner", "--help")
    assert "--learning-rate" in capsys.readouterr().out


def test_plain_agents_have_no_flags():
    assert not hasattr(Agent, "add_cmdline_args")
