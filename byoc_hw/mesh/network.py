"""The whole model as one list of nodes: the layers of all regions, and the functions of the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from byoc_hw.errors import Unsupported
from byoc_hw.graph import Graph, Layer, Reshape
from byoc_hw.names import distinct
from byoc_hw.program import Buffer, CopyCall, HostCall, Program, RegionCall, Workspace
from byoc_hw.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Node:
    """One layer, of the region that `region` names, or one function of the host; the other one is None.

    A function's arguments that are neither in `inputs` nor in `outputs` are its scratch: no tensors of the network.
    `inputs` are the names of the activations that it reads, those of a layer in the order of its inputs without
    constants. The layer's own tensors have the shapes and scales, the names are those of the network.
    """

    name: str
    layer: Layer | None
    call: HostCall | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    region: str = ""


@dataclass(frozen=True, eq=False)
class MeshNetwork:
    """A whole model. `nodes` are in an order in which they can run; each tensor is written by one node at most.

    `tensors` has every activation by its name in the network: of the model's interface and between host functions
    the names of the buffers, inside regions those of the layers that write them. `workspaces` are those of the host's
    functions, `host_constants` the bytes of the constants that each of these functions reads, by its C name.
    """

    name: str
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: Mapping[str, Buffer]
    workspaces: tuple[Workspace, ...] = ()
    host_constants: Mapping[str, int] = field(default_factory=dict)

    def constants_of(self, program: Program) -> int:
        """Bytes of the constants of the functions of the host that a program calls."""
        symbols = {call.symbol for call in program.calls if isinstance(call, HostCall)}
        return sum(self.host_constants.get(symbol, 0) for symbol in symbols)

    @property
    def makers(self) -> dict[str, int]:
        """The number of the node that writes each tensor; inputs have none."""
        return {tensor: number for number, node in enumerate(self.nodes) for tensor in node.outputs}

    @property
    def readers(self) -> dict[str, list[int]]:
        """The numbers of the nodes that read each tensor that is read."""
        found: dict[str, list[int]] = {}
        for number, node in enumerate(self.nodes):
            for name in node.inputs:
                found.setdefault(name, []).append(number)
        return found


def network_of(
    program: Program, workspaces: Sequence[Workspace] = (), host_constants: Mapping[str, int] | None = None
) -> MeshNetwork:
    """The nodes of a compiled model: the calls of one inference, with the layers of each region in its place.

    `program` and `workspaces` are what a front end's `compile_host` gives, `host_constants` the bytes of constants of
    each function of the host, by its C name. Tensors that are read under another shape
    or scale than they are written under, and model outputs that are copies or of another shape, get a `Reshape` node.
    Raises `Unsupported` for a buffer that is written twice.
    """
    return replace(_Reader(program).network(), workspaces=tuple(workspaces), host_constants=dict(host_constants or {}))


class _Reader:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._nodes: list[Node] = []
        self._tensors: dict[str, Tensor] = {}
        self._written: set[str] = {buffer.name for buffer in program.inputs}
        self._buffers = {buffer.name: buffer for buffer in (*program.inputs, *program.outputs)}

    def network(self) -> MeshNetwork:
        program = self._program
        for call in program.calls:
            match call:
                case RegionCall():
                    self._region(call.graph, call.arguments)
                case HostCall():
                    reads = call.arguments[: len(call.arguments) - call.results]
                    self._host(call, reads)
                case CopyCall():
                    source, target = self._tensor(call.source), self._tensor(call.target)
                    self._copy(source, target, call.source.name, call.target.name)
        names = distinct(node.name for node in self._nodes)
        nodes = tuple(replace(node, name=name) for node, name in zip(self._nodes, names, strict=True))
        for buffer in (*program.inputs, *program.outputs):
            self._tensor(buffer)
        inputs, outputs = ([buffer.name for buffer in ends] for ends in (program.inputs, program.outputs))
        return MeshNetwork(program.name, nodes, self._tensors, tuple(inputs), tuple(outputs), self._buffers)

    def _tensor(self, buffer: Buffer) -> Tensor:
        """The tensor of a buffer: as a region has it, or else of the buffer's own shape."""
        self._buffers.setdefault(buffer.name, buffer)
        tensor = Tensor(buffer.name, buffer.shape, buffer.dtype, quantization=buffer.quantization)
        if not buffer.shape or tensor.nbytes != buffer.nbytes:
            tensor = Tensor(buffer.name, (1, buffer.nbytes))
        return self._tensors.setdefault(buffer.name, tensor)

    def _write(self, name: str) -> str:
        if name in self._written:
            raise Unsupported(f"a mesh takes models whose buffers are written once: {name} is written twice")
        self._written.add(name)
        return name

    def _host(self, call: HostCall, reads: tuple[Buffer, ...]) -> None:
        made = [buffer for buffer in reads if buffer.name in self._written]  # what nobody has written is scratch
        for buffer in (*made, *call.written):
            self._tensor(buffer)
        inputs = tuple(dict.fromkeys(buffer.name for buffer in made))
        outputs = tuple(self._write(buffer.name) for buffer in call.written)
        self._nodes.append(Node(call.symbol, None, call, inputs, outputs))

    def _copy(self, source: Tensor, target: Tensor, read: str, written: str) -> None:
        """A node that copies the bytes of a tensor to another one."""
        layer = Reshape(f"copy of {read}", (), source, target)
        self._nodes.append(Node(layer.name, layer, None, (read,), (self._write(written),)))

    def _region(self, graph: Graph, arguments: tuple[Buffer, ...]) -> None:
        names: dict[Tensor, str] = {}
        for tensor, buffer in zip(graph.inputs, arguments, strict=False):
            names[tensor] = self._viewed(tensor, buffer)
        outputs = list(zip(graph.outputs, arguments[len(graph.inputs) :], strict=True))
        made = {layer.ofm for layer in graph.layers}
        copies: list[tuple[Tensor, Buffer]] = []
        for tensor, buffer in outputs:
            reshaped = buffer.role == "output" and buffer.shape != tensor.shape
            if reshaped or tensor in names or tensor not in made:
                copies.append((tensor, buffer))
                continue
            names[tensor] = buffer.name
            self._buffers.setdefault(buffer.name, buffer)
            self._tensors.setdefault(buffer.name, tensor)
        inner = [layer for layer in graph.layers if layer.ofm not in names]
        taken = (*self._tensors, *(buffer.name for call in self._program.calls for buffer in _arguments(call)))
        for layer, name in zip(inner, distinct((layer.name for layer in inner), taken), strict=True):
            names[layer.ofm] = name
            self._tensors[name] = layer.ofm
        for layer in graph.layers:
            inputs = tuple(names[tensor] for tensor in layer.inputs if tensor.data is None)
            self._nodes.append(Node(layer.name, layer, None, inputs, (self._write(names[layer.ofm]),), graph.name))
        for tensor, buffer in copies:
            if tensor.data is not None:
                raise Unsupported(f"a mesh takes models whose outputs are computed: {buffer.name} is a constant")
            self._copy(tensor, self._tensor(buffer), names[tensor], buffer.name)

    def _viewed(self, tensor: Tensor, buffer: Buffer) -> str:
        """The name of a region's input; one of another shape or scale than the buffer is written under is a reshape."""
        known = self._tensors.get(buffer.name)
        if known is None and buffer.shape and buffer.shape != tensor.shape and buffer.role == "input":
            known = self._tensor(buffer)
        if known is None or (known.shape == tensor.shape and _one_scale(known, tensor)):
            self._buffers.setdefault(buffer.name, buffer)
            if known is None or known.quantization is None:  # the scale of what the host writes
                self._tensors[buffer.name] = tensor
            return buffer.name
        (name,) = distinct([f"{buffer.name} as {'x'.join(map(str, tensor.shape))}"], self._tensors)
        if name not in self._tensors:
            self._tensors[name] = tensor
        self._copy(known, tensor, buffer.name, name)
        return name


def _one_scale(known: Tensor, tensor: Tensor) -> bool:
    return None in (known.quantization, tensor.quantization) or known.quantization == tensor.quantization


def _arguments(call: object) -> Iterator[Buffer]:
    if isinstance(call, RegionCall | HostCall):
        yield from call.arguments
