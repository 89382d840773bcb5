"""TFLite files that TVM's importer does not take as they are: what `explain` says of them, and what is refused."""

import json
import random
import resource
import struct

import numpy as np
import pytest
import tflite
from tflite_samples import Node, TensorSample, network_bytes
from tvm.relay.frontend.tflite import OperatorConverter

import byoc_hw
from byoc_hw import InvalidInput
from byoc_hw.__main__ import main
from byoc_hw.demo import model_path
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.frontend.relay.tflite import importable_tflite
from byoc_hw.frontend.tflite_file import read_tflite

WEIGHTS = np.arange(16, dtype=np.int8).reshape(4, 4)


def tensor(name, shape=(1, 4), **more):
    return TensorSample(shape, name=name, **more)


def weights(**more):
    return TensorSample(**{"shape": (4, 4), "data": WEIGHTS, "name": "w"} | more)


def dense(ifm, ofm):
    """A fully connected layer; its weights are tensor 1."""
    return Node("FULLY_CONNECTED", [ifm, 1, -1], [ofm])


X, W, A, B, Y = tensor("x"), weights(), tensor("a"), tensor("b"), tensor("y")


@pytest.fixture
def written(tmp_path):
    """Write a network: the path of its file."""

    def write(tensors, nodes, inputs=(0,), outputs=None, **more):
        path = tmp_path / "net.tflite"
        path.write_bytes(network_bytes(tensors, nodes, inputs, outputs or [len(tensors) - 1], **more))
        return path

    return write


def outcome(report, name):
    (found,) = [one for one in report.outcomes if one.name == name]
    return found


# ---------------------------------------------------------------- operators that stop the import

LACKING = {
    "rnn": (
        Node("RNN", [2], [3]),
        "RNN",
        "operator is one that TVM's TFLite importer has: got code 24",
    ),
    "lstm": (Node("LSTM", [2], [3]), "LSTM", "operator is one that TVM's TFLite importer has: got code 16"),
    "custom": (
        Node("CUSTOM", [2], [3], custom="MyOperator"),
        "CUSTOM",
        "custom operator is TFLite_Detection_PostProcess: got 'MyOperator'",
    ),
    "newer": (
        Node("new", [2], [3], code=3000),
        "operator 3000",
        "operator is one of the schema, 0 to 208: got 3000, of a newer one",
    ),
    # Two sub-graphs: that of the loop's body is another one.
    "while": (Node("WHILE", [2], [3]), "WHILE", "operator is one that TVM's TFLite importer has: got code 119"),
    # By its description the importer has it, but not for what it finds here.
    "failing": (Node("SPLIT", [2], [3]), "SPLIT", "TVM's importer takes the operator: got Assertion"),
    "unpack": (
        Node("UNPACK", [2], [3], {"Num": 1 << 30}),
        "UNPACK",
        "operator makes 1 tensors, its outputs: got 1073741824",
    ),
}


@pytest.mark.parametrize(("node", "kind", "reason"), LACKING.values(), ids=LACKING)
def test_what_is_around_an_operator_that_stops_the_import_is_reported(node, kind, reason, written):
    path = written([X, W, A, B, Y], [dense(0, 2), node, dense(3, 4)], subgraphs=2 if kind == "WHILE" else 1)
    report = byoc_hw.explain_tflite(path)
    assert [(one.name, one.placement) for one in report.outcomes] == [
        ("a", "accelerator"),
        ("b", "stops"),
        ("y", "accelerator"),
    ]
    (stop,) = report.stops
    assert str(stop.rejections[0]).startswith(f"{kind}: {reason}")
    assert "cannot be built, 1 operator stops the import; without, 2 of 3 operators offloaded" in str(report)


def test_the_rest_is_reported_as_if_the_operator_were_cut_out(written):
    """Two models, of what comes before and of what comes behind, have the same outcomes but for the regions."""
    whole = byoc_hw.explain_tflite(written([X, W, A, B, Y], [dense(0, 2), Node("RNN", [2], [3]), dense(3, 4)]))
    before = byoc_hw.explain_tflite(written([X, W, A], [dense(0, 2)]))
    behind = byoc_hw.explain_tflite(written([B, W, Y], [dense(0, 2)]))
    for name, part in (("a", before), ("y", behind)):
        assert outcome(whole, name).relay == outcome(part, name).relay
        assert outcome(whole, name).composites == outcome(part, name).composites


