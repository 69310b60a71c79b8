"""Lines of a dataset in memory, which several processes distribute at random: none is lost or doubled."""

from pathlib import Path

import dpmodule.fluid as fluid
from helpers.dist_programs import create

store = create()
rank, size = store.rank, store.num_workers
count = 90 if rank else 0  # lines of the file
Path(f"part-{rank}").write_text("".join(f"1 {1000 * rank + number}\n" for number in range(count)) or "1 5\n")
number = fluid.layers.data("number", shape=[1], dtype="int64")
dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
dataset.set_use_var([number])
dataset.set_filelist([f"part-{rank}"])
dataset.load_into_memory()
total = dataset.get_memory_data_size(fleet=True)
assert total == 90 * (size - 1) + 1
dataset.global_shuffle()
own = dataset.get_memory_data_size()
assert dataset.get_memory_data_size(fleet=True) == total
assert 0.5 * total / size < own < 1.6 * total / size
lines = Path(dataset.lines().reading(1).parts[0].path).read_text().splitlines()
everything = [line for each in store.ranks.gather(lines) for line in each]
wanted = ["1 5", *(f"1 {1000 * other + k}" for other in range(1, size) for k in range(90))]
assert sorted(everything) == sorted(wanted)
assert lines != sorted(lines)
store.barrier()
