"""Conversion of PyTorch modules to networks.

:func:`trace` returns the layers of a module, for planning, and each layer as a module, for execution.
:func:`check_gradients` compares the module's gradients with those of the layer engine.

>>> import torch, torchvision
>>> traced = trace(torchvision.models.resnet18(), torch.randn(1, 3, 224, 224))
>>> traced.layers[0].name
'conv1'
"""

from __future__ import annotations

from deeppool._requirements import require_torch

require_torch("deeppool.tracing")

from deeppool.tracing.errors import TraceError  # noqa: E402
from deeppool.tracing.gradients import GradientCheck, check_gradients  # noqa: E402
from deeppool.tracing.island import Island  # noqa: E402
from deeppool.tracing.trace import trace  # noqa: E402
from deeppool.tracing.traced import Traced, TracedLayer  # noqa: E402

__all__ = ["GradientCheck", "Island", "TraceError", "Traced", "TracedLayer", "check_gradients", "trace"]
