"""C for a region on a vendor library: constant arrays, and a function with one checked call per layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from byoc_hw.emit import c
from byoc_hw.emit.numbering import number_region
from byoc_hw.emit.weight_file import ConstantArray
from byoc_hw.graph import Graph
from byoc_hw.library_calls import Library, Operands
from byoc_hw.plan.library import LibraryPlan
from byoc_hw.plan.library_layer import LibraryLayer
from byoc_hw.tensor import Tensor


def library_body(plan: LibraryPlan, first_layer: int) -> str:
    """The body of the region's function: pointers to intermediates, then one checked call per layer."""
    token = "token" if plan.wait is not None else None
    lines = [*_started(plan, first_layer, token)]
    if token is None:
        return "\n".join([*lines, "  return 0;", ""])
    return "\n".join([f"  uint32_t {token} = 0;", *lines, *_ended(token, _last(plan, first_layer)), "  return 0;", ""])


def library_early_return(plan: LibraryPlan, first_layer: int) -> tuple[str, str, str]:
    """What the calls in flight leave behind, the body of the function that starts them, and of the one that waits."""
    token = f"{plan.graph.name}_token"
    state = f"/* The call that was started last, 0 when it has ended. */\nstatic uint32_t {token};\n"
    wait = ["  int32_t status;", *_ended(token, _last(plan, first_layer)), "  return 0;", ""]
    return state, "\n".join([*_started(plan, first_layer, token), "  return 0;", ""]), "\n".join(wait)


def _started(plan: LibraryPlan, first_layer: int, token: str | None) -> Iterator[str]:
    """Lines that call the layers, and copy what no call writes. With a `token` the calls only start."""
    places = _places(plan)
    for tensor, offset in plan.scratch.items():
        element = c.c_type(tensor.dtype)
        yield f"  {element} *const {places[tensor]} = ({element} *)(scratch + {offset});"
    if token is not None or any(prepared.call for prepared in plan.layers):
        yield from ("  int32_t status;", "")
    for index, (numbered, prepared) in enumerate(zip(number_region(plan.graph, first_layer), plan.layers, strict=True)):
        layer, target = prepared.layer, places[prepared.layer.ofm]
        aliased = prepared.call is None and places[layer.ifm] == target
        yield c.comment([*numbered.title, *(["The same bytes: nothing to do."] if aliased else [])], indent=2)
        if prepared.call is not None:
            values = prepared.call.arguments_of(layer, _operands(plan, index, places))
            yield from _call(prepared.call.function, values, numbered.id, token, target, layer.ofm.nbytes)
        elif not aliased:
            yield from _ended(token, numbered.id)
            yield f"  memcpy({target}, {places[layer.ifm]}, {layer.ofm.nbytes});"
            yield f"  {_trace(numbered.id, token and '(void)', token, target, layer.ofm.nbytes)};"
        yield ""
    copies = list(_left_over(plan, places))
    yield from _ended(token, _last(plan, first_layer)) if copies else ()
    yield from (f"  memcpy({name}, {places[tensor]}, {tensor.nbytes});" for name, tensor in copies)


def _call(
    function: str, values: Sequence[str], number: int, token: str | None, target: str, nbytes: int
) -> Iterator[str]:
    """A checked call of layer `number`. One that starts waits for those before it where it fails."""
    yield f"  REGION_COUNT({number});"
    yield c.wrapped(f"status = {function}", [*values, *([] if token is None else [f"&{token}"])], ";", indent=2)
    if token is not None:
        yield from ("  if (status == 0) {", f"    {_trace(number, 'status = ', token, target, nbytes)};", "  }")
    yield "  if (status != 0) {"
    if token is not None:
        yield f"    (void)region_ended(&{token});"
    yield from (f"    return REGION_RESULT(status, {number});", "  }")
    if token is None:
        yield f"  {_trace(number, None, None, target, nbytes)};"


def _trace(number: int, result: str | None, token: str | None, target: str, nbytes: int) -> str:
    running = "" if token is None else f"&{token}, "
    return f"{result or ''}REGION_TRACE({number}, {running}{target}, {nbytes})"


def _ended(token: str | None, number: int) -> Sequence[str]:
    """Lines that wait for the calls that were started; layer `number` has failed where one of them has."""
    if token is None:
        return ()
    failed = ("  if (status != 0) {", f"    return REGION_RESULT(status, {number});", "  }")
    return (f"  status = region_ended(&{token});", *failed)


def _last(plan: LibraryPlan, first_layer: int) -> int:
    """The number of the last layer that is a call."""
    called = [index for index, prepared in enumerate(plan.layers) if prepared.call is not None]
    return first_layer + (called[-1] if called else 0)


