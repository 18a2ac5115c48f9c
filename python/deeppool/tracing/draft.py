"""A layer before the costs of opaque ones are known."""

from __future__ import annotations

from dataclasses import dataclass, field

from deeppool.tracing.island import Island
from deeppool.tracing.kinds import Op, label
from deeppool.tracing.program import Step


@dataclass
class Draft:
    """A layer. ``op`` is ``None`` where no kind of ours is that, for a reason."""

    name: str
    op: Op | None
    #: The names of the layers that it takes, ``input`` among them.
    inputs: list[str]
    island: Island
    reason: str | None = None
    #: The operations that it is made of.
    steps: list[Step] = field(default_factory=list)
    parameters_of: str | None = None

    @property
    def kind(self) -> str:
        return "opaque" if self.op is None else label(self.op)
