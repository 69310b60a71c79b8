"""Every environment variable that this package reads or sets; the page of them and ``dpmodule info`` read this table.

The values are read where they are needed, not here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

BUILD, IMPORT, FIRST_USE = "when it is built", "at the import", "at the first use"
BIND, EACH_USE = "at each bind", "at each use"


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """One variable.

    Attributes:
        read: when it is read; a change after that has no effect.
        owner: whose it is: "dpmodule", "MXNet" where its program may set it already, or another system.
    """

    name: str
    values: str
    default: str
    read: str
    text: str
    owner: str = "dpmodule"


_NATIVE = (
    "0 leaves the C++ extension alone: streams, parsers, autobatch and kernels then run in Python and torch."
)
_PASSES = "Switches rewrites of graphs off, names with commas between them; `mx.executor.disabled` does so for a block."
_ISA = (
    "Lets the extension use no more of the processor's instructions than these, for tests and measurements."
)
_ONEDNN = (
    "Says whether large matrix products go to oneDNN instead of MKL; 0 leaves convolutions to torch, too."
)
_MALLOC = "Keeps freed memory in the process where it is keep, as `mx.util.keep_large_blocks()` does."
_PROGRESS = "0 turns off the bar that `fit` shows in terminals and notebooks."
_TF32 = (
    "Lets GPUs round the factors of float32 products to TensorFloat-32; goes before MXNet's two variables."
)
_ALLOW = "0 keeps TensorFloat-32 off."
_CONVERT = "1 lets GPUs round the factors of float32 products to TensorFloat-32."
_MERGE = "0 keeps equal operators with equal inputs apart, which are otherwise computed once."
_GRAPHS = "Records runs on GPUs that repeat in CUDA graphs, for modules that do not say `cuda_graphs`."
_MIRROR = "Computes cheap operators again in backward instead of keeping their results, unless a module says `mirror`."
_GPU = "torch's word for the devices that `mx.gpu` means: another one for GPUs of another maker, such as xpu."
_HOME = "The folder of downloaded data, and of an MXNet whose `im2rec.py` `mx.test_utils` looks for."
_FALLBACK = "0 keeps quiet about operators that work on dense copies of sparse arrays."
_ON_STORE = "0 has each device update its own copy of the weights instead of the store."
_CD_JOB = "1 marks the run of a delivery pipeline for `mx.test_utils.is_cd_run`."
_RANK = "The number of this process among those that train together; `torchrun` sets it."
_WORLD = "How many processes train together."
_LOCAL = "How many of them run on this machine."
_MEET = "Where the processes meet."
_RESTART = "How often `torchrun` has started the processes again; they then meet under other keys."
_DMLC = "MXNet's launcher sets it for its servers, which there are none of here: a distributed store refuses to start."
_CUBLAS = "Set to :4096:8 for `fit(deterministic=True)` where it is not set: without it torch refuses products on GPUs."
_KINETO = "Set to 6 by `dpmodule explain --measure-memory`, so that torch's profiler writes nothing."
_NVIDIA = (
    "0 takes TensorFloat-32 away whatever programs ask for; `mx.test_utils` chooses its tolerances by it."
)
_REQUIRE = "Makes `pip install` fail where the C++ extension cannot be built, instead of going on without it."
_FLAGS = "Options of the compiler; -g among them keeps the symbols of the extension."
_PARLAI_HOME = "The folder of a program with agents; `opt['parlai_home']` holds it."
_PARLAI_DATA = "Where tasks find their files unless `--datapath` says it; `opt['datapath']` holds it."
_APPDATA = "On Windows, where the default of MXNET_HOME lies."

VARIABLES = (
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
"""All of them; a name that ends in * stands for every name that begins so."""


def set_variables() -> dict[str, str]:
    """Return those of this package's and of MXNet's variables that are set, with their values.

    Example:
        >>> from dpmodule._core.environment import set_variables
        >>> with mx.test_utils.environment("MXNET_HOME", "/data"):
        ...     set_variables()["MXNET_HOME"]
        '/data'
    """
    names = {one.name for one in VARIABLES if one.owner in ("dpmodule", "MXNet")}
    return {name: value for name, value in sorted(os.environ.items()) if name in names}
