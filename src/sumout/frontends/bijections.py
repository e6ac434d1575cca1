"""Maps from the real line to the user's coordinates."""

from typing import Any

from numpyro.distributions.transforms import IdentityTransform, IndependentTransform


def is_identity(bijection: Any) -> bool:
    """Whether a variable is on the real line already."""
    while isinstance(bijection, IndependentTransform):
        bijection = bijection.base_transform
    return isinstance(bijection, IdentityTransform)
