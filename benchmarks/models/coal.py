"""Coal: disasters in British mines from 1851 to 1961, when they became rarer, with two years' counts missing.

The data are Jarrett's (1979) as users of PyMC know them. The year of the change and the two missing counts are z. A
missing count sums to one whatever its rate, so by hand it is simply left out; so it is for NumPyro's enumeration and
its samplers of z, none of which takes unbounded counts. Years are counted from 0: NumPyro's samplers take the index
of a value for the value itself.
"""

import numpy as np

from benchmarks.model import Data, Forms, Model, stan_program

MISSING = -1
COUNTS = (
    "4 5 4 0 1 4 3 4 0 6 3 3 4 0 2 6 3 3 5 4 5 3 1 4 4 1 5 5 3 4 2 5 2 2 3 4 2 1 3 -1 2 1 1 1 1 3 0 0 1 0 1 1 0 0 3 1 "
    "0 3 2 2 0 1 1 1 0 1 0 1 0 0 0 2 1 0 0 0 1 1 0 2 3 3 1 -1 2 1 1 1 1 2 4 2 0 0 1 4 0 0 0 1 0 0 0 0 0 1 0 0 1 0 1"
)


def make_data() -> Data:
    counts = np.array(COUNTS.split(), int)
    years = np.arange(len(counts))
    is_known = counts != MISSING
    return {"counts": counts[is_known], "known": years[is_known], "missing": years[~is_known]}


def num_years(data: Data) -> int:
    return len(data["known"]) + len(data["missing"])


def early_years(data: Data) -> np.ndarray:
    """Of the known years, how many come before each year of change; and how many disasters."""
    is_before = data["known"] < np.arange(num_years(data))[:, None]
    return np.stack([is_before.sum(axis=1), is_before @ data["counts"]]).astype(float)


def in_numpyro() -> Forms:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import gammaln, logsumexp

    def rates():
        early = numpyro.sample("early", dist.Exponential(1.0))
        return early, numpyro.sample("late", dist.Exponential(1.0))

    def left_in(counts, known, missing):
        early, late = rates()
        change = numpyro.sample("change", dist.DiscreteUniform(0, len(known) + len(missing) - 1))
        numpyro.sample("counts", dist.Poisson(jnp.where(known < change, early, late)), obs=counts)
        numpyro.sample("filled", dist.Poisson(jnp.where(missing < change, early, late)))

    def without_missing(counts, known, missing):
        early, late = rates()
        change = numpyro.sample("change", dist.DiscreteUniform(0, len(known) + len(missing) - 1))
        rate = jnp.where(known < jnp.expand_dims(change, -1), early, late)
        numpyro.factor("counts", (counts * jnp.log(rate) - rate - gammaln(counts + 1.0)).sum(-1))

    def by_hand(counts, known, missing):
        early, late = rates()
        before, disasters = early_years({"counts": counts, "known": known, "missing": missing})
        log_p = disasters * jnp.log(early) - before * early
        log_p += (counts.sum() - disasters) * jnp.log(late) - (len(known) - before) * late
        numpyro.factor("counts", logsumexp(log_p))

    return Forms(left_in, by_hand, enumerated=without_missing, drawn=without_missing)


def in_pymc(data: Data):
    import pymc as pm

    with pm.Model() as model:
        early, late = pm.Exponential("early", 1.0), pm.Exponential("late", 1.0)
        change = pm.DiscreteUniform("change", 0, num_years(data) - 1)
        pm.Poisson("counts", pm.math.switch(data["known"] < change, early, late), observed=data["counts"])
        pm.Poisson("filled", pm.math.switch(data["missing"] < change, early, late))
    return model


def in_pymc_by_hand(data: Data):
    import pymc as pm

    before, disasters = early_years(data)
    num, total = len(data["known"]), data["counts"].sum()
    with pm.Model() as model:
        early, late = pm.Exponential("early", 1.0), pm.Exponential("late", 1.0)
        log_p = disasters * pm.math.log(early) - before * early
        log_p += (total - disasters) * pm.math.log(late) - (num - before) * late
        pm.Potential("counts", pm.math.logsumexp(log_p))
    return model


def in_stan(data: Data) -> dict:
    before, disasters = early_years(data)
    return {
        "T": num_years(data),
        "N": len(data["known"]),
        "total": int(data["counts"].sum()),
        "before": before.tolist(),
        "disasters": disasters.tolist(),
    }


def in_bugs(data: Data) -> dict:
    """All years; the missing counts are left for JAGS to draw."""
    counts = np.ma.masked_all(num_years(data), int)
    counts[data["known"]] = data["counts"]
    return {"T": num_years(data), "counts": counts}


MODEL = Model(
    name="coal",
    title="Coal, 111 years",
    data=make_data,
    parameters=("early", "late"),
    numpyro=in_numpyro,
    pymc=in_pymc,
    pymc_by_hand=in_pymc_by_hand,
    stan=lambda: stan_program("coal"),
    stan_data=in_stan,
    bugs_data=in_bugs,
    partly_summed=("gibbs", "mixed"),
)
