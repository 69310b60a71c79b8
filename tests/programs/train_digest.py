"""Train, predict and draw numbers without a seed, with so many threads; print a digest of all bits.

Further arguments are sizes of memory to hold, so that what is allocated begins elsewhere.
"""

import hashlib
import sys

held = [bytearray(int(size)) for size in sys.argv[2:]]
import numpy as np  # noqa: E402 (after what is held)
import torch  # noqa: E402

import dpmodule as mx  # noqa: E402
from helpers.nets import lenet, mlp  # noqa: E402

torch.set_num_threads(int(sys.argv[1]))
outputs, _ = mx.rnn.GRUCell(64).unroll(9, mx.sym.Variable("data"), merge_outputs=True)
recurrent = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(outputs, num_hidden=10), name="softmax")
numbers, digest = np.random.RandomState(0), hashlib.sha256()
for net, shape in (
    (mlp(10, 512, dropout=0.3), (200, 70)),
    (mlp(10, 30, dropout=0.3), (32, 8)),
    (lenet(10), (8, 1, 14, 14)),
    (recurrent, (8, 9, 16)),
):
    data = numbers.uniform(-1, 1, shape).astype("f4")
    batches = mx.io.NDArrayIter(data, numbers.randint(0, 10, len(data)).astype("f4"), shape[0])
    module = mx.mod.Module(net, context=[mx.cpu(0), mx.cpu(1)] if len(shape) == 2 else mx.cpu())
    module.fit(batches, num_epoch=2, initializer=mx.init.Xavier(), optimizer="adam")
    for array in (*module.get_params()[0].values(), module.predict(batches)):
        digest.update(array.asnumpy().tobytes())
digest.update(mx.nd.random.normal(shape=(9,)).asnumpy().tobytes())
print(digest.hexdigest())
