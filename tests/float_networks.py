"""Small float networks in Relay, for the tests of quantization: random weights with a spread of scales."""

import numpy as np
import tvm
from tvm import relay


class Net:
    """Builds a network operator by operator; its names are those of the operators."""

    def __init__(self, seed=0, layout="NHWC"):
        self.chance = np.random.default_rng(seed)
        self.layout = layout

    def normal(self, *shape):
        fan = max(1, int(np.prod(shape[:-1])))
        return (self.chance.normal(size=shape) * np.sqrt(2 / fan)).astype(np.float32)

    def const(self, values):
        return relay.const(np.asarray(values, np.float32))

    def conv(self, x, depth, filters, kernel=(3, 3), groups=1, bias=True, **options):
        weights = self.normal(*kernel, depth // groups, filters) * self.chance.uniform(0.3, 2, filters).astype(
            np.float32
        )
        kernel_layout = "HWIO"
        if self.layout == "NCHW":
            weights, kernel_layout = weights.transpose(3, 2, 0, 1), "OIHW"
        return self._conv(x, weights, kernel_layout, kernel, filters, groups, bias, options)

    def depthwise(self, x, depth, kernel=(3, 3), multiplier=1, bias=True, **options):
        weights, kernel_layout = self.normal(*kernel, depth, multiplier) * 3, "HWOI"
        if self.layout == "NCHW":
            weights = weights.transpose(2, 3, 0, 1).reshape(depth * multiplier, 1, *kernel)
            kernel_layout = "OIHW"
        return self._conv(x, weights, kernel_layout, kernel, depth * multiplier, depth, bias, options)

    def _conv(self, x, weights, kernel_layout, kernel, filters, groups, bias, options):
        options = {"padding": (1, 1, 1, 1)} | options
        layouts = {"data_layout": self.layout, "kernel_layout": kernel_layout}
        y = relay.nn.conv2d(
            x, self.const(weights), channels=filters, kernel_size=kernel, groups=groups, **layouts, **options
        )
        axis = self.layout.index("C")
        return relay.nn.bias_add(y, self.const(self.chance.normal(size=filters) / 4), axis=axis) if bias else y

    def batch_norm(self, x, depth):
        gamma, beta, mean, square = (self.chance.uniform(low, 1.5, depth) for low in (0.5, -0.5, -0.5, 0.5))
        numbers = map(self.const, (gamma, beta, mean, square))
        return relay.nn.batch_norm(x, *numbers, axis=self.layout.index("C"))[0]

    def dense(self, x, depth, units):
        y = relay.nn.dense(x, self.const(self.normal(units, depth)), units=units)
        return relay.nn.bias_add(y, self.const(self.chance.normal(size=units) / 4))


def module(body, *inputs):
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(list(inputs), body)))


def residual(seed=0, layout="NHWC"):
    """Convolutions with batch normalisation, a shortcut, a depthwise layer, pools, a classifier."""
    net = Net(seed, layout)
    shape = (1, 12, 10, 3) if layout == "NHWC" else (1, 3, 12, 10)
    image = relay.var("image", shape=shape)
    x = relay.nn.relu(net.batch_norm(net.conv(image, 3, 8, bias=False), 8))
    y = relay.nn.relu(net.depthwise(x, 8))
    x = relay.nn.relu(relay.add(x, net.conv(y, 8, 8, (1, 1), padding=(0, 0, 0, 0))))
    x = relay.nn.max_pool2d(x, (2, 2), (2, 2), layout=layout)
    x = relay.clip(net.conv(x, 8, 12, strides=(2, 2)), 0.0, 6.0)
    x = relay.nn.global_avg_pool2d(x, layout=layout)
    return module(relay.nn.softmax(net.dense(relay.nn.batch_flatten(x), 12, 5)), image)


def branches(seed=0):
    """Two inputs, a sigmoid gate, a concatenation, a split, groups, dilation, a mean, an operator that numpy lacks."""
    net = Net(seed)
    left, right = relay.var("left", shape=(1, 9, 9, 4)), relay.var("right", shape=(1, 9, 9, 4))
    gate = relay.sigmoid(net.conv(left, 4, 6))
    x = relay.multiply(gate, net.conv(right, 4, 6, groups=2))
    y = net.depthwise(right, 4, multiplier=2, dilation=(2, 2), padding=(2, 2, 2, 2))
    x = relay.concatenate([x, relay.nn.leaky_relu(y, 0.1)], axis=3)
    first, second = relay.split(x, 2, axis=3)
    x = relay.subtract(first, relay.tanh(second))
    x = relay.image.resize2d(x, (5, 5), layout="NHWC", method="linear", coordinate_transformation_mode="asymmetric")
    x = relay.mean(x, axis=(1, 2))
    return module(relay.Tuple([net.dense(x, 7, 9), relay.nn.relu(x)]), left, right)
