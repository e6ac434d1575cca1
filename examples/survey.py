"""The compensation survey, with its coins left in.

Sixty employees are asked whether they are content with their pay. Each tosses a coin first: heads, they answer
honestly; tails, they answer at random. The coins are nobody's business, so they are never recorded. What share θ of
the employees is content?

The model says this as it stands. Summing the coins out by hand is easy here, and that is why this is the example: the
exact posterior is known, and the draws can be laid beside it.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from rich.console import Console
from rich.table import Table
from rich.text import Text

import sumout
from sumout_studies.models import SURVEY

NUM_BINS = 25
WIDTH = 60


def survey(y):
    theta = numpyro.sample("theta", dist.Beta(1, 1))
    with numpyro.plate("employees", len(y)):
        coin = numpyro.sample("coin", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Bernoulli(jnp.where(coin, theta, 0.5)), obs=y)


def exact_posterior(y, num=100_000):
    """Values of θ, the middles of equal intervals, and their probabilities: the coins summed out by hand."""
    theta = (np.arange(num) + 0.5) / num
    log_density = y.sum() * np.log(0.5 * theta + 0.25) + (1 - y).sum() * np.log(0.5 * (1 - theta) + 0.25)
    weights = np.exp(log_density - log_density.max())
    return theta, weights / weights.sum()


def moments(values, weights=None):
    mean = np.average(values, weights=weights)
    return mean, np.sqrt(np.average((values - mean) ** 2, weights=weights))


def logit(theta):
    return np.log(theta) - np.log1p(-theta)


def comparison(result, y):
    """Draws beside the exact posterior: θ, its logit, and the coins behind the two answers."""
    theta, weights = exact_posterior(y)
    drawn = result.posterior["theta"].values.ravel().astype(float)
    coins = result.posterior["coin"].values.reshape(-1, len(y)).mean(axis=0)
    table = Table("", "draws: mean", "sd", "exact: mean", "sd", title="The draws and the exact posterior")
    for name, change in (("theta", lambda t: t), ("logit theta", logit)):
        numbers = [*moments(change(drawn)), *moments(change(theta), weights)]
        table.add_row(name, *(f"{number:.4f}" for number in numbers))
    for answer, honest in ((1, theta), (0, 1 - theta)):
        exact = (weights * honest / (honest + 0.5)).sum()
        name = f"heads behind a {'yes' if answer else 'no'}"
        table.add_row(name, f"{coins[y == answer].mean():.4f}", "", f"{exact:.4f}", "")
    return table


def histogram(result, y):
    """Bars for the draws of θ, a mark where the exact posterior would have them end."""
    theta, weights = exact_posterior(y)
    edges = np.linspace(0, 1, NUM_BINS + 1)
    drawn = np.histogram(result.posterior["theta"].values, edges)[0] / result.posterior["theta"].size
    exact = np.histogram(theta, edges, weights=weights)[0]
    scale = (WIDTH - 1) / max(drawn.max(), exact.max())
    table = Table(title="Posterior of theta")
    table.add_column("theta")
    table.add_column(Text.assemble("draws ", ("█", "cyan"), "   exact ", ("┃", "bold red")))
    for low, high, bar, mark in zip(edges[:-1], edges[1:], drawn * scale, exact * scale, strict=True):
        line = Text("█" * round(bar), "cyan")
        line.pad_right(WIDTH - len(line))
        place = round(mark)
        table.add_row(f"{low:.2f}–{high:.2f}", line[:place] + Text("┃", "bold red") + line[place + 1 :])
    return table


def main():
    console = Console()
    y = SURVEY.data()
    print(sumout.explain(survey, y), end="\n\n", flush=True)
    result = sumout.sample(sumout.program(survey, y), draws=4000, progress=True)
    print(sumout.summary(result).round(3).to_string(), end="\n\n", flush=True)
    console.print(comparison(result, y), "", histogram(result, y), sep="\n")


if __name__ == "__main__":
    main()
