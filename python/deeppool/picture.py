"""SVG images of plans, with layers from left to right and ranks from top to bottom."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deeppool.plans import Plan

WIDTH, TOP, LEFT, BOTTOM = 860, 64, 56, 34
MAX_ROWS = 64
"""Maximum number of rows. With more ranks, each row shows several."""
FILLED, EMPTY, INK = "#2a6f97", "#eef2f5", "#282828"


def plan_picture(plan: Plan) -> str:
    """Returns an SVG image of a plan.

    Adjacent layers on the same ranks are one block, with their names in its tooltip.
    """
    by_name = {layer.name: layer for layer in plan.layers}
    layers = [by_name[name] for name in plan.order] if plan.order is not None else list(plan.layers)
    ranks_per_row = -(-plan.gpus // MAX_ROWS)
    rows = -(-plan.gpus // ranks_per_row)
    height = max(4.0, min(22.0, 320 / rows))
    width = (WIDTH - LEFT - 12) / max(len(layers), 1)
    bottom = TOP + rows * height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + BOTTOM:.0f}" width="{WIDTH}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{bottom + BOTTOM:.0f}" fill="white"/>',
        f'<text x="12" y="22" font-size="16">{escape(_title(plan))}</text>',
        f'<text x="12" y="42">{escape(_figures(plan))}</text>',
        f'<rect x="{LEFT}" y="{TOP}" width="{width * len(layers):.2f}" '
        f'height="{rows * height:.2f}" fill="{EMPTY}"/>',
    ]
    start = 0
    while start < len(layers):
        end = start + 1
        while end < len(layers) and layers[end].ranks == layers[start].ranks:
            end += 1
        names = layers[start].name if end == start + 1 else f"{layers[start].name} .. {layers[end - 1].name}"
        gpus = layers[start].gpus
        title = f"<title>{escape(names)}: {gpus} GPU{'s' if gpus > 1 else ''}</title>"
        for first, count in _runs(sorted({rank // ranks_per_row for rank in layers[start].ranks})):
            x, y = LEFT + start * width, TOP + first * height
            parts.append(
                f'<rect x="{x:.2f}" y="{y:.2f}" width="{max((end - start) * width - 0.6, 0.4):.2f}" '
                f'height="{count * height - 0.6:.2f}" fill="{FILLED}">{title}</rect>'
            )
        start = end
    step = max(1, -(-rows // 8))
    for row in range(0, rows, step):
        y = TOP + row * height + height / 2 + 4
        parts.append(f'<text x="{LEFT - 8}" y="{y:.1f}" text-anchor="end">{row * ranks_per_row}</text>')
    parts.append(f'<text x="{LEFT}" y="{bottom + 20:.0f}">{escape(layers[0].name if layers else "")}</text>')
    last = escape(layers[-1].name if layers else "")
    parts.append(f'<text x="{WIDTH - 12}" y="{bottom + 20:.0f}" text-anchor="end">{last}</text>')
    middle = (WIDTH + LEFT) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{bottom + 20:.0f}" text-anchor="middle">layers (rows: ranks)</text>'
    )
    return "\n".join([*parts, "</svg>"])


def _title(plan: Plan) -> str:
    mode = "data parallel" if plan.mode == "dp" else "burst parallel"
    return f"{plan.model}, global batch {plan.batch}, {plan.gpus} GPUs, {mode}"


def _figures(plan: Plan) -> str:
    return (
        f"iteration {plan.iteration_us / 1e3:.2f} ms, {plan.speedup:.2f} times as fast as one GPU, "
        f"amplification {plan.amplification:.2f}; data parallel "
        f"{plan.data_parallel.iteration_us / 1e3:.2f} ms, amplification "
        f"{plan.data_parallel.amplification:.2f}; {plan.device} ({plan.origin}), {plan.link}"
    )


def _runs(rows: list[int]) -> list[tuple[int, int]]:
    """Groups sorted rows into runs of consecutive rows: (first row, length)."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and runs[-1][0] + runs[-1][1] == row:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((row, 1))
    return runs
