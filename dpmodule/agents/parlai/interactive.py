"""`parlai.scripts.interactive`: talk to an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base import ArgumentError
from ..agent import create_agent
from ..parser import ParlaiParser
from ..worlds import shown_messages
from . import core
from .build_dict import options_of
from .eval_model import show_options
from .local_human import LocalHumanAgent

__all__ = ["interactive", "main", "setup_args"]


def setup_args(parser: ParlaiParser | None = None) -> ParlaiParser:
    """Return a parser with the flags of `interactive`.

    Args:
        parser: parser to add them to; None: a new one.
    """
    parser = core.ParlaiParser(True, True) if parser is None else parser
    parser.add_argument(
        "-d", "--display-examples", type="bool", default=False, help="print both messages again"
    )
    parser.add_argument("--display-prettify", type="bool", default=False, help="not supported")
    parser.add_argument(
        "--display-ignore-fields",
        default="label_candidates,text_candidates",
        help="fields that are not printed, with commas",
    )
    LocalHumanAgent.add_cmdline_args(parser)
    return parser


def interactive(opt: Mapping[str, Any] | ParlaiParser, print_parser: Any = None) -> None:
    """Let a person talk to an agent, until ``[EXIT]`` or the end of the input.

    Args:
        opt: options: ``display_examples``, those of `LocalHumanAgent`, and those of the agent.
        print_parser: parser that prints the options of the agent; None: they are not printed.

    Raises:
        ArgumentError: ``display_prettify`` is set.
    """
    opt = options_of(source := opt)
    if opt.get("display_prettify"):
        raise ArgumentError(
            "display_prettify is set, but tables of candidates are not supported; leave it out"
        )
    agent = create_agent({**opt, "datatype": "valid"}, requireModelExists=True)
    show_options(source, print_parser, agent)
    person = LocalHumanAgent(opt)
    while "text" in (act := person.act()):
        agent.observe(act)
        reply = agent.act()
        person.observe(reply)
        if opt.get("display_examples"):
            print(f"---\n{shown_messages([act, reply])}\n~~")
    agent.shutdown()


def main() -> None:
    """Talk to the agent that the command line describes."""
    parser = setup_args()
    interactive(parser.parse_args(print_args=False), print_parser=parser)
