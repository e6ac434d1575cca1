"""How the cost of a step grows, on a mixture with 10² to 10⁶ points and 2, 5 and 20 components.

`python -m benchmarks.scaling` takes the seconds of one step of sumout's default kernels, compiled code at hand, with
one chain and with four: z summed out (the default plan; a step is a trajectory of HMC) and z drawn
(`plan={"z": "draw"}`; a step of GHMC has one gradient). A trajectory's cost is given for one of its gradients. Printed
are the slopes of log seconds against log points and against log K: 1 is linear growth.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

POINTS = (100, 1_000, 10_000, 100_000, 1_000_000)
COMPONENTS = (2, 5, 20)
CHAINS = (1, 4)
PLANS = {"summed": None, "drawn": {"z": "draw"}}
LEAPFROG = 4  # gradients of a trajectory: fixed, so that all sizes do the same
LEAST = 0.5  # seconds that a timing should take
REPEATS = 5
FROM = 10_000  # points from which slopes are fitted: below, what is the same for all sizes counts


@dataclass(frozen=True)
class Cost:
    """Seconds for one gradient's worth of a step."""

    plan: str
    points: int
    components: int
    chains: int
    seconds: float


def mixture(components: int):
    """A mixture with means in order."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.distributions.transforms import OrderedTransform

    def model(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(components)))
        base = dist.Normal(jnp.zeros(components), 1.0)
        mu = numpyro.sample("mu", dist.TransformedDistribution(base, OrderedTransform()))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.5))
        with numpyro.plate("points", len(y)):
            z = numpyro.sample("z", dist.Categorical(weights))
            numpyro.sample("y", dist.Normal(mu[z], sigma), obs=y)

    return model


def measure(plan: str, points: int, components: int, chains: int) -> Cost:
    """Run the kernel's step in a compiled loop."""
    import jax
    import jax.numpy as jnp

    import sumout
    from sumout.kernels.kernel import CHAINS as AXIS
    from sumout.kernels.leapfrog import Point
    from sumout.plan.plan import plan_for
    from sumout.plan.target import make_target
    from sumout.randomness import fold_in, new_key, split

    rng = np.random.default_rng(0)
    y = rng.normal(rng.integers(components, size=points) * 2.0, 1.0).astype(np.float32)
    program = sumout.program(mixture(components), y)
    chosen = plan_for(program, PLANS[plan])
    asked = sumout.HMC(step_size=1e-4, num_leapfrog=LEAPFROG) if plan == "summed" else sumout.GHMC(step_size=1e-4)
    target = make_target(chosen)
    kernel = asked.bind(target)
    gradients = LEAPFROG if plan == "summed" else 1
    keys = split(new_key(0), chains)
    x = jnp.zeros((chains, program.num_x), jnp.float32)
    z = {name: jnp.zeros((chains, *site.shape), site.dtype) for name, site in program.z.items()}

    def begin(key, x, z, data):
        return kernel.init(key, Point.at(target, x, z, data), z)

    states = jax.jit(jax.vmap(begin, in_axes=(0, 0, 0, None)))(keys, x, z, program.data)

    def advance(key, state, data, number):
        return jax.lax.fori_loop(0, number, lambda t, s: kernel.step(fold_in(key, t), s, data, t)[0], state)

    compiled = jax.jit(jax.vmap(advance, in_axes=(0, 0, None, None), axis_name=AXIS))

    def seconds(number: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready(compiled(keys, states, program.data, number))
        return time.perf_counter() - start

    seconds(1)  # compiles
    number = max(1, int(LEAST / REPEATS / max(1e-6, min(seconds(1), seconds(1)))))
    best = min(seconds(number) for _ in range(REPEATS)) / number
    return Cost(plan, points, components, chains, best / gradients)


def slope(x: list[float], y: list[float]) -> float:
    """Of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def print_slopes(costs: list[Cost]) -> None:
    """In points for every K, and in K for the most points."""
    for plan in PLANS:
        for chains in CHAINS:
            mine = [cost for cost in costs if (cost.plan, cost.chains) == (plan, chains)]
            for components in sorted({cost.components for cost in mine}):
                line = [cost for cost in mine if cost.components == components and cost.points >= FROM]
                if len(line) > 1:
                    found = slope([cost.points for cost in line], [cost.seconds for cost in line])
                    print(f"{plan}, {chains} chain(s), K = {components}: slope in points {found:.2f}")
            most = max((cost.points for cost in mine), default=0)
            line = [cost for cost in mine if cost.points == most]
            if len(line) > 1:
                found = slope([cost.components for cost in line], [cost.seconds for cost in line])
                print(f"{plan}, {chains} chain(s), {most:,} points: slope in K {found:.2f}")


def draw(costs: list[Cost], path: Path) -> None:
    """All of them in one plot: colours for K, lines for chains, a panel for each plan."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
    colours = dict(zip(COMPONENTS, ("#0b6e4f", "#3d5a80", "#c8553d"), strict=True))
    for panel, plan in zip(panels, PLANS, strict=True):
        for components, colour in colours.items():
            for chains, style in zip(CHAINS, ("-", "--"), strict=True):
                line = [one for one in costs if (one.plan, one.components, one.chains) == (plan, components, chains)]
                label = f"K = {components}, {chains} chain{'s' * (chains > 1)}"
                panel.loglog([one.points for one in line], [one.seconds for one in line], style, marker="o",
                             markersize=3, color=colour, label=label)  # fmt: skip
        ends = np.array([1e4, 1e6])
        panel.loglog(ends, 3e-8 * ends, color="0.6", linewidth=1, label="linear")
        panel.set_title(f"z {plan}")
        panel.set_xlabel("points")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("seconds for one gradient's worth of a step")
    panels[0].legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="no more than 10⁴ points")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder for scaling.json and scaling.svg")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    costs = []
    for points in POINTS[:3] if options.quick else POINTS:
        for components in COMPONENTS:
            for plan in PLANS:
                for chains in CHAINS:
                    cost = measure(plan, points, components, chains)
                    costs.append(cost)
                    words = f"{plan}, {points:,} points, K = {components}, {chains} chain(s)"
                    print(f"{words}: {1e3 * cost.seconds:.4g} ms", flush=True)
                    (options.out / "scaling.json").write_text(json.dumps([asdict(one) for one in costs], indent=1))
    print_slopes(costs)
    draw(costs, options.out / "scaling.svg")


if __name__ == "__main__":
    main()
