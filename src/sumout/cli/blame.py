"""Which lines of the user's own code led to an error."""

import traceback
from pathlib import Path

MOST_LINES = 5
OWN = Path(__file__).parents[1]


def blame(error: BaseException, model: Path) -> list[str]:
    """The lines of the model's file and its neighbours in the traceback, the innermost last."""
    folder = model.resolve().parent
    cause: BaseException | None = error
    while cause is not None:
        found = [
            _line(frame.filename, frame.lineno, frame.line, folder)
            for frame in traceback.extract_tb(cause.__traceback__)
        ]
        if isinstance(cause, SyntaxError) and cause.filename:
            found.append(_line(cause.filename, cause.lineno, cause.text, folder))
        lines = [line for line in found if line is not None]
        if lines:
            return lines[-MOST_LINES:]
        cause = cause.__cause__
    return []


def _line(filename: str, number: int | None, code: str | None, folder: Path) -> str | None:
    """A line of code as shown to its author; None if it is not theirs."""
    path = Path(filename).resolve()
    if filename.startswith("<"):  # of no file
        return None
    if folder not in path.parents or OWN in path.parents or "site-packages" in path.parts:
        return None
    return f"  {path.relative_to(folder)}, line {number}: {(code or '').strip()}"
