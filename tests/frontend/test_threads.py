"""What TVM has once for all threads: builds at the same time do not disturb each other, settings are asked for once."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from relay_samples import Add, Conv
from tvm.relay.backend import te_compiler

import byoc_hw

NETWORKS = [
    *(Conv(height=height, width=5).module() for height in (6, 7, 8, 9)),
    *(Add((1, height, 5, 3)).module() for height in (4, 5, 6, 7)),
]


def files(mod):
    project = byoc_hw.build(byoc_hw.partition_for_hwlib(mod, accelerator=byoc_hw.SMALL))
    root = project.directory
    return {path.relative_to(root): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_builds_in_threads_write_what_they_write_one_by_one():
    alone = [files(mod) for mod in NETWORKS]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(files, [*NETWORKS, *NETWORKS])) == [*alone, *alone]


def test_tvm_is_asked_once_how_it_was_built():
    byoc_hw.build(NETWORKS[0])
    asked = te_compiler.libinfo.cache_info()
    assert asked.misses == 1
    assert asked.hits > 1
