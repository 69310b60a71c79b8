"""``dpmodule fit``: train a network on digits, an .npz or a CSV."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from .. import callback, checkpoint, context, initializer, io, lr_scheduler, random, symbol
from ..base import ArgumentError
from ..module import Module
from . import data, networks, options

__all__ = ["add_commands"]

_DEFAULT_LR = {"sgd": 0.1, "nag": 0.1, "adam": 0.003}
_WITH_MOMENTUM = ("sgd", "nag")


def add_commands(commands: Any) -> None:
    """Add ``fit`` to the subcommands of the command line."""
    parser = commands.add_parser(
        "fit",
        help="train a network",
        description="Train a network: by default a small LeNet on scikit-learn's handwritten digits.",
    )
    parser.set_defaults(run=_run)
    options.add_data_options(parser)
    _add_network_options(parser.add_argument_group("network and files"))
    _add_training_options(parser.add_argument_group("training"))


def _add_network_options(group: Any) -> None:
    group.add_argument(
        "--network", choices=sorted(networks.NETWORKS), default="lenet", help="(default: lenet)"
    )
    group.add_argument(
        "--symbol", metavar="FILE", help="train this -symbol.json, inputs 'data' and '..._label', instead"
    )
    group.add_argument(
        "--prefix",
        default="model",
        help="writes PREFIX-symbol.json, PREFIX-NNNN.params and PREFIX-NNNN.states (default: model)",
    )
    group.add_argument(
        "--save-every", type=options.positive, metavar="EPOCHS", help="(default: only after the last epoch)"
    )
    group.add_argument(
        "--load-epoch", type=int, metavar="EPOCH", help="go on from this epoch of PREFIX, optimizer included"
    )


def _add_training_options(group: Any) -> None:
    group.add_argument(
        "--contexts",
        type=options.contexts,
        default=[context.cpu()],
        metavar="LIST",
        help="devices, such as 'cpu(0),cpu(1)' (default: cpu(0))",
    )
    group.add_argument(
        "--workload",
        type=options.workload,
        metavar="LIST",
        help="shares of each batch per device, such as 1,3",
    )
    group.add_argument(
        "--epochs", type=options.positive, default=20, help="number of the last epoch (default: 20)"
    )
    group.add_argument(
        "--batch-size", type=options.positive, default=64, help="samples per step (default: 64)"
    )
    group.add_argument("--optimizer", default="sgd", help="name of an optimizer (default: sgd)")
    group.add_argument("--lr", type=float, help="learning rate (default: the optimizer's; 0.1 for sgd)")
    group.add_argument("--momentum", type=float, default=0.9, help="of sgd and nag (default: 0.9)")
    group.add_argument("--wd", type=float, default=0.0, help="weight decay (default: 0)")
    group.add_argument(
        "--schedule",
        choices=["cosine", "constant"],
        default="cosine",
        help="how the learning rate goes on; cosine falls to 0 at the last epoch (default: cosine)",
    )
    group.add_argument("--kvstore", default="local", help="local, device or none (default: local)")
    group.add_argument("--seed", type=int, default=0, help="(default: 0)")
    group.add_argument(
        "--target", type=options.fraction, help="exit with 1 if the final accuracy is below this"
    )


def _run(args: argparse.Namespace) -> int:
    random.seed(args.seed)
    samples = data.read(args)
    training, validation = data.split(data.labelled(samples), args.validation)
    module = _module(args, samples)
    train_iter = _iterator(module, training, args.batch_size, shuffle=True)
    val_iter = _iterator(module, validation, args.batch_size) if len(validation.x) else None
    num_batches = math.ceil(len(training.x) / train_iter.batch_size)
    with callback.TqdmBar(num_batches, train_iter.batch_size) as bar:
        module.fit(
            train_iter,
            eval_metric=["acc", "ce"],
            optimizer=args.optimizer,
            optimizer_params=_optimizer_params(args, num_batches),
            initializer=initializer.Xavier(factor_type="in", magnitude=2.0),
            kvstore=None if args.kvstore == "none" else args.kvstore,
            begin_epoch=args.load_epoch or 0,
            num_epoch=args.epochs,
            batch_end_callback=bar,
            epoch_end_callback=callback.module_checkpoint(
                module, args.prefix, args.save_every or args.epochs, save_optimizer_states=True
            ),
        )
    return _report(args, module, val_iter or train_iter, "validation" if val_iter else "training")


def _module(args: argparse.Namespace, samples: data.Samples) -> Module:
    """Return the module to train: loaded, from a file, or one of the named networks."""
    kwargs = {"context": args.contexts, "work_load_list": args.workload}
    if args.load_epoch is not None:
        if args.load_epoch >= args.epochs:
            raise ArgumentError(
                f"--load-epoch is {args.load_epoch}, so --epochs {args.epochs} leaves nothing to do; "
                "--epochs is the number of the last epoch"
            )
        net = symbol.load(checkpoint.symbol_file(args.prefix))
        kwargs["label_names"] = networks.label_names(net)
        return Module.load(args.prefix, args.load_epoch, load_optimizer_states=True, **kwargs)
    if args.symbol is not None:
        net = symbol.load(args.symbol)
    else:
        net = networks.build(args.network, samples.x.shape[1:], samples.num_classes)
    return Module(net, label_names=networks.label_names(net), **kwargs)


def _iterator(
    module: Module, samples: data.Samples, batch_size: int, shuffle: bool = False
) -> io.NDArrayIter:
    names = module.label_names
    return io.NDArrayIter(
        samples.x,
        samples.y,
        min(batch_size, len(samples.x)),
        shuffle=shuffle,
        data_name=module.data_names[0],
        label_name=names[0] if names else "softmax_label",
    )


def _optimizer_params(args: argparse.Namespace, num_batches: int) -> dict[str, Any]:
    params: dict[str, Any] = {"wd": args.wd}
    rate = args.lr if args.lr is not None else _DEFAULT_LR.get(args.optimizer.lower())
    if rate is not None:
        params["learning_rate"] = rate
        if args.schedule == "cosine":
            params["lr_scheduler"] = lr_scheduler.CosineScheduler(num_batches * args.epochs, base_lr=rate)
    if args.optimizer.lower() in _WITH_MOMENTUM:
        params["momentum"] = args.momentum
    return params


def _report(args: argparse.Namespace, module: Module, samples: io.DataIter, kind: str) -> int:
    """Print the final accuracy and what was written; return the exit code."""
    accuracy = dict(module.score(samples, "acc"))["accuracy"]
    print(f"final {kind} accuracy: {accuracy:.4f}")
    written = checkpoint.params_file(args.prefix, args.epochs)
    print(f"written: {checkpoint.symbol_file(args.prefix)}, {written} and its .states")
    if args.target is not None and accuracy < args.target:
        print(f"the target of {args.target:.4f} was missed", file=sys.stderr)
        return 1
    return 0
