"""The small networks of the tests of ONNX: each has the blocks of a well-known architecture, and nothing twice."""

from __future__ import annotations

from onnx_samples import QdqNet


def mobilenet(**options):
    """Two inverted residual blocks, Relu6, global average, a classifier."""
    net = QdqNet(**options)
    x = net.conv(net.input(1, 3, 16, 16), 8, stride=2, act="Relu6")
    y = net.conv(x, 24, 1, act="Relu6")
    y = net.depthwise(y, act="Relu6")
    x = net.add(x, net.conv(y, 8, 1, act=""))
    y = net.depthwise(net.conv(x, 24, 1, act="Relu6"), stride=2, act="Relu6")
    x = net.conv(y, 12, 1, act="")
    net.output(net.gemm(net.flatten(net.global_average(x)), 10))
    return net


def keywords(**options):
    """Depthwise-separable convolutions over a spectrogram, global average, softmax."""
    net = QdqNet(**options)
    x = net.conv(net.input(1, 1, 25, 10), 16, 5, stride=2)
    for _ in range(2):
        x = net.conv(net.depthwise(x), 16, 1)
    x = net.global_average(x)
    net.output(net.softmax(net.gemm(net.flatten(x), 12)))
    return net


def signals(**options):
    """Convolutions over one dimension, strided, causal, depthwise over joined maxima; an average and the last step."""
    net = QdqNet(**options)
    x = net.conv(net.input(1, 6, 80), 12, 5, stride=2)
    x = net.add(x, net.conv(net.padded(x, 4, 0), 12, pads=[0, 0], dilation=2), act="Relu6")
    x = net.concat(x, net.repeated_maximum(x, 2))
    x = net.conv(net.depthwise(net.max_pool(x, 3, 2, (1, 1))), 10, 1, act="")
    total = net.add(net.gemm(net.flatten(net.global_average(x)), 8), net.gemm(net.at(x, -1, 2), 8))
    net.output(total)
    return net


def shuffled(**options):
    """Half of the channels, convolved, shuffled with the others; a normalization, slopes, and channels as pixels."""
    net = QdqNet(**options)
    x = net.conv(net.input(1, 3, 10, 12), 12)
    kept, taken = net.split(x, 4, 8)
    y = net.reshape(net.concat(kept, net.conv(taken, 8)), 1, 2, 6, 10, 12)
    y = net.batch_norm(net.reshape(net.transpose(y, 0, 2, 1, 3, 4), 1, 12, 10, 12), act="Relu6")
    y = net.prelu(net.conv(y, 12, act=""), *(0.1 + 0.02 * channel for channel in range(12)))
    y = net.prelu(net.conv(y, 12, act=""), 0.3)
    net.output(net.depth_to_space(y, 2))
    return net


def inception(**options):
    """Branches of several kernels and of a pool, joined."""
    net = QdqNet(**options)
    x = net.conv(net.input(1, 3, 12, 12), 8)
    branches = [
        net.conv(x, 4, 1),
        net.conv(net.conv(x, 4, 1), 6, 3),
        net.conv(net.max_pool(x, kernel=3, stride=1, pads=(1, 1, 1, 1)), 4, 1),
    ]
    x = net.concat(*branches)
    net.output(net.gemm(net.flatten(net.mean(x, axes=(2, 3), keepdims=1)), 5))
    return net


def unet(**options):
    """Down, and up again by a resize and by a transposed convolution, each joined with what came before."""
    net = QdqNet(**options)
    first = net.conv(net.input(1, 3, 16, 16), 8)
    second = net.conv(net.max_pool(first), 12)
    third = net.conv(net.max_pool(second), 16)
    x = net.conv(net.concat(net.resize(third), second), 12)
    x = net.conv(net.concat(net.conv_transpose(x, 8), first), 8)
    net.output(net.conv(x, 2, 1, act=""))
    return net


def attention(**options):
    """Queries, keys and values as linear layers over several rows, their products, and the sum with the input."""
    net = QdqNet(**options)
    x = net.input(1, 6, 16)
    queries, keys, values = (net.matmul_with_weights(x, 16) for _ in range(3))
    scores = net.softmax(net.matmul(queries, net.transpose(keys, 0, 2, 1)))
    x = net.add(x, net.matmul_with_weights(net.matmul(scores, values), 16))
    net.output(net.matmul_with_weights(net.unary("Relu", net.matmul_with_weights(x, 32)), 16))
    return net


NETWORKS = {net.__name__: net for net in (mobilenet, keywords, signals, shuffled, inception, unet, attention)}
