"""Agents and worlds: one `share` for the rows of a batch and for the workers of Hogwild training (ParlAI's design)."""

from __future__ import annotations

from .._core import lazy

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
