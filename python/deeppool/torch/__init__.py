"""Training of a PyTorch module by a burst-parallel plan on ``torch.distributed``.

:class:`BurstParallel` replaces ``torch.nn.parallel.DistributedDataParallel``. It is also an example of
executing a program of the format ``deeppool/program/v5``, as written by ``deeppool lower``. Its modules,
in reading order:

- :mod:`~deeppool.torch.program`: the document as dataclasses;
- :mod:`~deeppool.torch.segments`: groups of layers that share an autograd graph;
- :mod:`~deeppool.torch.parts`: parts of split layers;
- :mod:`~deeppool.torch.synchronized_norm`: batch normalization over the global batch;
- :mod:`~deeppool.torch.communication`: collectives;
- :mod:`~deeppool.torch.executor`: execution of a rank's steps on two lanes;
- :mod:`~deeppool.torch.sampled_random`: dropout that does not depend on the plan;
- :mod:`~deeppool.torch.background`: a background job in the rank's idle time;
- :mod:`~deeppool.torch.burst_parallel`: the training module;
- :mod:`~deeppool.torch.memory`: a model of the memory that PyTorch allocates in training.
"""

from deeppool._requirements import require_torch

require_torch("deeppool.torch")

from deeppool.errors import BurstParallelError  # noqa: E402
from deeppool.torch.background import BackgroundReport  # noqa: E402
from deeppool.torch.burst_parallel import BurstParallel  # noqa: E402
from deeppool.torch.memory import PyTorchMemory, pytorch_memory  # noqa: E402
from deeppool.torch.sampled_random import dropout_keeps  # noqa: E402

__all__ = [
    "BackgroundReport",
    "BurstParallel",
    "BurstParallelError",
    "PyTorchMemory",
    "dropout_keeps",
    "pytorch_memory",
]
