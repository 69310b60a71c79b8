"""Table of the environment variables that this package reads or sets.

Their documentation page and ``dpmodule info`` read it. The values are read where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

BUILD, IMPORT, FIRST_USE = "when it is built", "at the import", "at the first use"
BIND, EACH_USE = "at each bind", "at each use"


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """An environment variable.

    Attributes:
        read: when it is read; later changes have no effect.
        owner: "dpmodule", "MXNet" if its programs may set it already, or another system.
    """

    name: str
    values: str
    default: str
    read: str
    text: str
    owner: str = "dpmodule"


_NATIVE = (
    "0 disables the C++ extension: streams, parsers, autobatch and kernels then run in Python and torch. "
    "`pip install` then does not build it."
)
_PASSES = "Disables graph passes, as a comma-separated list; `mx.executor.disabled` does so for a block."
_ISA = "Limits the extension to these processor instructions, for tests and measurements."
_ONEDNN = "1 sends large matrix products to oneDNN instead of MKL; 0 also leaves convolutions to torch."
_MALLOC = "keep retains freed memory in the process, as `mx.util.keep_large_blocks()` does."
_PROGRESS = "0 turns off the progress bar of `fit` in terminals and notebooks."
_TF32 = "Lets GPUs round the factors of float32 products to TensorFloat-32; overrides MXNet's two variables."
_ALLOW = "0 keeps TensorFloat-32 off."
_CONVERT = "1 lets GPUs round the factors of float32 products to TensorFloat-32."
_MERGE = "0 turns off common subexpression elimination."
_GRAPHS = "1 records repeated runs on GPUs in CUDA graphs, unless a module sets `cuda_graphs`."
_MIRROR = "1 recomputes cheap operators in backward instead of keeping their results, unless a module sets `mirror`."
_GPU = "torch's name of the device type of `mx.gpu`; for example xpu for Intel GPUs."
_HOME = (
    "Folder of downloaded data, and of an MXNet installation in which `mx.test_utils` looks for `im2rec.py`."
)
_FALLBACK = "0 silences warnings about operators that convert sparse arrays to dense ones."
_ON_STORE = "0 makes each device update its own copy of the weights instead of the store."
_CD_JOB = "1 marks a run of a delivery pipeline for `mx.test_utils.is_cd_run`."
_RANK = "Rank of this process in distributed training; `torchrun` sets it."
_WORLD = "Number of processes in distributed training."
_LOCAL = "Number of these processes on this machine."
_MEET = "Address at which the processes meet."
_RESTART = "Number of restarts by `torchrun`; the processes then meet under other keys."
_DMLC = (
    "MXNet's launcher sets it for its servers, which do not exist here: a distributed store refuses to start."
)
_CUBLAS = (
    "Set to :4096:8 by `fit(deterministic=True)` unless it is set: without it torch refuses products on GPUs."
)
_KINETO = "Set to 6 by `dpmodule explain --measure-memory`, so that torch's profiler writes nothing."
_NVIDIA = (
    "0 disables TensorFloat-32 regardless of other settings; `mx.test_utils` chooses its tolerances by it."
)
_REQUIRE = "Makes `pip install` fail if the C++ extension cannot be built, instead of installing without it."
_FLAGS = "Compiler options; -g keeps the symbols of the extension."
_PARLAI_HOME = "Folder of a program with agents; stored in `opt['parlai_home']`."
_PARLAI_DATA = "Folder of task files unless `--datapath` is passed; stored in `opt['datapath']`."
_APPDATA = "Parent folder of the default MXNET_HOME on Windows."

_PIPE = "1 allows programs that datasets of `fluid` run to read files; see `set_pipe_command`."
_AS = "Set by `mx.install_as_mxnet` and `python -m dpmodule program.py`: children answer `import mxnet` too."
_PATH = "Python's folders of modules; with `DPMODULE_AS`, it begins with one whose `sitecustomize.py` answers imports."

VARIABLES = (
    EnvironmentVariable("DPMODULE_ALLOW_PIPE_COMMAND", "0 or 1", "0", EACH_USE, _PIPE),
    EnvironmentVariable("DPMODULE_AS", "systems with options and modules, and prefix", "none", IMPORT, _AS),
    EnvironmentVariable("PYTHONPATH", "folders", "none", IMPORT, _PATH, owner="Python"),
    EnvironmentVariable("DPMODULE_DISABLE_PASSES", "names of passes", "none", IMPORT, _PASSES),
    EnvironmentVariable("DPMODULE_GPU_TYPE", "a type of torch's devices", "cuda", IMPORT, _GPU),
    EnvironmentVariable("DPMODULE_ISA", "plain, avx2 or avx512", "the best there is", FIRST_USE, _ISA),
    EnvironmentVariable("DPMODULE_MALLOC", "keep", "freed memory goes back", IMPORT, _MALLOC),
    EnvironmentVariable("DPMODULE_NATIVE", "0 or 1", "1", IMPORT, _NATIVE),
    EnvironmentVariable("DPMODULE_ONEDNN", "0 or 1", "by the processor", FIRST_USE, _ONEDNN),
    EnvironmentVariable("DPMODULE_PROGRESS", "0 or 1", "1", EACH_USE, _PROGRESS),
    EnvironmentVariable("DPMODULE_REQUIRE_NATIVE", "any text", "not set", BUILD, _REQUIRE),
    EnvironmentVariable("DPMODULE_TF32", "0 or 1", "torch's settings", IMPORT, _TF32),
    EnvironmentVariable("MXNET_BACKWARD_DO_MIRROR", "0 or 1", "0", BIND, _MIRROR, "MXNet"),
    EnvironmentVariable(
        "MXNET_CUDA_ALLOW_TENSOR_CORE", "0 or 1", "torch's settings", IMPORT, _ALLOW, "MXNet"
    ),
    EnvironmentVariable(
        "MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION", "0 or 1", "torch's settings", IMPORT, _CONVERT, "MXNet"
    ),
    EnvironmentVariable("MXNET_ELIMINATE_COMMON_EXPR", "0 or 1", "1", BIND, _MERGE, "MXNet"),
    EnvironmentVariable("MXNET_ENABLE_CUDA_GRAPHS", "0 or 1", "0", BIND, _GRAPHS, "MXNet"),
    EnvironmentVariable("MXNET_HOME", "a folder", "~/.mxnet", EACH_USE, _HOME, "MXNet"),
    EnvironmentVariable("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0 or 1", "1", EACH_USE, _FALLBACK, "MXNet"),
    EnvironmentVariable("MXNET_UPDATE_ON_KVSTORE", "0 or 1", "1", EACH_USE, _ON_STORE, "MXNet"),
    EnvironmentVariable("CD_JOB", "1", "not set", EACH_USE, _CD_JOB, "MXNet"),
    EnvironmentVariable("DMLC_ROLE", "any", "not set", EACH_USE, _DMLC, "MXNet"),
    EnvironmentVariable("DMLC_PS_*", "any", "not set", EACH_USE, _DMLC, "MXNet"),
    EnvironmentVariable("DMLC_NUM_*", "any", "not set", EACH_USE, _DMLC, "MXNet"),
    EnvironmentVariable("PARLAI_HOME", "a folder", "the current one", EACH_USE, _PARLAI_HOME, "ParlAI"),
    EnvironmentVariable(
        "PARLAI_DATAPATH", "a folder", "data in PARLAI_HOME", EACH_USE, _PARLAI_DATA, "ParlAI"
    ),
    EnvironmentVariable("RANK", "a number from 0", "not set: one process", EACH_USE, _RANK, "torch"),
    EnvironmentVariable("WORLD_SIZE", "a number from 1", "not set: one process", EACH_USE, _WORLD, "torch"),
    EnvironmentVariable("LOCAL_WORLD_SIZE", "a number from 1", "not set", EACH_USE, _LOCAL, "torch"),
    EnvironmentVariable("MASTER_ADDR", "a host", "not set", EACH_USE, _MEET, "torch"),
    EnvironmentVariable("MASTER_PORT", "a port", "not set", EACH_USE, _MEET, "torch"),
    EnvironmentVariable("TORCHELASTIC_RESTART_COUNT", "a number", "0", EACH_USE, _RESTART, "torch"),
    EnvironmentVariable("KINETO_LOG_LEVEL", "a number", "torch's", EACH_USE, _KINETO, "torch"),
    EnvironmentVariable("CUBLAS_WORKSPACE_CONFIG", "see NVIDIA", "torch's", EACH_USE, _CUBLAS, "NVIDIA"),
    EnvironmentVariable("NVIDIA_TF32_OVERRIDE", "0", "not set", EACH_USE, _NVIDIA, "NVIDIA"),
    EnvironmentVariable("CFLAGS", "options", "setuptools' own", BUILD, _FLAGS, "compilers"),
    EnvironmentVariable("CXXFLAGS", "options", "setuptools' own", BUILD, _FLAGS, "compilers"),
    EnvironmentVariable("APPDATA", "a folder", "set by Windows", EACH_USE, _APPDATA, "Windows"),
)
"""All variables; a name that ends in * is a prefix."""


def set_variables(owners: Collection[str] = ("dpmodule", "MXNet")) -> dict[str, str]:
    """Return the variables that are set, with their values.

    Args:
        owners: systems whose variables are returned.

    Example:
        >>> from dpmodule._core.environment import set_variables
        >>> with mx.test_utils.environment("MXNET_HOME", "/data"):
        ...     set_variables()["MXNET_HOME"]
        '/data'
    """
    names = {one.name for one in VARIABLES if one.owner in owners}
    return {name: value for name, value in sorted(os.environ.items()) if name in names}
