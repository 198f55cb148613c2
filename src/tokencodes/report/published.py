"""The figures of the paper, as data: published.csv."""

import csv
import functools
from dataclasses import dataclass
from importlib import resources

REFERENCE = "src/tokencodes/report/published.csv"  # where a reader finds them, each with its source
PAPER_MODEL = "Learned"  # whose size stands for the paper's
APPROXIMATE = "≈"  # before a figure that the paper gives only roughly


@dataclass(frozen=True)
class Published:
    """One figure of the paper. `text` is how it was printed; `value` is in `unit` (percent, perplexity or count)."""

    value: float
    text: str
    stderr: float | None
    unit: str
    note: str
    source: str

    @property
    def approximate(self) -> bool:
        """Whether the paper gives it only roughly."""
        return self.text.startswith(APPROXIMATE)

    @property
    def shown(self) -> str:
        """As printed, with its standard error if there is one."""
        return self.text if self.stderr is None else f"{self.text} ± {self.stderr:.2f}"


@functools.cache
def published() -> dict[tuple[str, str, int | None, str], Published]:
    """The paper's figures by (task, metric, shots, model); what it does not give has no entry."""
    text = resources.files("tokencodes.report").joinpath("published.csv").read_text(encoding="utf-8")
    figures = {}
    for row in csv.DictReader(text.splitlines()):
        printed = row["value"]
        if row["note"].startswith("approximate: "):
            roughly = row["note"].removeprefix("approximate: ").split(";")[0].replace("-", "–")
            printed = f"{APPROXIMATE} {roughly}"
        shots = int(row["shots"]) if row["shots"] else None
        figures[row["task"], row["metric"], shots, row["model"]] = Published(
            value=float(row["value"]),
            text=printed,
            stderr=float(row["stderr"]) if row["stderr"] else None,
            unit=row["unit"],
            note=row["note"],
            source=row["source"],
        )
    return figures


def paper_count(model: str | None, metric: str, task: str = "parameters") -> int | None:
    """A count of the paper for one of its models; None if the paper does not give it."""
    figure = published().get((task, metric, None, model or ""))
    return int(figure.value) if figure and figure.unit == "count" else None
