"""The evaluation: every scheme on every study, compiled first and then run one by one with nothing beside it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sumout.program import Program
from sumout.studies import two_normals
from sumout.studies.measure import CHAINS, REFERENCE, Measurement, Outcome, run_once
from sumout.studies.models import STUDIES, Study
from sumout.studies.schemes import SCHEMES, STEP_SIZES, Scheme
from sumout.studies.two_normals import Crossings

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
        searches: whether to look for the step size of the paper's schemes, or take the one that is stored.
    """

    name: str
    runs: int
    draws: int
    tune: int
    gradients: int = 20_000
    searches: bool = False


QUICK = Budget("quick", runs=2, draws=500, tune=300, gradients=8000)
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


@dataclass(frozen=True, eq=False)
class _Case:
    """A scheme on a study."""

    study: Study
    scheme: Scheme
    program: Program
    step_size: float

    def run(self, draws: int, tune: int, seed: int) -> Outcome:
        return run_once(self.study, self.scheme, self.program, self.step_size, draws=draws, tune=tune, seed=seed)

    @property
    def title(self) -> str:
        return f"{self.study.name}: {self.scheme.title}"


class Evaluator:
    """Runs the evaluation; knows beforehand how many pieces of work there are."""

    def __init__(self, studies: Sequence[str], schemes: Sequence[str], budget: Budget, seed: int = 0):
        self.studies = [STUDIES[name] for name in studies]
        self.schemes = [SCHEMES[name] for name in schemes]
        self.budget, self.seed = budget, seed
        self.mixed = {study.name: study.program() for study in self.studies}
        self.by_hand = {study.name: study.marginal_density() for study in self.studies}
        self.two_normals = two_normals.make_program()

    @property
    def num_pieces(self) -> int:
        """How often `report` will be called."""
        cases = len(self.studies) * len(self.schemes)
        tried = (2 * TRIED + 1) * len(self.studies) if self.budget.searches else 0
        return tried + cases * (1 + self.budget.runs) + 2 * len(two_normals.SCHEMES)

    def run(self, report: Report) -> Evaluation:
        """Do all of it; `report` is called after each piece of work, with what was done."""
        searched = {}
        for study in self.studies if self.budget.searches else ():
            searched[study.name] = self._search(study, report)
        step_sizes = {
            study.name: _best(searched[study.name]) if searched else STEP_SIZES[study.name] for study in self.studies
        }
        cases = list(self._cases(step_sizes))
        self._compile(cases, report)
        outcomes: dict[tuple[str, str], list[Outcome]] = {}
        for number in range(self.budget.runs):  # in turns, so that a slow minute does not fall on one scheme alone
            for case in cases:
                made = case.run(self.budget.draws, self.budget.tune, self.seed + number)
                outcomes.setdefault((case.study.name, case.scheme.name), []).append(made)
                report(f"{case.title}, run {number + 1} of {self.budget.runs}")
        measurements = {key: Measurement(STUDIES[key[0]], SCHEMES[key[1]], made) for key, made in outcomes.items()}
        crossings = {}
        for name, kernel in two_normals.SCHEMES.items():
            crossings[name] = two_normals.run(self.two_normals, kernel, self.budget.gradients, self.seed)
            report(f"two normals: {name}")
        return Evaluation(self.budget, self.schemes, self.mixed, measurements, step_sizes, searched, crossings)

    def _cases(self, step_sizes: dict[str, float]) -> Iterator[_Case]:
        for study in self.studies:
            for scheme in self.schemes:
                program = (self.by_hand if scheme.by_hand else self.mixed)[study.name]
                yield _Case(study, scheme, program, step_sizes[study.name])

    def _compile(self, cases: Sequence[_Case], report: Report) -> None:
        """A draw of each, so that nothing is compiled while runs are timed."""
        for case in cases:
            case.run(CHAINS, 1, self.seed)
            report(f"compiled {case.title}")
        for name, kernel in two_normals.SCHEMES.items():
            two_normals.run(self.two_normals, kernel, CHAINS * kernel.gradients_per_step, self.seed)
            report(f"compiled two normals: {name}")

    def _search(self, study: Study, report: Report) -> dict[float, float]:
        """Bulk ESS of HMC on the marginal by step size."""
        found = {}
        for power in range(-TRIED, TRIED + 1):
            step_size = float(f"{STEP_SIZES[study.name] * SPACING**power:.3g}")
            scheme = SCHEMES["hmc"]
            case = _Case(study, scheme, self.by_hand[study.name], step_size)
            outcome = case.run(self.budget.draws, self.budget.tune, self.seed)
            found[step_size] = float(outcome.each_ess[:, 0].min()) * REFERENCE / outcome.num_draws
            report(f"{study.name}: HMC on the marginal with a step size of {step_size:g}")
        return found


def _best(searched: dict[float, float]) -> float:
    return max(searched, key=searched.__getitem__)
