"""What a check has found, and all that was found in a checkup."""

import warnings
from dataclasses import dataclass

from sumout.errors import ModelError, ModelWarning


@dataclass(frozen=True)
class Finding:
    """Something wrong with a program.

    Attributes:
        message: what was seen and where, why it matters, what to change.
        error: what to raise where the program cannot be sampled at all; None for a warning.
    """

    message: str
    error: type[ModelError] | None = None


@dataclass(frozen=True)
class Checkup:
    """All that was found; prints as a list, and is true where nothing was.

    Attributes:
        name: of the program.
        findings: errors first.
    """

    name: str
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> list[str]:
        """Why the program cannot be sampled."""
        return [finding.message for finding in self.findings if finding.error is not None]

    @property
    def warnings(self) -> list[str]:
        """What looks wrong, but does not stop a run."""
        return [finding.message for finding in self.findings if finding.error is None]

    def tell(self) -> None:
        """Raise the first error; give the warnings if there is none."""
        for finding in self.findings:
            if finding.error is not None:
                raise finding.error(finding.message)
        for message in self.warnings:
            warnings.warn(message, ModelWarning, stacklevel=3)

    def __bool__(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        if self:
            return f"{self.name}: nothing found."
        lines = [f"  {'warning' if found.error is None else 'error'}: {found.message}" for found in self.findings]
        return "\n".join([f"{self.name}:", *lines])
