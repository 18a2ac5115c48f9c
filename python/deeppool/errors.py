"""What goes wrong."""


class DeepPoolError(Exception):
    """What was asked for could not be done. The message says why, and what to do instead."""


class InputError(DeepPoolError, ValueError):
    """What was given is wrong: a name, a number, a file, or two things that do not belong together."""


class TorchMissingError(DeepPoolError, ImportError):
    """PyTorch is needed for this, and is not installed."""


class NoPlanError(InputError):
    """No plan keeps the limits that were given: on amplification, on the iteration time, or on memory."""


class BurstParallelError(DeepPoolError, RuntimeError):
    """``deeppool.torch.BurstParallel`` is used in a way that cannot work; the message says what to do instead."""
