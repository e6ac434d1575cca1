"""Models written as Python loops beside the same models written with arrays.

    python -m benchmarks.loops            # all kinds at 100 and 1,000 points
    python -m benchmarks.loops mixture 100 300

For each kind and size, of the loop and of the array form: seconds to make and to read the program, from the start of a
fresh process to the end of a default run (cold), and of a second run (warm).
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SIZES = (100, 1000)
FORMS = ("array", "loop")


def mixture(form: str, num: int) -> Any:
    """A mixture of two normals, a site for every point."""
    import numpyro
    import numpyro.distributions as dist

    import sumout

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]))
        p = numpyro.sample("p", dist.Beta(1, 1))
        if form == "array":
            with numpyro.plate("points", len(y)):
                z = numpyro.sample("z", dist.Bernoulli(p))
                numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)
            return
        for i in range(len(y)):
            z = numpyro.sample(f"z_{i}", dist.Bernoulli(p))
            numpyro.sample(f"y_{i}", dist.Normal(mu[z], 1), obs=y[i])

    return sumout.program(model, _two_groups(num))


def hmm(form: str, num: int) -> Any:
    """A hidden Markov chain with three states."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    import sumout

    def model(y):
        change = numpyro.sample("change", dist.Dirichlet(jnp.ones((3, 3))).to_event(1))
        mu = numpyro.sample("mu", dist.Normal(0, 3).expand([3]).to_event(1))
        if form == "array":

            def step(z, y):
                z = numpyro.sample("z", dist.Categorical(change[z]))
                numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)
                return z, None

            scan(step, 0, y)
            return
        z = 0
        for t in range(len(y)):
            z = numpyro.sample(f"z_{t}", dist.Categorical(change[z]))
            numpyro.sample(f"y_{t}", dist.Normal(mu[z], 1), obs=y[t])

    return sumout.program(model, _two_groups(num))


def panel(form: str, num: int) -> Any:
    """Chains of different lengths, one for each subject: occasions seen and not seen."""
    import jax.numpy as jnp
    from jax.scipy.special import xlogy
    from numpyro.distributions import constraints

    import sumout

    rng = np.random.default_rng(1)
    lengths = []
    while sum(lengths) < num:
        lengths.append(int(min(rng.integers(2, 9), num - sum(lengths))))
    starts = np.cumsum([0, *lengths[:-1]])
    y = rng.integers(0, 2, num).astype(float)

    def loop(x, z, data):
        total = 0.0
        for start, length in zip(starts, lengths, strict=True):
            for t in range(start, start + length):
                stay = 0.5 if t == start else jnp.where(z["z"][t - 1] == 1, x["stay"], x["enter"])
                total += jnp.where(z["z"][t] == 1, jnp.log(stay), jnp.log1p(-stay))
                seen = jnp.where(z["z"][t] == 1, x["seen"], 0.05)
                total += xlogy(data["y"][t], seen) + xlogy(1 - data["y"][t], 1 - seen)
        return total

    def array(x, z, data):
        is_first = np.isin(np.arange(num), starts)
        before = jnp.where(z["z"][np.arange(num) - 1] == 1, x["stay"], x["enter"])
        stay = jnp.where(is_first, 0.5, before)
        total = jnp.where(z["z"] == 1, jnp.log(stay), jnp.log1p(-stay)).sum()
        seen = jnp.where(z["z"] == 1, x["seen"], 0.05)
        return total + (xlogy(data["y"], seen) + xlogy(1 - data["y"], 1 - seen)).sum()

    x = dict.fromkeys(("stay", "enter", "seen"), (constraints.unit_interval, ()))
    density = loop if form == "loop" else array
    return sumout.density(density, x=x, z={"z": sumout.finite(2, shape=num)}, data={"y": y})


