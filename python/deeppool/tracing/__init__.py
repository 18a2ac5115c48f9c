"""PyTorch modules as networks: :func:`trace` gives the layers of a module, to plan, and each layer as a module, to execute;
:func:`check_gradients` compares what the module learns with what our engine does.

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
