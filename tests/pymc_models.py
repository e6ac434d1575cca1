"""PyMC models as users write them, of many kinds: every discrete law that PyMC has, and every way of giving data."""

import warnings
from contextlib import contextmanager

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc_extras.distributions import DiscreteMarkovChain

MODELS = {}
RNG = np.random.default_rng(1)
TWO_GROUPS = np.array([-2.1, 1.9, -1.7, 2.4, 2.2, -2.6])
COUNTS = np.array([3, 0, 1, 7, 9, 6])


@contextmanager
def imputing():
    """Without PyMC's warning that it imputes missing values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        yield


def pymc_model(make):
    MODELS[make.__name__] = make
    return make


@pymc_model
def mixture():
    """Two normals; data and labels by pm.Data, dims and coords."""
    with pm.Model(coords={"point": list("abcdef"), "component": ["left", "right"]}) as model:
        y = pm.Data("y_data", TWO_GROUPS, dims="point")
        weights = pm.Dirichlet("weights", np.ones(2), dims="component")
        mu = pm.Normal("mu", [-1, 1], 3, dims="component")
        sigma = pm.HalfNormal("sigma", 2)
        z = pm.Categorical("z", weights, dims="point")
        pm.Deterministic("centre", mu[z], dims="point")
        pm.Normal("y", mu[z], sigma, observed=y, dims="point")
    return model


@pymc_model
def coal():
    """Switch point with latent year, and a missing count that is imputed."""
    counts = np.ma.masked_values([4, 5, 4, -1, 1, 0, 2], -1)
    years = np.arange(1851, 1858)
    with pm.Model() as model:
        switch = pm.DiscreteUniform("switch", years.min(), years.max())
        early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
        rate = pm.math.switch(switch >= years, early, late)
        with imputing():
            pm.Poisson("disasters", rate, observed=counts)
    return model


@pymc_model
def survey():
    with pm.Model() as model:
        theta = pm.Beta("theta", 1, 1)
        coin = pm.Bernoulli("coin", 0.5, shape=5)
        pm.Bernoulli("y", pm.math.switch(coin, theta, 0.5), observed=[1, 0, 1, 1, 0])
    return model


@pymc_model
def occupancy():
    """Sites that are occupied or not, seen with less than certainty."""
    seen = np.array([[0, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 0]])
    with pm.Model(coords={"site": range(4), "visit": range(3)}) as model:
        psi, p = pm.Beta("psi", 1, 1), pm.Beta("p", 2, 2)
        z = pm.Bernoulli("z", psi, dims="site")
        pm.Bernoulli("y", p=z[:, None] * p, observed=seen, dims=("site", "visit"))
    return model


@pymc_model
def dawid_skene():
    """Raters with confusion matrices of their own, looked up by the true class."""
    items, raters = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)
    ratings = np.array([0, 0, 1, 1, 1, 1, 2, 2, 0, 0, 1, 0])
    with pm.Model() as model:
        prevalence = pm.Dirichlet("prevalence", np.ones(3))
        confusion = pm.Dirichlet("confusion", np.ones(3) + 2 * np.eye(3), shape=(3, 3, 3))
        true = pm.Categorical("true", prevalence, shape=4)
        pm.Categorical("rating", confusion[raters, true[items]], observed=ratings)
    return model


@pymc_model
def outliers():
    """A line with outliers, weighted by a Potential."""
    x = np.linspace(0, 1, 6)
    y = 1 + 2 * x + np.array([0.1, -0.1, 0.0, 3.0, 0.1, -0.2])
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 5), pm.Normal("b", 0, 5)
        wide = pm.HalfNormal("wide", 5)
        share = pm.Uniform("share", 0, 0.5)
        is_outlier = pm.Bernoulli("is_outlier", share, shape=6)
        near = pm.logp(pm.Normal.dist(a + b * x, 0.3), y)
        far = pm.logp(pm.Normal.dist(a + b * x, 0.3 + wide), y)
        pm.Potential("line", pt.switch(is_outlier, far, near))
    return model


@pymc_model
def spike_and_slab():
    design = RNG.normal(size=(8, 3))
    with pm.Model() as model:
        gamma = pm.Bernoulli("gamma", 0.3, shape=3)
        beta = pm.Normal("beta", 0, 2, shape=3)
        sigma = pm.InverseGamma("sigma", 3, 1)
        pm.Normal("y", pt.dot(design, gamma * beta), sigma, observed=design @ [2.0, 0, 0] + 0.1)
    return model


@pymc_model
def hidden_markov():
    """By the Markov chain of pymc_extras."""
    with pm.Model() as model:
        transitions = pm.Dirichlet("transitions", [[4, 1], [1, 4]])
        states = DiscreteMarkovChain("states", P=transitions, init_dist=pm.Categorical.dist(p=[0.5, 0.5]), shape=(6,))
        mu = pm.Normal("mu", [-1, 1], 1, shape=2)
        pm.Normal("y", mu[states], 0.7, observed=TWO_GROUPS)
    return model


@pymc_model
def hidden_markov_by_hand():
    """By one Categorical for the first state and one for all the others, indexed by those before."""
    with pm.Model() as model:
        transitions = pm.Dirichlet("transitions", [[4, 1], [1, 4]])
        first = pm.Categorical("first", [0.5, 0.5])
        chain = [first]
        for t in range(1, 5):
            chain.append(pm.Categorical(f"state_{t}", transitions[chain[-1]]))
        mu = pm.Normal("mu", [-1, 1], 1, shape=2)
        pm.Normal("y", mu[pt.stack(chain)], 0.7, observed=TWO_GROUPS[:5])
    return model


@pymc_model
def nested_mixture():
    """Each group is of a kind, and each point in it of a component of that kind."""
    with pm.Model() as model:
        mu = pm.Normal("mu", np.arange(4.0).reshape(2, 2), 1, shape=(2, 2))
        share = pm.Beta("share", 2, 2, shape=2)
        kind = pm.Bernoulli("kind", 0.5, shape=2)
        part = pm.Bernoulli("part", share[kind][:, None], shape=(2, 3))
        pm.Normal("y", mu[kind[:, None], part], 1, observed=TWO_GROUPS.reshape(2, 3))
    return model


@pymc_model
def abundance():
    """An N-mixture: counts of animals there, of which some are seen; n is another latent."""
    with pm.Model() as model:
        rate, p = pm.Gamma("rate", 2, 0.5), pm.Beta("p", 2, 2)
        number = pm.Poisson("number", rate, shape=3)
        pm.Binomial("seen", number[:, None], p, observed=[[2, 1], [0, 0], [3, 4]])
    return model


@pymc_model
def binomial_inside():
    """A Binomial latent with its own number of trials in each element, and one given by it."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        alive = pm.Binomial("alive", n=[3, 5, 2], p=p)
        pm.Binomial("seen", n=alive, p=0.6, observed=[1, 3, 0])
    return model


