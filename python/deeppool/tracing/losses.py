"""Losses as the last layers of a network, one for each output that has one.

The mean loss of a batch is a sum over its samples, divided by a denominator that depends on the targets
only: the number of samples, of targets that are not ignored, or the sum of their class weights. Ranks
compute the sums of their own samples, and the denominator of the global batch.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from deeppool.tracing.cost import cost
from deeppool.tracing.draft import Draft
from deeppool.tracing.errors import TraceError
from deeppool.tracing.island import Island, of_function
from deeppool.tracing.kinds import Op

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

#: Losses whose mean is over all elements, with their functions and options.
ELEMENTWISE: dict[type[nn.Module], tuple[Callable[..., torch.Tensor], tuple[str, ...]]] = {
    nn.MSELoss: (F.mse_loss, ()),
    nn.L1Loss: (F.l1_loss, ()),
    nn.SmoothL1Loss: (F.smooth_l1_loss, ("beta",)),
    nn.HuberLoss: (F.huber_loss, ("delta",)),
    nn.BCELoss: (F.binary_cross_entropy, ("weight",)),
    nn.BCEWithLogitsLoss: (F.binary_cross_entropy_with_logits, ("weight", "pos_weight")),
}

#: Losses with a layer kind if they have no options that are set.
KINDS: dict[type[nn.Module], str] = {
    nn.MSELoss: "mean_squared_error",
    nn.BCEWithLogitsLoss: "binary_cross_entropy",
}

#: Losses of classes, whose denominator depends on the targets, with their functions and options.
OF_CLASSES: dict[type[nn.Module], tuple[Callable[..., torch.Tensor], tuple[str, ...]]] = {
    nn.CrossEntropyLoss: (F.cross_entropy, ("weight", "ignore_index", "label_smoothing")),
    nn.NLLLoss: (F.nll_loss, ("weight", "ignore_index")),
}

#: Number of samples of the batches that a loss is compared on, and the sizes of their shards.
SAMPLES, SPLITS = 5, ((1, 4), (3, 2), (1, 1, 1, 1, 1))

#: Values that losses commonly treat as missing targets.
MISSING = (-1, -100, 255)

#: Largest magnitude of a label in the graph format: integers that single precision represents.
MAX_LABEL = 1 << 24

#: Remedy for losses that are not a mean over samples.
REMEDY = (
    "give a function that returns the mean over samples of a loss of each sample alone, or, for class "
    "weights and ignored labels, torch.nn.CrossEntropyLoss(weight=..., ignore_index=...)"
)


@dataclass
class Loss:
    """A loss as a sum over samples and a denominator."""

    name: str
    sums: LossFunction
    """Returns one value per sample, of shape ``(samples,)``. Without :attr:`denominator`, the loss is their
    mean."""
    denominator: Callable[[torch.Tensor], torch.Tensor] | None = None
    """Returns the denominator of a batch by its targets, as a scalar in double precision."""
    problem_of: Callable[[torch.Tensor], str | None] = lambda targets: None
    """Returns what is wrong with the shape of targets, if anything."""
    function: LossFunction | None = None
    """The user's loss."""
    is_known: bool = True
    """Whether it is one of PyTorch's losses with a known denominator."""
    refused: tuple[float, ...] = ()
    """Values of targets for which the loss is not a mean over samples."""
    example: torch.Tensor | None = None
    """Targets of one sample, for losses that are executed while tracing and whose targets are known."""

    def values(self, output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Returns one value per sample. Their mean is the loss of this batch."""
        sums = self.sums(output, targets)
        if self.denominator is None:
            return sums
        return scaled(sums, self.denominator(targets), len(output))

    @property
    def depends_on_targets(self) -> bool:
        """Whether :meth:`count` is needed in each iteration."""
        return self.denominator is not None or bool(self.refused)

    def count(self, targets: torch.Tensor) -> torch.Tensor:
        """Returns the denominator of a batch, or the number of its targets that are refused."""
        if self.denominator is not None:
            return self.denominator(targets)
        found = torch.zeros((), dtype=torch.float64, device=targets.device)
        for value in self.refused:
            found += (targets.isnan() if math.isnan(value) else targets == value).sum()
        return found

    def __post_init__(self) -> None:
        self._reduction = getattr(self.function, "reduction", None)

    def problem_now(self) -> str | None:
        """Returns what changed since tracing and is not followed, if anything."""
        reduction = getattr(self.function, "reduction", None)
        return f"the loss's reduction changed to {reduction!r}" if reduction != self._reduction else None


def scaled(sums: torch.Tensor, denominator: torch.Tensor, samples: int) -> torch.Tensor:
    """Multiplies sums by ``samples / denominator``, so that their mean over the batch is the loss.

    If the denominator is zero, the values are NaN, as PyTorch's mean is, and their gradients are zero.
    """
    is_zero = denominator == 0
    factor = torch.where(is_zero, 0.0, samples / denominator)
    missing = torch.where(is_zero, math.nan, 0.0)
    return sums * factor.to(sums.dtype) + missing.to(sums.dtype)


def drafts(
    loss: LossFunction | None,
    output: str,
    scores: tuple[int, ...],
    targets: torch.Tensor | None,
    layer: str = "loss",
) -> tuple[list[Draft], Loss]:
    """Returns the layers from an output of the network to its loss, and the loss.

    Args:
        loss: The loss; cross-entropy if ``None``.
        output: Name of the layer that computes the output.
        scores: Shape of one sample of the output.
        targets: Targets of the examples, if given.
        layer: Name of the last layer.
    """
    if loss is None and len(scores) not in (1, 2, 3):
        raise TraceError(
            f"the output has samples of shape {list(scores)}, which are not class scores: give a `loss`"
        )
    _check_options(loss)
    options = _options(loss, nn.CrossEntropyLoss) if loss is not None else dict
    if options is not None and scores:
        return _of_scores(loss, options, output, scores, targets, layer)
    found = _recognised(loss, scores) if loss is not None else None
    if found is None:
        assert loss is not None
        found = Loss(_name(loss), _by_sample(loss), function=loss, is_known=False)
    island = of_function(found.name, lambda *inputs: found.values(*inputs), (1,))
    for one, name in KINDS.items():
        options = _options(loss, one)
        if options is not None and all(value is None for value in options().values()):
            return [Draft(layer, {"elementwise_loss": name}, [output], island)], found
    return [Draft(layer, None, [output], island, f"the loss is {found.name}")], found


def _name(loss: LossFunction) -> str:
    if isinstance(loss, functools.partial):
        return _name(loss.func)
    return type(loss).__name__ if isinstance(loss, nn.Module) else getattr(loss, "__name__", "loss")


def _check_options(loss: LossFunction | None) -> None:
    options = loss.keywords if isinstance(loss, functools.partial) else {}
    reduction = options.get("reduction", getattr(loss, "reduction", "mean"))
    if reduction == "sum" or reduction == "none":
        raise TraceError(
            f"the loss has reduction={reduction!r}, which is not supported: give a loss with reduction='mean'"
        )


def _options(loss: LossFunction | None, kind: type[nn.Module]) -> Callable[[], Mapping[str, Any]] | None:
    """Returns a function that returns the current options of a loss of the given kind.

    The loss is a module of the kind, its function, or ``functools.partial`` of the function. The result is
    ``None`` for other losses.
    """
    function, names = (OF_CLASSES | ELEMENTWISE)[kind]
    if isinstance(loss, nn.Module):
        is_kind = (
            isinstance(loss, kind) and type(loss).forward is kind.forward and "forward" not in vars(loss)
        )
        if not is_kind or loss._forward_hooks or loss._forward_pre_hooks:
            return None
        module = loss
        found: Callable[[], Mapping[str, Any]] = lambda: {name: getattr(module, name) for name in names}
    elif loss is function:
        found = dict
    elif isinstance(loss, functools.partial) and loss.func is function and not loss.args:
        keywords = {name: value for name, value in loss.keywords.items() if name != "reduction"}
        if not keywords.keys() <= set(names):
            return None
        found = lambda: keywords
    else:
        return None
    for name, value in found().items():
        if isinstance(value, torch.Tensor) and value.requires_grad:
            raise _learns(f"{_name(loss)}'s `{name}` is a parameter")
    return found


def _learns(what: str) -> TraceError:
    return TraceError(
        f"{what}: parameters outside the module get no gradients. Compute what they are for in the "
        "module, and return it as part of its output"
    )


# Losses of classes.


def _of_scores(
    loss: LossFunction | None,
    options: Callable[[], Mapping[str, Any]],
    output: str,
    scores: tuple[int, ...],
    targets: torch.Tensor | None,
    layer: str,
) -> tuple[list[Draft], Loss]:
    """Returns the layers of a cross-entropy. Its last layer takes scores with the classes last."""
    layers = []
    classes, positions = scores[-1], math.prod(scores[:-1])
    classes_first = len(scores) > 2 or (
        len(scores) == 2 and loss is not None and _has_classes_first(scores, targets)
    )
    if classes_first:
        classes, positions = scores[0], math.prod(scores[1:])
        if len(scores) > 2:
            # Convert scores per pixel to (positions, classes).
            island = of_function(f"{layer}.reshape", lambda x: x.flatten(2), (classes, positions))
            layers.append(Draft(island.name, {"reshape": {"output": [classes, positions]}}, [output], island))
            output = island.name
        island = of_function(f"{layer}.permute", lambda x: x.transpose(1, 2), (positions, classes))
        layers.append(Draft(island.name, {"permute": {"order": [1, 0]}}, [output], island))
        output = island.name

    def sums(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if targets.is_floating_point():
            targets = targets.flatten(2).transpose(1, 2) if classes_first else targets
            targets = targets.reshape(-1, classes)
        else:
            targets = targets.reshape(-1)
        values = F.cross_entropy(scores.reshape(-1, classes), targets, reduction="none", **options())
        return values.reshape(len(scores), -1).sum(1)

    def denominator(targets: torch.Tensor) -> torch.Tensor:
        if targets.is_floating_point():
            return _number(targets.numel() // classes, targets)
        return _denominator(targets, options())

    def problem(targets: torch.Tensor) -> str | None:
        found = tuple(targets.shape[1:])
        if targets.is_floating_point():
            if found == scores:
                return None
            return (
                f"targets of samples of shape {list(found)} are no class probabilities for scores "
                f"of shape {list(scores)}: give class indices (torch.long), or probabilities of this shape"
            )
        expected = (*scores[1:],) if classes_first else (*scores[:-1],)
        if math.prod(found) == positions and (found == expected or found in ((), (1,), (positions,))):
            return None
        return (
            f"targets of samples of shape {list(found)} do not fit scores of shape {list(scores)}: "
            f"give class indices of shape {list(expected)} for each sample"
        )

    name = "cross_entropy" if loss is None else _name(loss)
    example = torch.zeros((1, positions), dtype=torch.long)
    result = Loss(name, sums, denominator, problem, loss, example=example)
    island = of_function(layer, lambda *inputs: result.values(*inputs), (1,))
    reason = None
    if options().get("weight") is not None:
        reason = "a cross entropy with class weights"
    elif targets is not None and targets.is_floating_point():
        reason = "a cross entropy of class probabilities"
    if reason is not None:
        return [*layers, Draft(layer, None, [output], island, reason)], result
    rule, ignored = {}, options().get("ignore_index", -100)
    # The default loss is that of networks from other files, unless targets are ignored. A larger
    # number is no label that the engines represent.
    is_given = loss is not None or targets is not None and bool((targets == ignored).any())
    if is_given and abs(ignored) <= MAX_LABEL:
        rule["ignored_label"] = ignored
    if smoothing := options().get("label_smoothing", 0.0):
        rule["label_smoothing"] = smoothing
    op: Op = {"softmax_cross_entropy": rule} if rule else "softmax_cross_entropy"
    return [*layers, Draft(layer, op, [output], island)], result


def _has_classes_first(scores: tuple[int, ...], targets: torch.Tensor | None) -> bool:
    """Returns whether scores of shape (a, b) are of a classes, as PyTorch's losses take them.

    They may also be of b classes at a positions.
    """
    if scores[0] == scores[1] or targets is not None and targets.is_floating_point():
        return True
    return targets is not None and tuple(targets.shape[1:]) == (scores[1],)


def _number(value: int, like: torch.Tensor) -> torch.Tensor:
    return torch.full((), value, dtype=torch.float64, device=like.device)


def _denominator(targets: torch.Tensor, options: Mapping[str, Any]) -> torch.Tensor:
    """Returns the number of targets that are not ignored, or the sum of their class weights."""
    valid = targets != options.get("ignore_index", -100)
    weight = options.get("weight")
    weights = valid if weight is None else weight.to(targets.device)[torch.where(valid, targets, 0)]
    return torch.where(valid, weights.double(), 0.0).sum()


def _recognised(loss: LossFunction, scores: tuple[int, ...]) -> Loss | None:
    """Returns a loss whose denominator is known, other than a cross-entropy; ``None`` for other losses."""
    options = _options(loss, nn.NLLLoss)
    if options is not None:
        return _of_log_probabilities(loss, options, scores)
    for kind, (function, _) in ELEMENTWISE.items():
        options = _options(loss, kind)
        if options is not None:
            return _of_elements(loss, function, options, scores)
    return None


def _of_log_probabilities(
    loss: LossFunction, options: Callable[[], Mapping[str, Any]], scores: tuple[int, ...]
) -> Loss:
    def sums(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = F.nll_loss(output, targets, reduction="none", **options())
        return values.reshape(len(output), -1).sum(1)

    def problem(targets: torch.Tensor) -> str | None:
        if tuple(targets.shape[1:]) == scores[1:]:
            return None
        return (
            f"targets of samples of shape {list(targets.shape[1:])} do not fit log-probabilities of "
            f"shape {list(scores)}: give class indices of shape {list(scores[1:])} for each sample"
        )

    return Loss(_name(loss), sums, lambda targets: _denominator(targets, options()), problem, loss)


def _of_elements(
    loss: LossFunction,
    function: Callable[..., torch.Tensor],
    options: Callable[[], Mapping[str, Any]],
    scores: tuple[int, ...],
) -> Loss:
    for name, value in options().items():
        if isinstance(value, torch.Tensor) and value.dim() > len(scores) and value.shape[0] != 1:
            raise TraceError(
                f"{_name(loss)}'s `{name}` has a value for each place in the batch: give one for each "
                f"element of a sample, of shape {list(scores)}"
            )

    def sums(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        values = function(output, targets, reduction="none", **options())
        return values.reshape(len(output), -1).mean(1)

    def problem(targets: torch.Tensor) -> str | None:
        if targets.dim() == len(scores) + 1:
            return None
        return (
            f"targets of samples of shape {list(targets.shape[1:])} for outputs of shape "
            f"{list(scores)} would be compared with all samples of the batch: give targets of the "
            "output's shape"
        )

    return Loss(_name(loss), sums, None, problem, loss)


# Other losses.


def _by_sample(loss: LossFunction) -> LossFunction:
    """Converts a mean loss to a loss per sample, which it is called with."""

    def of_samples(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        values = [loss(output[i : i + 1], targets[i : i + 1]).reshape(()) for i in range(len(output))]
        return torch.stack(values)

    return of_samples


def _by_reduction(loss: nn.Module) -> LossFunction:
    """Converts a loss with ``reduction="mean"`` to a loss per sample, by ``reduction="none"``."""

    def of_elements(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        before = loss.reduction
        setattr(loss, "reduction", "none")
        try:
            values: torch.Tensor = loss(output, targets)
        finally:
            setattr(loss, "reduction", before)
        return values.reshape(len(output), -1).mean(1)

    return of_elements


def check_targets(loss: Loss, targets: torch.Tensor) -> None:
    """Raises an error if the shape of targets does not fit the loss."""
    problem = loss.problem_of(targets)
    if problem is not None:
        raise TraceError(problem)


def check(loss: Loss, outputs: Sequence[torch.Tensor], targets: torch.Tensor | None) -> None:
    """Checks that a loss is the mean over samples of a loss of each sample.

    Losses with a known denominator are. Of others, the loss and its gradient are compared between a batch
    and its shards, weighted by their samples. The seed is the same for each evaluation.

    Args:
        loss: The loss. Its ``sums`` and ``refused`` are set.
        outputs: Random outputs of the module, each of :data:`SAMPLES` samples.
        targets: Targets of the examples.

    Raises:
        TraceError: It is not such a mean, has parameters, or keeps state.
    """
    function = loss.function
    if function is None or loss.is_known:
        return
    assert targets is not None
    if isinstance(function, nn.Module) and any(p.requires_grad for p in function.parameters()):
        raise _learns(f"the loss {loss.name} has parameters")
    generator = torch.Generator().manual_seed(0)
    batches = [
        (output, targets[torch.randint(len(targets), (len(output),), generator=generator)].to(output.device))
        for output in outputs
    ]
    try:
        with _ignored_values() as ignored:
            compared = [_compare(loss, function, *batch) for batch in batches]
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(
            f"the loss {loss.name} fails for random outputs of the module and the given `targets` "
            f"({type(error).__name__}: {_first_line(error)})"
        ) from error
    if not any(compared):
        raise TraceError(
            f"the loss {loss.name} is not finite for random outputs of the module, so it cannot be "
            "compared between a batch and its shards: give `targets` that its outputs can have"
        )
    if isinstance(function, nn.Module) and getattr(function, "reduction", None) == "mean":
        by_reduction = _by_reduction(function)
        with contextlib.suppress(Exception):
            if all(_is_close(by_reduction(*batch).mean(), function(*batch)) for batch in batches):
                loss.sums = by_reduction
    loss.refused = tuple(_refused_values(loss, function, batches, ignored))


class _Ignored(TorchFunctionMode):
    """Records the labels that cross-entropies in a custom loss ignore."""

    def __init__(self) -> None:
        super().__init__()
        self.values: set[int] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (F.cross_entropy, F.nll_loss):
            self.values.add((kwargs or {}).get("ignore_index", -100))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _ignored_values() -> Iterator[set[int]]:
    with _Ignored() as mode:
        yield mode.values


def _refused_values(
    loss: Loss,
    function: LossFunction,
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    ignored: set[int],
) -> Iterator[float]:
    """Yields values that the given targets do not have, and for which the loss is not a mean over samples.

    Raises:
        TraceError: It is not for zeros or ones, which any targets may have.
    """
    output, targets = batches[0]
    if targets.dtype == torch.bool:
        return
    generator = torch.Generator().manual_seed(1)
    chosen = torch.rand(targets.shape, generator=generator) < 0.4
    # In the first sample, all targets; in the last one, none.
    chosen[0], chosen[-1] = True, False
    common: tuple[float, ...] = (0, 1)
    # A label out of range would stop a GPU.
    missing: set[float] = {*ignored, *(MISSING if targets.device.type == "cpu" else ())}
    if targets.is_floating_point():
        common, missing = (0.0,), {math.nan, -1.0}
    for value in [*common, *sorted(missing)]:
        if value in common and not targets.is_floating_point() and output.shape[-1] < 2:
            continue
        changed = targets.masked_fill(chosen.to(targets.device), value)
        try:
            _compare(loss, function, output, changed)
        except TraceError:
            if value in common:
                raise
            yield value
        except Exception:  # The loss does not take this value.
            continue


def _compare(loss: Loss, function: LossFunction, output: torch.Tensor, targets: torch.Tensor) -> bool:
    """Compares a batch with its shards. Returns whether its loss is finite."""
    whole, gradient = _evaluate(loss, function, output, targets)
    again, _ = _evaluate(loss, function, output, targets)
    if not _is_close(again, whole):
        raise TraceError(
            f"the loss {loss.name} keeps state: its value for the same batch changed from "
            f"{float(whole):.6g} to {float(again):.6g}. Ranks evaluate it on their own samples: give "
            "a loss without state"
        )
    if not bool(torch.isfinite(whole)):
        return False
    for sizes in SPLITS:
        shares = [size / len(output) for size in sizes]
        try:
            parts = [
                _evaluate(loss, function, *shard)
                for shard in zip(torch.split(output, list(sizes)), torch.split(targets, list(sizes)))
            ]
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(
                f"the loss {loss.name} fails for a shard of the batch ({_first_line(error)}): {REMEDY}"
            ) from error
        values = [share * value for share, (value, _) in zip(shares, parts)]
        total = torch.stack(values).sum()
        of_parts = torch.cat([share * one for share, (_, one) in zip(shares, parts)])
        size = float(torch.stack(values).abs().sum())
        if not _is_close(total, whole, size) or not _is_close(of_parts, gradient):
            what = (
                "its gradient differs"
                if _is_close(total, whole, size)
                else (
                    f"it is {float(whole):.6g} for {len(output)} samples, and {float(total):.6g} "
                    f"for shards of {', '.join(map(str, sizes))}"
                )
            )
            raise TraceError(
                f"the loss {loss.name} is not a mean over samples, so ranks cannot evaluate it on "
                f"their own samples ({what}): {REMEDY}"
            )
    return True


def _evaluate(
    loss: Loss, function: LossFunction, output: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the loss and its gradient with respect to the output, with a fixed seed."""
    devices = [output.device] if output.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        torch.manual_seed(0)
        constant = function(output.detach(), targets)
        if not isinstance(constant, torch.Tensor) or constant.numel() != 1:
            raise TraceError(
                f"the loss {loss.name} returns {_shape(constant)}, not one number: return the mean "
                "over samples"
            )
        if constant.requires_grad:
            raise _learns(f"the loss {loss.name} has parameters, or adds a term of the module's parameters")
        torch.manual_seed(0)
        output = output.detach().requires_grad_()
        value = function(output, targets).reshape(())
        gradient = None
        if value.requires_grad:
            (gradient,) = torch.autograd.grad(value, output, allow_unused=True)
    return value.detach(), torch.zeros_like(output) if gradient is None else gradient


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _shape(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return f"a value of type {type(value).__name__}"


def _is_close(one: torch.Tensor, other: torch.Tensor, size: float = 0.0) -> bool:
    """Returns whether two tensors differ by rounding only. NaNs are equal."""
    bound = 1e-7 if one.dtype == torch.float64 else 1e-3
    one, other = one.detach().double().reshape(-1), other.detach().double().reshape(-1)
    largest = max(float(other.nan_to_num(0.0, 0.0, 0.0).abs().max()) if other.numel() else 0.0, size)
    return torch.allclose(one, other, rtol=0.0, atol=bound * largest + 1e-12, equal_nan=True)


def cost_of(island: Island, output: torch.Tensor, targets: torch.Tensor | None) -> dict[str, Any]:
    """Counts the cost of an opaque loss. Returns the fields of an opaque layer in the graph format."""
    assert targets is not None
    times = -(-len(output) // len(targets))
    labels = torch.cat([targets] * times)[: len(output)].to(output.device)
    document = {"op": island.name, "output": [1], "labels": max(1, targets[0].numel())}

    def run(scores: torch.Tensor) -> torch.Tensor:
        return island(scores, labels[: len(scores)])  # type: ignore[no-any-return]

    return document | cost(run, [], [output], False)


def needs_targets(targets: torch.Tensor | None) -> None:
    """Raises an error if there are no targets for a loss that is executed while tracing."""
    if targets is None:
        raise TraceError(
            "the cost of a custom loss is counted by executing it: give `targets` of the examples"
        )
