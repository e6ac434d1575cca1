"""Griffe's extension for the API page: `Example:` in our docstrings is the section that Griffe calls `Examples:`."""

from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Lets examples be shown as code."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Called by Griffe for every object it has read."""
        del kwargs
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
