"""`BaseModule` as MXNet has it: a class that programs derive from, or fill in on one object."""

import pytest

import dpmodule as mx


class Batches:
    """An iterator that is no DataIter; its batches have no data."""

    provide_data = None
    provide_label = None

    def __init__(self, count):
        self.count, self.given, self.label_reads = count, 0, []

    def reset(self):
        self.given = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.given == self.count:
            raise StopIteration
        self.given += 1
        return Batch(self, self.given)


class Batch:
    def __init__(self, source, number):
        self.source, self.number = source, number

    @property
    def label(self):
        # the batch whose label is read is the last one handed out
        self.source.label_reads.append((self.number, self.source.given))


def test_methods_can_be_set_on_an_object_and_fit_holds_one_batch_at_a_time():
    mod = mx.mod.BaseModule()
    calls = []
    for name in ("bind", "init_params", "init_optimizer", "forward", "backward", "update", "update_metric"):
        setattr(mod, name, lambda *args, _name=name, **kwargs: calls.append(_name))
    mod.get_params = lambda: (None, None)
    data = Batches(3)
    mod.fit(data, num_epoch=2)
    assert calls.count("update") == 6
    assert data.label_reads
    assert all(number == given for number, given in data.label_reads)


@pytest.mark.parametrize(
    "name", ["bind", "get_params", "forward", "backward", "update", "get_outputs", "install_monitor"]
)
def test_what_is_not_defined_says_so(name):
    arguments = {"bind": [[]], "forward": [None], "install_monitor": [None]}.get(name, [])
    with pytest.raises(NotImplementedError, match=f"BaseModule does not define {name}"):
        getattr(mx.mod.BaseModule(), name)(*arguments)


@pytest.mark.parametrize(
    "name", ["data_names", "output_names", "data_shapes", "label_shapes", "output_shapes"]
)
def test_properties_that_are_not_defined_say_so(name):
    with pytest.raises(NotImplementedError, match=f"BaseModule does not define {name}"):
        getattr(mx.mod.BaseModule(), name)
