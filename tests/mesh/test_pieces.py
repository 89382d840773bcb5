"""Pieces of layers compute the bytes that the whole layers do, and stages pass on all that others need."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from mesh_samples import network_of, program_of, random_stages, random_values, run_graph, run_layer, run_stages, taken
from plan_graphs import graphs
from plan_samples import Samples, graph_of

from byoc_hw.accelerator import REFERENCE
from byoc_hw.mesh.patches import channels_of, patch_of
from byoc_hw.mesh.pieces import NodePiece, PieceBox, axes_of, box_bytes, input_boxes, piece_bytes, piece_layer
from byoc_hw.mesh.plan import Stage

seeds = st.integers(0, 2**32 - 1)


def check_piece(network, node, box, values):
    """A piece on exactly its input boxes gives the bytes of the whole layer there."""
    layer = piece_layer(node, box)
    boxes = iter(zip(node.inputs, input_boxes(node, box), strict=True))
    inputs = []
    for tensor in layer.inputs:
        if tensor.data is not None:
            inputs.append(tensor.data)
            continue
        name, part = next(boxes)
        whole = network.tensors[name]
        inputs.append(taken(values[name], whole, patch_of(whole, part)).reshape(tensor.shape))
    ofm = network.tensors[node.outputs[0]]
    expected = taken(values[node.outputs[0]], ofm, patch_of(ofm, box))
    assert np.array_equal(run_layer(layer, *inputs).reshape(expected.shape), expected)
    assert piece_bytes(node, box).outputs == layer.ofm.nbytes == box_bytes(ofm, box)


@settings(max_examples=60, deadline=None)
@given(graphs(REFERENCE, 4), seeds)
def test_pieces_of_every_kind_compute_the_bytes_of_the_whole(graph, seed):
    random = np.random.default_rng(seed)
    network = network_of(program_of(graph))
    found = run_graph(graph, [random_values(tensor, random) for tensor in graph.inputs])
    makers = {node.layer.ofm: node.outputs[0] for node in network.nodes}
    values = {makers[tensor]: data for tensor, data in found.items() if tensor in makers}
    values |= {f"in{at}": found[tensor] for at, tensor in enumerate(graph.inputs)}
    for node in network.nodes:
        if node.outputs[0] not in values:
            continue  # a copy of an input, which is no layer of the graph
        for axis in axes_of(node):
            extent = node.layer.ofm.shape[1 if axis == "rows" else -1]
            start, stop = sorted(random.choice(extent + 1, 2, replace=False).tolist())
            check_piece(network, node, PieceBox(axis, start, stop), values)


@settings(max_examples=60, deadline=None)
@given(graphs(REFERENCE, 7), seeds)
def test_stages_give_the_outputs_of_the_whole_network(graph, seed):
    random = np.random.default_rng(seed)
    network = network_of(program_of(graph))
    inputs = [random_values(tensor, random) for tensor in graph.inputs]
    found = run_graph(graph, inputs)
    outputs = run_stages(network, random_stages(network, random), inputs)
    for tensor, output in zip(graph.outputs, outputs, strict=True):
        assert np.array_equal(found[tensor], output)


def test_a_stage_receives_once_what_two_layers_read_with_different_halos():
    samples = Samples()
    first = samples.conv2d(samples.tensor((1, 12, 5, 3)), 4, padding=(1, 1, 1, 1))
    narrow = samples.conv2d(first.ofm, 4, padding=(1, 1, 1, 1))
    wide = samples.conv2d(first.ofm, 4, (5, 5), padding=(2, 2, 2, 2))
    last = samples.add(narrow.ofm, wide.ofm)
    graph = graph_of([first.ifm], [first, narrow, wide, last], [last.ofm])
    network = network_of(program_of(graph))

    def rows(start, stop, *nodes):
        return Stage(tuple(NodePiece(node, PieceBox("rows", start, stop)) for node in nodes))

    stages = [rows(0, 4, 0), rows(8, 12, 0), rows(4, 8, 0, 1, 2, 3), rows(0, 4, 1, 2, 3), rows(8, 12, 1, 2, 3)]
    into = [one for one in channels_of(network, stages) if one.target == 2 and one.source >= 0]
    assert [(one.source, one.patch.rows) for one in into] == [(0, (2, 4)), (1, (8, 10))]
    inputs = [random_values(first.ifm, samples.random)]
    assert np.array_equal(run_stages(network, stages, inputs)[0], run_graph(graph, inputs)[last.ofm])
