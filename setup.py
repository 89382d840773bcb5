"""Says what to do on another Python; everything else is in setup.cfg."""

import sys

if sys.version_info[:2] != (3, 10):  # before setuptools, which another Python may lack; and for any Python to read
    sys.exit(
        "byoc_hw needs CPython 3.10: the only TVM wheel that has Relay (hhb-tvm) is made for that one. "
        "This is Python {}.{}.\n"
        "Make an environment of CPython 3.10 and install there, for example with one of\n"
        "  uv venv --python 3.10 && uv pip install .\n"
        "  pyenv install 3.10 && ~/.pyenv/versions/3.10.*/bin/python -m venv .venv && .venv/bin/pip install .\n"
        "In a clone, `make` looks for CPython 3.10 and does so itself.".format(*sys.version_info)
    )

from setuptools import setup

setup()
