"""Burst-parallel training: plan, simulate and train networks whose layers each have their own number of GPUs.

Planning needs nothing but this package. PyTorch is needed for ``deeppool.tracing`` (networks of PyTorch modules), and for
``deeppool.torch`` (training them by a plan).
"""

from deeppool.errors import DeepPoolError, InputError, TorchMissingError
from deeppool.network import Layer, Network, Tensor

__all__ = ["DeepPoolError", "InputError", "Layer", "Network", "Tensor", "TorchMissingError"]