_MACROS = """\
#ifdef HWLIB_TRACE
void hwlib_trace(uint16_t layer, const void *ofm, uint32_t bytes);
#define REGION_TRACE(layer, ofm, bytes) hwlib_trace(layer, ofm, bytes)
#else
#define REGION_TRACE(layer, ofm, bytes) ((void)0)
#endif
"""
_STARTING_MACROS = """\
/* Waits for the calls that were started: the token of the last one becomes 0. */
static inline int32_t region_ended(uint32_t *token)
{{
  uint32_t last = *token;
  *token = 0;
  return last == 0 ? 0 : {wait}(last);
}}

/* A trace waits for each call. */
#ifdef HWLIB_TRACE
void hwlib_trace(uint16_t layer, const void *ofm, uint32_t bytes);
static inline int32_t region_trace(uint16_t layer, uint32_t *token, const void *ofm, uint32_t bytes)
{{
  int32_t status = region_ended(token);
  if (status == 0) {{
    hwlib_trace(layer, ofm, bytes);
  }}
  return status;
}}
#define REGION_TRACE(layer, token, ofm, bytes) region_trace(layer, token, ofm, bytes)
#else
#define REGION_TRACE(layer, token, ofm, bytes) 0
#endif
"""


def library_macros(library: Library) -> str:
    """C in front of the regions, for the calls that `library_body` writes."""
    return _MACROS if library.wait is None else _STARTING_MACROS.format(wait=library.wait)


def _places(plan: LibraryPlan) -> dict[Tensor, str]:
    """The C name of the buffer that holds each tensor."""
    graph = plan.graph
    places = {tensor: f"in{index}" for index, tensor in enumerate(graph.inputs)}
    for index, tensor in enumerate(graph.outputs):
        places.setdefault(tensor, f"out{index}")
    functions = {prepared.call.function for prepared in plan.layers if prepared.call is not None}
    reserved = {"scratch", "status", "token", "memcpy", *functions, *places.values()}
    constant = {tensor: name for name, tensor in constant_names(plan.graph).items()}
    named = dict(zip(plan.scratch, c.unique((tensor.name for tensor in plan.scratch), reserved), strict=True))
    for tensor in graph.tensors:
        home = plan.homes[tensor]
        places.setdefault(tensor, places.get(home) or constant.get(home) or named[home])
    return places


def _left_over(plan: LibraryPlan, places: Mapping[Tensor, str]) -> Iterator[tuple[str, Tensor]]:
    """Outputs that need a copy: an input passed through, or the same tensor given twice."""
    for index, tensor in enumerate(plan.graph.outputs):
        if places[tensor] != f"out{index}":
            yield f"out{index}", tensor


def _operands(plan: LibraryPlan, index: int, places: Mapping[Tensor, str]) -> Operands:
    prepared = plan.layers[index]
    layer = prepared.layer
    workspace = plan.workspaces.get(index)
    return Operands(
        inputs=tuple(places[tensor] for tensor in layer.inputs),
        output=places[layer.ofm],
        weights=None if prepared.weights is None else weights_name(plan.graph, index),
        parameters=parameter_names(plan.graph, index, prepared),
        workspace=None if workspace is None else f"(scratch + {workspace})",
    )


def weights_name(graph: Graph, index: int) -> str:
    """The C array with a layer's weights as the library wants them."""
    return f"{graph.name}_{index}_weights"


def parameter_names(graph: Graph, index: int, prepared: LibraryLayer) -> dict[str, str]:
    """The C array of each of a layer's parameters."""
    spelt = c.unique(prepared.parameters, taken=["weights"])
    return {
        name: f"{graph.name}_{index}_{identifier}" for name, identifier in zip(prepared.parameters, spelt, strict=True)
    }


def constant_names(graph: Graph) -> dict[str, Tensor]:
    """The constant activations by the name of their C array."""
    constants = (tensor for tensor in graph.tensors if tensor.data is not None)
    return {f"{graph.name}_constant_{index}": tensor for index, tensor in enumerate(constants)}


def library_arrays(graph: Graph, layers: Sequence[LibraryLayer]) -> Iterator[ConstantArray]:
    """The constant arrays of a region, or of a part of one."""
    for index, prepared in enumerate(layers):
        if prepared.weights is not None:
            yield ConstantArray(weights_name(graph, index), prepared.weights)
        for name, identifier in parameter_names(graph, index, prepared).items():
            yield ConstantArray(identifier, prepared.parameters[name])
    for name, tensor in constant_names(graph).items():
        assert tensor.data is not None
        yield ConstantArray(name, tensor.data)
