"""Rotary position embeddings of the queries and keys of attentions."""

from __future__ import annotations

import math
from typing import Any

import torch

from deeppool.tracing.program import Ref
from deeppool.tracing.units import Unit, Units

#: Maximum relative difference between frequencies in single precision and those of a rule.
TOLERANCE = 1e-5
#: Base without a pair of features that depends on it.
BASE = 10_000.0


def rotate(
    x: torch.Tensor,
    *,
    width: int,
    base: float,
    first: int = 0,
    rotated: int | None = None,
    interleaved: bool = False,
    scaling: dict[str, dict[str, float]] | None = None,
) -> torch.Tensor:
    """Rotates pairs of features by angles that grow with the position: a rotary embedding.

    Args:
        x: A tensor of shape ``(samples, positions, heads * width)``.
        width: Number of features of a head. Feature ``i`` of its first half is rotated with feature ``i`` of
            its second half, by the position times the frequency of pair ``i``.
        base: Base of the frequencies.
        first: Position of the first row.
        rotated: Number of features of a head that are rotated, the first ones; by default all.
        interleaved: Whether features ``2 i`` and ``2 i + 1`` are rotated together.
        scaling: Change of the frequencies, an option of :func:`frequencies`.

    Returns:
        A tensor of the same shape.
    """
    rotated = rotated or width
    positions = torch.arange(first, first + x.shape[1], dtype=torch.float64, device=x.device)
    powers = frequencies(rotated // 2, base, scaling).to(x.device)
    angles = (positions[:, None] * powers)[:, None]
    cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    half = rotated // 2
    heads = x.reshape(*x.shape[:2], x.shape[2] // width, width)
    pairs, dim = ((half, 2), -1) if interleaved else ((2, half), -2)
    a, b = heads[..., :rotated].reshape(*heads.shape[:3], *pairs).unbind(dim)
    turned = torch.stack((a * cosines - b * sines, b * cosines + a * sines), dim).flatten(-2)
    return torch.cat((turned, heads[..., rotated:]), -1).flatten(2)


def frequencies(pairs: int, base: float, scaling: dict[str, dict[str, float]] | None = None) -> torch.Tensor:
    """Returns the angle of each pair of features at position 1, in double precision.

    Args:
        pairs: Number of pairs.
        base: Base of the frequencies ``base ** (-i / pairs)``.
        scaling: ``{"linear": {"factor": ...}}`` divides them. ``{"llama3": ...}`` divides low ones, as in
            Llama 3.1.
    """
    plain = base ** (torch.arange(pairs, dtype=torch.float64) / -pairs)
    match scaling:
        case {"linear": {"factor": factor}}:
            return plain / factor
        case {"llama3": options}:
            low, high = options["low_frequency_factor"], options["high_frequency_factor"]
            turns = options["original_positions"] * plain / math.tau
            smooth = ((turns - low) / (high - low)).clamp(0, 1)
            return (1 - smooth) * plain / options["factor"] + smooth * plain
    return plain


def find(units: Units, unit: Unit, positions: int, width: int) -> list[dict[str, Any]]:
    """Returns the options of the rotations with whose sines a unit multiplies.

    Args:
        units: Units of the program.
        unit: The unit.
        positions: Number of positions of the queries and keys.
        width: Number of features of a head.
    """
    found: list[dict[str, Any]] = []
    for index in unit.steps if positions > 1 else ():
        step = units.steps[index]
        for factor in step.args if step.op == "mul" else ():
            table = units.constant(factor) if isinstance(factor, Ref) else None
            rotated = 0 if table is None or table.dim() == 0 else table.shape[-1]
            if table is None or rotated % 2 or not 0 < rotated <= width:
                continue
            if table.numel() != positions * rotated:
                continue
            table = table.reshape(positions, rotated).double()
            if table[0].any() or not (0 < table[1, -1] <= 1 and 0 < table[1, 0] <= 1):
                continue
            for interleaved in (False, True):
                of_pairs = table[1, ::2] if interleaved else table[1, : rotated // 2]
                for rule in _rules(units, unit, of_pairs.asin()):
                    options: dict[str, Any] = {"width": width, **rule}
                    options |= {"rotated": rotated} if rotated < width else {}
                    options |= {"interleaved": True} if interleaved else {}
                    if options not in found:
                        found.append(options)
    return found


def _rules(units: Units, unit: Unit, wanted: torch.Tensor) -> list[dict[str, Any]]:
    """Returns bases, and changes of frequencies, that give the wanted frequencies."""
    pairs, highest = len(wanted), wanted[0].item()
    base = BASE if pairs < 2 else (highest / wanted[-1].item()) ** (pairs / (pairs - 1))
    whole = float(round(base))
    base = whole if math.isclose(base, whole, rel_tol=TOLERANCE) else base
    rules: list[dict[str, Any]] = [{"base": base}]
    if not math.isclose(highest, 1, rel_tol=TOLERANCE):
        factor = round(1 / highest, 4)
        rules = [{"base": base, "scaling": {"linear": {"factor": factor}}}]
    return [
        rule
        for rule in (*rules, *_configured(units, unit))
        if torch.allclose(frequencies(pairs, **rule), wanted, rtol=TOLERANCE, atol=0)
    ]


def _configured(units: Units, unit: Unit) -> list[dict[str, Any]]:
    """Returns the rules of the configurations of modules of `transformers` around a unit."""
    parts = unit.module.split(".")
    for depth in range(len(parts), -1, -1):
        module = units.modules.get(".".join(parts[:depth]))
        options = getattr(getattr(module, "config", None), "rope_parameters", None)
        if isinstance(options, dict) and options.get("rope_type") == "llama3":
            names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
            if not all(isinstance(options.get(name), int | float) for name in (*names, "rope_theta")):
                continue
            factor, low, high, positions = (options[name] for name in names)
            llama3 = {
                "factor": float(factor),
                "low_frequency_factor": float(low),
                "high_frequency_factor": float(high),
                "original_positions": int(positions),
            }
            if high > low:
                return [{"base": float(options["rope_theta"]), "scaling": {"llama3": llama3}}]
    return []
