"""Checks for optional dependencies."""

from deeppool.errors import TorchMissingError


def require_torch(module: str) -> None:
    """Checks that PyTorch is installed.

    Args:
        module: Name of the module that needs it, such as ``deeppool.torch``.

    Raises:
        TorchMissingError: PyTorch is not installed.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise TorchMissingError(
            f"{module} needs PyTorch, which is not installed: pip install torch"
        ) from error
