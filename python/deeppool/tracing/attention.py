"""Scaled dot-product attention, however it is written."""
from __future__ import annotations


def find(units):  # type: ignore
    pass


def layers(units, unit, free_name):  # type: ignore
    return None
