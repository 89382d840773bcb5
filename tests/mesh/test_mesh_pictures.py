"""Pictures of a plan show every PE and every stage."""

import pytest
from flows import small_mesh
from matplotlib.collections import PolyCollection
from test_pipelines import skip_network

from byoc_hw.mesh.mesh_pictures import draw_balance, draw_mesh, draw_pipeline
from byoc_hw.mesh.pipelines import plan_network


def polygons(axes):
    return [len(one.get_paths()) for one in axes.collections if isinstance(one, PolyCollection)]


@pytest.mark.slow
def test_pictures_show_all_pes_and_stages():
    plan = plan_network(skip_network(blocks=1, size=8), small_mesh(dead={(1, 1)}), pipelines=1)
    assert len(plan.stages) > 1
    stage, load = draw_mesh(plan).axes[:2]
    assert polygons(stage) == polygons(load) == [16]
    assert len(stage.texts) == len(plan.stages)
    (timeline,) = draw_pipeline(plan, frames=3).axes
    assert polygons(timeline) == [len(plan.stages)] * 3
    cycles, nbytes = draw_balance(plan).axes
    assert [bar.get_height() for bar in cycles.patches] == list(plan.placed[1].cycles)
    assert [bar.get_height() for bar in nbytes.patches] == list(plan.placed[1].nbytes)
