"""The errors sumout raises and the warnings it gives: what was seen, why it cannot be, and what to change."""

import logging

READING = logging.getLogger("sumout.reading")


def note_unforeseen(what: str, error: Exception) -> None:
    """Log that a step of the reading failed unexpectedly, and that a plainer way is taken instead.

    The answer is as right as before, so users are not told; whoever looks for faults listens to the logger.
    """
    READING.debug("%s: %s: %s", what, type(error).__name__, error, exc_info=error)


class SumoutError(Exception):
    """Base of everything sumout raises on purpose."""


class ModelError(SumoutError, ValueError):
    """The model cannot be used as written; the message names the site."""


class OptionError(SumoutError, TypeError):
    """An argument of a sumout function is unknown or makes no sense; the message names it."""


class FileError(SumoutError, ValueError):
    """A file is missing, damaged, in the way or not what it should be; the message names it."""


class StoreError(FileError):
    """A folder that a run is stored in is damaged, in use, full, or holds another run; the message names the file."""


class StartError(ModelError):
    """No starting point with a finite log density was found."""


class ReadingError(SumoutError, AssertionError):
    """The reading of the program contradicts the program: a fault in sumout, please report it."""


class ProcessError(SumoutError, RuntimeError):
    """Another process of a run has ended, or does not compute what this one does."""


class SamplingWarning(UserWarning):
    """A run whose draws should not be trusted as they are."""


class UntrustedWarning(SamplingWarning):
    """What a run ends with if its draws should not be trusted; `sumout.summary` says why and what to do."""


class ModelWarning(UserWarning):
    """A model that can be run, but looks wrong; the message names the site."""


class ConvergenceWarning(UserWarning):
    """A maximum that may not be one."""
