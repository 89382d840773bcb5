"""Train and quantize the demo network: a small int8 CNN for 8x8 handwritten digits.

Makes four files beside this script (or in ``--output-dir``):

``digits_int8.tflite``
    The network, int8 throughout (input 1x8x8x1, output 1x10), with per-channel
    convolution weights and the operators common in small vision networks.
``digits_heldout.npz``
    Digits that neither training nor calibration has seen: ``images`` (N, 8, 8, 1)
    int8, quantized for the model's input; ``pixels`` (N, 8, 8) uint8, the raw
    values 0..16; ``labels`` (N,) int64; and the accuracies on them,
    ``float_accuracy`` (the Keras model) and ``int8_accuracy`` (TFLite's
    reference kernels).

``digits_float.tflite``
    The same network in float32, for quantization with other widths.
``digits_calibration.npz``
    ``pixels`` (N, 8, 8) uint8 of digits that it was trained with, without labels.

All files are checked in. TensorFlow is not a dependency of the project; it is
needed only to make them again, in an environment of its own::

    pip install tensorflow-cpu==2.14.0 "numpy<2" scikit-learn==1.7.2
    python byoc_hw/demo/train_digits.py

Run with Python 3.10.13, tensorflow-cpu 2.14.0, numpy 1.26.4, scikit-learn 1.7.2.
The seeds are fixed: a second run on the same machine writes the same bytes, but
another kind of processor may round differently and so train other weights.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tensorflow.keras import layers

SEED = 7
EPOCHS = 60
BATCH_SIZE = 32
CALIBRATION = 256


def conv(x: tf.Tensor, filters: int, kernel: int, relu: bool = True) -> tf.Tensor:
    """Convolution, batch norm (which the converter folds) and optionally ReLU."""
    x = layers.Conv2D(filters, kernel, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(x) if relu else x


def depthwise(x: tf.Tensor, stride: int = 1) -> tf.Tensor:
    """3x3 depthwise convolution, batch norm and ReLU."""
    x = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


def build_model(batch_size: int | None = None) -> tf.keras.Model:
    """The network; ``batch_size`` fixes the leading dimension for the export."""
    inputs = tf.keras.Input((8, 8, 1), batch_size=batch_size, name="image")
    x = conv(inputs, 16, kernel=3)  # 8x8x16
    x = conv(depthwise(x), 32, kernel=1)  # 8x8x32
    x = conv(depthwise(x, stride=2), 48, kernel=1)  # 4x4x48
    branch = conv(depthwise(x), 48, kernel=1, relu=False)
    x = layers.ReLU()(layers.Add()([x, branch]))  # 4x4x48
    x = layers.MaxPooling2D(2)(x)  # 2x2x48
    x = conv(x, 64, kernel=3)  # 2x2x64
    x = layers.AveragePooling2D(2)(x)  # global; GlobalAveragePooling2D would be a MEAN
    x = layers.Dense(10)(layers.Flatten()(x))
    return tf.keras.Model(inputs, layers.Softmax(name="probabilities")(x))


def train(images: np.ndarray, labels: np.ndarray) -> tf.keras.Model:
    """Train the float model with a learning rate that decays to zero."""
    steps = EPOCHS * -(-len(images) // BATCH_SIZE)
    rate = tf.keras.optimizers.schedules.CosineDecay(3e-3, steps)
    model = build_model()
    model.compile(tf.keras.optimizers.Adam(rate), "sparse_categorical_crossentropy")
    model.fit(images, labels, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=0)
    return model


def float_twin(model: tf.keras.Model) -> bytes:
    """Convert to a float TFLite model with batch size 1."""
    fixed = build_model(batch_size=1)
    fixed.set_weights(model.get_weights())
    return tf.lite.TFLiteConverter.from_keras_model(fixed).convert()


def int8_twin(model: tf.keras.Model, calibration: np.ndarray) -> bytes:
    """Convert to a TFLite model that is int8 throughout, with batch size 1."""

    def representative_dataset() -> Iterator[list[np.ndarray]]:
        for image in calibration:
            yield [image[np.newaxis]]

    fixed = build_model(batch_size=1)
    fixed.set_weights(model.get_weights())
    converter = tf.lite.TFLiteConverter.from_keras_model(fixed)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative_dataset
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def run_int8(tflite: bytes, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantize ``images`` for the model; return them and the predicted digits."""
    kernels = tf.lite.experimental.OpResolverType.BUILTIN_REF
    runner = tf.lite.Interpreter(None, tflite, experimental_op_resolver_type=kernels)
    runner.allocate_tensors()
    source, result = runner.get_input_details()[0], runner.get_output_details()[0]
    scale, zero_point = source["quantization"]
    quantized = np.clip(np.round(images / scale) + zero_point, -128, 127)
    quantized = quantized.astype(np.int8)
    predicted = []
    for image in quantized:
        runner.set_tensor(source["index"], image[np.newaxis])
        runner.invoke()
        predicted.append(runner.get_tensor(result["index"]).argmax())
    return quantized, np.array(predicted)


def main() -> None:
    """Write the four files."""
    parser = argparse.ArgumentParser(description="Make the demo's int8 digits network.")
    parser.add_argument("--output-dir", type=Path, default=Path(__file__).parent)
    output_dir: Path = parser.parse_args().output_dir
    output_dir.mkdir(parents=True, exist_ok=True)
    tf.keras.utils.set_random_seed(SEED)
    tf.config.threading.set_intra_op_parallelism_threads(1)  # sums in a fixed order
    tf.config.experimental.enable_op_determinism()

    digits = load_digits()
    pixels, labels = digits.images.astype(np.uint8), digits.target.astype(np.int64)
    images = (pixels / np.float32(16))[..., np.newaxis]
    fit, held = train_test_split(np.arange(len(labels)), test_size=0.25, random_state=SEED, stratify=labels)

    model = train(images[fit], labels[fit])
    tflite = int8_twin(model, images[fit])
    quantized, int8_predicted = run_int8(tflite, images[held])
    float_predicted = model.predict(images[held], verbose=0).argmax(axis=1)
    accuracies = {
        "float_accuracy": np.mean(float_predicted == labels[held]),
        "int8_accuracy": np.mean(int8_predicted == labels[held]),
    }

    (output_dir / "digits_int8.tflite").write_bytes(tflite)
    (output_dir / "digits_float.tflite").write_bytes(float_twin(model))
    np.savez_compressed(output_dir / "digits_calibration.npz", pixels=pixels[fit[:CALIBRATION]])
    np.savez_compressed(
        output_dir / "digits_heldout.npz",
        images=quantized,
        pixels=pixels[held],
        labels=labels[held],
        **accuracies,
    )
    print(f"{len(tflite)} bytes, {len(held)} held-out digits, {accuracies}")


if __name__ == "__main__":
    main()
