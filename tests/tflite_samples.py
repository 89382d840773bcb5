"""TFLite models of one operator, made in memory: what tflite-runtime and TVM's importer both read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import flatbuffers
import numpy as np
import tflite
from flatbuffers import flexbuffers

RELU = tflite.ActivationFunctionType.RELU
NONE = tflite.ActivationFunctionType.NONE


@dataclass
class TensorSample:
    """A tensor of the file: int8 or int32; weights have data, and perhaps a scale for each channel.

    `dtype` is a type of the schema in place of these, `buffer` the number of another buffer; without a scale the
    tensor is not quantized, and without a name it has none at all. `blocks` says that its scales are of blocks.
    """

    shape: tuple
    scale: float | tuple | None = 0.1
    zero_point: int = 0
    data: np.ndarray | None = None
    axis: int = 0
    name: str | None = ""
    dtype: str = ""
    buffer: int | None = None
    variable: bool = False
    blocks: bool = False


def four_bits(tensor: TensorSample) -> TensorSample:
    """The tensor with its values as TFLite's INT4: two in a byte, the first in its low half."""
    values = np.append(tensor.data.reshape(-1), np.zeros(tensor.data.size % 2, np.int8)).view(np.uint8) & 15
    return replace(tensor, dtype="INT4", data=values[::2] | values[1::2] << 4)


@dataclass
class OperatorSample:
    """One operator. `options` are the fields of its options table, by name."""

    operator: str
    inputs: list
    output: TensorSample
    options: dict = field(default_factory=dict)


_OPTIONS = {
    "ADD": "AddOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "CONCATENATION": "ConcatenationOptions",
    "CONV_2D": "Conv2DOptions",
    "DEPTH_TO_SPACE": "DepthToSpaceOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "GELU": "GeluOptions",
    "LOG_SOFTMAX": "LogSoftmaxOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "MUL": "MulOptions",
    "REDUCE_MAX": "ReducerOptions",
    "RESHAPE": "ReshapeOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "SOFTMAX": "SoftmaxOptions",
    "SPACE_TO_BATCH_ND": "SpaceToBatchNDOptions",
    "SPACE_TO_DEPTH": "SpaceToDepthOptions",
    "SQUEEZE": "SqueezeOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "SUB": "SubOptions",
    "SUM": "ReducerOptions",
    "SVDF": "SVDFOptions",
    "TRANSPOSE": "TransposeOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
    "UNPACK": "UnpackOptions",
}


