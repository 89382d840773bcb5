"""Liveness inside host functions, from the conflicts of TVM's memory planner.

TVM gives each tensor and workspace with its conflicts: those that it may not share bytes with. An input
that a function has finished reading, for example, does not conflict with the function's output. TVM does
not say which function a workspace belongs to; that is inferred here. It also overlooks that a loop comes
round again: what an inner loop reads counts as finished after it, while the outer loop's next round reads
it once more. Everything that one outermost loop uses is therefore kept apart here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import tir
from tvm.tir.usmp.utils import BufferInfo

from byoc_hw.errors import PlanError
from byoc_hw.program import Buffer, Call, CopyCall, HostCall, Program, Workspace


@dataclass(frozen=True)
class _Known:
    """A tensor or workspace of TVM's planner."""

    nbytes: int
    apart: frozenset[str]


def arguments_of(call: Call) -> tuple[Buffer, ...]:
    """The buffers that a call touches."""
    return (call.source, call.target) if isinstance(call, CopyCall) else call.arguments


def tvm_arena(infos: Sequence[BufferInfo], pressure: object) -> int:
    """Arena bytes that TVM's default algorithm needs for the same buffers."""
    placed = tvm.get_global_func("tir.usmp.algo.greedy_by_size")(infos, pressure)
    return max((int(pool.byte_offset) + int(info.size_bytes) for info, pool in placed.items()), default=0)


def allocations(mod: tvm.IRModule) -> dict[str, list[tuple[str, int]]]:
    """Name and bytes of each allocation, by symbol of the function."""
    found: dict[str, list[tuple[str, int]]] = {}
    for function in mod.functions.values():
        if not isinstance(function, tir.PrimFunc) or "global_symbol" not in (function.attrs or {}):
            continue
        allocated: list[tuple[str, int]] = []

        def visit(node: tir.Stmt, allocated: list[tuple[str, int]] = allocated) -> None:
            if isinstance(node, tir.Allocate):
                allocated.append((str(node.buffer_var.name), _allocated_bytes(node)))

        tir.stmt_functor.post_order_visit(function.body, visit)
        found[str(function.attrs["global_symbol"])] = allocated
    return found


def _allocated_bytes(node: tir.Allocate) -> int:
    nbytes: int = (tvm.DataType(node.dtype).bits + 7) // 8
    return math.prod(map(int, node.extents)) * nbytes


Used = int | tuple[str, int]
"""What a function uses: a parameter by its place, an allocation by its name and bytes."""


def loops(mod: tvm.IRModule) -> dict[str, list[frozenset[Used]]]:
    """What each outermost loop of a function uses, by symbol of the function."""
    found: dict[str, list[frozenset[Used]]] = {}
    for function in mod.functions.values():
        if isinstance(function, tir.PrimFunc) and "global_symbol" in (function.attrs or {}):
            found[str(function.attrs["global_symbol"])] = _loops(function)
    return found


def _loops(function: tir.PrimFunc) -> list[frozenset[Used]]:
    buffers = (function.buffer_map.get(parameter) for parameter in function.params)
    known: dict[tir.Var, Used] = {buffer.data: index for index, buffer in enumerate(buffers) if buffer is not None}
    outermost: list[tir.For] = []

    def note_loop(node: object) -> bool:
        if isinstance(node, tir.For):
            outermost.append(node)
        return not isinstance(node, tir.For)

    def note_allocation(node: object) -> None:
        if isinstance(node, tir.Allocate):
            known[node.buffer_var] = (str(node.buffer_var.name), _allocated_bytes(node))

    tir.stmt_functor.pre_order_visit(function.body, note_loop)
    tir.stmt_functor.post_order_visit(function.body, note_allocation)
    return [_used(loop, known) for loop in outermost]


def _used(loop: tir.For, known: Mapping[tir.Var, Used]) -> frozenset[Used]:
    variables: set[tir.Var] = set()

    def visit(node: object) -> None:
        if isinstance(node, tir.BufferLoad | tir.BufferStore):
            variables.add(node.buffer.data)
        elif isinstance(node, tir.Var):  # a pointer that is passed to a C function
            variables.add(node)

    tir.stmt_functor.post_order_visit(loop, visit)
    return frozenset(known[variable] for variable in variables if variable in known)


def with_moments(
    program: Program,
    infos: Sequence[BufferInfo],
    allocated: Mapping[str, list[tuple[str, int]]],
    looped: Mapping[str, list[frozenset[Used]]],
    alignment: int,
) -> tuple[Program, list[Workspace]]:
    """The program with the `moments` of each host call, and the workspaces of the host functions.

    Buffers of the program have TVM's names.
    """
    known = {
        str(info.name_hint): _Known(int(info.size_bytes), frozenset(str(other.name_hint) for other in info.conflicts))
        for info in infos
    }
    tensors = {buffer.name for call in program.calls for buffer in arguments_of(call)}
    spaces = {name: one for name, one in sorted(known.items()) if name not in tensors}
    used: dict[int, set[str]] = {index: set() for index in range(len(program.calls))}
    for family in _families(spaces):
        for index in _callers(family, spaces, program, tensors, allocated):
            used[index] |= family
    calls = tuple(
        replace(call, moments=_moments(call, used[index], known, looped.get(call.symbol, [])))
        if isinstance(call, HostCall)
        else call
        for index, call in enumerate(program.calls)
    )
    return replace(program, calls=calls), [Workspace(name, one.nbytes, alignment) for name, one in spaces.items()]


