"""``dpmodule check FOLDER``: each file is opened, predicts, and converts to ONNX and torch."""

import json
import os
import re
import shutil
import tarfile
from pathlib import Path

import dpmodule as mx
from helpers import detection_nets

DATA = Path(__file__).parents[1] / "data"
FC = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
PARAMS = {"fc_weight": mx.nd.ones((3, 5)), "fc_bias": mx.nd.array([1, float("nan"), 2])}
ALL = "opens, predicts, converts to ONNX and torch"


def shown(run, *words, code=0):
    done = run("check", *words)
    assert done.code == code, done
    return done.out


def test_every_model_of_a_folder_is_tried(run, tmp_path):
    mx.model.save_checkpoint("b", 2, FC, PARAMS, {})
    mx.checkpoint.save_checkpoint("c", 1, FC, PARAMS, {}, format="safetensors")
    mx.interop.save_pretrained("d", FC, PARAMS, {}, [("data", (1, 5))])
    mx.nd.save("numbers.safetensors", {"a": mx.nd.ones((1,))})
    Path("e.safetensors").write_bytes(b"\x30\0\0\0\0\0\0\0{}")
    Path("other.json").write_text('{"rows": []}')
    Path("text.txt").write_text("x")
    Path("sub").mkdir()
    graph = json.loads(FC.tojson())
    graph["nodes"][3]["op"] = "Missing"
    Path("sub/a.json").write_text(json.dumps(graph))
    *lines, odd, total = shown(run, ".", code=1).splitlines()
    assert odd.startswith("error ./sub/a.json: from Module, MXNet 1.9.1; does not open: ")
    assert (
        "Missing (node 'fc' with inputs 'data', 'fc_weight', 'fc_bias'; MXNet itself does not have it)" in odd
    )
    assert total == "3 of 5 models can be used"
    network = "4 nodes, 18 parameters; data (1, 5) -> fc_output (1, 3) (1 numbers not finite)"
    assert lines == [
        f"ok    ./b-symbol.json: mxnet epoch 2, {network}; from Module, MXNet 1.9.1; {ALL}",
        f"ok    ./c-0001.safetensors: safetensors, {network}; {ALL}",
        "error ./e.safetensors: does not open: byte 0 (the header): invalid header length; the file is truncated or "
        "damaged",
        f"ok    ./d: folder, {network}; {ALL}",
    ]
    Path("e.safetensors").unlink()
    (FC * mx.sym.Variable("x")).save("sub/a.json")
    text = shown(run, ".", "--shape", "x=1,3", "--shape", "data:1,5")
    assert re.search(r"no parameters, random ones; data \(1, 5\) -> _mul\d+_output", text)
    assert "operators: FullyConnected 1 (none missing)" in shown(run, "d")
    assert "is a folder" in run("check", "d", "--epoch", "3").error


def test_published_files(run):
    """Files of MXNet 0.7 to 1.9, of which some have only a graph."""
    out = shown(run, DATA / "checkpoints")
    assert out.count(ALL) == 6
    for each in ("0.8 or earlier", "0.9.4", "1.3.1"):
        assert f"from Module, MXNet {each}; {ALL}" in out
    shutil.copy(DATA / "symbols" / "yeyupiaoli_model_model-symbol.json", "face-symbol.json")
    assert f"from insightface (recognition), MXNet 1.5.1; {ALL}" in shown(run, ".")


def test_arrays_without_a_graph(run):
    mx.nd.save("model-0000.params", {"arg:fc_weight": mx.nd.ones((3, 5)), "aux:bn_moving_var": mx.nd.ones(3)})
    for path in ("model-0000.params", "."):
        out = shown(run, path, code=1)
        assert (
            "opens: arg:fc_weight (3, 5), aux:bn_moving_var (3,), 18 numbers; does not predict: its graph is missing"
            in out
        )
        assert "export it where it was made, and load these arrays with mx.nd.load" in out
    mx.nd.save("model-0000.params", {str(i): mx.nd.ones((1,)) for i in range(20)})
    assert "7 (1,) and 12 more, 20 numbers" in shown(run, ".", code=1)
    Path("model-0000.params").write_bytes(Path("model-0000.params").read_bytes()[:200])
    assert "does not open: byte 200 (array 4 of 20)" in shown(run, "model-0000.params", code=1)


def test_arrays_of_other_names_than_the_graph(run):
    arrays = {"fc_weight": mx.nd.ones((3, 5)), "fc_bias": mx.nd.ones(3)}
    for graph, params in (
        ("net.json", "net.params"),
        ("symbol.json", "params"),
        ("a-symbol.json", "b-0001.params"),
    ):
        FC.save(graph)
        mx.nd.save(params, arrays)
        mx.nd.save("other-0000.params", {"else": mx.nd.ones(1)})
        out = shown(run, ".", code=1)
        assert f"ok    ./{graph}: mxnet, 4 nodes, 18 parameters; data (1, 5)" in out
        assert "error ./other-0000.params" in out
        assert f"./{params}:" not in out
        for path in (graph, params):
            os.unlink(path)