@pymc_model
def beta_binomial():
    with pm.Model() as model:
        a = pm.Exponential("a", 0.5)
        n = pm.BetaBinomial("n", alpha=a, beta=2, n=4, shape=3)
        pm.Poisson("y", 0.5 + n, observed=[1, 4, 2])
    return model


@pymc_model
def urn():
    """Hypergeometric draws."""
    with pm.Model() as model:
        size = pm.DiscreteUniform("size", 4, 9)
        taken = pm.HyperGeometric("taken", N=12, k=5, n=[4, 9], shape=2)
        scale = pm.HalfNormal("scale", 2)
        pm.Normal("y", taken + 0.1 * size, scale, observed=[1.5, 3.7])
    return model


@pymc_model
def uniform_bounds():
    """A discrete uniform with bounds of its own in each element, and one whose upper end is a latent."""
    with pm.Model() as model:
        top = pm.DiscreteUniform("top", 2, 5)
        below = pm.DiscreteUniform("below", 0, top)
        each = pm.DiscreteUniform("each", lower=[-2, 0], upper=[1, 3])
        mu = pm.Normal("mu", 0, 2)
        pm.Normal("y", mu + below + each, 1.0, observed=[1.0, 2.5])
    return model


@pymc_model
def negative_binomial():
    with pm.Model() as model:
        mu, alpha = pm.Gamma("mu", 2, 0.5), pm.Gamma("alpha", 2, 1)
        n = pm.NegativeBinomial("n", mu=mu, alpha=alpha, shape=2)
        pm.Normal("y", n, 1.0, observed=[2.2, 4.9])
    return model


@pymc_model
def geometric():
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        tries = pm.Geometric("tries", p, shape=3)
        pm.Exponential("y", 1 / tries, observed=[0.5, 2.0, 3.1])
    return model