def density(form: str, num: int) -> Any:
    """The paper's style of program: a log density with a loop over the points."""
    import jax.numpy as jnp
    from numpyro.distributions import constraints

    import sumout

    def loop(x, z, data):
        total = -0.5 * (x["mu"] ** 2).sum() / 100
        for i in range(num):
            total += jnp.log(jnp.where(z["z"][i] == 1, x["p"], 1 - x["p"]))
            total -= 0.5 * (data["y"][i] - x["mu"][z["z"][i]]) ** 2
        return total

    def array(x, z, data):
        total = -0.5 * (x["mu"] ** 2).sum() / 100
        total += jnp.log(jnp.where(z["z"] == 1, x["p"], 1 - x["p"])).sum()
        return total - 0.5 * ((data["y"] - x["mu"][z["z"]]) ** 2).sum()

    x = {"mu": (constraints.real, (2,)), "p": (constraints.unit_interval, ())}
    written = loop if form == "loop" else array
    return sumout.density(written, x=x, z={"z": sumout.finite(2, shape=num)}, data={"y": _two_groups(num)})


def update(form: str, num: int) -> Any:
    """Means that are put into an array one by one."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    import sumout

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(0.4))
        mean = jnp.zeros(len(y))
        if form == "array":
            mean = mu[z]
        else:
            for i in range(len(y)):
                mean = mean.at[i].set(mu[z[i]])
        numpyro.sample("y", dist.Normal(mean, 1).to_event(1), obs=y)

    return sumout.program(model, _two_groups(num))


def outliers(form: str, num: int) -> Any:
    """A regression with an indicator of outliers for every point."""
    import numpyro
    import numpyro.distributions as dist

    import sumout

    def model(t, y):
        a = numpyro.sample("a", dist.Normal(0, 10))
        b = numpyro.sample("b", dist.Normal(0, 10))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        if form == "array":
            with numpyro.plate("points", len(y)):
                out = numpyro.sample("out", dist.Bernoulli(0.1))
                numpyro.sample("y", dist.Normal(a + b * t, sigma * (1 + 9 * out)), obs=y)
            return
        for i in range(len(y)):
            out = numpyro.sample(f"out_{i}", dist.Bernoulli(0.1))
            numpyro.sample(f"y_{i}", dist.Normal(a + b * t[i], sigma * (1 + 9 * out)), obs=y[i])

    rng = np.random.default_rng(2)
    t = np.linspace(-1, 1, num)
    noise = np.where(rng.uniform(size=num) < 0.1, 10, 1) * rng.normal(size=num) * 0.3
    return sumout.program(model, t, 1 + 2 * t + noise)


KINDS: dict[str, Callable[[str, int], Any]] = {
    made.__name__: made for made in (mixture, hmm, panel, density, update, outliers)
}


def _two_groups(num: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(np.where(rng.uniform(size=num) < 0.4, 2.0, -2.0), 1.0)


def measure(kind: str, form: str, num: int) -> dict[str, float]:
    """Seconds of one form, in this process."""
    begun = time.time()
    import sumout

    imported = time.time()
    program = KINDS[kind](form, num)
    made = time.time()
    sumout.read(program)
    read = time.time()
    sumout.sample(program, progress=False)
    cold = time.time()
    sumout.sample(program, progress=False, seed=1)
    return {"make": made - imported, "read": read - made, "cold": cold - begun, "warm": time.time() - cold}


def main(kinds: list[str], sizes: list[int]) -> None:
    """Measure each in a process of its own and print a table."""
    heads = " ".join(f"{what:>7}" for what in ("make", "read", "cold", "warm"))
    print(f"{'kind':10} {'points':>6} {'form':>6} {heads}   loop / array: cold, warm")
    for kind in kinds:
        for num in sizes:
            found = {}
            for form in FORMS:
                command = [sys.executable, "-m", "benchmarks.loops", "--one", kind, form, str(num)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[form] = one = json.loads(done.stdout.splitlines()[-1])
                numbers = " ".join(f"{one[what]:7.2f}" for what in ("make", "read", "cold", "warm"))
                ratios = [found[form][what] / found["array"][what] for what in ("cold", "warm")]
                ending = "" if form == "array" else f"   {ratios[0]:.2f}, {ratios[1]:.2f}"
                print(f"{kind:10} {num:6} {form:>6} {numbers}{ending}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
    else:
        chosen = [word for word in sys.argv[1:] if word in KINDS]
        main(chosen or list(KINDS), [int(word) for word in sys.argv[1:] if word.isdigit()] or list(SIZES))
