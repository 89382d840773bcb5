"""The work of layers as a whole, on a vendor library or without tiles: one job each, in main memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer, Reshape, Whole
from byoc_hw.params.whole_layers import workspace_bytes
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.storage import Argument, Storage
from byoc_hw.plan.steps import ARGUMENT, FLASH_ALIGNMENT, SCRATCH, Address, WholeLayer
from byoc_hw.plan.work.flash import FlashImage
from byoc_hw.plan.work.ops import Access, Home, Op
from byoc_hw.plan.work.units import Work
from byoc_hw.tensor import Tensor


def whole_layers(mapped: MappedGraph) -> tuple[Work, FlashImage]:
    """A job for each layer, in order. Reshapes share the bytes of their input. A library's constants are its own.

    Raises `PlanError` for a layer that the accelerator does not take as a whole, and where the bytes of one tensor
    belong in two arguments.
    """
    builder = _Builder(mapped)
    ops = tuple(builder.ops())
    return Work(ops, builder.homes, mapped.accelerator.dma_alignment), builder.flash


@dataclass
class _Builder:
    mapped: MappedGraph

    def __post_init__(self) -> None:
        accelerator = self.mapped.accelerator
        self.library = accelerator.library
        self.flash = FlashImage(accelerator, FLASH_ALIGNMENT, accelerator.local_alignment)
        self.homes = {one: self._home(one) for one in self.mapped.storages.all if not one.constant}

    def ops(self) -> Iterator[Op]:
        for index, layer in enumerate(self.mapped.graph.layers):
            if self.library is not None and layer.kind in self.library.calls:
                yield self._op(index, layer, self.library.calls[layer.kind].workspace(layer))
            elif self.library is None and isinstance(layer, Whole):
                yield self._op(index, layer, workspace_bytes(layer))
            elif not isinstance(layer, Reshape):
                what = "library" if self.library is not None else "HAL"
                raise PlanError(f"{layer.name}: the {what} takes the layers of a part as a whole: not {layer.kind}")

    def _op(self, index: int, layer: Layer, workspace: int) -> Op:
        of = self.mapped.storages.of
        inputs = [None if tensor.data is not None else of[tensor] for tensor in layer.inputs]
        space = self._workspace(index, workspace)
        step = WholeLayer(
            inputs=tuple(map(self._address, layer.inputs)),
            output=self.homes[of[layer.ofm]].address,
            workspace=None if space is None else self.homes[space].address,
            cycles=self.mapped.accelerator.cycles_of_whole(layer),
        )
        accesses = [Access(one, 0, one.nbytes, False) for one in dict.fromkeys(inputs) if one is not None]
        written = [of[layer.ofm], *([] if space is None else [space])]
        accesses += [Access(one, 0, one.nbytes, True) for one in written]
        return Op(step, index, tuple(accesses), {}, step.cycles)

    def _address(self, tensor: Tensor) -> Address | None:
        """Where an input lies; None for a constant of a library."""
        if tensor.data is None:
            return self.homes[self.mapped.storages.of[tensor]].address
        return self.flash.constant(tensor) if self.library is None else None

    def _home(self, storage: Storage) -> Home:
        arguments = [*([] if storage.source is None else [storage.source]), *storage.sinks]
        if any(argument.strides is not None for argument in arguments) or storage.swapped:
            raise PlanError(f"{storage.name}: a layer as a whole reads and writes tensors as the model has them")
        if len(arguments) > 1:
            raise PlanError(f"{storage.name}: a layer as a whole copies nothing: its bytes are those of one argument")
        return Home(storage, _argument(*arguments) if arguments else Address(SCRATCH, 0, storage.block))

    def _workspace(self, index: int, nbytes: int) -> Storage | None:
        if not nbytes:
            return None
        name = f"{self.mapped.graph.name}: workspace {index:05} {self.mapped.graph.layers[index].name}"
        space = Storage(-1, name, Tensor(name, (nbytes,)), (1, 1, nbytes), False)
        self.homes[space] = Home(space, Address(SCRATCH, 0, name))
        return space


def _argument(argument: Argument) -> Address:
    return Address(ARGUMENT + argument.index)