def test_options_hold_for_the_rest(written):
    path = written([X, W, A, B, Y], [dense(0, 2), Node("RNN", [2], [3]), dense(3, 4)])
    report = byoc_hw.explain_tflite(path, deny=["y", "b"], accelerator=byoc_hw.SMALL, numerics="tflite")
    assert [one.placement for one in report.outcomes] == ["accelerator", "stops", "host"]
    assert (report.accelerator, report.numerics) == ("SMALL", "tflite")
    with pytest.raises(InvalidInput, match="deny names operators of the model"):
        byoc_hw.explain_tflite(path, deny=["nothing"])


def test_a_file_of_nothing_else_has_a_report(written):
    report = byoc_hw.explain_tflite(written([X, Y], [Node("RNN", [0], [1])]))
    assert [one.placement for one in report.outcomes] == ["stops"]


def test_a_whole_file_is_explained_like_its_module():
    mod, params = byoc_hw.load_tflite(model_path())
    assert byoc_hw.explain_tflite(model_path()) == byoc_hw.explain(byoc_hw.partition_for_hwlib(mod, params))


def test_an_error_names_every_operator_that_stops_the_import(written, tmp_path, capsys):
    state = tensor("state", (), dtype="RESOURCE", scale=None)
    nodes = [
        Node("CALL_ONCE", [], []),
        Node("VAR_HANDLE", [], [2]),
        Node("READ_VARIABLE", [2], [3]),
        dense(3, 4),
    ]
    path = written([X, W, state, A, Y], nodes, subgraphs=2)
    with pytest.raises(InvalidInput) as caught:
        byoc_hw.load_tflite(path)
    for name in ("CALL_ONCE (operator 0)", "VAR_HANDLE (state)", "READ_VARIABLE (a)"):
        assert name in str(caught.value)
    assert "FULLY_CONNECTED" not in str(caught.value)
    assert main(["build", str(path), "--output-dir", str(tmp_path / "out")]) == 2
    assert "READ_VARIABLE (a)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main(["explain", str(path), "--json"]) == 0
    places = [one["placement"] for one in json.loads(capsys.readouterr().out)["outcomes"]]
    assert places == ["stops", "stops", "stops", "accelerator"]


def test_the_importers_own_error_is_the_cause(written):
    with pytest.raises(InvalidInput) as caught:
        byoc_hw.load_tflite(written([X, W, A, B], [dense(0, 2), Node("SPLIT", [2], [3])]))
    assert isinstance(caught.value.__cause__, AssertionError)


# ---------------------------------------------------------------- tensors and wiring

TENSORS = {
    "string": ([tensor("x", (1,), dtype="STRING", scale=None), W, Y], "tensor x: type is one of bool, .*: got string"),
    "4 bits": (
        [X, weights(data=np.ones(7, np.int8), dtype="INT4"), Y],
        "tensor w: values of its type and shape have 8 bytes: got 7",
    ),
    "4 bits of an activation": (
        [tensor("x", dtype="INT4"), W, Y],
        "tensor x: values of 4 bits are dense constants: got a tensor without values",
    ),
    "open shape": ([tensor("x", (-1, 4)), W, Y], r"tensor x: shape is static: got \(-1, 4\)"),
    "nothing in it": ([tensor("x", (1, 0)), W, Y], r"tensor x: extents are at least 1: got \(1, 0\)"),
    "too large": ([tensor("x", (1, 1 << 30, 4)), W, Y], r"tensor x: bytes are at most 1073741824: got 4294967296"),
    "cut off": ([X, weights(data=WEIGHTS[:3]), Y], "tensor w: values of its type and shape have 16 bytes: got 12"),
    "axis": ([X, weights(scale=(0.1,) * 4, axis=5), Y], r"quantized_dimension is a dimension of \(4, 4\): got 5"),
    "axis below": ([X, weights(scale=(0.1,) * 4, axis=-1), Y], r"is a dimension of \(4, 4\): got -1"),
    "scales": ([X, weights(scale=(0.1,) * 3), Y], "scales are one, or one for each of 4 along dimension 0: got 3"),
    "zero points": ([X, weights(scale=(0.1,) * 4, zero_point=3), Y], "zero points by channel are 0: got 3"),
    "blocks": ([X, weights(blocks=True), Y], "scales are of a tensor, or along a dimension of it: got those of blocks"),
    "no values": ([X, weights(data=None), Y], "operator reads inputs, constants and results .* before it: got w"),
    "hybrid": (
        [tensor("x", dtype="FLOAT32", scale=None), W, tensor("y", dtype="FLOAT32", scale=None)],
        "activations are quantized if weights are: got quantized w alone",
    ),
}


