"""Python state that a module's forward pass reads, and that traced layers do not follow.

Layers are written from the operations of one forward pass. A Python value that the module reads, such as
``self.alpha`` or ``self.training``, is a constant of these operations. A layer that calls its module reads
the values again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.checkpoint
from torch import nn

from deeppool.tracing.call import Call
from deeppool.tracing.errors import TraceError
from deeppool.tracing.exporting import batch_of
from deeppool.tracing.products import WithoutProducts

#: Attributes of each module that PyTorch manages.
INTERNAL = frozenset(vars(nn.Module())) - {"training"}

#: Maximum depth of nested configurations that are compared.
DEPTH = 4

#: Types of values that are compared as they are.
PLAIN = frozenset({bool, int, str, type(None)})

#: Attributes of PyTorch's layers that determine whether they draw random numbers.
OF_DROPOUT = frozenset({"training", "p", "dropout"})

MISSING = "missing"

#: A module's attribute, by the module's path.
Read = tuple[str, nn.Module, str]


@dataclass
class Observed:
    """A module's use of Python state and buffers in a forward pass."""

    reads: dict[nn.Module, set[str]] = field(default_factory=dict)
    """Attributes that are read, by module."""
    reads_of_others: dict[nn.Module, set[str]] = field(default_factory=dict)
    """Those that the code of another module reads, as of ``self.child.alpha``."""
    own_backward: dict[nn.Module, str] = field(default_factory=dict)
    """Modules whose code changes gradients, with how it does."""
    changed_buffers: list[tuple[nn.Module, str]] = field(default_factory=list)
    """Buffers that the forward pass changes, by module and name."""

    def reads_training(self, module: nn.Module) -> bool:
        """Returns whether a module's code reads its training mode."""
        return "training" in self.reads.get(module, ())


def is_of_pytorch(module: nn.Module) -> bool:
    """Returns whether PyTorch defines a module's forward pass."""
    return type(module).forward.__module__.startswith("torch.nn.") and "forward" not in vars(module)


def observe(module: nn.Module, call: Call) -> Observed | None:
    """Runs a module's forward pass of one sample in its current mode, and restores its state.

    Products are not computed: their results are random numbers. It runs with two samples if it fails with
    one, as a batch normalization of a vector does. If attributes that it reads change, as in a cache, it runs
    a second time.

    Args:
        module: The module.
        call: Its call.

    Returns:
        What it reads and changes; ``None`` if the forward pass fails.

    Raises:
        TraceError: It changes attributes that it reads, or uses activation checkpointing.
    """
    observed = _observe(module, call, 1)
    return _observe(module, call, 2) if observed is None else observed


def _observe(module: nn.Module, call: Call, samples: int) -> Observed | None:
    observed = Observed()
    batch = batch_of(call.examples.values(), samples)
    paths = {part: path for path, part in module.named_modules()}
    with _restored(module) as buffers, torch.enable_grad(), WithoutProducts():
        at_start = {part: {name: value_of(part, name) for name in vars(part)} for part in paths}
        try:
            with _recorded(module, observed), _checkpointing_refused(paths), _backward_noted(paths, observed):
                call.run_all(module, batch)
            watched = [(path, part, name) for part, path in paths.items() for name in observed.reads[part]]
            before = [value_of(part, name) for _, part, name in watched]
            observed.changed_buffers = [
                (part, name)
                for part, name, _, copy in buffers
                if not _is_equal(part._buffers.get(name), copy)
            ]
            if all(
                at_start[part].get(name, value) == value for (_, part, name), value in zip(watched, before)
            ):
                return observed
            call.run_all(module, batch)
        except TraceError:
            raise
        except Exception:
            return None
        for (path, part, name), value in zip(watched, before):
            if value_of(part, name) != value and name not in part._buffers:
                raise TraceError(
                    f"`{path or type(part).__name__}` changes its attribute `{name}` in each "
                    "forward pass and reads it, which the layers of a plan do not: compute it from "
                    "the input, or set it between iterations and trace again"
                )
    return observed