def _moments(
    call: HostCall, spaces: set[str], known: Mapping[str, _Known], looped: Sequence[frozenset[Used]]
) -> tuple[frozenset[str], ...]:
    """The maximal sets of the call's tensors and workspaces that all conflict with one another."""
    here = spaces | {buffer.name for buffer in call.arguments if buffer.name in known}
    apart = {name: set(known[name].apart & here) for name in here}
    for loop in looped:
        together = here & {name for used in loop for name in _named(used, call, spaces, known)}
        for one, other in itertools.permutations(together, 2):
            apart[one].add(other)
    return tuple(sorted(_cliques(apart), key=sorted))


def _named(used: Used, call: HostCall, spaces: set[str], known: Mapping[str, _Known]) -> Iterator[str]:
    """The tensor or workspace of the program; several workspaces where TVM's names do not tell them apart."""
    if isinstance(used, int):
        yield call.arguments[used].name
        return
    stem, nbytes = used
    yield from (name for name in spaces if known[name].nbytes == nbytes and _numbered(name, stem))


def _families(spaces: Mapping[str, _Known]) -> Iterator[set[str]]:
    """Connected components of the conflicts between workspaces: each belongs to one function."""
    left = dict.fromkeys(spaces)
    while left:
        family, new = set(), {next(iter(left))}
        while new:
            family |= new
            new = {other for name in new for other in spaces[name].apart if other in spaces} - family
        for name in family:
            del left[name]
        yield family


def _callers(
    family: set[str],
    spaces: Mapping[str, _Known],
    program: Program,
    tensors: set[str],
    allocated: Mapping[str, list[tuple[str, int]]],
) -> list[int]:
    """The calls that may use a family of workspaces: several only where TVM's conflicts do not tell them apart.

    TVM names a workspace after its allocation, with a number appended where the name is taken.
    """
    possible = _allocating(family, {name: spaces[name].nbytes for name in family}, program, allocated)
    alive = {tensor for name in family for tensor in spaces[name].apart & tensors}
    within = [index for index in possible if alive <= _live_at(program, index)]
    through = [index for index in within if _live_at(program, index, arguments=False) <= alive]
    return through or within or possible


def _allocating(
    names: Iterable[str],
    sizes: Mapping[str, int],
    program: Program,
    allocated: Mapping[str, list[tuple[str, int]]],
) -> list[int]:
    """The calls of functions that have allocations of all these names and sizes."""
    return [
        index
        for index, call in enumerate(program.calls)
        if isinstance(call, HostCall)
        and all(
            any(sizes[name] == nbytes and _numbered(name, stem) for stem, nbytes in there)
            for there in [allocated[call.symbol]]
            for name in names
        )
    ]


def check_apart(
    program: Program,
    infos: Sequence[BufferInfo],
    offsets: Mapping[str, int],
    allocated: Mapping[str, list[tuple[str, int]]],
) -> None:
    """Raise `PlanError` where a workspace shares bytes with a tensor or workspace that it conflicts with.

    Checks the inferred callers in every build. Conflicts between two tensors are not checked: TVM does
    not know how a region uses its arguments. Neither are those of a workspace and a tensor that is live during no
    call that may use the workspace: where several calls share a function, TVM takes what one of them is given for
    what all are given.
    """
    tensors = {buffer.name for call in program.calls for buffer in arguments_of(call)}
    sizes = {str(info.name_hint): int(info.size_bytes) for info in infos}
    for info in infos:
        name = str(info.name_hint)
        for other in (str(one.name_hint) for one in info.conflicts):
            apart = offsets[name] + sizes[name] <= offsets[other] or offsets[other] + sizes[other] <= offsets[name]
            if apart or {name, other} <= tensors:
                continue
            workspaces, beside = {name, other} - tensors, {name, other} & tensors
            calls = _allocating(workspaces, sizes, program, allocated)
            if not beside or any(beside <= _live_at(program, index) for index in calls):
                raise PlanError(f"{name} and {other} are alive at once: they share bytes")


def _numbered(name: str, stem: str) -> bool:
    return name.startswith(stem) and (name == stem or name[len(stem) :].isdigit())


def _live_at(program: Program, index: int, *, arguments: bool = True) -> set[str]:
    """The intermediate tensors that are live during a call, with or without its own arguments."""
    before = {buffer for call in program.calls[: index + 1] for buffer in arguments_of(call)}
    after = {buffer for call in program.calls[index:] for buffer in arguments_of(call)}
    here = set() if arguments else set(arguments_of(program.calls[index]))
    return {buffer.name for buffer in (before & after) - here if buffer.role == "intermediate"}


def _cliques(apart: Mapping[str, set[str]]) -> Iterator[frozenset[str]]:
    """The maximal cliques of the conflict graph (Bron and Kerbosch, with a pivot: many buffers are all in conflict)."""

    def extend(group: frozenset[str], open_: set[str], done: set[str]) -> Iterator[frozenset[str]]:
        if not open_ and not done:
            yield group
            return
        pivot = max(sorted(open_ | done), key=lambda name: len(open_ & apart[name]))
        for name in sorted(open_ - apart[pivot]):
            yield from extend(group | {name}, open_ & apart[name], done & apart[name])
            open_, done = open_ - {name}, done | {name}

    yield from extend(frozenset(), set(apart), set())
