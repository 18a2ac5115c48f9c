"""What can be wrong with a module that is traced."""

from __future__ import annotations

from deeppool.errors import DeepPoolError


class TraceError(DeepPoolError, ValueError):
    """A module cannot be traced, or is not the one that was; the message names the layer and the way out."""
