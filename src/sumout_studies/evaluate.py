"""The evaluation: every scheme on every study, compiled first and then run one by one with nothing beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

from sumout.model.program import Program
from sumout_studies import two_normals
from sumout_studies.measure import CHAINS, REFERENCE, Measurement, Outcome
from sumout_studies.models import STUDIES, Study
from sumout_studies.schemes import SCHEMES, STEP_SIZES, Scheme
from sumout_studies.two_normals import Crossings
from sumout_studies.workers import Workers, workers

SPACING = 1.5  # between the step sizes that are tried
TRIED = 3  # step sizes on either side of the stored one

Report = Callable[[str], None]


@dataclass(frozen=True)
class Budget:
    """How much to run: runs of each scheme, draws of each chain and of its warm-up, and steps for the two normals.

    Attributes:
        runs: of each scheme on each study.
        draws: of each chain.
        tune: draws of warm-up.
        gradients: of each scheme on the two normals.
        searches: whether to search for the step size of the paper's schemes, or take the one that is stored.
    """

    name: str
    runs: int
    draws: int
    tune: int
    gradients: int = 20_000
    searches: bool = False


QUICK = Budget("quick", runs=2, draws=250, tune=250, gradients=8000)
FULL = Budget("full", runs=10, draws=REFERENCE // CHAINS, tune=1000, searches=True)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All that was measured.

    Attributes:
        budget: how much was run.
        schemes: those that were run, in the order of the tables.
        programs: of each study the one with z left in.
        measurements: by study and scheme.
        step_sizes: of the paper's schemes, by study.
        searched: of each study the bulk ESS of HMC on the marginal by step size; empty if it was not looked for.
        crossings: the two normals, by scheme.
    """

    budget: Budget
    schemes: Sequence[Scheme]
    programs: dict[str, Program]
    measurements: dict[tuple[str, str], Measurement]
    step_sizes: dict[str, float]
    searched: dict[str, dict[float, float]] = field(default_factory=dict)
    crossings: dict[str, Crossings] = field(default_factory=dict)

    @property
    def studies(self) -> list[Study]:
        """Those that were run."""
        return [STUDIES[name] for name in self.programs]

    def of(self, study: Study) -> dict[str, Measurement]:
        """The measurements of one study, by scheme."""
        return {scheme.name: self.measurements[study.name, scheme.name] for scheme in self.schemes}


class Evaluator:
    """Runs the evaluation; knows beforehand how many pieces of work there are."""

    def __init__(self, studies: Sequence[str], schemes: Sequence[str], budget: Budget, seed: int = 0):
        self.studies = [STUDIES[name] for name in studies]
        self.schemes = [SCHEMES[name] for name in schemes]
        self.budget, self.seed = budget, seed
        self.cases = list(product(studies, schemes))
        # Schemes that treat z alike share what is compiled to start them: they go to the same process.
        alike = {case: (case[0], SCHEMES[case[1]].method, SCHEMES[case[1]].by_hand) for case in self.cases}
        order = list(dict.fromkeys(alike.values()))
        self.worker = {case: order.index(alike[case]) for case in self.cases}

    @property
    def num_pieces(self) -> int:
        """How often `report` will be called."""
        tried = (2 * TRIED + 1) * len(self.studies) if self.budget.searches else 0
        return tried + len(self.cases) * (1 + self.budget.runs) + 2 * len(two_normals.SCHEMES)

    def run(self, report: Report) -> Evaluation:
        """Do all of it; `report` is called after each piece of work, with what was done."""
        budget = self.budget
        with workers() as pool:
            searched = self._search(pool, report) if budget.searches else {}
            step_sizes = {
                study.name: _best(searched[study.name]) if searched else STEP_SIZES[study.name]
                for study in self.studies
            }
            self._compile(pool, step_sizes, report)
            outcomes: dict[tuple[str, str], list[Outcome]] = {case: [] for case in self.cases}
            for number in range(budget.runs):  # schemes alternate, so that a slow minute does not fall on one alone
                for study, scheme in self.cases:
                    args = (study, scheme, step_sizes[study], budget.draws, budget.tune, self.seed + number)
                    outcomes[study, scheme].append(pool.do(self.worker[study, scheme], "sample", *args))
                    report(f"{study}: {SCHEMES[scheme].title}, run {number + 1} of {budget.runs}")
            crossings = {}
            for i, name in enumerate(two_normals.SCHEMES):
                crossings[name] = pool.do(1 + i, "cross", name, budget.gradients, self.seed)
                report(f"two normals: {name}")
        measurements = {case: Measurement(STUDIES[case[0]], SCHEMES[case[1]], made) for case, made in outcomes.items()}
        programs = {study.name: study.program() for study in self.studies}
        return Evaluation(budget, self.schemes, programs, measurements, step_sizes, searched, crossings)

    def _compile(self, pool: Workers, step_sizes: dict[str, float], report: Report) -> None:
        """All of it side by side, so that nothing is compiled while runs are timed."""
        work: list[tuple[int, str, tuple]] = [
            (worker, "compile", (study, scheme, step_sizes[study], self.seed))
            for (study, scheme), worker in self.worker.items()
        ]
        work += [(1 + i, "cross", (name, 0, self.seed)) for i, name in enumerate(two_normals.SCHEMES)]
        for number in pool.do_all(work):
            _, what, args = work[number]
            report(f"compiled {args[0]}: {SCHEMES[args[1]].title}" if what == "compile" else f"compiled {args[0]}")

    def _search(self, pool: Workers, report: Report) -> dict[str, dict[float, float]]:
        """Of each study the bulk ESS of HMC on the marginal by step size."""
        found: dict[str, dict[float, float]] = {study.name: {} for study in self.studies}
        for study, power in product(found, range(-TRIED, TRIED + 1)):
            step_size = float(f"{STEP_SIZES[study] * SPACING**power:.3g}")
            args = (study, "hmc", step_size, self.budget.draws, self.budget.tune, self.seed)
            outcome = pool.do(power, "sample", *args)
            found[study][step_size] = float(outcome.each_ess[:, 0].min()) * REFERENCE / outcome.num_draws
            report(f"{study}: HMC on the marginal with a step size of {step_size:g}")
        return found


def _best(searched: dict[float, float]) -> float:
    return max(searched, key=searched.__getitem__)