@pymc_model
def discrete_weibull():
    with pm.Model() as model:
        q = pm.Beta("q", 4, 2)
        n = pm.DiscreteWeibull("n", q=q, beta=1.3, shape=2)
        pm.Normal("y", n, 1.5, observed=[1.0, 4.0])
    return model


@pymc_model
def zero_inflated():
    """All three laws with zeros of their own."""
    with pm.Model() as model:
        psi = pm.Beta("psi", 2, 2)
        a = pm.ZeroInflatedPoisson("a", psi=psi, mu=2.5)
        b = pm.ZeroInflatedBinomial("b", psi=psi, n=4, p=0.4, shape=2)
        c = pm.ZeroInflatedNegativeBinomial("c", psi=psi, mu=3, alpha=2)
        pm.Normal("y", a + b + c, 1.0, observed=[3.0, 5.0])
    return model


@pymc_model
def hurdles():
    with pm.Model() as model:
        psi = pm.Beta("psi", 2, 2)
        a = pm.HurdlePoisson("a", psi=psi, mu=2.5, shape=2)
        b = pm.HurdleNegativeBinomial("b", psi=psi, mu=3, alpha=2)
        pm.Normal("y", a + b, 1.0, observed=[3.0, 5.0])
    return model


@pymc_model
def truncated():
    with pm.Model() as model:
        mu = pm.Gamma("mu", 3, 1)
        a = pm.Truncated("a", pm.Poisson.dist(mu), lower=1, upper=4, shape=2)
        b = pm.Truncated("b", pm.Geometric.dist(0.4), upper=3)
        pm.Normal("y", a + b, 1.0, observed=[3.0, 5.0])
    return model


@pymc_model
def censored():
    """Counts above a limit are read as the limit; PyMC holds them as floats."""
    with pm.Model() as model:
        mu = pm.Gamma("mu", 3, 1)
        read = pm.Censored("read", pm.Poisson.dist(mu), lower=None, upper=4, shape=3)
        pm.Normal("y", read, 0.8, observed=[0.3, 2.2, 4.1])
    return model


@pymc_model
def mixture_law():
    """A latent whose own law is a mixture: of two laws, and of one along an axis."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        a = pm.Mixture("a", w, [pm.Binomial.dist(3, 0.2), pm.DiscreteUniform.dist(2, 5)], shape=2)
        b = pm.Mixture("b", w, pm.Binomial.dist(n=[2, 4], p=0.5))
        pm.Normal("y", a + b, 1.0, observed=[3.0, 5.0])
    return model


@pymc_model
def ordered():
    """Ordered regressions, whose outcome is a latent."""
    with pm.Model() as model:
        eta = pm.Normal("eta", 0, 1)
        cuts = pm.Normal("cuts", [-1, 1], 1, transform=pm.distributions.transforms.ordered, initval=[-1, 1])
        a = pm.OrderedLogistic("a", eta=eta, cutpoints=cuts, compute_p=False, shape=2)
        b = pm.OrderedProbit("b", eta=eta, cutpoints=[-1.0, 0.5], compute_p=False)
        pm.Normal("y", a + b, 1.0, observed=[1.0, 3.0])
    return model


@pymc_model
def one_of_many():
    """Vectors of counts of one trial."""
    with pm.Model(coords={"who": ["x", "y", "z"], "what": range(2)}) as model:
        p = pm.Dirichlet("p", np.ones(3))
        a = pm.Multinomial("a", n=1, p=p, dims=("what", "who"))
        b = pm.DirichletMultinomial("b", n=1, a=[1.0, 2.0])
        mu = pm.Normal("mu", 0, 2, dims="who")
        pm.Normal("y", pt.dot(a, mu) + b[0], 1.0, observed=[1.0, -1.0])
    return model


@pymc_model
def dirac():
    """A latent that can take one value only, itself a function of another."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        two = pm.DiracDelta("two", 2)
        z = pm.Binomial("z", n=two, p=0.4, shape=3)
        pm.Normal("y", mu + z, 1.0, observed=[0.1, 1.0, 2.2])
    return model


