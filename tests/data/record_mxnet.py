"""Record again what the tests compare with, as MXNet 1.9.1 makes it: ``python record_mxnet.py [--check] [part ...]``.

Run it in an environment with MXNet 1.9.1 (CPU build, Python 3.8, NumPy 1.23). A part is a function of `PARTS`; without
one all run. A recording holds the arguments and inputs that it was made with, unless a module of ``tests/helpers``
does: a further case is a further entry there. With ``--check`` nothing is written. What differs from the file is told.
"""

import ctypes
import gzip
import json
import pkgutil
import sys
import tempfile
import warnings
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import executor_manager
from mxnet.base import _LIB, SymbolHandle, c_str, c_str_array, mx_uint, py_str
from mxnet.contrib.svrg_optimization.svrg_module import SVRGModule

HERE = Path(__file__).resolve().parent
GOLDENS = HERE / "goldens"
sys.path.insert(0, str(HERE.parent))


def read(name):
    """Return what a file holds."""
    path = HERE / name
    if path.suffix == ".npz":
        with np.load(path) as file:
            return dict(file)
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_text())


def write(name, found):
    path = HERE / name
    if path.suffix == ".npz":
        np.savez_compressed(path, **found)
    elif path.suffix == ".gz":
        text = json.dumps(found, separators=(",", ":"), sort_keys=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        rows = [json.dumps(row) for row in found] if isinstance(found, list) else [
            "%s: %s" % (json.dumps(key), json.dumps(row)) for key, row in found.items()]
        path.write_text(("[\n%s\n]\n" if isinstance(found, list) else "{\n%s\n}\n") % ",\n".join(rows))


def differences(old, new):
    """Yield the names of entries that differ, with how far numbers do."""
    if isinstance(old, list):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    for key in {**old, **new}:
        a, b = old.get(key), new.get(key)
        numbers = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype.kind in "fiu" and a.shape == b.shape
        if numbers and not (a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")):
            yield "%s: by %g" % (key, np.nanmax(np.abs(a.astype("f8") - b)))
        elif not numbers and not np.array_equal(a, b):
            yield str(key)


def array(value, **options):
    return mx.nd.array(value, **dict({"dtype": getattr(value, "dtype", "float32")}, **options))


def tuples(value):
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def flat(state):
    if state is None:
        return []
    return [a for part in state for a in flat(part)] if isinstance(state, (list, tuple)) else [state]


def function(space, op):
    """Return the function that MXNet generated for an operator."""
    for prefix in ("_contrib_", "_linalg_", "_image_", "_sparse_"):
        if op.startswith(prefix):
            return getattr(getattr(space, prefix.strip("_")), op[len(prefix) :])
    return getattr(space, op, None) or getattr(space._internal, op)


def bind(symbol, args, wanted, aux=None):
    """Bind a symbol, and return it with the gradients that it will write."""
    grads = {key: mx.nd.zeros(args[key].shape, dtype=args[key].dtype) for key in wanted}
    req = {key: "write" if key in grads else "null" for key in args}
    return symbol.bind(mx.cpu(), args, grads or None, req, aux or None), grads


def ops():
    """Operators, in the layout that goldens/ops/README.md tells."""
    for path in sorted(set((GOLDENS / "ops").glob("*.json")) - set((GOLDENS / "ops").glob("numpy_*.json"))):
        cases, arrays = read(path), read(path.with_suffix(".npz"))
        for case in cases:
            operator(case, arrays)
        yield path, cases
        yield path.with_suffix(".npz"), arrays


def operator(case, arrays):
    name = case["name"] + "/%s/%s"
    attrs = {key: tuples(value) for key, value in case["attrs"].items()}
    symbol = function(mx.sym, case["op"])(*map(mx.sym.Variable, case["inputs"]), name="op", **attrs)
    case["arguments"], case["outputs"] = symbol.list_arguments(), symbol.list_outputs()
    case["aux"], case["symbol_json"] = symbol.list_auxiliary_states(), symbol.tojson()
    args = {key: array(arrays[name % ("in", key)]) for key in case["arguments"]}
    aux = {key: array(arrays[name % ("aux_in", key)]) for key in case["aux"]}
    bound, grads = bind(symbol, args, case["grads"], aux)
    found = {}
    for kind, train in [("eval", False)] * case["eval_too"] + [("out", case["is_train"])]:
        outputs = bound.forward(is_train=train)
        found.update({name % (kind, i): out.asnumpy() for i, out in enumerate(outputs)})
    if case["backward"]:
        heads = [array(arrays[name % ("head", i)]) for i in range(len(outputs))] if case["head_gradient"] else None
        bound.backward(heads)
        found.update({name % ("grad", key): grad.asnumpy() for key, grad in grads.items()})
    mx.nd.waitall()
    found.update({name % ("aux_out", key): state.asnumpy() for key, state in aux.items()})
    some = name % ("out", "") in {key.rpartition("/")[0] + "/" for key in arrays}  # outputs of no meaning were removed
    arrays.update({key: value for key, value in found.items() if key in arrays or not some})


def numpy_ops():
    """Operators of graphs that are written under ``npx.set_np()``, in the same layout; `numpy_cases` has their calls."""
    from numpy_cases import GROUPS, WITHOUT_GRADIENT

    before = mx.util.set_np_shape(True)
    for group, rows in GROUPS.items():
        found = [numpy_call(number, row, row[0] not in WITHOUT_GRADIENT) for number, row in enumerate(rows)]
        yield "goldens/ops/%s.json" % group, [case for case, _ in found]
        yield "goldens/ops/%s.npz" % group, {key: value for _, arrays in found for key, value in arrays.items()}
    mx.util.set_np_shape(before)


def numpy_symbol(op, attrs, names, count):
    """Return the first outputs of an operator, which has no function in ``mx.sym``."""
    rows = [{"op": "null", "name": name, "inputs": []} for name in names]
    node = {"op": op, "name": "op", "attrs": attrs, "inputs": [[i, 0, 0] for i in range(len(names))]}
    return mx.sym.load_json(
        json.dumps(
            {
                "nodes": [*rows, node],
                "arg_nodes": list(range(len(names))),
                "heads": [[len(names), i, 0] for i in range(count)],
                "attrs": {"mxnet_version": ["int", 10901], "is_np_shape": ["int", 1]},
            }
        )
    )


def numpy_call(number, row, with_gradient):
    name, op, attrs, inputs = row
    names = ["x%d" % i for i in range(len(inputs))]
    internals = numpy_symbol(op, attrs, names, 1).get_internals().list_outputs()
    symbol = numpy_symbol(op, attrs, names, sum(each.startswith("op_") for each in internals))
    draw = np.random.RandomState(number)

    def run(wanted):
        args = {key: array(value) for key, value in zip(names, inputs)}
        bound, grads = bind(symbol, args, wanted)
        outputs = [out.asnumpy() for out in bound.forward(is_train=True)]
        kinds = {"in": zip(names, inputs), "out": enumerate(outputs)}
        if wanted:
            heads = [draw.uniform(-1, 1, out.shape).astype(out.dtype) for out in outputs]
            bound.backward([array(head) for head in heads])
            mx.nd.waitall()
            kinds.update(head=enumerate(heads), grad=((key, grad.asnumpy()) for key, grad in grads.items()))
        return {"%s/%s/%s" % (name, kind, key): value for kind, each in kinds.items() for key, value in each}

    moving = [key for key, value in zip(names, inputs) if value.dtype.kind == "f"]
    if not (with_gradient and moving and any(value.size for value in inputs)):
        moving = []
    try:
        arrays = run(moving)
    except mx.MXNetError:  # MXNet has no gradient
        moving, arrays = [], run([])
    case = {
        "arguments": symbol.list_arguments(),
        "attrs": attrs,
        "aux": [],
        "backward": bool(moving),
        "eval_too": False,
        "grads": sorted(moving),
        "head_gradient": bool(moving),
        "inputs": names,
        "is_train": True,
        "name": name,
        "op": op,
        "outputs": symbol.list_outputs(),
        "symbol_json": symbol.tojson(),
    }
    return case, arrays


def update():
    """Update operators: arrays before (`<call>/in<i>`), and those that changed (`<call>/after<i>`)."""
    calls, arrays = read("goldens/update/update.json"), read("goldens/update/update.npz")
    for n, call in enumerate(calls):
        before = [arrays["c%d/in%d" % (n, i)] for i in range(call["inputs"])]
        given, out = [array(x) for x in before], call["out"]
        out = given[out] if isinstance(out, int) else [given[i] for i in out]
        function(mx.nd, call["op"])(*given, out=out, **call["attrs"])
        for i, (old, new) in enumerate(zip(before, given)):
            if not np.array_equal(old, new.asnumpy(), equal_nan=True):
                arrays["c%d/after%d" % (n, i)] = new.asnumpy()
    yield "goldens/update/update.npz", arrays


def optimizer_schedules():
    """Optimizers under rate schedules: both parameters after every update, the last of each row."""
    rows = read("optimizer_schedules/recorded.json")
    for row in rows:
        name, options, schedule, arguments, rate, _ = row
        schedule = getattr(mx.lr_scheduler, schedule)(**arguments)
        rates = {} if rate is None else {"learning_rate": rate}
        step = mx.optimizer.get_updater(mx.optimizer.create(name, lr_scheduler=schedule, **options, **rates))
        draw, row[-1] = np.random.RandomState(0), []
        weights = [array(draw.uniform(-1, 1, 3), dtype="float32") for _ in range(2)]
        for _ in range(7):
            for index, weight in enumerate(weights):
                step(index, array(draw.uniform(-1, 1, 3), dtype="float32"), weight)
            row[-1].append([float("%.8g" % x) for weight in weights for x in weight.asnumpy()])
    yield "optimizer_schedules/recorded.json", rows


def rnn_chains():
    """Unrolled recurrent networks: outputs and gradients of the saved symbols."""
    for name in ("cells", "by_hand", "gluon"):
        found = read("rnn_chains/%s.json" % name)
        args = {key: array(value) for key, value in found["inputs"].items()}
        bound, grads = bind(mx.sym.load_json(json.dumps(found["symbol"])), args, sorted(set(args) - {"lengths"}))
        found["outputs"] = [numbers(out) for out in bound.forward(is_train=True)]
        bound.backward([array(head) for head in found["heads"]])
        found["gradients"] = {key: numbers(value) for key, value in grads.items()}
        yield "rnn_chains/%s.json" % name, found


def numbers(value):
    return value.asnumpy().astype(np.float64).round(7).tolist()


def control_flow():
    """Loops and branches: no arrays of a graph that MXNet cannot run, no gradients where it cannot differentiate."""
    from helpers.control_flow_cases import BUILDERS

    cases, arrays, draw = {}, {}, np.random.RandomState(7)
    for name, (build, shapes) in BUILDERS.items():
        mx.attribute.AttrScope._subgraph_names.clear()
        with mx.name.NameManager():
            symbol = build(mx)
        inferred = symbol.infer_shape_partial(**shapes)
        names = symbol.list_arguments(), symbol.list_outputs(), symbol.get_internals().list_outputs()
        cases[name] = dict(zip(("arguments", "outputs", "internals"), names), symbol=json.loads(symbol.tojson()))
        cases[name].update(shapes=shapes, inferred=inferred)
        try:
            args = {key: array(draw.uniform(-1, 1, shape) + (9 if key == "k" else 0), dtype="float32")
                    for key, shape in zip(names[0], inferred[0])}
            found = {"in/" + key: value.asnumpy() for key, value in args.items()}
            try:
                bound, grads = bind(symbol, args, names[0])
            except mx.MXNetError:
                bound, grads = bind(symbol, args, [])
            outputs = bound.forward(is_train=bool(grads))
            heads = [array(draw.uniform(-1, 1, out.shape), dtype="float32") for out in outputs]
            if grads:
                bound.backward(heads)
            for i, (out, head) in enumerate(zip(outputs, heads)):
                found["out/%d" % i], found["head/%d" % i] = out.asnumpy(), head.asnumpy()
            found.update({"grad/" + key: grad.asnumpy() for key, grad in grads.items()})
            arrays.update({"%s/%s" % (name, key): value for key, value in found.items()})
        except mx.MXNetError:
            pass
    yield "goldens/control_flow/control_flow.json", cases
    yield "goldens/control_flow/control_flow.npz", arrays


def symbols():
    """Names and attributes that calls make."""
    from helpers.name_cases import described, maker

    found = read("symbols/names.json")
    for case in found.values():
        case["made"] = described(mx, maker(mx, case["call"]))
    yield "symbols/names.json", found


def detection():
    """Networks of helpers/detection_nets.py: `<net>/out/<i>` and `<net>/grad/<argument>`."""
    from helpers.detection_nets import NETS, fill

    arrays = {}
    for name, make in NETS.items():
        symbol, shapes = make(mx)
        bound, draw = symbol.simple_bind(mx.cpu(), grad_req="write", **shapes), np.random.RandomState(3)
        for key in sorted(bound.arg_dict):
            bound.arg_dict[key][:] = mx.nd.array(fill(key, bound.arg_dict[key].shape, draw))
        arrays.update({"%s/out/%d" % (name, i): out.asnumpy() for i, out in enumerate(bound.forward(is_train=True))})
        bound.backward()
        arrays.update({"%s/grad/%s" % (name, key): grad.asnumpy() for key, grad in bound.grad_dict.items()})
    yield "goldens/detection/heads.npz", arrays


def chain():
    """Trainings of helpers/chain_cases.py."""
    from helpers import chain_cases

    chains, svrg = {}, {}
    for where, contexts in (("one", [mx.cpu(0)]), ("two", [mx.cpu(0), mx.cpu(1)])):
        for case in chain_cases.CHAINS:
            trained = chain_cases.train_chain(mx, case, contexts)
            chains.update({"%s/%s/%s" % (case, where, key): value for key, value in trained.items()})
        for case in chain_cases.SVRG:  # a store on two contexts: see docs/differences.md
            trained = chain_cases.train_svrg(mx, SVRGModule, case, contexts, None if where == "two" else "local")
            svrg.update({"%s/%s/%s" % (case, where, key): value for key, value in trained.items()})
    yield "goldens/chain/chains.npz", chains
    yield "goldens/chain/svrg.npz", svrg


def sparse():
    """Trainings of helpers/factorization.py and calls of helpers/sparse_calls.py."""
    from helpers import factorization, sparse_calls

    yield "goldens/sparse/factorization.npz", {
        "%s:%s" % (name, key): value
        for name in factorization.OPTIMIZERS for key, value in factorization.train(mx, name, mx.cpu()).items()
    }
    made = {label: call() for label, call in sparse_calls.calls(mx)}
    yield "goldens/sparse/calls.npz", {label: value.asnumpy() for label, value in made.items()}
    yield "goldens/sparse/calls.json", {label: value.stype for label, value in made.items()}


def trainers():
    """MXNet's first trainers (helpers/trainer_cases.py)."""
    from helpers import trainer_cases as cases

    found = {"feed_forward": cases.feed_forward(mx)[0], "manager": cases.manager(mx, executor_manager)}
    yield "goldens/trainers/trainers.json", {
        case: {key: np.asarray(value).round(7).tolist() for key, value in values.items()}
        for case, values in found.items()
    }


def initializer():
    """Which rule serves which name, saved forms, statistics of what is drawn, and fixed values."""
    from helpers.initializer_cases import rule_of

    init, found = mx.init, read("goldens/initializer/initializers.json")

    def filled(one, shape, name="w_weight"):
        arr = mx.nd.zeros(shape)
        one._init_weight(init.InitDesc(name), arr)
        return arr.asnumpy()

    found["rules"] = {name: rule_of(mx, init.InitDesc(name)) for name in found["rules"]}
    found["legacy_rules"] = {name: rule_of(mx, name) for name in found["legacy_rules"]}
    for row in found["dumps"]:
        row[2] = getattr(init, row[0])(**row[1]).dumps()
    for row in found["statistics"]:
        mx.random.seed(1)
        np.random.seed(1)
        values = filled(getattr(init, row[0])(**row[1]), row[2])
        rows = values.reshape(row[2][0], -1)
        gram = rows.dot(rows.T) if rows.shape[0] <= rows.shape[1] else rows.T.dot(rows)
        row[3] = {"std": float(values.std()), "absmax": float(np.abs(values).max()), "gram": float(np.diag(gram).mean())}
    found["bilinear"] = [[shape, filled(init.Bilinear(), shape).tolist()] for shape, _ in found["bilinear"]]
    found["lstmbias"] = filled(init.LSTMBias(forget_bias=1.5), (20,), "lstm_i2h_bias").tolist()
    yield "goldens/initializer/initializers.json", found


def io():
    """What helpers/iterator_cases.py tells of iterators."""
    from helpers import iterator_cases

    yield "goldens/io/iterators.json", iterator_cases.told(mx)


def metrics():
    """Metrics: per batch `get` and `get_global`, with `reset_local` after the batches of `resets`."""
    own = {
        "worst": lambda label, pred: float(np.abs(label - pred).max()),
        "sum_and_size": lambda label, pred: (float(np.abs(label - pred).sum()), label.size),
    }
    data, cases = read("goldens/misc/metrics.npz"), read("goldens/misc/metrics.json")
    for case in cases:
        custom, make = own.get(str(case["metric"])), mx.metric.create
        one = make(custom or case["metric"], **case["kwargs"])
        case["local"], case["global"] = [], []
        for i in range(3):
            one.update(*([mx.nd.array(data["%s/%s%d" % (case["data"], kind, i)])] for kind in ("label", "pred")))
            case["local"].append(one.get())
            case["global"].append(one.get_global())
            if i in case["resets"]:
                one.reset_local()
    yield "goldens/misc/metrics.json", cases


def schedules():
    """Rates of updates 0 to 120 (`<name>/all`), and of some alone (`<name>/jump`)."""
    rates = {}
    for name, spec in read("goldens/misc/schedules.json").items():
        for kind, updates in (("all", range(121)), ("jump", (1, 30, 31, 100))):
            schedule = getattr(mx.lr_scheduler, spec["kind"])(**spec["kwargs"])
            rates["%s/%s" % (name, kind)] = np.array([schedule(t) for t in updates])
    yield "goldens/misc/schedules.npz", rates


def optim():
    """Optimizers: parameters after each step and the last states, of given, sparse and saved ones."""
    cases, inputs, out = read("goldens/optim/optimizers.json"), read("goldens/optim/inputs.npz"), {}
    names = {0: "fc_weight", 1: "fc_bias", 2: "bn_gamma"}
    for case in cases:
        options = {}
        if "schedule" in case:
            options["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(**case["schedule"])
        optimizer = mx.optimizer.create(case["optimizer"], param_idx2name=dict(names), **case["kwargs"], **options)
        if "lr_mult" in case:
            optimizer.set_lr_mult(case["lr_mult"])
            optimizer.set_wd_mult(case["wd_mult"])
        step = mx.optimizer.get_updater(optimizer)
        weights, steps = [mx.nd.array(inputs["w%d" % i], dtype=case["dtype"]) for i in names], [[] for _ in names]
        for t in range(case["steps"]):
            for i in names:
                step(i, mx.nd.array(inputs["g%d_t%d" % (i, t % 5)], dtype=case["dtype"]), weights[i])
                steps[i].append(weights[i].asnumpy())
        for i in names:
            out["%s/w%d" % (case["name"], i)] = np.stack(steps[i])
            out.update({"%s/state%d/%d" % (case["name"], i, j): a.asnumpy() for j, a in enumerate(flat(step.states[i]))})
    yield "goldens/optim/optimizers.npz", out
    tables = read("goldens/optim/cases.json")
    yield "goldens/optim/sparse.npz", sparse_optimizers(tables["sparse"])
    yield "goldens/optim/dumps.npz", dumps(tables["dumps"])


def sparse_optimizers(cases):
    """Row-sparse gradients: `<case>/<stype of the parameter>/w` after each step, `.../state/<position>` at last."""
    draw, rows = np.random.RandomState(0), [[0, 2, 5], [1], [0, 1, 2, 3, 4, 5], [4, 5]]
    out = {"weight": draw.randn(6, 3).astype("float32")}
    for t, some in enumerate(rows):
        out["rows%d" % t], out["values%d" % t] = np.array(some), draw.randn(len(some), 3).astype("float32")
    for case, (name, kwargs) in cases.items():
        for stype in ("default", "row_sparse"):
            optimizer = mx.optimizer.create(name, param_idx2name={0: "w_weight"}, learning_rate=0.1, **kwargs)
            step, weight, steps = mx.optimizer.get_updater(optimizer), mx.nd.array(out["weight"]).tostype(stype), []
            for t, some in enumerate(rows):
                step(0, mx.nd.sparse.row_sparse_array((out["values%d" % t], some), shape=(6, 3)), weight)
                steps.append(weight.asnumpy())
            where = "%s/%s/" % (case, stype)
            out[where + "w"] = np.stack(steps)
            out.update({where + "state/%d" % i: a.asnumpy() for i, a in enumerate(flat(step.states[0]))})
    return out


def dumps(cases):
    """Updaters dumped with their optimizer after three updates (`dump`, `before`), and two further ones (`after`)."""
    out = {}
    for name, (kind, kwargs, dtype) in cases.items():
        options = dict(kwargs)
        schedule = options.pop("schedule", None)
        options.update({"lr_scheduler": mx.lr_scheduler.FactorScheduler(**schedule)} if schedule else {"learning_rate": 0.1})
        step = mx.optimizer.get_updater(mx.optimizer.create(kind, param_idx2name={0: "fc_weight", 1: "fc_bias"}, **options))
        draw = np.random.RandomState(0)
        shapes = [(3, 2), (4, 1) if kind == "groupadagrad" else (3,)]
        weights = [mx.nd.array(draw.randn(*shape), dtype=dtype) for shape in shapes]
        for when, count in (("before", 3), ("after", 2)):
            for t in range(count):
                for i, weight in enumerate(weights):
                    grad = mx.nd.array(draw.randn(*weight.shape), dtype=dtype)
                    out["%s/grad%d_%d" % (name, i, t)] = grad.asnumpy()
                    step(i, grad, weight)
            out.update({"%s/%s%d" % (name, when, i): weight.asnumpy() for i, weight in enumerate(weights)})
            if when == "before":
                out[name + "/dump"] = np.frombuffer(step.get_states(dump_optimizer=True), np.uint8)
    return out


def cells():
    """Cells of helpers/rnn_cases.py: states, parameters, graphs in every way, shapes, and some outputs."""
    from helpers import rnn_cases

    arrays, found = {}, {}

    def outputs(where, symbol, shapes):
        bound = symbol.bind(mx.cpu(), {name: rnn_cases.values(mx, name, shape) for name, shape in shapes.items()})
        for i, output in enumerate(bound.forward(is_train=False)):
            arrays["%s/%d" % (where, i)] = output.asnumpy()

    def facts(cell):
        made = {"state_info": None, "params": None}
        try:
            made["state_info"], made["state_shape"] = cell.state_info, cell.state_shape
            made["params"] = sorted(cell.params._params)
        except (NotImplementedError, AttributeError):
            pass
        return made

    def unrolled(case, way, symbol):
        if symbol is None:
            return None
        entry = {"outputs": symbol.list_outputs(), "nodes": rnn_cases.nodes(symbol)}
        try:
            shapes = symbol.infer_shape(**rnn_cases.shapes_of(symbol, way))
        except mx.MXNetError:
            return entry
        if shapes[0] is None:
            return entry
        entry["shapes"], entry["output_shapes"] = dict(zip(symbol.list_arguments(), shapes[0])), shapes[1]
        if way in ("ntc_merged", "given_states"):
            outputs("%s/%s" % (case, way), symbol, entry["shapes"])
        return entry

    for case, make in rnn_cases.stacks(mx).items():
        ways = rnn_cases.ways(mx, make)
        found[case] = {"cell": facts(make()), "ways": {way: unrolled(case, way, s) for way, s in ways.items()}}
    for case, make in rnn_cases.convolutional(mx).items():
        with mx.name.NameManager():
            cell = make()
            outs, states = cell.unroll(2, [mx.sym.Variable("x0"), mx.sym.Variable("x1")])
            symbol = mx.sym.Group(list(outs) + rnn_cases.flat(states))
        args, made, _ = symbol.infer_shape(x0=(2, 3, 6, 5), x1=(2, 3, 6, 5))
        shapes = dict(zip(symbol.list_arguments(), args))
        outputs(case, symbol, shapes)
        found[case] = {"cell": facts(cell), "shapes": shapes, "output_shapes": made, "nodes": rnn_cases.nodes(symbol)}
    yield "goldens/rnn/cells.json.gz", found
    yield "goldens/rnn/cells.npz", arrays


def sentences():
    """What helpers/rnn_cases.py makes of sentences."""
    from helpers import rnn_cases

    given = read("goldens/rnn/sentences.json")
    yield "goldens/rnn/sentences.json", {**given, **rnn_cases.batches(mx, given["sentences"], given["words"])}


def image():
    """What helpers/image_cases.py makes of pictures."""
    from helpers import image_cases

    with tempfile.TemporaryDirectory() as folder:
        yield "goldens/image/image.npz", image_cases.made(mx, Path(folder))


def any_keyword():
    """Operators that take any keyword, and the text that ``relu`` keeps of values of several types."""
    found, count, texts = read("any_keyword.json"), mx_uint(), ctypes.POINTER(ctypes.c_char_p)()
    _LIB.NNListAllOpNames(ctypes.byref(count), ctypes.byref(texts))

    def takes(name):  # without parameters its others cannot be missing
        op, symbol, keys, values = ctypes.c_void_p(), SymbolHandle(), c_str_array(["foreign"]), c_str_array(["1"])
        _LIB.NNGetOpHandle(c_str(name), ctypes.byref(op))
        return _LIB.MXSymbolCreateAtomicSymbol(op, mx_uint(1), keys, values, ctypes.byref(symbol)) == 0

    names = sorted(name for name in (py_str(texts[i]) for i in range(count.value)) if "_backward" not in name)
    found["takes"] = [name for name in names if takes(name)]
    values = eval("[%s]" % found["values"], {"mx": mx, "np": np})
    found["kept"] = [mx.sym.relu(mx.sym.Variable("x"), foreign=value).attr("foreign") for value in values]
    yield "any_keyword.json", found


def star_imports():
    """Names that a star import of each module brings, but for Gluon, the interface of NumPy and what is generated."""
    others = ("gluon", "numpy", "cython", "libmxnet", "setup", "_", "gen_")
    walked = (each.name for each in pkgutil.walk_packages(mx.__path__, "mxnet.", onerror=lambda name: None))
    below = (name.partition(".")[2] for name in walked)
    found = {}
    for module in ["", *sorted(n for n in below if not any(part.startswith(others) for part in n.split(".")))]:
        names = {}
        exec("from mxnet%s%s import *" % ("." if module else "", module), names)  # as a program does it
        found[module] = " ".join(sorted(set(names) - {"__builtins__"}))
    yield "star_imports.json", found


PARTS = [
    star_imports, any_keyword, ops, numpy_ops, update, optimizer_schedules, rnn_chains, control_flow, symbols, detection, chain,
    sparse, trainers, initializer, io, metrics, schedules, optim, cells, sentences, image,
]


def main():
    warnings.simplefilter("ignore")
    wanted = set(sys.argv[1:]) - {"--check"} or {part.__name__ for part in PARTS}
    for part in PARTS:
        for name, found in part() if part.__name__ in wanted else ():
            found = found if str(name).endswith(".npz") else json.loads(json.dumps(found))
            changes = list(differences(read(name), found))
            print(name, "stays" if not changes else "has %d changes, the first %s" % (len(changes), changes[:3]))
            if changes and "--check" not in sys.argv:
                write(name, found)


if __name__ == "__main__":
    main()
