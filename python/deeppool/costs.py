"""What layers take on a device, and what moving data takes between devices."""

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
    """How far it is from measurements, in words."""
    memory_bytes: int | None
    """What its data sheet says; ``None`` where there is none."""
    peak_flops_per_s: float | None
    bandwidth_bytes_per_s: float | None


def devices() -> list[Device]:
    """The built-in device models. The functions that plan also take the JSON file of one, which ``deeppool fit`` writes."""
    return [Device(**device) for device in json.loads(_deeppool.device_models())]


def links() -> list[str]:
    """The names of the built-in link models. The functions that plan also take the JSON file of a cluster."""
    return _deeppool.link_models()


@dataclass(frozen=True)
class Profile:
    """How long each layer of a network takes at some batch sizes: a document of the format ``deeppool/profile/v1``, which the
    command ``deeppool`` reads and writes, too."""

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
        """The times that a device model gives.

        Args:
            network: The network, or the name of a built-in one.
            device: A device model of :func:`devices`, or the JSON file of one.
            batches: Samples of a batch, ascending: the sizes to give times for.
        """
        network = Network.zoo(network) if isinstance(network, str) else network
        return cls(
            json.loads(_deeppool.modelled_profile(network.to_json(), os.fspath(device), list(batches)))
        )

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Profile:
        """The profile of a document."""
        return cls(document)

    def to_dict(self) -> dict[str, Any]:
        """The document."""
        return dict(self.document)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a profile file."""
        write_text(path, json.dumps(self.document, indent=2) + "\n")

    @property
    def model(self) -> str:
        """The network's name."""
        return str(self.document["model"])

    @property
    def device(self) -> str:
        """The device's name."""
        return str(self.document["device"])


@dataclass(frozen=True)
class Costs:
    """Where times are from: a device model or a profile, and links."""

    device: str | None = None
    profile: Profile | None = None
    link: str | None = None

    @classmethod
    def of(
        cls,
        device: str | PathLike[str] | None = None,
        profile: Profile | Mapping[str, Any] | str | PathLike[str] | None = None,
        link: str | PathLike[str] | None = None,
    ) -> Costs:
        """What was given, with files read.

        Raises:
            InputError: neither a device nor a profile was given, or both.
        """
        if (device is None) == (profile is None):
            raise InputError("give a device (see deeppool.devices()) or a profile, one of the two")
        if isinstance(profile, str | PathLike):
            profile = Profile.load(profile)
        elif isinstance(profile, Mapping):
            profile = Profile(profile)
        return cls(
            None if device is None else os.fspath(device), profile, None if link is None else os.fspath(link)
        )

    def to_dict(self) -> dict[str, Any]:
        """As the native module reads it."""
        profile = None if self.profile is None else self.profile.to_dict()
        return {"device": self.device, "profile": profile, "link": self.link}
