"""The commands as functions."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import tempfile
from typing import Any, Iterable, Iterator, Mapping, Union

from ._program import Error, Listener, OnMetrics, OnProgress, call
from ._run import Run
from ._vectors import read_vectors

Path = Union[str, "os.PathLike[str]"]
Config = Union[Path, Mapping[str, Any]]


def pretrain(
    config: Config,
    *,
    set: Mapping[str, Any] | None = None,
    on_metrics: OnMetrics | None = None,
    on_progress: OnProgress | None = None,
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Trains a masked language model on raw text, after tokenizer and shards where those are missing.

    ``config`` is a file or a dictionary of the same keys, ``set`` changes some of them. A run that was interrupted goes
    on where it was; one that is complete is left as it is. ``on_metrics`` is called with each record, a dictionary with
    ``step``, ``train/loss`` or ``eval/loss`` and others, and the ``folder`` of its run; without it records are printed
    to standard error, with notes and warnings; with ``quiet`` only warnings are. ``on_progress`` is called with a
    :class:`Progress`. Ctrl-C, or an error in a callback, saves the last step before it is raised::

        losses = []
        run = mlmtrain.pretrain(
            {
                "run": {"output_dir": "runs/mine"},
                "data": {"sources": [{"files": ["corpus/*.txt"]}]},
                "model": {"roberta": {"num_hidden_layers": 6}},
            },
            set={"training.max_steps": 1000},
            on_metrics=lambda record: losses.append(record.get("train/loss")),
        )

    Raises :class:`Error` where the program ends with one.
    """
    listener = Listener(on_metrics, on_progress, quiet)
    return _trained("pretrain", config, listener, {"set": set, **options})


