"""Device models, link models and layer-time profiles."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from deeppool import _deeppool
from deeppool._documents import read_text, write_text
from deeppool.errors import InputError
from deeppool.network import Network


@dataclass(frozen=True)
class Device:
    """A built-in model of a device."""

    name: str
    accuracy: str
    """Description of the model's error against measurements."""
    memory_bytes: int | None
    """Memory size in the data sheet; ``None`` without a data sheet."""
    peak_flops_per_s: float | None
    """Peak rate in the data sheet."""
    bandwidth_bytes_per_s: float | None
    """Memory bandwidth in the data sheet."""


def devices() -> list[Device]:
    """Returns the built-in device models.

    Functions with a ``device`` argument take a name from this list, or the JSON file of a device
    model written by ``deeppool fit``.
    """
    return [Device(**device) for device in json.loads(_deeppool.device_models())]


def links() -> list[str]:
    """Returns the names of the built-in link models.

    Functions with a ``link`` argument take a name from this list, or the JSON file of a cluster.
    """
    return _deeppool.link_models()


@dataclass(frozen=True)
class Profile:
    """Times of each layer of a network at some batch sizes.

    The document has the format ``deeppool/profile/v1``, which the command ``deeppool`` also reads and
    writes.
    """

    document: Mapping[str, Any]

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Profile:
        """Reads a profile file."""
        try:
            document = json.loads(read_text(path))
        except json.JSONDecodeError as error:
            raise InputError(f"{os.fspath(path)}: {error}") from error
        if not isinstance(document, dict):
            raise InputError(f"{os.fspath(path)}: expected a document of the format deeppool/profile/v1")
        return cls(document)

    @classmethod
    def modelled(cls, network: Network | str, device: str | PathLike[str], batches: Sequence[int]) -> Profile:
        """Returns the times estimated by a device model.

        Args:
            network: A network, or the name of a built-in one.
            device: Name of a device model (see :func:`devices`), or the JSON file of one.
            batches: Batch sizes in samples, ascending.
        """
        network = Network.zoo(network) if isinstance(network, str) else network
        return cls(
            json.loads(_deeppool.modelled_profile(network.to_json(), os.fspath(device), list(batches)))
        )

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Profile:
        """Creates a profile from a document."""
        return cls(document)

    def to_dict(self) -> dict[str, Any]:
        """Returns the document."""
        return dict(self.document)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a profile file."""
        write_text(path, json.dumps(self.document, indent=2) + "\n")

    @property
    def model(self) -> str:
        """Name of the network."""
        return str(self.document["model"])

    @property
    def device(self) -> str:
        """Name of the device."""
        return str(self.document["device"])


@dataclass(frozen=True)
class Costs:
    """Sources of times: a device model or a profile, and a link model."""

    device: str | None = None
    """Name or file of a device model."""
    profile: Profile | None = None
    """Layer times, in place of a device model."""
    link: str | None = None
    """Name or file of a link model; the device's default if ``None``."""

    @classmethod
    def of(
        cls,
        device: str | PathLike[str] | None = None,
        profile: Profile | Mapping[str, Any] | str | PathLike[str] | None = None,
        link: str | PathLike[str] | None = None,
    ) -> Costs:
        """Creates cost sources from arguments, and reads the profile's file.

        Raises:
            InputError: Not exactly one of device and profile is given, or the file is not valid.
        """
        if (device is None) == (profile is None):
            raise InputError("give either a device (see deeppool.devices()) or a profile")
        if isinstance(profile, str | PathLike):
            profile = Profile.load(profile)
        elif isinstance(profile, Mapping):
            profile = Profile(profile)
        return cls(
            None if device is None else os.fspath(device), profile, None if link is None else os.fspath(link)
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the document for the native module."""
        profile = None if self.profile is None else self.profile.to_dict()
        return {"device": self.device, "profile": profile, "link": self.link}
