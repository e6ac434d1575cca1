"""JAGS on the BUGS program, z left in."""

from typing import Any

from benchmarks.jags import Jags, is_there
from benchmarks.model import Data, Model, bugs_program
from benchmarks.samplers.sampler import CannotTakeError, Run, Settings


def load(model: Model) -> Any:
    if model.bugs_data is None:
        raise CannotTakeError("there is no BUGS program")
    if not is_there():
        raise CannotTakeError("JAGS is not installed (apt-get install jags)")
    return bugs_program(model.name)


def run(model: Model, form: Any, data: Data, settings: Settings, variant: str) -> Run:
    del variant
    assert model.bugs_data
    jags = Jags(form, model.bugs_data(data), model.parameters, {}, settings.seed, settings.chains)
    whole = jags.run(settings.draws, settings.tune)

    def warm() -> float:
        return max(whole.seconds - jags.run(0, settings.tune).seconds, 1e-3)

    return Run(whole.draws, warm)