def _is_equal(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    return one is not None and one.shape == other.shape and bool(torch.equal(one, other))


@contextlib.contextmanager
def _restored(module: nn.Module) -> Iterator[list[tuple[nn.Module, str, torch.Tensor, torch.Tensor]]]:
    """Restores attributes and buffers afterwards. Yields module, name, tensor and copy of each buffer."""
    parts = list(module.modules())
    attributes = [dict(vars(part)) for part in parts]
    buffers = [
        (part, name, buffer, buffer.clone())
        for part in parts
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]
    try:
        yield buffers
    finally:
        for part, before in zip(parts, attributes):
            for name in [name for name in vars(part) if name not in before]:
                del part.__dict__[name]
            part.__dict__.update(before)
        with torch.no_grad():
            for part, name, buffer, copy in buffers:
                buffer.copy_(copy)
                part._buffers[name] = buffer


@contextlib.contextmanager
def _recorded(module: nn.Module, observed: Observed) -> Iterator[None]:
    """Records the attributes that are read of each submodule."""
    parts = list(module.modules())
    for part in parts:
        observed.reads[part], observed.reads_of_others[part] = set(), set()
    kinds = {part: type(part) for part in parts}
    recorders: dict[type, type] = {}
    try:
        for part, kind in kinds.items():
            if kind not in recorders:
                recorders[kind] = _recorder(kind, observed)
            part.__class__ = recorders[kind]
        yield
    finally:
        for part, kind in kinds.items():
            part.__class__ = kind


def _recorder(kind: Any, observed: Observed) -> type:
    """Returns a subclass that records which attributes are read."""
    reads, of_others = observed.reads, observed.reads_of_others

    def get(self: Any, name: str) -> Any:
        if name not in INTERNAL and not name.startswith("__") and self in reads:
            reads[self].add(name)
            caller = sys._getframe(1)
            is_own = caller.f_locals.get("self") is self
            if not is_own and not str(caller.f_globals.get("__name__")).startswith("torch."):
                of_others[self].add(name)
        return kind.__getattribute__(self, name)

    return type(
        kind.__name__, (kind,), {"__getattribute__": get, "__module__": kind.__module__, "__slots__": ()}
    )


def _caller(paths: dict[nn.Module, str]) -> nn.Module | None:
    """Returns the innermost submodule whose code is running."""
    frame = sys._getframe(2)
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, nn.Module) and found in paths:
            return found
        frame = frame.f_back  # type: ignore[assignment]
    return None


@contextlib.contextmanager
def _backward_noted(paths: dict[nn.Module, str], observed: Observed) -> Iterator[None]:
    """Notes which modules use custom functions of autograd, or hooks of tensors."""
    function: Any = torch.autograd.Function
    tensor: Any = torch.Tensor
    apply, register = vars(function)["apply"], tensor.register_hook

    def noted_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        module = _caller(paths)
        if module is not None and not cls.__module__.startswith("torch."):
            observed.own_backward[module] = f"uses the torch.autograd.Function {cls.__name__}"
        return apply.__func__(cls, *args, **kwargs)

    def noted_register(self: Any, hook: Any) -> Any:
        module = _caller(paths)
        if module is not None:
            observed.own_backward[module] = "uses register_hook of a tensor"
        return register(self, hook)

    function.apply, tensor.register_hook = classmethod(noted_apply), noted_register
    try:
        yield
    finally:
        function.apply, tensor.register_hook = apply, register


@contextlib.contextmanager
def _checkpointing_refused(paths: dict[nn.Module, str]) -> Iterator[None]:
    """Raises an error when a module uses ``torch.utils.checkpoint``."""
    names = ("CheckpointFunction", "_checkpoint_without_reentrant_generator")
    found = {name: getattr(torch.utils.checkpoint, name, None) for name in names}

    class Refused:
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            caller = _caller(paths)
            layer = paths[caller] or type(caller).__name__ if caller is not None else "the module"
            raise TraceError(
                f"`{layer}` uses torch.utils.checkpoint, which the layers of a plan do not: disable it "
                "(the plan's layers save what their backward passes need)"
            )

        apply = __call__

    for name, value in found.items():
        if value is not None:
            setattr(torch.utils.checkpoint, name, Refused())
    try:
        yield
    finally:
        for name, value in found.items():
            if value is not None:
                setattr(torch.utils.checkpoint, name, value)


