#!/bin/bash
# All that only a CUDA device can tell, in one go: the tests marked "gpu", the same contexts on the simulated device, and
# the figures, two contexts on one GPU against one among them. From the root of a checkout, in its environment:
#
#   benchmarks/on_gpu.sh [FOLDER]      logs go to FOLDER, on_gpu unless told otherwise; figures into results.json
#
# Exit status: 0 all well, 1 something failed (the rest has run all the same), 2 there is no CUDA device.
set -u
cd "$(dirname "$0")/.." || exit 2
logs=${1:-on_gpu}
python - <<'PYTHON' || exit 2
import sys

try:
    import torch
except ImportError:
    sys.exit("on_gpu.sh: this python has no torch; run it in the environment of the checkout")
if not torch.cuda.is_available():
    sys.exit("on_gpu.sh: torch sees no CUDA device; install a build of torch for CUDA, on a machine that has one")
print(torch.cuda.get_device_name(), "CUDA", torch.version.cuda, "torch", torch.__version__)
PYTHON
mkdir -p "$logs" || exit 2
failed=()

step() { # NAME COMMAND...: run a command, keep what it says, go on whatever it returns
    local name=$1
    shift
    echo "== $name: $*"
    "$@" 2>&1 | tee "$logs/$name.log" | tail -n 5
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed+=("$name")
}

step tests python -m pytest -n 0 -q -m gpu tests
step simulated python -m pytest -n 0 -q -m "" tests/accelerator
step info python -m dpmodule info
step figures python -m benchmarks cuda autobatch --write

if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}; see $logs"
    exit 1
fi
echo "all well; logs are in $logs, figures in benchmarks/RESULTS.md"
