"""Generates `hwlib_sim_config.h`: the costs of an `Accelerator`, for the simulator in `sim/`."""

from __future__ import annotations

from byoc_hw.accelerator import Accelerator
from byoc_hw.hwlib.accelerator_header import ACCELERATOR_HEADER, Macro, accelerator_macros, header_text
from byoc_hw.soc import Soc


def sim_config(accelerator: Accelerator, shared_by: Accelerator | None = None, chip: Soc | None = None) -> str:
    """The text of `hwlib_sim_config.h`, which includes `hwlib_accelerator.h`. Times in cycles.

    On a chip the activation memory may be that of a group, which the simulator of `shared_by` has; and `chip` has
    events that the accelerator reaches.

    Raises `InvalidInput` for an accelerator that the simulator does not support, as `accelerator_header`.
    """
    accelerator_macros(accelerator)
    costs: list[Macro] = [
        ("DEPTHWISE_ROWS", f"{accelerator.depthwise_rows}u", "channels that a depthwise job computes at a time"),
        ("JOB_SETUP", f"{accelerator.job_setup}u", "cycles to start a job, before its groups"),
        ("JOB_OVERHEAD", f"{accelerator.job_overhead}u", "cycles for each group of rows x columns"),
        (
            "ELEMENTWISE_WIDTH",
            f"{accelerator.elementwise_width}u",
            "elements that element-wise layers and pooling read a cycle",
        ),
        ("DMA_SETUP", f"{accelerator.dma_setup}u", "cycles a transfer"),
        ("DMA_WIDTH", f"{accelerator.dma_width}u", "bytes a cycle, each row rounded up"),
        ("DMA_ROW_SETUP", f"{accelerator.dma_row_setup}u", "cycles for each further row of a transfer"),
    ]
    if not accelerator.dma_reads_flash:
        costs.append(("FLASH_APART", "1u", "the DMA cannot read flash"))
    if shared_by is not None:
        name = f"{shared_by.name}_sim_activation"
        costs.append(("ACTIVATIONS", f"{name}s", "the activation memory of a group of accelerators"))
        costs.append(("ACTIVATION_STATES", f"{name}_states", "what is known of its bytes"))
    if shared_by is not None and shared_by is not accelerator:
        costs.append(("ACTIVATIONS_ELSEWHERE", "1u", f"the simulator of {shared_by.name} has both"))
    if chip is not None:
        costs += _events(accelerator, chip)
    purpose = f"The costs of the accelerator {accelerator.name}, for its simulator."
    return header_text("hwlib_sim_config.h", "HWLIB_SIM", purpose, costs, includes=[ACCELERATOR_HEADER])


def _events(accelerator: Accelerator, chip: Soc) -> list[Macro]:
    """Of the chip's events, which the simulators have in common: that of the first accelerator with events has them."""
    reached = [lane for lane in range(len(chip.accelerators)) if chip.has_events(lane)]
    first, own = chip.accelerators[reached[0]], chip.accelerators.index(accelerator)
    signals = 2 * sum(chip.accelerators[lane].queue for lane in reached)
    macros: list[Macro] = [
        ("EVENTS", f"{chip.events}u", "events of the chip"),
        ("SIGNALS", f"{signals}u", "signals of an event that the host may not know to have come"),
        ("CHIP_ENGINES", f"{2 * len(chip.accelerators)}u", "a DMA engine and an array each"),
        ("FIRST_ENGINE", f"{2 * own}u", "the first of this accelerator"),
        ("EVENTS_OF_CHIP", f"{first.name}_sim_events", "what the simulators know of events"),
    ]
    if accelerator is not first:
        macros.append(("EVENTS_ELSEWHERE", "1u", f"the simulator of {first.name} has it"))
    return macros
