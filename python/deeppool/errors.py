"""Exceptions of the package."""


class DeepPoolError(Exception):
    """Base class of the package's errors. The message says why a call failed, and what to do."""


class InputError(DeepPoolError, ValueError):
    """Wrong argument: a name, a number, a file, or two arguments that do not match."""


class TorchMissingError(DeepPoolError, ImportError):
    """PyTorch is required but not installed."""


class NoPlanError(InputError):
    """No plan is within the limits on amplification, iteration time or memory."""


class BurstParallelError(DeepPoolError, RuntimeError):
    """Wrong use of ``deeppool.torch.BurstParallel``. The message says what to do."""
