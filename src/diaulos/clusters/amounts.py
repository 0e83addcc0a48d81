"""Checks of the figures of devices and links."""

import math

from diaulos.errors import InputError


def check_amount(name: str, value: float) -> None:
    """An `InputError` unless the value is finite and at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} is {value!r}", "it must be finite and at least 0")


def check_above_zero(name: str, value: float) -> None:
    """An `InputError` unless the value is finite and above 0."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} is {value!r}", "it must be finite and above 0")
