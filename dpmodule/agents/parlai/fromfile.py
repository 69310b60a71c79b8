"""`parlai.tasks.fromfile.agents`: the task "fromfile"."""

from ..tasks import FromFileTeacher as DefaultTeacher

__all__ = ["DefaultTeacher"]
