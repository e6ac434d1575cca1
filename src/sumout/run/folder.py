"""What stands in the folder of a stored run.

run/run.json                      what the run is: its identity, options and names
run/part-000000-….npz             draws, and where the run stood after them; here also the data, for the result
run/part-000001-….npz             …
"""

import json
from pathlib import Path
from typing import Any

from sumout.errors import StoreError
from sumout.run.parts import damaged, is_sound, list_parts

FORMAT = 1
ABOUT = "run.json"
# In a part beside the draws.
STATE, WARM, PLACE, SECONDS, TUNED, OBSERVED = "state", "warm", "place", "seconds", "tuned", "observed_data"


def read_about(folder: Path) -> dict[str, Any]:
    """What the run in a folder is."""
    path = folder / ABOUT
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{folder} holds no run: {path} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise StoreError(f"{path} is damaged: it is not JSON ({error}).") from error
    needed = {"format": int, "identity": dict, "draws": int, "dims": dict, "coordinates": list, "about": dict}
    if not isinstance(noted, dict) or any(not isinstance(noted.get(name), kind) for name, kind in needed.items()):
        raise StoreError(f"{path} is damaged: something is missing from it.")
    if noted["format"] != FORMAT:
        raise StoreError(f"{path} has format {noted['format']}; this version of sumout reads format {FORMAT}.")
    return noted


def check_parts(folder: Path) -> list[Path]:
    """All parts, in order; an error if one is missing or damaged."""
    found = list_parts(folder)
    for number in range(max(found, default=-1) + 1):
        if number not in found:
            raise StoreError(f"{folder}: part {number} is missing; sumout.load(…, skip_damaged=True) reads the others.")
        if not is_sound(found[number]):
            raise damaged(found[number])
    return list(found.values())
