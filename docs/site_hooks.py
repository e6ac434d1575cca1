"""Pages of the site that are files of the repository's root: their links, written for there, are turned for here."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SHOWN = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs for every page."""
    path = page.file.src_uri
    if path in SHOWN:
        return (ROOT / SHOWN[path]).read_text(encoding="utf-8").replace("](docs/", "](")
    for shown, source in SHOWN.items():
        markdown = re.sub(rf"\]\((?:\.\./)+{re.escape(source)}", f"]({shown}", markdown)
    return markdown