def finetune(
    config: Config | None = None,
    *,
    set: Mapping[str, Any] | None = None,
    on_metrics: OnMetrics | None = None,
    on_progress: OnProgress | None = None,
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Trains a model for labels, numbers or entities, of a configuration, of options, or of both; as :func:`pretrain`.

    ::

        run = mlmtrain.finetune(
            task="classify", model="runs/mine/final", train="train.csv", eval="dev.csv", seeds=[1, 2, 3]
        )
        run.results["eval_accuracy_mean"]

    The hyper-parameters that are changed most are options as well: ``learning_rate``, ``epochs``, ``max_steps``,
    ``batch_size``, ``max_seq_length`` (128 unless given, or what the model takes if that is less), ``warmup``,
    ``dropout`` and ``precision``.
    """
    listener = Listener(on_metrics, on_progress, quiet)
    return _trained("finetune", config, listener, {"set": set, **options})


def evaluate(model: Path, data: Path, *, quiet: bool = False, **options: Any) -> dict[str, Any]:
    """Scores a model on a file: labelled examples, tagged words, or text for a language model.

    ::

        mlmtrain.evaluate("runs/topics/final", "test.csv")["eval_accuracy"]
    """
    scores = json.loads(command("evaluate", quiet=quiet, model=model, data=data, json=True, **options))
    assert isinstance(scores, dict)
    return scores


def predict(texts: Any, *, model: Path, quiet: bool = False, **options: Any) -> list[dict[str, Any]]:
    """Labels texts, or fills in their masks: a dictionary for each.

    ``texts`` is a text, or several: each a string, a pair of strings, or a dictionary whose other fields come back; or
    a :class:`pathlib.Path` of a file in any format that the command reads::

        mlmtrain.predict("The capital of France is <mask>.", model="runs/mine/final")[0]["masks"]
        mlmtrain.predict(["a calm sea", "a body in the library"], model="runs/topics/final")[1]["label"]
    """
    return _objects(_answered("predict", texts, Listener(None, None, quiet), {"model": model, **options}))


def embed(texts: Any, *, model: Path, quiet: bool = False, **options: Any) -> Any:
    """A vector of each text: as sentence-transformers' files in the folder say, else the mean of its tokens.

    ``texts`` as for :func:`predict`. Gives an array of numpy, or a list of lists where numpy is not installed::

        vectors = mlmtrain.embed(["a calm sea", "a body in the library"], model="runs/mine/final", normalize=True)
        len(vectors[0])
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "vectors.npy"
        _answered("embed", texts, Listener(None, None, quiet), {"model": model, "output": path, **options})
        return read_vectors(path)


def compare(
    models: Iterable[Path],
    tasks: Config,
    *,
    output_dir: Path = "runs/compare",
    set: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    quiet: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Fine-tunes models on a list of tasks over seeds, beside untrained twins and counted words.

    ``tasks`` is a file or a dictionary of the same keys. Returns the content of ``compare.json``;
    ``compare.html`` is in the same folder. A comparison that was interrupted goes on where it was::

        task = {"name": "topics", "data": {"train_file": "train.csv", "eval_file": "dev.csv"}}
        mlmtrain.compare(["runs/mine/final"], {"seeds": [1, 2], "tasks": [task]})["tasks"]
    """
    with _config_file(tasks) as path:
        options = {"models": list(models), "tasks": path, "output_dir": output_dir, "set": set, **options}
        command("compare", on_progress=on_progress, quiet=quiet, **options)
    found = json.loads((pathlib.Path(output_dir) / "compare.json").read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def prepare(
    config: Config,
    *,
    set: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    quiet: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Makes the tokenizer and the shards of a configuration, and gives the report of what was left out of the text.

    ::

        mlmtrain.prepare("my.yaml")["sources"]
    """
    options = {"set": set, **options}
    with _config_file(config) as path:
        command("prepare", config=path, on_progress=on_progress, quiet=quiet, **options)
        shown = {name: value for name, value in options.items() if name in ("set", "profile")}
        resolved = json.loads(command("config", "show", os.fspath(path), json=True, quiet=True, **shown))
    folder = resolved["data"]["prepared_dir"] or pathlib.Path(resolved["run"]["output_dir"]) / "data"
    report = json.loads((pathlib.Path(folder) / "report.json").read_text("utf-8"))
    assert isinstance(report, dict)
    return report


def init(
    text: Path | Iterable[Path],
    budget: str,
    *,
    output: Path = "pretrain.yaml",
    on_progress: OnProgress | None = None,
    quiet: bool = False,
    **options: Any,
) -> pathlib.Path:
    """Writes a configuration of the largest model that the budget trains well, with the reason of each choice.

    ``text`` is a file, a folder or a pattern, or several of them. Gives the path of the configuration::

        config = mlmtrain.init("corpus/*.txt", "2h", output="mine.yaml")
        print(config.read_text())
    """
    texts = [text] if isinstance(text, (str, os.PathLike)) else list(text)
    command("init", text=texts, budget=budget, output=output, on_progress=on_progress, quiet=quiet, **options)
    return pathlib.Path(output)


def report(*runs: Path | Run, output: Path = "report.html", quiet: bool = True, **options: Any) -> pathlib.Path:
    """Writes one HTML page to look back at runs: curves, scores, mistakes, time, machine and what differs.

    A page that was written before is replaced. Gives its path::

        mlmtrain.report("runs/mine", output="mine.html")
    """
    folders = [os.fspath(run.folder if isinstance(run, Run) else run) for run in runs]
    options = {"output": output, "overwrite": True, **options}
    call(["report", *_flags(options), "--", *folders], Listener(None, None, quiet))
    return pathlib.Path(output)


def plan(
    config: Config,
    *,
    price: Mapping[str, float] | None = None,
    on_progress: OnProgress | None = None,
    quiet: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """What a pretraining run takes on this machine (measured) and on rented GPUs (predicted).

    ::

        mlmtrain.plan("my.yaml", device=["here", "h100"], price={"h100": 1.99})["devices"]
    """
    prices = [f"{device}={usd}" for device, usd in (price or {}).items()]
    options = {"config": config, "price": prices, "json": True, **options}
    planned = json.loads(command("plan", on_progress=on_progress, quiet=quiet, **options))
    assert isinstance(planned, dict)
    return planned


def command(
    *arguments: Any,
    on_metrics: OnMetrics | None = None,
    on_progress: OnProgress | None = None,
    quiet: bool = False,
    **options: Any,
) -> str:
    """Runs any command, and gives what it writes to standard output.

    ::

        mlmtrain.command("example", "quickstart")
        mlmtrain.command("embed", model="runs/mine/final", input="texts.txt", output="vectors.npy")
    """
    return _call(arguments, Listener(on_metrics, on_progress, quiet), options)


def _trained(name: str, config: Config | None, listener: Listener, options: dict[str, Any]) -> Run:
    report = _call([name], listener, {"config": config, **options})
    if listener.folder is None:
        raise ValueError(f"nothing is trained with these options; `mlmtrain.command({name!r}, ...)` gives the output")
    return Run(listener.folder, report)


def _call(arguments: Iterable[Any], listener: Listener, options: dict[str, Any]) -> str:
    with _config_file(options.get("config")) as path:
        flags = _flags({**options, "config": path})
        try:
            return call([*map(str, arguments), *flags], listener)
        except Error as error:
            if path is options.get("config"):
                raise
            # The file of a dictionary is gone.
            raise Error(str(error).replace(str(path), "config"), error.exit_code) from None


@contextlib.contextmanager
def _config_file(config: Config | None) -> Iterator[Path | None]:
    """A configuration as a file, where it is none."""
    if not isinstance(config, Mapping):
        yield config
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_text(_json(config, indent=2), "utf-8")
        yield path


def _flags(options: Mapping[str, Any]) -> list[str]:
    """``--eval-fraction=0.1`` of ``eval_fraction=0.1``."""
    flags = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if name == "set":
            value = [f"{key}={_json(item)}" for key, item in (value or {}).items()]
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            values = value if isinstance(value, (list, tuple)) else [value]
            flags += [f"{flag}={item}" for item in values]
    return flags


def _json(value: Any, indent: int | None = None) -> str:
    # Keys of a configuration may be paths.
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, default=os.fspath)


def _answered(name: str, texts: Any, listener: Listener, options: dict[str, Any]) -> str:
    """What a command that is given texts writes to standard output."""
    if isinstance(texts, os.PathLike):
        return call([name, *_flags({"input": texts, **options})], listener)
    rows = [_row(text) for text in ([texts] if isinstance(texts, (str, dict)) else texts)]
    if not rows and name == "predict":
        return ""
    if any("text_pair" in row for row in rows):
        options.setdefault("text_pair_column", "text_pair")
    with tempfile.TemporaryFile() as file:
        file.writelines(json.dumps(row).encode() + b"\n" for row in rows)
        file.seek(0)
        return call([name, *_flags({"input": "-", "format": "jsonl", **options})], listener, file)


def _row(text: Any) -> Mapping[str, Any]:
    if isinstance(text, str):
        return {"text": text}
    return text if isinstance(text, Mapping) else dict(zip(("text", "text_pair"), text))


def _objects(lines: str) -> list[dict[str, Any]]:
    # Texts may have other ends of lines in them.
    return [json.loads(line) for line in lines.split("\n") if line]
