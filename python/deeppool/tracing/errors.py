"""Errors of tracing."""

from __future__ import annotations

from deeppool.errors import DeepPoolError


class TraceError(DeepPoolError, ValueError):
    """A module that cannot be traced, or that changed since. The message names the layer and a remedy."""
