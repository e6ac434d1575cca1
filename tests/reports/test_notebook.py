"""What prompts and notebooks show of programs, plans, kernels and explanations."""

import copy
import pickle
import sys

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import sumout
from sumout.plan.plan import plan_for

from programs import ENUMERABLE


def mixture(y):
    mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]))
    z = numpyro.sample("z", dist.Bernoulli(0.5).expand(y.shape))
    numpyro.sample("y", dist.Normal(mu[z], 1), obs=y)


def test_a_program_at_the_prompt():
    assert repr(sumout.program(mixture, np.zeros(1200))).splitlines() == [
        "mixture: 2 continuous coordinates, 1,200 discrete sites, 1,200 observations",
        "  continuous: mu (2)",
        "  discrete: z (1,200) in {0, 1}",
        "  observed: y (1,200)",
        "  sumout.explain(program) says what will be done; sumout.sample(program) does it",
    ]


@pytest.mark.parametrize("name", ENUMERABLE)
def test_every_program_has_five_short_lines_at_most(name):
    lines = repr(ENUMERABLE[name]()).splitlines()
    assert 3 <= len(lines) <= 5
    assert max(map(len, lines)) <= 130


def test_of_many_sites_some_are_named():
    def many(x, z, data):
        return sum(-(value.sum() ** 2) for value in x.values()) + z["z"]

    sites = {f"a_long_name_of_a_variable_{i}": (dist.constraints.real, ()) for i in range(40)}
    lines = repr(sumout.density(many, x=sites, z={"z": sumout.finite(2)})).splitlines()
    assert "and 3" in lines[1] and "more" in lines[1] and max(map(len, lines)) <= 130


def test_notebooks_show_the_structure_drawn():
    program = ENUMERABLE["scan_hmm"]()
    explanation = sumout.explain(program)
    for shown in (program, plan_for(program), explanation):
        html = shown._repr_html_()
        assert html.count("<svg") == 1 and "currentColor" in html and "<script" not in html
    assert str(explanation).splitlines()[0] in explanation._repr_html_()
    assert "summed out exactly" in plan_for(program)._repr_html_()


def test_names_are_escaped():
    def density(x, z, data):
        return -(x["<b>x"] ** 2) + z["<script>"]

    program = sumout.density(density, x={"<b>x": (dist.constraints.real, ())}, z={"<script>": sumout.finite(2)})
    for shown in (program, plan_for(program), sumout.explain(program)):
        assert "<script>" not in shown._repr_html_() and "&lt;script&gt;" in shown._repr_html_()


def test_a_kernel_shows_its_options():
    html = sumout.HMC(step_size=0.1)._repr_html_()
    assert (
        "<b>HMC</b>" in html
        and "<td>step_size</td><td>0.1</td>" in html
        and "target" not in html.replace("target_acceptance", "")
    )


def test_what_is_too_large_to_be_drawn_is_not_read(monkeypatch):
    monkeypatch.setattr("sumout.reports.notebook.read", lambda program: pytest.fail("it is read"))
    assert "discrete: z (1,200)" in sumout.program(mixture, np.zeros(1200))._repr_html_()


def test_without_matplotlib_the_words_are_left(monkeypatch):
    program = sumout.program(mixture, jnp.zeros(3))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    html = sumout.explain(program)._repr_html_()
    assert "<svg" not in html and "summed out exactly" in html


def test_copies_of_an_explanation_are_texts():
    text = sumout.explain(mixture, np.zeros(3))
    assert copy.deepcopy(text) == str(text) == pickle.loads(pickle.dumps(text))
