"""The denominator of the mean loss over the global batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from deeppool.errors import BurstParallelError
from deeppool.torch.communication import Communication
from deeppool.torch.program import RankProgram
from deeppool.tracing.island import Island
from deeppool.tracing.losses import Loss, scaled


class Denominator:
    """Computes the denominator of each iteration's loss by the targets of all ranks.

    A rank reads the targets of its own shard of the loss layer. One all-reduce of a number adds the ranks'
    denominators. It overlaps the layers before the loss.

    Args:
        loss: The loss.
        program: The rank's program.
        communication: Connection to the other ranks.
        device: The rank's device.
    """

    def __init__(
        self, loss: Loss, program: RankProgram, communication: Communication, device: torch.device
    ) -> None:
        self._loss, self._batch, self._device = loss, program.batch, device
        self._communication = communication
        loads = [step for step in program.steps if step.op == "load_batch" and step.part == "labels"]
        # Loads of the targets of this rank's shards of the loss, each shard once.
        shards = {step.samples: step for step in loads if step.samples[0] < step.samples[1]}
        self._shards = list(shards.values())
        self._work: dist.Work | None = None
        self._total = torch.zeros(())

    def start(self, targets: torch.Tensor) -> None:
        """Starts the all-reduce for the targets of the global batch.

        Raises:
            BurstParallelError: Targets have values for which the loss is no mean over samples.
        """
        if not self._loss.depends_on_targets:
            return
        self._total = torch.zeros((), dtype=torch.float64, device=self._device)
        for step in self._shards:
            self._total += self._loss.count(step.loaded([targets]).to(self._device))
        self._work = self._communication.sum_over_ranks(self._total)
        if self._loss.refused and not self._communication.is_fake:
            self._refuse()

    def _refuse(self) -> None:
        """Raises an error if a rank has targets that are refused."""
        self.finish()
        if float(self._total) > 0:
            values = " or ".join(f"{value:g}" for value in self._loss.refused)
            raise BurstParallelError(
                f"{float(self._total):g} targets of the batch are {values}, for which the loss "
                f"{self._loss.name} is not a mean over samples: give "
                "torch.nn.CrossEntropyLoss(ignore_index=...), or leave these samples out"
            )

    def finish(self) -> None:
        """Waits for the all-reduce."""
        if self._work is not None:
            self._work.wait()
            self._work = None

    def applied_to(self, layer: Island) -> Callable[..., torch.Tensor]:
        """Returns the loss layer with the denominator of the current iteration."""
        if self._loss.denominator is None:
            return layer.forward

        def run(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            if len(output) == 0:
                return layer(output, targets)  # type: ignore[no-any-return]
            self.finish()
            return scaled(self._loss.sums(output, targets), self._total, self._batch)

        return run
