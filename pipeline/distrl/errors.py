"""Errors for people: what is wrong, where, and the command or setting that fixes it."""

from __future__ import annotations


class DistrlError(Exception):
    """Base of every expected failure. The CLI prints it without a traceback and exits 1.

    where: the setting, topic, object, device or file concerned.
    what: the fact that is wrong.
    hint: the command or setting that fixes it.
    """

    def __init__(self, where: str, what: str, hint: str) -> None:
        super().__init__(where, what, hint)
        self.where = where
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n  hint: {self.hint}"


class ConfigError(DistrlError):
    """A setting that is unknown, impossible or contradicts another; raised as early as possible."""


class WireError(DistrlError):
    """Bytes that are not a record: an unknown schema, a truncated or a garbage payload."""


class BrokerError(DistrlError):
    """Kafka cannot be reached, refuses the credentials, or holds something other than what is declared."""


class StoreError(DistrlError):
    """An object is missing, does not hash to its name, or the store cannot be written."""


class DeviceError(DistrlError):
    """A phone or the adb server did not do what was asked within its deadline."""


class ChatError(DistrlError):
    """A chat endpoint (of a judge or a prompted agent) is not configured, or refuses every question."""


class PolicyError(DistrlError):
    """Weights that do not belong to the base model, or a base model that cannot be read."""


class AlgorithmError(DistrlError):
    """An algorithm that another package brings has raised an error of its own."""


class ComputeError(DistrlError):
    """The processor cannot do what is asked: its memory is not enough, or it lacks a deterministic kernel."""


class StackError(DistrlError):
    """A part of the local stack cannot be started, or is already running."""
