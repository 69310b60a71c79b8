"""The attributes of MXNet's `Module` that programs and subclasses read and set."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import StateError
from helpers.small_fits import SHAPES, TWO, batch, blobs, chain, classifier, ready, same, step

SGD = {"learning_rate": 0.1, "momentum": 0.9}


def network():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc2")
    return mx.sym.SoftmaxOutput(mx.sym.BatchNorm(net, name="bn"), name="softmax")


def trained():
    mod = ready(network(), init="ones", optimizer=SGD)
    step(mod, batch())
    return mod


def test_a_module_is_made_from_a_checkpoint_by_hand(tmp_path):
    """Subclasses copy MXNet's `Module.load`, which sets the values before binding."""

    class Custom(mx.mod.Module):
        @staticmethod
        def load(prefix, epoch):
            symbol, args, auxs = mx.model.load_checkpoint(prefix, epoch)
            mod = Custom(symbol=symbol)
            mod._arg_params = args
            mod._aux_params = auxs
            mod.params_initialized = True
            mod._preload_opt_states = f"{prefix}-{epoch:04d}.states"
            return mod

    first, prefix = trained(), str(tmp_path / "net")
    first.save_checkpoint(prefix, 1, save_optimizer_states=True)
    second = Custom.load(prefix, 1)
    second.bind(*SHAPES)
    assert (second.params_initialized, second.optimizer_initialized) == (True, False)
    second.init_optimizer(optimizer_params=SGD)
    for mod in (first, second):
        step(mod, batch())
    same(second, first, 1e-6)
    found, wanted = second._aux_params["bn_moving_mean"], first.get_params()[1]["bn_moving_mean"]
    np.testing.assert_array_equal(found.asnumpy(), wanted.asnumpy())


def test_values_that_are_set_on_a_running_module_are_used():
    mod = trained()
    mod._arg_params = {"fc2_bias": mx.nd.full((4,), 7)}
    mod._sync_params_from_devices()
    assert mod._exec_group.execs[0].arg_dict["fc2_bias"].asnumpy().tolist() == [7] * 4
    assert mod._params_dirty is False
    mod._params_dirty = True  # programs set it; there is nothing to bring in step


def test_steps_set_to_false_are_done_again():
    mod = trained()
    mod.params_initialized = False
    with pytest.raises(StateError, match="init_params"):
        mod.get_params()
    mod.init_params(mx.init.Constant(2))
    assert (mod._arg_params["fc2_weight"].asnumpy() == 2).all()
    assert not mod.optimizer_initialized
    mod.init_optimizer(optimizer="adam")
    mod.optimizer_initialized = False
    mod.init_optimizer(optimizer="sgd")
    assert isinstance(mod._optimizer, mx.optimizer.SGD)


def test_names_and_shapes():
    mod = mx.mod.Module(network(), context=TWO, work_load_list=[1, 3])
    assert [mod._data_shapes, mod._label_shapes, mod._arg_params, mod._aux_params] == [None] * 4
    assert (mod._output_names, mod._aux_names) == (["softmax_output"], ["bn_moving_mean", "bn_moving_var"])
    assert [mod._work_load_list, mod._kvstore, mod._updater] == [[1, 3], None, None]


def doubled(batch):
    return mx.io.DataBatch([batch.data[0] * 2], batch.label, pad=batch.pad, bucket_key=batch.bucket_key)


def module_of(kind):
    return {
        "module": lambda: mx.mod.Module(classifier()),
        "buckets": lambda: mx.mod.BucketingModule(lambda key: (classifier(), ["data"], ["softmax_label"]), 2),
        "chain": chain,
    }[kind]()


def overridden(kind, how, calls):
    """Return a module whose `forward` doubles the data and whose `backward` is recorded."""
    plain = module_of(kind)
    before, back = plain.forward, plain.backward

    def forward(data_batch, is_train=None):
        calls.append("forward")
        before(doubled(data_batch), is_train=is_train)

    def backward(out_grads=None):
        calls.append("backward")
        back(out_grads)

    if how == "object":
        plain.forward, plain.backward = forward, backward
    else:
        own = {"forward": lambda self, *args, **kwargs: forward(*args, **kwargs)}
        own["backward"] = lambda self, out_grads=None: backward(out_grads)
        plain.__class__ = type("Own", (type(plain),), own)
    return plain