@pytest.mark.parametrize(("tensors", "reason"), TENSORS.values(), ids=TENSORS)
def test_a_tensor_that_cannot_be_compiled_is_named_with_the_rule(tensors, reason, written):
    path = written(tensors, [dense(0, 2)])
    with pytest.raises(InvalidInput, match=rf"FULLY_CONNECTED \(y\): .*{reason}"):
        byoc_hw.load_tflite(path)
    assert [one.placement for one in byoc_hw.explain_tflite(path).outcomes] == ["stops"]


WIRING = {
    "no first input": ([dense(-1, 2), dense(2, 3)], "input 0 is given: got none"),
    "no weights": ([Node("FULLY_CONNECTED", [0, -1], [2]), dense(2, 3)], "input 1 is given: got none"),
    "too early": ([dense(2, 3), dense(0, 2)], "operator reads inputs, constants and results .* before it: got a"),
    "twice": ([dense(0, 2), dense(2, 2), dense(2, 3)], "a tensor is computed once: got a again"),
    "an input": ([dense(0, 2), dense(2, 0), dense(2, 3)], "a tensor is computed once: got x again"),
}


@pytest.mark.parametrize(("nodes", "reason"), WIRING.values(), ids=WIRING)
def test_operators_that_do_not_fit_together_are_named(nodes, reason, written):
    with pytest.raises(InvalidInput, match=f"FULLY_CONNECTED .*: {reason}"):
        byoc_hw.load_tflite(written([X, W, A, Y], nodes))


@pytest.mark.parametrize("name", [name for name in vars(tflite.TensorType) if name.isupper()])
def test_types_are_those_of_the_schema_and_of_the_importer(name, written):
    tensor_type = getattr(tflite.TensorType, name)
    found = read_tflite(written([tensor("x", dtype=name), W, Y], [dense(0, 2)])).tensors[0]
    assert found.dtype == name.lower()
    try:
        OperatorConverter.get_tensor_type_str(None, tensor_type)
    except NotImplementedError:
        assert found.breaks is not None
    else:
        assert found.breaks is None


MODELS = {
    "sub-graphs": ({"subgraphs": 2}, "a model has one sub-graph: got 2"),
    "version": ({"version": 2}, "version of the schema is 3: got 2"),
    "no inputs": ({"inputs": []}, "a model has inputs and outputs: got 0 inputs and 1 outputs"),
    "one input twice": ({"inputs": [0, 0]}, "the inputs of a model are different tensors: got numbers 0, 0"),
    "input number": ({"inputs": [3]}, "inputs are numbers of tensors, 0 to 2: got 3"),
    "output number": ({"outputs": [-1]}, "outputs are numbers of tensors, 0 to 2: got -1"),
    "constant output": ({"outputs": [1]}, "output w is computed: it is not"),
    "operator's number": ({"nodes": [dense(3, 2)]}, "inputs of operator 0 are numbers of tensors, -1 to 2: got 3"),
    "buffer": ({"tensors": [X, weights(data=None, buffer=7), Y]}, "buffer of tensor w is below 1: got 7"),
}


