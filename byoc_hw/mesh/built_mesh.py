"""A mesh in a directory: its programs, and runs of all of them on this computer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byoc_hw.arguments import check_number, check_type
from byoc_hw.errors import InvalidInput
from byoc_hw.mesh.group import RunTimes, SharedFrames
from byoc_hw.mesh.libraries import build_libraries, check_libraries
from byoc_hw.mesh.manifest import Manifest, read_manifest
from byoc_hw.mesh.mpi_ranks import run_on_ranks
from byoc_hw.mesh.runs import Look, Outputs, run_in_processes, run_in_threads
from byoc_hw.mesh.stage_check import StageValidation, all_compared, compare_stages, reference_layers
from byoc_hw.tensor import Array

FrameInputs = Mapping[str, Array] | Sequence[Array] | Array
"""The inputs of one frame: by name, as a list in the model's order, or as one array."""

_RUNS = {"threads": run_in_threads, "processes": run_in_processes}

_RANKS = 8
"""The most processes of a run, unless it asks for more."""

MESH_RUNNERS = tuple(_RUNS)
"""How the PEs of a mesh can run on this computer."""


@dataclass(frozen=True)
class MeshResult:
    """The outputs of all frames: for each the model's outputs in order. `times` is the time that they took."""

    outputs: list[list[Array]]
    times: RunTimes

    @property
    def seconds(self) -> float:
        """From the first frame to the last."""
        return self.times.seconds

    @property
    def frames_per_second(self) -> float:
        return len(self.outputs) / self.seconds

    @property
    def cpu_per_frame(self) -> float:
        """Seconds of CPU of all processes for each frame, whatever else the computer does."""
        return self.times.cpu / len(self.outputs)

    @property
    def polling(self) -> float:
        """The share of the CPU time that PEs, and who feeds them, spent in turns without work."""
        return self.times.polling / self.times.cpu if self.times.cpu else 0.0

    def __str__(self) -> str:
        speed = f"{len(self.outputs)} frames in {self.seconds:.3f} s: {self.frames_per_second:.0f} a second"
        return f"{speed}; {1e3 * self.cpu_per_frame:.3f} ms of CPU a frame, {self.polling:.0%} of it to wait"


class MeshProject:
    """A directory that `build_mesh` wrote. It needs neither TVM nor the model any more.

    `InvalidInput` if the directory holds none.
    """

    def __init__(self, directory: str | Path) -> None:
        check_type("directory", directory, str | Path, "a path")
        self.directory = Path(directory)
        self.manifest: Manifest = read_manifest(self.directory)

    def __repr__(self) -> str:
        return f"MeshProject({str(self.directory)!r})"

    def build(self, progress: Callable[[str], None] = lambda line: None) -> list[str]:
        """Compile the programs that have changed since they were compiled last: their names."""
        return build_libraries(self.directory, self.manifest.programs, progress)

    def run(
        self, frames: Sequence[FrameInputs], on: str = "processes", *, ranks: int | None = None, timeout: float = 10.0
    ) -> MeshResult:
        """Send frames through the mesh.

        `on` is "threads", a thread for each PE in this process, or "processes", with `ranks` processes that have as
        many PEs each (by default one each, but at most 8). If nothing comes out for `timeout` seconds, or a process
        ends, or a PE fails, the run ends with a `RunError` that names it, and there is no result.
        """
        return MeshResult(*self._run(self.checked(frames), on, ranks, timeout, None))

    def _run(
        self, inputs: Sequence[Sequence[Array]], on: str, ranks: int | None, timeout: float, look: Look | None
    ) -> Outputs:
        if not isinstance(on, str) or on not in _RUNS:
            raise InvalidInput(f"on is one of {', '.join(MESH_RUNNERS)}: got {on!r}")
        check_number("timeout", timeout, positive=True)
        check_libraries(self.directory, self.manifest.programs)
        count = min(len(self.manifest.pes), _RANKS) if ranks is None else ranks
        return _RUNS[on](self.directory, self.manifest, inputs, count, timeout, look)

    def run_on_mpi(
        self,
        frames: Sequence[FrameInputs],
        *,
        timeout: float = 10.0,
        messages: bool = False,
        validate: bool = False,
    ) -> tuple[MeshResult | None, StageValidation | None]:
        """The part of this rank of MPI in a run that all ranks call with the same frames.

        Rank 0 has the result, and with `validate` the comparison, which the first rank of each machine makes of what
        PEs there send; the others have neither. With `messages` ranks on one machine send messages too, as between
        machines. A rank that fails, has another mesh or other frames than rank 0, or stands still for `timeout`
        seconds, is named, and ends all of them.
        """
        inputs = self.checked(frames)
        check_libraries(self.directory, self.manifest.programs)

        def compare(shared: SharedFrames, pes: Sequence[int]) -> StageValidation:
            return compare_stages(shared, reference_layers(self.directory, self.manifest, inputs), pes)

        found, compared = run_on_ranks(
            self.directory, self.manifest, inputs, timeout, messages=messages, compare=compare if validate else None
        )
        return MeshResult(*found) if found else None, all_compared(compared) if compared else None

    def validate(
        self, frames: Sequence[FrameInputs], on: str = "processes", *, ranks: int | None = None, timeout: float = 10.0
    ) -> StageValidation:
        """Send frames through the mesh, and compare what every PE sends with the project of the whole model.

        That project is in the mesh's directory, in `reference/`. Channels hold all frames meanwhile.
        """
        inputs = self.checked(frames)
        layers = reference_layers(self.directory, self.manifest, inputs)
        found: list[StageValidation] = []
        self._run(inputs, on, ranks, timeout, lambda shared: found.append(compare_stages(shared, layers)))
        return found[0]

    def checked(self, frames: Sequence[FrameInputs]) -> list[list[Array]]:
        """The inputs of each frame in the model's order. `InvalidInput` for what does not fit the model."""
        check_type("frames", frames, Sequence, "a list, each as the inputs of one frame")
        if not frames:
            raise InvalidInput("a run has at least one frame: got none")
        return [self._checked(number, frame) for number, frame in enumerate(frames)]

    def _checked(self, number: int, frame: FrameInputs) -> list[Array]:
        names = self.manifest.inputs
        if isinstance(frame, Mapping):
            unknown = sorted(set(frame) ^ set(names))
            if unknown:
                raise InvalidInput(f"frame {number}: inputs are {', '.join(names)}: got {', '.join(frame)}")
            given = [frame[name] for name in names]
        else:
            given = [frame] if isinstance(frame, np.ndarray) else list(frame)
        if len(given) != len(names):
            raise InvalidInput(f"frame {number}: the model has {len(names)} inputs: got {len(given)}")
        for name, values in zip(names, given, strict=True):
            entry = self.manifest.tensors[name]
            if not isinstance(values, np.ndarray) or values.shape != entry.shape or values.dtype != entry.dtype:
                found = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
                raise InvalidInput(f"frame {number}: input {name} is {entry.dtype} {entry.shape}: got {found}")
        return given