@pymc_model
def custom():
    """A law of the user's own, as a graph of others."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        n = pm.CustomDist("n", p, dist=lambda p, size: 2 + pm.Binomial.dist(3, p, size=size), shape=2)
        pm.Normal("y", n, 1.0, observed=[2.7, 4.0])
    return model


@pymc_model
def scanned():
    """Expected values that are made one after the other by a scan over z."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.4, shape=5)
        decay, jump = pm.Beta("decay", 2, 2), pm.Normal("jump", 1, 1)
        level = pytensor.scan(
            lambda hit, before, decay, jump: decay * before + jump * hit,
            sequences=[z], outputs_info=[pt.as_tensor(0.0, dtype=pytensor.config.floatX)], non_sequences=[decay, jump],
            return_updates=False,
        )  # fmt: skip
        pm.Normal("y", level, 0.5, observed=[0.1, 1.2, 0.6, 1.4, 0.7])
    return model


@pymc_model
def shared():
    """Anonymous shared variables as data and as an index; a mask that selects by value."""
    y, group = pytensor.shared(TWO_GROUPS), pytensor.shared(np.array([0, 0, 1, 1, 2, 2]))
    with pm.Model() as model:
        kept = pm.Data("kept", np.array([True, True, True, False, True, True]))
        z = pm.Bernoulli("z", 0.5, shape=3)
        mu = pm.Normal("mu", 0, 2, shape=2)
        pm.Potential("y", pm.logp(pm.Normal.dist(mu[z[group]], 1.0), y)[kept.nonzero()].sum())
    return model


@pymc_model
def imputed():
    """Missing continuous and discrete predictors."""
    smokes = np.ma.masked_values([1, 0, -1, 1, -1], -1)
    weight = np.array([0.3, np.nan, 1.2, -0.4, 0.9])
    with pm.Model() as model, imputing():
        p = pm.Beta("p", 2, 2)
        a = pm.Bernoulli("smokes", p, observed=smokes)
        b = pm.Normal("weight", 0, 1, observed=weight)
        slope = pm.Normal("slope", 0, 1, shape=2)
        pm.Normal("y", slope[0] * a + slope[1] * b, 1.0, observed=[0.5, 0.1, 1.0, 0.0, 0.7])
    return model


@pymc_model
def censored_data():
    """Survival times, some of which are censored, in two kinds of patients."""
    with pm.Model() as model:
        kind = pm.Bernoulli("kind", 0.5, shape=4)
        mu = pm.Normal("mu", 0, 1, shape=2)
        pm.Censored("y", pm.Normal.dist(mu[kind], 1.0), lower=None, upper=1.5, observed=[0.2, 1.5, -0.7, 1.5])
    return model


@pymc_model
def correlated():
    """A Cholesky factor, an ordered mean, and a sum to zero, beside a mixture of vectors."""
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0))
        effect = pm.ZeroSumNormal("effect", 1.0, shape=3)
        mu = pm.Normal("mu", 0, 2, shape=(2, 2))
        z = pm.Bernoulli("z", 0.4, shape=3)
        pm.MvNormal("y", mu[z] + effect[:, None], chol=chol, observed=TWO_GROUPS.reshape(3, 2))
    return model


@pymc_model
def unaligned():
    """Groups of points that share a label, of another number than the points, and a regression in each component."""
    x, group = np.linspace(-1, 1, 6), np.array([0, 1, 1, 2, 0, 2])
    with pm.Model(coords={"group": ["a", "b", "c"], "component": [0, 1], "row": range(6)}) as model:
        predictor = pm.Data("x", x, dims="row")
        index = pm.Data("group_index", group, dims="row")
        slope = pm.StudentT("slope", nu=3, mu=0, sigma=1, dims="component")
        z = pm.Categorical("z", logit_p=[0.2, -0.3], dims="group")
        noise = pm.TruncatedNormal("noise", 1, 0.5, lower=0.1)
        pm.Laplace("y", slope[z[index]] * predictor, noise, observed=TWO_GROUPS, dims="row")
    return model


@pymc_model
def scaled():
    """Data that stand for more of their kind."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=2)
        z = pm.Bernoulli("z", 0.5)
        pm.Normal("y", mu[z], 1.0, observed=TWO_GROUPS, total_size=60)
    return model


@pymc_model
def nested_models():
    """A model inside another, whose names get a prefix."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2, shape=2)
        with pm.Model("inner"):
            z = pm.Bernoulli("z", 0.5, shape=6)
        pm.Normal("y", mu[z], 1.0, observed=TWO_GROUPS)
    return model
