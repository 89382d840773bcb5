"""A mesh as data: its PEs in order, its links, and what it refuses."""

from dataclasses import replace
from itertools import pairwise

import pytest
from flows import PE, small_mesh

from byoc_hw.errors import InvalidInput
from byoc_hw.mesh.machine import MESH_7296, Link, Mesh
from byoc_hw.mesh.routes import PORT, Traffic, beats, flight_cycles, hops, link_loads, route


def test_the_preset_has_48_chips_of_152_pes():
    assert MESH_7296.chips[0] * MESH_7296.chips[1] == 48
    assert len(MESH_7296.alive) == 48 * 152 == len(set(MESH_7296.alive))
    assert MESH_7296.memory == 128 * 1024
    assert (MESH_7296.pe.array_rows, MESH_7296.pe.array_columns) == (4, 16)


def test_the_first_152_pes_are_one_chip():
    chip = {(x // 8, y // 19) for x, y in MESH_7296.alive[:152]}
    assert chip == {(0, 0)}


def test_consecutive_pes_are_neighbours_inside_a_row_of_chips():
    row = MESH_7296.alive[: 8 * 152]
    assert {hops(one, other) for one, other in pairwise(row)} == {1}


def test_dead_pes_are_not_used():
    mesh = small_mesh(dead={(0, 0), (2, 3)})
    assert len(mesh.alive) == 14
    assert not {(0, 0), (2, 3)} & set(mesh.alive)


def test_a_part_of_a_mesh_has_its_first_pes():
    mesh = small_mesh(dead={(0, 1)})
    assert mesh.of(5).alive == mesh.alive[:5]


REFUSED = {
    "no PE": ({"width": 0}, "mesh: width is at least 1: got 0"),
    "dead outside": ({"dead": {(4, 0)}}, r"each of dead is a place \(column, row\) of 4 x 4 PEs: got \(4, 0\)"),
    "all dead": ({"width": 1, "height": 1, "dead": {(0, 0)}}, "at least one PE is not dead"),
    "uneven chips": ({"chips": (3, 1)}, "each chip has as many PEs: got 3 x 1 chips for 4 x 4 PEs"),
    "chips of no kind": ({"chips": 4}, "chips are columns x rows of at least 1: got 4"),
    "no room": ({"memory": 16 * 1024}, "memory has room for code and the accelerator's local memories"),
    "link of no kind": ({"link": 16}, "mesh: link is a Link: got 16"),
}


@pytest.mark.parametrize(("changed", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_the_rule_and_the_value(changed, message):
    with pytest.raises(InvalidInput, match=message):
        Mesh(PE, **{"width": 4, "height": 4, **changed})


def test_a_route_goes_along_the_row_first():
    places = [way[1] for way in route((0, 0), (2, 1))]
    assert places == [(0, 0), (1, 0), (2, 0), (2, 1), PORT]
    assert route((1, 1), (1, 1)) == ()


def test_links_between_chips_are_links_of_their_own():
    mesh = small_mesh(chips=(2, 1), link=Link(16, 5), between_chips=Link(4, 50))
    assert beats(mesh, ((1, 0), (2, 0)), 64) == 16
    assert beats(mesh, ((0, 0), (1, 0)), 64) == 4
    assert flight_cycles(mesh, (0, 0), (3, 0), 64) == 5 + 50 + 5 + 16


def test_loads_of_links_add_up():
    mesh = small_mesh(link=Link(16, 5))
    loads = link_loads(mesh, [Traffic((0, 0), (2, 0), 32), Traffic((1, 0), (2, 0), 16)])
    assert loads[(1, 0), (2, 0)] == 3
    assert loads[(0, 0), (1, 0)] == 2
    assert loads[(2, 0), PORT] == 3


def test_a_mesh_with_other_memory_has_other_room():
    assert replace(MESH_7296, code=0).data == MESH_7296.data + MESH_7296.code