@pytest.mark.parametrize(("changes", "reason"), MODELS.values(), ids=MODELS)
def test_a_model_that_is_none_has_no_report(changes, reason, written):
    path = written(**{"tensors": [X, W, Y], "nodes": [dense(0, 2)]} | changes)
    for use in (byoc_hw.load_tflite, byoc_hw.explain_tflite):
        with pytest.raises(InvalidInput, match=reason):
            use(path)


def behind_the_model(written, offset, size):
    """A file whose weights are behind the model, as in files of more than 2 GiB and of newer quantizers."""
    path = written([X, W, Y], [dense(0, 2)])
    file = bytearray(path.read_bytes())
    model = tflite.Model.GetRootAsModel(bytes(file), 0)
    entry = model._tab.Vector(model._tab.Offset(12)) + 4  # that of buffer 1 in the list of buffers
    file += bytes(-len(file) % 8)
    at = len(file) + 12
    file += struct.pack("<6H", 10, 20, 0, 4, 12, 0)  # of the fields of a buffer it has the second and third
    file += struct.pack("<iQQ", 12, len(file) + 20 + offset, size)
    file += (WEIGHTS + 7).tobytes()
    struct.pack_into("<I", file, entry, at - entry)
    path.write_bytes(file)
    return path


def test_values_behind_the_model_are_read(written):
    _, params = byoc_hw.load_tflite(behind_the_model(written, 0, 16))
    np.testing.assert_array_equal(params["_param_1"].numpy(), WEIGHTS + 7)


@pytest.mark.parametrize(("offset", "size"), [(1, 16), (0, 17), (0, 1 << 63), (1 << 62, 16)])
def test_values_behind_the_file_are_refused(offset, size, written):
    with pytest.raises(InvalidInput, match="is damaged: the bytes of data of a buffer are inside the file"):
        byoc_hw.load_tflite(behind_the_model(written, offset, size))


# ---------------------------------------------------------------- names


def test_tensors_without_names_have_some_by_their_place(written):
    nameless = [TensorSample((1, 4), name=name) for name in ("", None, "", None)]
    path = written(
        [nameless[0], weights(name=None), *nameless[1:]], [dense(0, 2), dense(2, 3), Node("ADD", [3, 2], [4])]
    )
    mod, params = byoc_hw.load_tflite(path)
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params))
    assert [one.name for one in project.report.outcomes] == ["tensor_2", "tensor_3", "output_0"]
    assert "const int8_t *input_0;" in (project.directory / "include/default.h").read_text()
    image = np.array([[1, -2, 3, -4]], np.int8)
    (by_name,), (by_place,) = (project.run(given).outputs for given in ({"input_0": image}, image))
    np.testing.assert_array_equal(by_name, by_place)


def test_two_tensors_of_one_name_are_two(written):
    """TVM's importer takes the first of a name for both: the second layer vanished."""
    same = [tensor("x"), weights(name="x"), tensor("x"), tensor("x")]
    apart = [tensor("x"), weights(name="w"), tensor("a"), tensor("y")]
    image = np.array([[1, -2, 3, -4]], np.int8)
    results = []
    for tensors in (same, apart):
        mod, params = byoc_hw.load_tflite(written(tensors, [dense(0, 2), dense(2, 3)]))
        project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params))
        results.append(project.run({"x": image}).outputs[0])
        assert len(project.report.outcomes) == 2
    np.testing.assert_array_equal(*results)


def test_the_importers_own_names_are_not_taken_from_the_file(written):
    mod, params = byoc_hw.load_tflite(written([tensor("_param_1"), W, Y], [dense(0, 2)]))
    assert [one.name_hint for one in mod["main"].params if one.name_hint not in params] == ["input_0"]


