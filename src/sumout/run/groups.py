"""Chains in groups: side by side in one compiled call, the groups in threads.

How chains are grouped depends on their number and on the program only, so that draws do not depend on the number of
cores. A step that runs straight through, without a loop of its own, is compiled for one chain: there is less to trace
and to compile, and its arrays are as long as the data in any case. So is any step of a small program, where compiling
takes longer than running. Where a step of a large one loops over what is short, as over the levels of a sum or the
sites of a sweep, a second chain beside the first costs little.
"""

from sumout.compiling.ahead import MEDIUM, has_few_sites
from sumout.gradient import Target
from sumout.program import Program

ALONE, SIDE_BY_SIDE = 1, 2  # chains of one group at least


def is_small(program: Program, target: Target) -> bool:
    """Whether a step takes so little that it is compiled for longer than it runs, and Python around it longer still."""
    return has_few_sites(program) and target.largest(*program.abstract_arguments()) <= MEDIUM
