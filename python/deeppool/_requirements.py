"""What parts of the package need beside it."""

from deeppool.errors import TorchMissingError


def require_torch(what: str) -> None:
    """Raises one clear error where PyTorch is not installed.

    Args:
        what: What needs it, such as ``deeppool.torch``.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise TorchMissingError(
            f"{what} needs PyTorch, which is not installed here: pip install torch"
        ) from error
