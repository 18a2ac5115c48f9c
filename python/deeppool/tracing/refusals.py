"""Layers that ranks cannot run on their own samples: they raise an error while tracing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from deeppool.tracing.draft import Draft
from deeppool.tracing.errors import TraceError
from deeppool.tracing.kinds import Unknown, kind_of
from deeppool.tracing.program import Ref, Step, Stored
from deeppool.tracing.state import Observed, is_of_pytorch
from deeppool.tracing.units import Units


@dataclass(frozen=True)
class CounterOf:
    """A buffer that counts iterations."""

    module: nn.Module
    name: str
    increment: int
    #: Whether it is the counter of PyTorch's batch normalization, which counts in training mode.
    follows_mode: bool

    def increase(self, before: torch.Tensor) -> None:
        """Sets the buffer to its value after one more iteration than ``before``."""
        module: Any = self.module
        if not self.follows_mode or module.training and module.track_running_stats:
            self.buffer.copy_(before + self.increment)

    @property
    def buffer(self) -> torch.Tensor:
        """The current buffer."""
        buffer: torch.Tensor = getattr(self.module, self.name)
        return buffer


#: Options of ``embedding_bag`` and ``embedding``.
SPARSE, BY_FREQUENCY = "sparse", "scale_grad_by_freq"


def check_modules(module: nn.Module) -> None:
    """Checks the options of a module's batch normalizations before it is exported.

    Raises:
        TraceError: One has no momentum, so its code depends on the value of a tensor.
    """
    for path, part in module.named_modules():
        is_norm = isinstance(part, nn.modules.batchnorm._BatchNorm)
        if is_norm and part.training and part.momentum is None and part.track_running_stats:
            raise TraceError(
                f"batch normalization `{path or type(part).__name__}` has momentum=None (a mean "
                "over all batches), which is not supported: give it a number, such as momentum=0.1"
            )


def check_steps(units: Units) -> None:
    """Checks the operations of a module.

    Raises:
        TraceError: An operation changes parameters, or its gradients or outputs depend on other samples in a
            way that a plan does not support.
    """
    calls: Counter[str] = Counter()
    for step in units.steps:
        layer = _layer(units, step)
        if step.op == "embedding_renorm_":
            raise TraceError(
                f"embedding `{layer}` has max_norm, which changes the rows that a batch uses while "
                "ranks use different rows: train without max_norm, or normalize the rows in the forward pass"
            )
        if step.op in ("embedding", "embedding_bag", "_embedding_bag"):
            if step.argument(BY_FREQUENCY):
                raise TraceError(
                    f"embedding `{layer}` has scale_grad_by_freq=True, so its gradient depends on "
                    "the tokens of the whole batch: use scale_grad_by_freq=False"
                )
            if step.argument(SPARSE):
                raise TraceError(
                    f"embedding `{layer}` has sparse=True, and sparse gradients cannot be reduced "
                    "over ranks: use sparse=False"
                )
        for leaf in step.writes:
            if isinstance(leaf, Stored) and leaf.is_parameter:
                raise TraceError(
                    f"layer `{layer}` changes the parameter `{leaf.name}` in its forward pass "
                    f"({step.op}), which ranks would do differently: change it between iterations"
                )
        if _is_norm_of_batch(step):
            match = kind_of(units, step)
            if isinstance(match, Unknown):
                raise TraceError(
                    f"batch normalization `{layer}` is not supported in training ({match.reason}): "
                    "freeze its statistics (override train() so that it stays in evaluation mode), or "
                    "replace it"
                )
            statistics = step.argument("running_mean")
            calls[statistics.name] += 1
            if calls[statistics.name] > 1:
                raise TraceError(
                    f"batch normalization `{layer}` is called {calls[statistics.name]} times in an "
                    "iteration, so its running statistics depend on the order of calls on different "
                    "ranks: use a batch normalization for each call (they may share weight and bias)"
                )


def _is_norm_of_batch(step: Step) -> bool:
    return step.op == "batch_norm" and bool(step.argument("training"))


def _layer(units: Units, step: Step) -> str:
    return step.module or type(units.modules[""]).__name__


def check_norms(drafts: list[Draft]) -> None:
    """Checks that each batch normalization over the batch is a layer.

    Raises:
        TraceError: It is a part of an opaque layer.
    """
    for draft in drafts:
        if draft.op is None and any(_is_norm_of_batch(step) for step in draft.steps):
            raise TraceError(
                f"layer `{draft.name}` has a batch normalization inside ({draft.reason}), which "
                "ranks cannot compute over the batch: make the normalization a module that takes "
                "and returns one tensor"
            )


def own_backward(module: nn.Module, observed: Observed | None) -> str | None:
    """Returns how a module's code or hooks change gradients, if they do."""
    if module._backward_hooks or module._backward_pre_hooks:
        return "has a backward hook"
    return observed.own_backward.get(module) if observed is not None else None


def check_backward(module: nn.Module, observed: Observed | None, drafts: list[Draft]) -> None:
    """Checks that layers that change gradients in their own way call their modules.

    Raises:
        TraceError: A module's code or hooks change gradients, and its layers do not call it.
    """
    called = {draft.island.module for draft in drafts if draft.island.calls_module}
    for path, part in module.named_modules():
        own = own_backward(part, observed)
        if own is not None and part not in called:
            raise TraceError(
                f"layer `{path or type(part).__name__}` {own}, which its traced operations do not "
                "have: put it into a module of its own, without children, that takes and returns one tensor"
            )


def counters(units: Units, observed: Observed | None) -> list[CounterOf]:
    """Returns the buffers that count iterations, such as ``num_batches_tracked``.

    Raises:
        TraceError: The forward pass changes other buffers.
    """
    added: Counter[Stored] = Counter()
    follow_mode: set[Stored] = set()
    read: set[str] = set()
    statistics: set[Stored] = set()
    for step in units.steps:
        increment = step.args[1] if step.op == "add_" and len(step.args) == 2 else None
        target = step.args[0] if step.args else None
        if isinstance(target, Stored) and not target.is_parameter and type(increment) is int:
            added[target] += increment
            if is_of_pytorch(units.modules[target.owner]) and step.module == target.owner:
                follow_mode.add(target)
            continue
        if step.op == "copy_" and isinstance(step.args[1], Ref):
            source = units.steps[step.args[1].index]
            if source.op == "add_" and source.args[0] == target:
                continue  # The assignment in `self.count += 1`.
        read |= {leaf.name for leaf in step.leaves if isinstance(leaf, Stored)}
        if _is_norm_of_batch(step):
            statistics |= {step.argument(name) for name in ("running_mean", "running_var")}
    found = [
        CounterOf(units.modules[stored.owner], stored.attribute, amount, stored in follow_mode)
        for stored, amount in added.items()
        if stored.name not in read
    ]
    expected = {(units.modules[stored.owner], stored.attribute) for stored in statistics}
    expected |= {(counter.module, counter.name) for counter in found}
    changed = observed.changed_buffers if observed is not None else _written(units)
    for module, name in changed:
        if (module, name) not in expected:
            paths = {part: path for path, part in reversed(units.modules.items())}
            layer = paths[module] or type(module).__name__
            raise TraceError(
                f"layer `{layer}` changes its buffer `{name}` in each forward pass, which ranks "
                "would do differently on their own samples: change it between iterations"
            )
    return found


def _written(units: Units) -> list[tuple[nn.Module, str]]:
    stored = [leaf for step in units.steps for leaf in step.writes if isinstance(leaf, Stored)]
    return [(units.modules[one.owner], one.attribute) for one in stored]
