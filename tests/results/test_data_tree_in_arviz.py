"""What users of ArviZ reach for first runs on a result: of arviz-stats as it is, of ArviZ before 1.0 in one call."""

import warnings

import arviz_stats
import numpy as np
import pytest

import sumout

from models import mixture


@pytest.fixture(scope="module")
def result():
    y = np.random.default_rng(0).normal(size=10) + 4 * (np.arange(10) % 2)
    program = sumout.program(mixture, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sumout.errors.SamplingWarning)
        run = sumout.sample(program, draws=120, tune=200, chains=2)
    return sumout.predict(program, run)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter", "ignore:The inplace keyword")  # of ten data; of ArviZ
def test_statistics_on_the_result(result):
    assert {"mu[0]", "mu[1]", "sigma"} <= set(arviz_stats.summary(result, var_names=["mu", "sigma"]).index)
    loo = arviz_stats.loo(result, pointwise=True)
    assert np.isfinite(loo.elpd) and loo.elpd_i.shape == (10,)
    assert list(arviz_stats.compare({"one": result, "other": result}).index) == ["one", "other"]
    assert arviz_stats.bfmi(result)["energy"].shape == (2,)
    assert arviz_stats.loo_pit(result)["y"].shape == (10,)


def test_the_energy_is_that_of_the_trajectories(result):
    """Its spread about −lp is that of the kinetic energy, a chi-square with as many degrees as x has coordinates."""
    stats = result.sample_stats
    kinetic = (stats.energy.values[:, 1:] + stats.lp.values[:, :-1]).ravel()  # a trajectory starts at the last draw
    assert kinetic.min() > 0
    assert kinetic.mean() == pytest.approx(3 / 2, abs=6 * np.sqrt(3 / 2 / kinetic.size))


PLOTS = ("plot_trace", "plot_trace_dist", "plot_forest", "plot_rank", "plot_energy", "plot_ppc_dist", "plot_loo_pit")


@pytest.fixture(scope="module")
def plots():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    try:
        import arviz_plots
    except (ImportError, AttributeError) as error:  # the latter beside a matplotlib that it does not know
        pytest.skip(f"arviz-plots is not there, or not for this matplotlib ({matplotlib.__version__}): {error}")
    return arviz_plots


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.filterwarnings("ignore:Estimated shape parameter", "ignore:The inplace keyword")
def test_plots_of_arviz(result, plots, name):
    import matplotlib.pyplot as plt
    import xarray as xr

    if name == "plot_trace_dist" and tuple(map(int, xr.__version__.split(".")[:2])) >= (2026, 4):
        pytest.skip("arviz-plots 0.8 makes datasets of datasets, which xarray 2026.4 refuses")
    options = {} if name in PLOTS[4:] else {"var_names": ["mu", "sigma"]}
    drawn = getattr(plots, name)(result, **options)
    assert drawn.viz["figure"].item().get_axes()
    plt.close("all")


def test_plots_of_arviz_before_1(result):
    pytest.importorskip("matplotlib").use("Agg")
    import arviz as az
    import matplotlib.pyplot as plt

    idata = sumout.to_inference_data(result)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ArviZ announces its next release, and NumPy and matplotlib complain of it
        assert "mu[0]" in az.summary(idata).index
        assert az.loo(idata).n_data_points == 10
        assert list(az.compare({"one": idata, "other": idata}).index) == ["one", "other"]
        for plot in (az.plot_trace, az.plot_forest, az.plot_rank):
            assert plot(idata, var_names=["sigma"]) is not None
        for plot in (az.plot_energy, az.plot_ppc):
            assert plot(idata) is not None
        assert az.plot_loo_pit(idata, y="y") is not None
    plt.close("all")
