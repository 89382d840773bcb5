"""The model of the tests of commands, and its inputs."""

import numpy as np

from byoc_hw.demo import model_path

MODEL = str(model_path())
INPUT = "serving_default_image:0"


def save(path, array):
    np.save(path, array)
    return f"{INPUT}={path}"
