"""What goes wrong in training by a plan."""

from deeppool.errors import DeepPoolError


class BurstParallelError(DeepPoolError, RuntimeError):
    """``BurstParallel`` is used in a way that cannot work; the message says what to do instead."""