def test_files_of_wolfram_language(run):
    x = mx.sym.FullyConnected(mx.sym.Variable("Input"), num_hidden=4, name="1$0")
    mx.sym.BatchNorm(x, fix_gamma=False, name="2$0").save("net.json")
    arrays = {"1$0_weight": mx.nd.ones((4, 3)), "1$0_bias": mx.nd.zeros(4)}
    arrays |= {f"2$0_{name}": mx.nd.ones(4) for name in ("gamma", "beta", "moving_mean", "moving_var")}
    mx.nd.save("net.params", arrays)
    said = "9 nodes, 32 parameters; Input (1, 3) -> 2$0_output (1, 4); from Wolfram Language, MXNet 1.9.1"
    assert f"{said}; {ALL}" in shown(run, ".")
    for target in ("a.onnx", "a.pt2", "a.safetensors", "folder/"):
        assert "within the tolerance" in run("convert", "net.json", target, "--params", "net.params").out


def test_requested_shapes_are_for_models_that_they_fit(run):
    net = mx.sym.dot(mx.sym.Variable("data"), mx.sym.Variable("weight"))
    mx.model.save_checkpoint("a", 1, net, {"weight": mx.nd.ones((4, 2))}, {})
    mx.model.save_checkpoint("b", 1, FC, PARAMS, {})
    out = shown(run, ".", "--shape", "data=3,4")
    assert [re.search(r"data (\(.*?\)) ->", line)[1] for line in out.splitlines()[:2]] == ["(3, 4)", "(1, 5)"]
    mx.model.save_checkpoint(
        "c", 1, mx.sym.elemwise_add(net, mx.sym.Variable("x")), {"weight": mx.nd.ones((4, 2))}, {}
    )
    assert "does not predict: the shapes of the inputs cannot be inferred; set them" in shown(
        run, ".", code=1
    )
    rows = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, flatten=False, name="fc")
    mx.model.save_checkpoint(
        "c",
        1,
        mx.sym.batch_dot(rows, rows, transpose_b=True),
        {"fc_weight": mx.nd.ones((4, 5)), "fc_bias": mx.nd.ones(4)},
        {},
    )
    assert "data (1, 8, 5) -> batch_dot" in shown(run, ".", "--shape", "data=3,4")


def test_parameters_that_do_not_fit(run):
    def line(arrays, net=FC):
        mx.model.save_checkpoint("net", 1, net, arrays, {})
        return shown(run, ".", code=1)

    said = "opens; does not predict: the arrays lack parameters of the graph: fc_bias (3,)"
    assert said in line({"fc_weight": mx.nd.ones((3, 5))})
    assert "does not predict: FullyConnected 'fc': weight disagree: (4, 5) and (3, 0)" in line(
        {"fc_weight": mx.nd.ones((4, 5)), "fc_bias": mx.nd.ones(3)}
    )
    norm = mx.sym.BatchNorm(mx.sym.Variable("data"), name="bn")
    said = "the arrays lack parameters of the graph: bn_moving_mean, bn_moving_var"
    assert said in line({"bn_gamma": mx.nd.ones(3), "bn_beta": mx.nd.ones(3)}, norm)


def test_one_target_without_an_operator(run):
    x = mx.sym.Variable("data")
    branch = mx.sym.contrib.cond(mx.sym.sum(x) > 0, lambda: x * 2, lambda: x + 1)
    mx.checkpoint.save_checkpoint("branch", 0, branch, {}, {})
    out = shown(run, ".", "--shape", "data:2,3", code=1)
    assert re.search(r"opens, predicts, converts to \w+; does not convert to torch: .*_cond", out)


def test_shapes_of_files_next_to_a_graph(run):
    net = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=2, kernel=(3, 3), name="conv")
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=(1, 3, 9, 9))[0]))
    mx.model.save_checkpoint("net", 0, net, {n: mx.nd.ones(s) for n, s in shapes.items() if n != "data"}, {})
    files = {
        "model-shapes.json": ([{"name": "data", "shape": [4, 3, 9, 11]}], "data (1, 3, 9, 11)"),
        "signature.json": (
            {"inputs": [{"data_name": "data", "data_shape": [0, 3, 7, 5]}]},
            "data (1, 3, 7, 5)",
        ),
        "hyperparams.json": ({"image_shape": "19"}, "data (1, 3, 19, 19)"),
    }
    for name, (content, said) in files.items():
        Path(name).write_text(json.dumps(content))
        assert said in shown(run, ".")
        for wrong in ([{"name": "data", "shape": [1, 4, 9, 11]}], {"inputs": 3}, {"image_shape": "a"}, 3):
            Path(name).write_text(json.dumps(wrong))
            assert "data (1, 3, 224, 224)" in shown(run, ".")
        os.unlink(name)


def test_detector_of_sagemaker(run):
    """The artifact has the network of training, whose label prediction does not read."""
    net, shapes = detection_nets.ssd(mx)
    sizes = dict(zip(net.list_arguments(), net.infer_shape(**shapes)[0]))
    params = {
        name: mx.nd.random.uniform(-0.1, 0.1, shape) for name, shape in sizes.items() if name not in shapes
    }
    mx.model.save_checkpoint("model_algo_1", 0, net, params, {})
    Path("hyperparams.json").write_text(json.dumps({"image_shape": "24"}))
    names = ("model_algo_1-symbol.json", "model_algo_1-0000.params", "hyperparams.json")
    with tarfile.open("model.tar.gz", "w:gz") as archive:
        for name in names:
            archive.add(name)
            os.unlink(name)
    out = shown(run, "model.tar.gz")
    assert "data (1, 3, 24, 24) -> cls_prob_output (1, 4, " in out
    assert f"from SageMaker object detection (SSD), MXNet 1.9.1; {ALL}" in out