_VERSIONS = {
    **{"FULLY_CONNECTED": 4, "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3},
    **dict.fromkeys(("DEPTH_TO_SPACE", "ELU", "GELU", "HARD_SWISH", "PRELU", "RELU_N1_TO_1", "RESHAPE"), 1),
}


def model_bytes(sample: OperatorSample) -> bytes:
    """The file."""
    tensors = [*sample.inputs, sample.output]
    named = [replace(tensor, name=tensor.name or f"t{index}") for index, tensor in enumerate(tensors)]
    inputs = enumerate(sample.inputs)
    activations = [index for index, tensor in inputs if tensor.data is None and not tensor.variable]
    last = len(sample.inputs)
    operator = Node(sample.operator, range(last), [last], sample.options)
    return network_bytes(named, [operator], activations, [last])


@dataclass
class Node:
    """An operator of a network, by the numbers of its tensors. `code` is in place of that of its name.

    A custom operator has its name and its options, a flexbuffer. `version` is that of int8 where it is None.
    """

    operator: str
    inputs: list
    outputs: list
    options: dict = field(default_factory=dict)
    code: int | None = None
    custom: str = ""
    intermediates: list = field(default_factory=list)
    custom_options: bytes = b""
    version: int | None = None


class GrowingFile:
    """A file that grows by one operator at a call; a value is the number of its tensor."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: list[TensorSample] = []
        self.nodes: list[Node] = []
        self.inputs: list[int] = []

    def file(self, *outputs: int) -> bytes:
        return network_bytes(self.tensors, self.nodes, self.inputs, outputs)

    def shape(self, value: int) -> tuple[int, ...]:
        return self.tensors[value].shape


def network_bytes(tensors, nodes, inputs, outputs, *, subgraphs=1, version=3) -> bytes:
    """A file of several operators; every sub-graph is the same one."""
    builder = flatbuffers.Builder(1024)
    constants = [np.zeros(0, np.int8), *(tensor.data for tensor in tensors if tensor.data is not None)]
    buffers = [_table(builder, "Buffer", Data=_bytes(builder, data.tobytes())) for data in constants]
    offsets, following = [], 1
    for tensor in tensors:
        buffer = following if tensor.data is not None else 0
        offsets.append(_tensor(builder, tensor, buffer if tensor.buffer is None else tensor.buffer))
        following += tensor.data is not None
    operators = [_node(builder, node, index) for index, node in enumerate(nodes)]
    graph = _table(
        builder,
        "SubGraph",
        Tensors=_offsets(builder, offsets),
        Inputs=_ints(builder, inputs),
        Outputs=_ints(builder, outputs),
        Operators=_offsets(builder, operators),
    )
    model = _table(
        builder,
        "Model",
        Version=version,
        OperatorCodes=_offsets(builder, [_code(builder, node) for node in nodes]),
        Subgraphs=_offsets(builder, [graph] * subgraphs),
        Buffers=_offsets(builder, buffers),
    )
    builder.Finish(model, b"TFL3")
    return bytes(builder.Output())


def custom_options(**values) -> bytes:
    """A flexbuffer of whole numbers, bools and floats, which are float32: TVM's importer reads no wider ones."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in values.items():
            builder.Key(name)
            if isinstance(value, bool):
                builder.Bool(value)
            elif isinstance(value, int):
                builder.Int(value)
            else:
                builder.Float(float(np.float32(value)))
    return bytes(builder.Finish())


def _node(builder, node, index):
    kind = _OPTIONS.get(node.operator)
    options = {}
    if kind is not None:
        options["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, kind)
        values = {
            name: builder.CreateNumpyVector(value) if np.ndim(value) else value for name, value in node.options.items()
        }
        options["BuiltinOptions"] = _table(builder, kind, **values)
    if node.custom_options:
        options["CustomOptions"] = _bytes(builder, node.custom_options)
    return _table(
        builder,
        "Operator",
        OpcodeIndex=index,
        Inputs=_ints(builder, node.inputs),
        Outputs=_ints(builder, node.outputs),
        Intermediates=_ints(builder, node.intermediates),
        **options,
    )


def _code(builder, node):
    code = getattr(tflite.BuiltinOperator, node.operator) if node.code is None else node.code
    version = _VERSIONS.get(node.operator, 2) if node.version is None else node.version
    custom = {"CustomCode": builder.CreateString(node.custom)} if node.custom else {}
    return _table(
        builder, "OperatorCode", DeprecatedBuiltinCode=min(code, 127), BuiltinCode=code, Version=version, **custom
    )


def _tensor(builder, tensor, buffer):
    dtype = "int8" if tensor.data is None else str(tensor.data.dtype)
    fields = {} if tensor.name is None else {"Name": builder.CreateString(tensor.name)}
    if tensor.scale is not None:
        scales = np.atleast_1d(np.asarray(tensor.scale, np.float32))
        fields["Quantization"] = _table(
            builder,
            "QuantizationParameters",
            Scale=builder.CreateNumpyVector(scales),
            ZeroPoint=builder.CreateNumpyVector(np.full(scales.size, tensor.zero_point, np.int64)),
            QuantizedDimension=tensor.axis,
            DetailsType=2 if tensor.blocks else 0,
        )
    return _table(
        builder,
        "Tensor",
        Shape=_ints(builder, tensor.shape),
        Type=getattr(tflite.TensorType, tensor.dtype or dtype.upper()),
        Buffer=buffer,
        IsVariable=tensor.variable,
        **fields,
    )


def _table(builder, kind, **values):
    getattr(tflite, f"{kind}Start")(builder)
    for name, value in values.items():
        getattr(tflite, f"{kind}Add{name}")(builder, value)
    return getattr(tflite, f"{kind}End")(builder)


def _ints(builder, values):
    return builder.CreateNumpyVector(np.asarray(list(values), np.int32))


def _bytes(builder, data):
    return builder.CreateByteVector(data)


def _offsets(builder, offsets):
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()
