"""The work of layers on a vendor library: one call for each, from main memory to main memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from byoc_hw.accelerator import Library, LibraryCall
from byoc_hw.errors import PlanError
from byoc_hw.graph import Layer, Reshape
from byoc_hw.plan.array.mapped import MappedGraph
from byoc_hw.plan.array.storage import Argument, Storage
from byoc_hw.plan.steps import ARGUMENT, FLASH_ALIGNMENT, SCRATCH, Address, WholeLayer
from byoc_hw.plan.work.flash import FlashImage
from byoc_hw.plan.work.ops import Access, Home, Op
from byoc_hw.plan.work.units import Work
from byoc_hw.tensor import Tensor


def whole_layers(mapped: MappedGraph, library: Library) -> tuple[Work, FlashImage]:
    """A call for each layer, in order, and no constant data: the library's is its own. Reshapes share the bytes of
    their input.

    Raises `PlanError` for a layer without a call, and where the bytes of one tensor belong in two arguments.
    """
    builder = _Builder(mapped, library)
    ops = tuple(builder.ops())
    flash = FlashImage(mapped.accelerator, FLASH_ALIGNMENT, mapped.accelerator.local_alignment)
    return Work(ops, builder.homes, mapped.accelerator.dma_alignment), flash


@dataclass
class _Builder:
    mapped: MappedGraph
    library: Library

    def __post_init__(self) -> None:
        self.homes = {one: self._home(one) for one in self.mapped.storages.all if not one.constant}

    def ops(self) -> Iterator[Op]:
        for index, layer in enumerate(self.mapped.graph.layers):
            call = self.library.calls.get(layer.kind)
            if call is not None:
                yield self._op(index, layer, call)
            elif not isinstance(layer, Reshape):
                raise PlanError(f"{layer.name}: the library has a call for each layer kind: none for {layer.kind}")

    def _op(self, index: int, layer: Layer, call: LibraryCall) -> Op:
        of = self.mapped.storages.of
        inputs = [None if tensor.data is not None else of[tensor] for tensor in layer.inputs]
        space = self._workspace(index, call.workspace(layer))
        step = WholeLayer(
            inputs=tuple(None if one is None else self.homes[one].address for one in inputs),
            output=self.homes[of[layer.ofm]].address,
            workspace=None if space is None else self.homes[space].address,
            cycles=self.library.cycles(layer),
        )
        accesses = [Access(one, 0, one.nbytes, False) for one in dict.fromkeys(inputs) if one is not None]
        written = [of[layer.ofm], *([] if space is None else [space])]
        accesses += [Access(one, 0, one.nbytes, True) for one in written]
        return Op(step, index, tuple(accesses), {}, step.cycles)

    def _home(self, storage: Storage) -> Home:
        arguments = [*([] if storage.source is None else [storage.source]), *storage.sinks]
        if any(argument.strides is not None for argument in arguments) or storage.swapped:
            raise PlanError(f"{storage.name}: a library reads and writes tensors as the model has them")
        if len(arguments) > 1:
            raise PlanError(f"{storage.name}: a library copies nothing: its bytes are those of one argument")
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