class Keyed(mx.io.DataIter):
    """Batches with the key of their bucket."""

    default_bucket_key = 2

    def __init__(self, factor):
        super().__init__(8)
        self.inner, self.factor = blobs(count=20), factor
        self.provide_data, self.provide_label = self.inner.provide_data, self.inner.provide_label

    def reset(self):
        self.inner.reset()

    def next(self):
        found = self.inner.next()
        found.data, found.bucket_key = [found.data[0] * self.factor], 2
        return found


@pytest.mark.parametrize("how", ["class", "object"])
@pytest.mark.parametrize("kind", ["module", "buckets", "chain"])
def test_loops_call_an_overridden_forward_and_backward(kind, how):
    calls, found = [], []
    for module, factor in ((overridden(kind, how, calls), 1), (module_of(kind), 2)):
        mx.random.seed(1)
        data = Keyed(factor)
        module.fit(data, num_epoch=2, initializer=mx.init.Xavier())
        loss = module.score(data, "ce")[0][1]
        found.append((module.get_params()[0], loss, module.predict(data).asnumpy()))
    assert calls == ["forward", "backward"] * 6 + ["forward"] * 6
    (params, loss, outputs), (wanted, wanted_loss, wanted_outputs) = found
    for name, value in wanted.items():
        np.testing.assert_allclose(params[name].asnumpy(), value.asnumpy(), rtol=1e-5, atol=1e-6)
    assert loss == pytest.approx(wanted_loss)
    np.testing.assert_allclose(outputs, wanted_outputs, rtol=1e-5)


def test_outputs_with_fewer_rows_than_the_padding():
    scores = classifier()
    mod = mx.mod.Module(mx.sym.Group([scores, mx.sym.MakeLoss(mx.sym.sum(scores), name="l")]))
    it = blobs(count=10)
    mod.bind(it.provide_data, it.provide_label)
    mod.init_params()
    shapes = [[out.shape for out in outputs] for outputs, _, _ in mod.iter_predict(it)]
    assert shapes == [[(8, 3), (1,)], [(2, 3), (0,)]]


def test_fit_gets_and_sets_parameters_by_a_modules_own_methods():
    class Own(mx.mod.Module):
        def get_params(self):
            calls.append("get")
            arguments, states = super().get_params()
            return {name: 2 * value for name, value in arguments.items()}, states

        def set_params(self, arg_params, aux_params, **options):
            calls.append("set")
            super().set_params(
                {name: 0.5 * value for name, value in arg_params.items()}, aux_params, **options
            )

    calls, found = [], []
    mod = Own(classifier())
    mod.fit(
        blobs(),
        num_epoch=2,
        epoch_end_callback=lambda epoch, symbol, arguments, states: found.append(
            arguments["scores_weight"].asnumpy()
        ),
    )
    assert calls == ["get", "set", "get"] * 2
    np.testing.assert_allclose(
        found[1], 2 * mx.mod.Module.get_params(mod)[0]["scores_weight"].asnumpy(), rtol=1e-6
    )


def test_set_parameters_are_trained_further_and_rebinding_keeps_them():
    mod = ready(optimizer=SGD, contexts=TWO)
    args, states = mod.get_params()
    mod.set_params({name: value + 5 for name, value in args.items()}, states)
    step(mod, batch())
    step(mod, batch(seed=1))
    mod.bind(*SHAPES, force_rebind=True)  # without get_params before
    other = ready(contexts=TWO)
    other.set_params({name: value + 5 for name, value in args.items()}, states)
    other.init_optimizer(optimizer_params=SGD)
    step(other, batch())
    step(other, batch(seed=1))
    same(mod, other)
