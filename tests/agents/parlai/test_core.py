import pytest

from dpmodule.agents import DictionaryAgent, RepeatLabelAgent, Teacher
from dpmodule.agents.parlai import core
from dpmodule.agents.tasks import FromFileTeacher, ReverseTeacher
from dpmodule.base import ArgumentError


def parse(*words):
    return core.ParlaiParser(True, True).parse_args(words, print_args=False)


def test_parser_has_parlais_further_arguments():
    parser = core.ParlaiParser(True, True, ["-t", "reverse", "-im", "none"])
    parser.add_image_args("none")
    parser.add_pytorch_datateacher_args()
    parser.set_params(batchsize=4)
    opt = parser.parse_args(print_args=False)
    assert (opt["task"], opt["image_mode"], opt["batchsize"]) == ("reverse", "none", 4)
    parser = core.ParlaiParser(model_argv=["-dt", "valid"])
    assert parser.parse_args(print_args=False)["datatype"] == "valid"
    core.print_announcements(opt)


@pytest.mark.parametrize("word", ["--hide_labels", "--hide-labels"])
def test_flags_are_spelled_with_either_sign(word):
    assert parse(word, "yes")["hide_labels"] is True
    parser = core.ParlaiParser(False, False)
    parser.add_argument("--num_examples", type=int)
    assert parser.parse_args(["--num-examples=3"], print_args=False)["num_examples"] == 3


def test_known_arguments_may_be_read_first():
    parser = core.ParlaiParser(True, False)
    found, rest = parser.parse_known_args(["-h", "-t", "reverse", "--own", "1"], nohelp=True)
    assert (found.task, rest) == ("reverse", ["--own", "1"])


def test_names_of_agents_and_tasks():
    assert core.get_agent_module("repeat_label") is RepeatLabelAgent
    assert core.get_task_module("fromfile") is FromFileTeacher
    (teacher,) = core._create_task_agents({"task": "reverse:valid", "datatype": "valid"})
    assert type(teacher) is ReverseTeacher
    assert core._create_task_agents({"task": "reverse,reverse"})[0].tasks[1].getID() == "reverse"
    assert (core.Teacher, core.DictionaryAgent) == (Teacher, DictionaryAgent)
    assert core.str2bool("yes")
    assert core._f1_score("x b", ["x c"]) == pytest.approx(0.5)
    with pytest.raises(AttributeError, match="nothing"):
        core.nothing  # noqa: B018


def test_reports_of_teachers_and_worlds_are_put_together():
    teachers = [core.get_task_module("reverse")({"task": "reverse", "datatype": "valid"}) for _ in range(2)]
    teachers[1].act()
    teachers[1].observe({"text": "?"})
    report = core.aggregate_metrics(teachers)
    assert (report["total"], list(report["tasks"])) == (1, ["reverse", "reverse#2"])
    assert core.aggregate_metrics(report["tasks"]) == report


def test_unknown_flags_are_one_error():
    with pytest.raises(ArgumentError, match="no flag --image_moed; did you mean"):
        parse("--image_moed", "x")
