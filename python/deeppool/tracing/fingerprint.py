"""Fingerprints of modules, to detect changes."""

from __future__ import annotations

import hashlib
import json

from torch import nn


def fingerprint(module: nn.Module) -> str:
    """Returns a hash of a module's structure, in hexadecimal.

    The structure is the submodules with their options and code, and the names, shapes and sharing of the
    tensors. Values, data types, devices, ``requires_grad`` and the training mode are not part of it.
    """
    parts = []
    for path, part in module.named_modules(remove_duplicate=False):
        kind = type(part)
        code = getattr(getattr(kind.forward, "__code__", None), "co_code", b"")
        parts.append(
            [
                path,
                f"{kind.__module__}.{kind.__qualname__}",
                part.extra_repr(),
                hashlib.sha256(code).hexdigest(),
            ]
        )
    first: dict[int, str] = {}
    tensors = []
    for name, tensor in [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]:
        tensors.append([name, list(tensor.shape), first.setdefault(id(tensor), name)])
    return hashlib.sha256(json.dumps([parts, tensors]).encode()).hexdigest()[:32]
