"""What `import dpmodule` does to the process around it."""

import subprocess
import sys

import pytest


def after_import(before: str, question: str) -> str:
    code = f"import gc, sys\n{before}\nimport dpmodule\nprint({question})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("state", ["enable", "disable"])
def test_garbage_is_collected_as_before(state):
    assert after_import(f"gc.{state}()", "gc.isenabled()") == str(state == "enable")


def test_what_few_programs_need_is_not_imported():
    heavy = [
        "onnx",
        "matplotlib",
        "sklearn",
        "PIL",
        "torch.optim",
        "torch._dynamo",
        "torch._inductor",
        "torch.fx",
    ]
    own = ["dpmodule.rnn", "dpmodule.image", "dpmodule.gluon", "dpmodule.profiler"]
    loaded = after_import("import torch\nbefore = set(sys.modules)", "*set(sys.modules) - before").split()
    assert "dpmodule.module" in loaded
    assert [name for name in heavy + own if name in loaded] == []
