"""Agents and worlds: one `share` for the rows of a batch and for the workers of Hogwild training (ParlAI's design)."""

from __future__ import annotations

import typing

from .._core import lazy

if typing.TYPE_CHECKING:
    from .agent import Agent as Agent
    from .agent import class2str as class2str
    from .agent import create_agent as create_agent
    from .agent import create_agent_from_shared as create_agent_from_shared
    from .agent import create_agents_from_shared as create_agents_from_shared
    from .agent import str2class as str2class
    from .baselines import IrBaselineAgent as IrBaselineAgent
    from .baselines import RandomCandidateAgent as RandomCandidateAgent
    from .baselines import RepeatLabelAgent as RepeatLabelAgent
    from .baselines import RepeatQueryAgent as RepeatQueryAgent
    from .batch_world import BatchWorld as BatchWorld
    from .batch_world import DynamicBatchWorld as DynamicBatchWorld
    from .create import MultiTaskTeacher as MultiTaskTeacher
    from .create import create_task as create_task
    from .create import create_task_agent_from_taskname as create_task_agent_from_taskname
    from .dialog_data import DialogData as DialogData
    from .dialog_data import StreamDialogData as StreamDialogData
    from .dialog_teachers import ConversationTeacher as ConversationTeacher
    from .dialog_teachers import DialogTeacher as DialogTeacher
    from .dialog_teachers import FbDialogTeacher as FbDialogTeacher
    from .dialog_teachers import ParlAIDialogTeacher as ParlAIDialogTeacher
    from .dictionary import DictionaryAgent as DictionaryAgent
    from .dictionary import find_ngrams as find_ngrams
    from .hogwild_world import HogwildWorld as HogwildWorld
    from .metrics import Metrics as Metrics
    from .metrics import aggregate_metrics as aggregate_metrics
    from .module_agent import ModuleAgent as ModuleAgent
    from .parser import ParlaiParser as ParlaiParser
    from .seq2seq import Seq2seqAgent as Seq2seqAgent
    from .shared_state import SharedTable as SharedTable
    from .starspace import StarspaceAgent as StarspaceAgent
    from .tasks import DocsTeacher as DocsTeacher
    from .tasks import FromFileTeacher as FromFileTeacher
    from .tasks import NoCandidateTeacher as NoCandidateTeacher
    from .tasks import ReverseTeacher as ReverseTeacher
    from .teachers import FixedDialogTeacher as FixedDialogTeacher
    from .teachers import Teacher as Teacher
    from .worlds import DialogPartnerWorld as DialogPartnerWorld
    from .worlds import ExecutableWorld as ExecutableWorld
    from .worlds import MultiAgentDialogWorld as MultiAgentDialogWorld
    from .worlds import MultiWorld as MultiWorld
    from .worlds import World as World
    from .worlds import create_task_world as create_task_world
    from .worlds import validate as validate

_LATER = {
    "agent": "Agent class2str create_agent create_agent_from_shared create_agents_from_shared str2class",
    "baselines": "IrBaselineAgent RandomCandidateAgent RepeatLabelAgent RepeatQueryAgent",
    "batch_world": "BatchWorld DynamicBatchWorld",
    "create": "MultiTaskTeacher create_task create_task_agent_from_taskname",
    "dialog_data": "DialogData StreamDialogData",
    "dialog_teachers": "ConversationTeacher DialogTeacher FbDialogTeacher ParlAIDialogTeacher",
    "dictionary": "DictionaryAgent find_ngrams",
    "hogwild_world": "HogwildWorld",
    "metrics": "Metrics aggregate_metrics",
    "module_agent": "ModuleAgent",
    "parser": "ParlaiParser",
    "seq2seq": "Seq2seqAgent",
    "shared_state": "SharedTable",
    "starspace": "StarspaceAgent",
    "tasks": "DocsTeacher FromFileTeacher NoCandidateTeacher ReverseTeacher",
    "teachers": "FixedDialogTeacher Teacher",
    "worlds": "DialogPartnerWorld ExecutableWorld MultiAgentDialogWorld MultiWorld World create_task_world validate",
}

__all__ = list(lazy.modules_of(_LATER))

__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
