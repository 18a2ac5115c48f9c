"""Training a PyTorch module by a burst plan, on ``torch.distributed``.

:class:`BurstParallel` takes the place of ``torch.nn.parallel.DistributedDataParallel``. It is also an example of executing a
program of the format ``deeppool/program/v1`` (what ``deeppool lower`` writes), in this order:

- :mod:`~deeppool.torch.program`: the document as dataclasses;
- :mod:`~deeppool.torch.segments`: layers that are one graph of autograd, and their passes;
- :mod:`~deeppool.torch.synchronized_norm`: batch normalization over the global batch;
- :mod:`~deeppool.torch.communication`: collectives;
- :mod:`~deeppool.torch.executor`: the steps of a rank, on two lanes;
- :mod:`~deeppool.torch.sampled_random`: dropout that does not depend on the plan;
- :mod:`~deeppool.torch.background`: another job in the time in which the rank waits;
- :mod:`~deeppool.torch.burst_parallel`: the module around all of it.
"""

from deeppool._requirements import require_torch

require_torch("deeppool.torch")

from deeppool.errors import BurstParallelError  # noqa: E402
from deeppool.torch.background import BackgroundReport  # noqa: E402
from deeppool.torch.burst_parallel import BurstParallel  # noqa: E402
from deeppool.torch.sampled_random import dropout_keeps  # noqa: E402

__all__ = ["BackgroundReport", "BurstParallel", "BurstParallelError", "dropout_keeps"]