def value_of(module: nn.Module, name: str) -> Any:
    """Returns a comparable value of an attribute; ``None`` for parameters, buffers and methods."""
    attributes = module.__dict__
    if name in attributes:
        value = attributes[name]
        return value if type(value) in PLAIN else _comparable(value, DEPTH)
    if name in module._parameters or name in module._buffers:
        return None
    if name in module._modules:
        return id(module._modules[name])
    for kind in type(module).__mro__:
        if name in vars(kind):
            value = vars(kind)[name]
            is_code = callable(value) or hasattr(value, "__get__")
            return None if is_code else _comparable(value, DEPTH)
    return MISSING


def _comparable(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, nn.Parameter):
        return id(value)  # Its value is trained.
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    if isinstance(value, nn.Module) or depth == 0 or isinstance(value, type):
        return id(value)
    if isinstance(value, tuple | list | set | frozenset):
        return tuple(_comparable(one, depth - 1) for one in value)
    if isinstance(value, dict):
        return tuple((str(key), _comparable(one, depth - 1)) for key, one in value.items())
    if callable(value):
        return id(getattr(value, "__func__", value))
    if hasattr(value, "__dict__"):
        return tuple((name, _comparable(one, depth - 1)) for name, one in vars(value).items())
    return repr(value) if isinstance(value, torch.dtype | torch.device | torch.Size) else id(value)


class Watch:
    """Python state of a traced module.

    Args:
        module: The module, in the mode that it is traced in.
        observed: What its forward pass reads; without it, all attributes are compared.
        followed: Submodules that their layers call. They follow their attributes.
    """

    def __init__(self, module: nn.Module, observed: Observed | None, followed: set[nn.Module]) -> None:
        self._module = module
        self._parts = tuple(map(id, module.modules()))
        self._fixed: list[tuple[Read, Any]] = []
        self._followed: list[Read] = []
        self._hooks: list[tuple[str, nn.Module, tuple[int, ...]]] = []
        for path, part in module.named_modules():
            names = observed.reads[part] if observed is not None else set(vars(part)) - INTERNAL
            for name in sorted(names):
                value = value_of(part, name)
                # PyTorch's layers follow the training mode, as they are traced with it on.
                has_mode = name == "training" and is_of_pytorch(part) and part.training
                is_of_other = observed is not None and name in observed.reads_of_others[part]
                if is_of_pytorch(part) and name.startswith("_"):
                    continue  # A cache, such as a list of an LSTM's weights.
                if (part in followed or has_mode) and not is_of_other:
                    if value is not None and (name in OF_DROPOUT or not is_of_pytorch(part)):
                        self._followed.append((path, part, name))
                elif not _is_code(part, name):
                    self._fixed.append(((path, part, name), value))
            if part not in followed:
                self._hooks.append((path, part, _hooks(part)))

    def problem(self) -> str | None:
        """Returns the first change since tracing that the layers do not follow, if any."""
        if tuple(map(id, self._module.modules())) != self._parts:
            return "a submodule was replaced, added or removed"
        for (path, part, name), value in self._fixed:
            if value_of(part, name) != value:
                layer = path or type(part).__name__
                if name == "training":
                    mode = "training" if part.training else "evaluation"
                    return f"`{layer}`, whose output depends on its mode, was set to {mode} mode"
                now = getattr(part, name, MISSING)
                shown = f" to {now!r}" if isinstance(now, bool | int | float | str | tuple) else ""
                return f"`{layer}`'s attribute `{name}` changed{shown}"
        for path, part, hooks in self._hooks:
            if _hooks(part) != hooks:
                return f"hooks of `{path or type(part).__name__}` were added or removed"
        return None

    def followed(self) -> tuple[Any, ...]:
        """Returns the values that layers follow. After a change, the layers have to be probed again."""
        return tuple([value_of(part, name) for _, part, name in self._followed])


def _is_code(part: nn.Module, name: str) -> bool:
    """Returns whether an attribute is a method, a parameter or a buffer, which are never compared."""
    return (
        name in part._parameters
        or name in part._buffers
        or (
            name not in vars(part)
            and name not in part._modules
            and hasattr(type(part), name)
            and value_of(part, name) is None
        )
    )


def _hooks(part: nn.Module) -> tuple[int, ...]:
    return tuple(
        [
            len(hooks)
            for hooks in (
                part._forward_hooks,
                part._forward_pre_hooks,
                part._backward_hooks,
                part._backward_pre_hooks,
            )
        ]
    )
