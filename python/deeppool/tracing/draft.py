"""Layers during tracing, before the costs of opaque layers are counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from deeppool.tracing.island import Island
from deeppool.tracing.kinds import Op, label
from deeppool.tracing.program import Step


@dataclass
class Draft:
    """A layer during tracing."""

    name: str
    #: The kind; ``None`` for an opaque layer.
    op: Op | None
    #: Names of the layers that produce its inputs, or of the network's inputs.
    inputs: list[str]
    island: Island
    #: Reason for which the layer is opaque.
    reason: str | None = None
    #: Operations of the layer.
    steps: list[Step] = field(default_factory=list)
    parameters_of: str | None = None
    #: Index of an input and the token that it may not have.
    absent: tuple[int, int] | None = None

    @property
    def kind(self) -> str:
        return "opaque" if self.op is None else label(self.op)
