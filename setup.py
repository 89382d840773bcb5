"""Says what to do on another Python; everything else is in setup.cfg."""

import sys

if not (3, 10) <= sys.version_info[:2] <= (3, 13):  # before setuptools, which another Python may lack; for any Python
    sys.exit(
        "byoc_hw needs CPython 3.10 to 3.13: TVM's wheels are made for those. This is Python {}.{}.\n"
        "Make an environment of one of them and install there, for example with one of\n"
        "  uv venv --python 3.10 && uv pip install .\n"
        "  pyenv install 3.10 && ~/.pyenv/versions/3.10.*/bin/python -m venv .venv && .venv/bin/pip install .\n"
        "3.10 on x86-64 Linux has all features, by the TVM with Relay; the others have Relax: see docs/relax.md.\n"
        "In a clone, `make` looks for CPython 3.10 and does so itself.".format(*sys.version_info)
    )

from setuptools import setup

setup()