@pytest.mark.parametrize(
    ("names", "in_c"),
    [(("a/b", "a_b"), ["a_b", "a_b_2"]), (("ä", "ö"), ["__", "___2"]), (("input_0", "input"), ["input_0", "input"])],
    ids=["in C", "not ASCII", "those of inputs"],
)
def test_outputs_with_clashing_names_stay_apart(names, in_c, written):
    tensors = [X, W, *(tensor(name) for name in names)]
    mod, params = byoc_hw.load_tflite(written(tensors, [dense(0, 2), dense(2, 3)], outputs=[2, 3]))
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params))
    assert [one.name for one in project.outputs] == in_c
    image = np.array([[1, 2, -30, 44]], np.int8)
    for found, wanted in zip(project.run(image).outputs, Reference(mod, params).run([image]), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_a_tensor_that_is_an_output_twice_is_written_twice(written):
    mod, params = byoc_hw.load_tflite(written([X, W, Y], [dense(0, 2)], outputs=[2, 2]))
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, params))
    assert [one.name for one in project.outputs] == ["y", "y_2"]
    first, second = project.run(np.array([[1, 2, -30, 44]], np.int8)).outputs
    np.testing.assert_array_equal(first, second)
    assert first.any()


def test_inputs_are_in_the_files_order(written):
    """TVM has them in the order in which it meets them."""
    nodes = [dense(0, 3), Node("ADD", [3, 2], [4])]
    mod, params = byoc_hw.load_tflite(written([X, W, B, A, Y], nodes, inputs=[2, 0]))
    assert [one.name_hint for one in mod["main"].params if one.name_hint not in params] == ["b", "x"]


# ---------------------------------------------------------------- damaged files


@pytest.fixture
def within_limits():
    """What reads a damaged file has 2 GiB more memory than the tests have now."""
    old = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (2 << 30), old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, old)


@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_file_is_read_or_refused(seed, tmp_path, within_limits):
    """Bytes are replaced, runs of bytes too, and files are cut off; most of it where the tables are."""
    random_ = random.Random(seed)
    whole = model_path().read_bytes()
    path = tmp_path / "damaged.tflite"
    for _ in range(20):
        data = bytearray(whole)
        for _ in range(random_.choice((1, 2, 4, 8))):
            width = random_.choice((1, 2, 4))
            at = random_.choice((random_.randrange(len(data)), random_.randrange(6000), -1 - random_.randrange(4000)))
            at = min(at % len(data), len(data) - width)
            numbers = (b"\xff" * width, bytes(width), b"\xff" * (width - 1) + b"\x7f", random_.randbytes(width))
            data[at : at + width] = random_.choice((*numbers, random_.randrange(64).to_bytes(width, "little")))
        if not random_.randrange(10):
            del data[random_.randrange(len(data)) :]
        path.write_bytes(data)
        message = refusal(byoc_hw.load_tflite, path)
        if message is not None:
            assert message.startswith(f"{path}: ")
            assert "\n" not in message
            refusal(importable_tflite, path)


def refusal(use, path):
    """What the one error says that is expected, or None."""
    try:
        use(path)
    except InvalidInput as error:
        return str(error)
    return None


def test_every_way_to_cut_a_file_off_is_refused(tmp_path):
    whole = network_bytes([X, W, Y], [dense(0, 2)], [0], [2])
    path = tmp_path / "short.tflite"
    for length in range(len(whole) - 4):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidInput, match=r"is no TFLite model|is damaged"):
            read_tflite(path)


def test_tables_that_overlap_without_end_are_refused(tmp_path):
    """One tensor of 100,000 dimensions, listed 1,000 times."""
    file = bytearray(network_bytes([X, W, Y], [dense(0, 2)], [0], [2]))
    graph = tflite.Model.GetRootAsModel(bytes(file), 0).Subgraphs(0)
    field, listed = graph._tab.Pos + graph._tab.Offset(4), 1000
    start = len(file)
    struct.pack_into("<I", file, field, start - field)
    at = start + 4 + 4 * listed + 8  # the tensor, behind the list and its own list of fields
    file += struct.pack("<I", listed) + b"".join(struct.pack("<I", at - (start + 4 + 4 * i)) for i in range(listed))
    file += struct.pack("<4H", 6, 8, 4, 0) + struct.pack("<iI", 8, 4) + struct.pack("<I", 100_000) + bytes(400_000)
    path = tmp_path / "overlapping.tflite"
    path.write_bytes(file)
    with pytest.raises(InvalidInput, match="is damaged: tables do not overlap"):
        read_tflite(path)
