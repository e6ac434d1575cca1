"""The worked example in the help of every command; a test runs it as it stands."""

import textwrap

MODEL = """\
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def mixture(y):
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1))
    with numpyro.plate("points", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)
"""

DATA = """\
y
-2.1
-1.4
1.9
2.6
2.2
"""


def worked_example(commands: str, outcome: str) -> str:
    """The two files, the commands to type, and what comes out."""
    return "\n".join(
        [
            "example:",
            "  model.py holds",
            textwrap.indent(MODEL.strip(), "    "),
            "",
            "  data.csv holds",
            textwrap.indent(DATA.strip(), "    "),
            "",
            "  Type",
            textwrap.indent(commands.strip(), "    "),
            "",
            textwrap.indent(textwrap.dedent(outcome).strip(), "  "),
        ]
    )
