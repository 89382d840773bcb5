"""C for the layers of a part that run as a whole: for each a descriptor with its operands, and with its numbers or, on
a vendor's library, with a function that starts it."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_hw.emit import c
from byoc_hw.emit.calls import layer_head
from byoc_hw.emit.library import constant_names, parameter_names, weights_name
from byoc_hw.emit.region_tables import constant_table, descriptor_name
from byoc_hw.graph import Whole
from byoc_hw.library_calls import Operands
from byoc_hw.params.whole_layers import whole_numbers, workspace_bytes
from byoc_hw.plan.chip_plan import Part
from byoc_hw.plan.steps import Address, WholeLayer
from byoc_hw.tensor import Tensor


def whole_descriptors(part: Part, ids: tuple[int, ...], spaces: str, first: int) -> Iterator[str]:
    """The descriptors of the layers of a part that run as a whole, and what they name. `spaces` is the C array of the
    region's spaces, the part's own begin at `first`; `ids` are the layers' numbers in the model."""
    for call in part.plan.calls:
        for step in call.steps:
            if isinstance(step, WholeLayer):
                yield from _LayerC(part, call.index, step, spaces, first).text(ids[call.index])


class _LayerC:
    """One layer. Its addresses are places in the region's spaces."""

    def __init__(self, part: Part, index: int, step: WholeLayer, spaces: str, first: int) -> None:
        self._part, self._index, self._step = part, index, step
        self._spaces, self._first = spaces, first
        self._layer = part.plan.layers[index]
        self._name = descriptor_name(part.plan, index)

    def text(self, number: int) -> Iterator[str]:
        yield c.comment([self._layer.name])
        yield from self._started() if self._part.prepared else self._numbered()
        rows = list(self._rows())
        yield constant_table("hwlib_operand_t", f"{self._name}_operands", "space, offset, bytes, writes", rows)
        fields: dict[str, str | dict[str, str]] = {
            "layer": layer_head(self._layer, number),
            **({"start": f"{self._name}_start"} if self._part.prepared else {}),
            "operands": f"{self._name}_operands",
            "operand_count": str(len(rows)),
            "cycles": f"{self._step.cycles}u",
            **({} if self._part.prepared else {"numbers": f"{self._name}_numbers"}),
        }
        yield "\n".join([f"static const hwlib_whole_layer_t {self._name} = {{", *c.fields(fields), "};\n"])

    def _started(self) -> Iterator[str]:
        """The function that calls the library."""
        call = self._part.prepared[self._index].call
        assert call is not None, "a step is a call"
        values = [*call.arguments_of(self._layer, self._operands()), "token"]
        yield f"static int32_t {self._name}_start(hwlib_token_t *token)\n{{"
        yield c.wrapped(f"return {call.function}", values, ";\n}\n", indent=2)

    def _numbered(self) -> Iterator[str]:
        """What the HAL is told of the layer."""
        assert isinstance(self._layer, Whole), "the others have tiles, or are a library's"
        yield c.array(f"{self._name}_numbers", whole_numbers(self._layer))

    def _workspace(self) -> int:
        if self._part.prepared:
            return self._part.prepared[self._index].workspace_bytes
        assert isinstance(self._layer, Whole)
        return workspace_bytes(self._layer)

    def _rows(self) -> Iterator[str]:
        layer, step = self._layer, self._step
        workspace = self._workspace()
        yield self._row(step.output, layer.ofm.nbytes, 1)
        for tensor, address in zip(layer.inputs, step.inputs, strict=True):
            if address is not None:
                yield self._row(address, tensor.nbytes, 0)
        if step.workspace is not None:
            yield self._row(step.workspace, workspace, 1)

    def _row(self, address: Address, nbytes: int, writes: int) -> str:
        return f"  {{&{self._spaces}[{self._first + address.space}], {address.offset}, {nbytes}, {writes}}},"

    def _operands(self) -> Operands:
        layer, step, part = self._layer, self._step, self._part
        graph, prepared = part.plan.graph, part.prepared[self._index]
        names = {tensor: name for name, tensor in constant_names(graph).items()}
        return Operands(
            inputs=tuple(
                names[tensor] if address is None else self._pointer(address, tensor, "const ")
                for tensor, address in zip(layer.inputs, step.inputs, strict=True)
            ),
            output=self._pointer(step.output, layer.ofm, ""),
            weights=None if prepared.weights is None else weights_name(graph, self._index),
            parameters=parameter_names(graph, self._index, prepared),
            workspace=None if step.workspace is None else f"((uint8_t *){self._address(step.workspace)})",
        )

    def _pointer(self, address: Address, tensor: Tensor, const: str) -> str:
        return f"(({const}{c.c_type(tensor.dtype)} *){self._address(address)})"

    def _address(self, address: Address) -> str:
        place = f"{self._spaces}[{self._first + address.space}].address"
        return f"({place} + {address.offset})" if address.offset else place
