"""Two modes, four schemes: the paper's Figure 2, measured and drawn.

Writes out/two_normals.png and prints how often each scheme changes sides.
"""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from sumout.studies.two_normals import SCHEMES, draw_picture, run

PICTURE = Path("out") / "two_normals.png"


def main():
    runs = {name: run(kernel) for name, kernel in SCHEMES.items()}
    in_turns = runs["HMC in turns with z"].per_gradient
    table = Table("scheme", "changes of side in 1,000 gradients", "ratio to HMC in turns", title="Two normals")
    for name, made in runs.items():
        table.add_row(name, f"{1000 * made.per_gradient:.1f}", f"{made.per_gradient / in_turns:.1f}")
    console = Console()
    console.print(table)
    draw_picture(runs, PICTURE)
    console.print(f"Picture: {PICTURE}")


if __name__ == "__main__":
    main()
