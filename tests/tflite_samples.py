"""TFLite models of one operator, made in memory: what tflite-runtime and TVM's importer both read."""

from __future__ import annotations

from dataclasses import dataclass, field

import flatbuffers
import numpy as np
import tflite

RELU = tflite.ActivationFunctionType.RELU
NONE = tflite.ActivationFunctionType.NONE


@dataclass
class TensorSample:
    """A tensor of the file: int8 or int32; weights have data, and perhaps a scale for each channel."""

    shape: tuple
    scale: float | tuple = 0.1
    zero_point: int = 0
    data: np.ndarray | None = None
    axis: int = 0
    name: str = ""


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
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "MUL": "MulOptions",
    "SOFTMAX": "SoftmaxOptions",
}


def model_bytes(sample: OperatorSample) -> bytes:
    """The file."""
    builder = flatbuffers.Builder(1024)
    tensors = [*sample.inputs, sample.output]
    constants = [np.zeros(0, np.int8), *(tensor.data for tensor in tensors if tensor.data is not None)]
    buffers = [_table(builder, "Buffer", Data=_bytes(builder, data.tobytes())) for data in constants]
    offsets, following = [], 1
    for index, tensor in enumerate(tensors):
        offsets.append(
            _tensor(builder, tensor, tensor.name or f"t{index}", following if tensor.data is not None else 0)
        )
        following += tensor.data is not None
    activations = [index for index, tensor in enumerate(tensors[:-1]) if tensor.data is None]
    last = len(tensors) - 1
    kind = _OPTIONS[sample.operator]
    options = _table(builder, kind, **sample.options)
    operator = _table(
        builder,
        "Operator",
        OpcodeIndex=0,
        Inputs=_ints(builder, range(last)),
        Outputs=_ints(builder, [last]),
        BuiltinOptionsType=getattr(tflite.BuiltinOptions, kind),
        BuiltinOptions=options,
    )
    graph = _table(
        builder,
        "SubGraph",
        Tensors=_offsets(builder, offsets),
        Inputs=_ints(builder, activations),
        Outputs=_ints(builder, [last]),
        Operators=_offsets(builder, [operator]),
    )
    code = getattr(tflite.BuiltinOperator, sample.operator)
    version = {"FULLY_CONNECTED": 4, "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3}.get(sample.operator, 2)
    opcode = _table(builder, "OperatorCode", DeprecatedBuiltinCode=code, BuiltinCode=code, Version=version)
    model = _table(
        builder,
        "Model",
        Version=3,
        OperatorCodes=_offsets(builder, [opcode]),
        Subgraphs=_offsets(builder, [graph]),
        Buffers=_offsets(builder, buffers),
    )
    builder.Finish(model, b"TFL3")
    return bytes(builder.Output())


def _tensor(builder, tensor, name, buffer):
    scales = np.atleast_1d(np.asarray(tensor.scale, np.float32))
    zero_points = np.full(scales.size, tensor.zero_point, np.int64)
    quantization = _table(
        builder,
        "QuantizationParameters",
        Scale=builder.CreateNumpyVector(scales),
        ZeroPoint=builder.CreateNumpyVector(zero_points),
        QuantizedDimension=tensor.axis,
    )
    wide = tensor.data is not None and tensor.data.dtype == np.int32
    return _table(
        builder,
        "Tensor",
        Shape=_ints(builder, tensor.shape),
        Type=tflite.TensorType.INT32 if wide else tflite.TensorType.INT8,
        Buffer=buffer,
        Name=builder.CreateString(name),
        Quantization=quantization,
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
