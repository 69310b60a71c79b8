"""`parlai.scripts.eval_model`: evaluate an agent on a task."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from ..agent import create_agent
from ..create import create_task
from ..parser import ParlaiParser
from . import core
from .build_dict import options_of
from .logs import TensorboardLogger
from .utils import TimeLogger

__all__ = ["eval_model", "main", "setup_args"]


def setup_args(parser: ParlaiParser | None = None) -> ParlaiParser:
    """Return a parser with the flags of `eval_model`.

    Args:
        parser: parser to add them to; None: a new one.
    """
    parser = core.ParlaiParser(True, True) if parser is None else parser
    parser.add_argument(
        "-ne", "--num-examples", type=int, default=-1, help="number of examples; -1: all (default)"
    )
    parser.add_argument("-d", "--display-examples", type="bool", default=False, help="print the examples")
    parser.add_argument(
        "-ltim", "--log-every-n-secs", type=float, default=2, help="seconds between two lines (default: 2)"
    )
    TensorboardLogger.add_cmdline_args(parser)
    parser.set_defaults(datatype="valid")
    return parser


def with_count(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report whose number of examples is also named "exs", as since October 2018."""
    return {"exs": report.get("total", 0), **report}


def show_options(opt: Mapping[str, Any] | ParlaiParser, print_parser: Any, agent: Any) -> None:
    """Print the options of an agent, if a parser is given, or True and `opt` is one."""
    parser = opt if print_parser is True else print_parser
    if isinstance(parser, ParlaiParser):
        parser.print_args(getattr(agent, "opt", {}))


def eval_model(
    opt: Mapping[str, Any] | ParlaiParser, printargs: Any = None, print_parser: Any = None
) -> dict[str, Any]:
    """Evaluate an agent, print its metrics, and return them.

    Args:
        opt: options: ``num_examples``, ``display_examples``, ``log_every_n_secs``, and those of the agent and the task.
        printargs: former name of `print_parser`.
        print_parser: parser that prints the options of the agent; None: they are not printed.
    """
    random.seed(42)
    parser, opt = print_parser or printargs, options_of(source := opt)
    agent = create_agent(opt, requireModelExists=True)
    show_options(source, parser, agent)
    most, every = opt.get("num_examples", -1), opt.get("log_every_n_secs", -1)
    log, count = TimeLogger(), 0
    with create_task(opt, agent) as world:
        while not world.epoch_done():
            count += int(opt.get("batchsize") or 1)
            world.parley()
            if opt.get("display_examples"):
                print(f"---\n{world.display()}\n~~")
            if 0 < every < log.time():
                total = world.num_examples() if most < 0 else most
                print(log.log(count, total, with_count(world.report()))[0])
            if 0 < most <= count:
                break
        if world.epoch_done():
            print("EPOCH DONE")
        report = with_count(world.report())
    if opt.get("tensorboard_log"):
        TensorboardLogger(opt).add_metrics(str(opt.get("datatype")), count, report)
    print(f"finished evaluating task {opt['task']} using datatype {opt.get('datatype')}\n{report}")
    return report


def main() -> None:
    """Evaluate the agent that the command line describes."""
    parser = setup_args()
    eval_model(parser.parse_args(print_args=False), print_parser=parser)
