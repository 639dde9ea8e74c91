"""Pretrains, fine-tunes, scores and uses masked language models: the commands of the program ``mlmtrain`` as functions.

The program runs as a process of its own and is told everything on its command line; nothing is computed here::

    import mlmtrain

    mlmtrain.command("example", "quickstart")
    run = mlmtrain.pretrain("quickstart.yaml", set={"training.max_steps": 60})
    run.results["eval_loss"]
    mlmtrain.predict(["She opened the <mask> and went in."], model=run.model)

All options of a command are keyword arguments: ``--eval-fraction 0.1`` is ``eval_fraction=0.1``, a flag is ``True``, and
what may be repeated is a list. ``mlmtrain COMMAND --help`` tells them, ``mlmtrain config schema`` the keys of a
configuration.
"""

from ._commands import (
    command,
    compare,
    embed,
    evaluate,
    finetune,
    init,
    plan,
    predict,
    prepare,
    pretrain,
    report,
)
from ._program import Error, Progress
from ._run import Run

__all__ = [
    "Error",
    "Progress",
    "Run",
    "command",
    "compare",
    "embed",
    "evaluate",
    "finetune",
    "init",
    "plan",
    "predict",
    "prepare",
    "pretrain",
    "report",
]
