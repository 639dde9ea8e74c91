"""What a run left in its folder."""

from __future__ import annotations

import dataclasses
import html
import json
import pathlib
from typing import Any

from ._program import Error, Listener, call, numbers


@dataclasses.dataclass(frozen=True)
class Run:
    """A run by its folder, also one of an earlier day: ``mlmtrain.Run("runs/quickstart").metrics``."""

    folder: pathlib.Path
    report: str = dataclasses.field(default="", repr=False)
    """What the command printed at its end."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", pathlib.Path(self.folder))

    @property
    def model(self) -> pathlib.Path:
        """The final model's folder; of a sweep that of the best run, of several seeds that of the first."""
        of_runs = [self.folder, self.folder / "best", *(run.folder for run in self.runs)]
        return next((path / "final" for path in of_runs if (path / "final").exists()), self.folder / "final")

    @property
    def results(self) -> dict[str, Any]:
        """The scores at the end, by the names of Hugging Face's Trainer: ``eval_loss``, ``train_runtime``; of several
        seeds ``eval_accuracy_mean`` and ``eval_accuracy_std``. Empty where the run has not come to its end."""
        path = self.folder / "all_results.json"
        return numbers(json.loads(path.read_text("utf-8"))) if path.exists() else {}

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """All records of the run, a table of them is :meth:`frame`: ``step``, ``epoch``, ``train/loss``,
        ``eval/loss`` and others. Several seeds have theirs in :attr:`runs`."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        with path.open(encoding="utf-8") as lines:
            return [numbers(json.loads(line)) for line in lines]

    def frame(self) -> Any:
        """:attr:`metrics` as a ``pandas.DataFrame``, a row a step; pandas must be installed."""
        import pandas

        table = pandas.DataFrame(self.metrics)
        return table if table.empty else table.groupby("step", as_index=False).last()

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of several seeds or of a sweep; of a single one itself."""
        records = sorted(self.folder.glob("**/metrics.jsonl"))
        return tuple(self if path.parent == self.folder else Run(path.parent) for path in records)

    def html(self) -> str:
        """The page of ``mlmtrain report``: curves, scores, time, memory. It needs neither network nor scripts."""
        return call(["report", "--output=-", "--", str(self.folder)], Listener(None, None, True))

    def _repr_html_(self) -> str | None:
        try:
            page = html.escape(self.html())
        except (Error, OSError):
            return None
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'
