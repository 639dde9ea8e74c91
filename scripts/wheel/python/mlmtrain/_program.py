"""The program as a process: finds it, starts it, hears what it tells, stops it."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from typing import IO, Any, Callable, NamedTuple, Sequence

OnMetrics = Callable[["dict[str, Any]"], object]
OnProgress = Callable[["Progress"], object]


class Error(Exception):
    """The program ended with an error; the text of this exception is what it says on a terminal.

    ``message`` is without ``hint``, what to do about it, which may be empty. ``exit_code`` is 2 for a wrong
    configuration or option, 74 for a disk that is full, 76 for training that diverged, ``128 + n`` where signal ``n``
    ended it, else 1.
    """

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        lines = text.splitlines()
        hints = [line.strip()[len("hint: ") :] for line in lines if line.startswith("  hint: ")]
        self.hint = "\n".join(hints)
        self.message = "\n".join(line for line in lines if not line.startswith("  hint: "))
        for beginning in ("error: ", "note: "):
            if self.message.startswith(beginning):
                self.message = self.message[len(beginning) :]


class Progress(NamedTuple):
    """How far something is, a few times a second."""

    what: str
    """``training``, or the name of a stage, such as ``reading corpus``."""
    done: int
    total: int | None
    """``None`` where it is not known."""
    unit: str
    """What is counted: ``steps``, ``bytes`` or ``items``."""
    seconds_to_go: float | None
    """Of training, from the second step on."""
    folder: pathlib.Path | None
    """Of the run that is trained."""


def program() -> str:
    """The program that came with this package, else the one on the PATH; ``MLMTRAIN_PROGRAM`` names another."""
    named = os.environ.get("MLMTRAIN_PROGRAM")
    if named:
        return named
    schemes = sysconfig.get_scheme_names()
    folders = [sysconfig.get_path("scripts")]
    folders += [sysconfig.get_path("scripts", scheme) for scheme in schemes if scheme == f"{os.name}_user"]
    # `pip install --target` has a folder of its own for programs.
    folders.append(str(pathlib.Path(__file__).parents[1] / "bin"))
    found = shutil.which("mlmtrain", path=os.pathsep.join(folders)) or shutil.which("mlmtrain")
    if found is None:
        raise FileNotFoundError("the program `mlmtrain` is neither beside this Python nor on the PATH")
    return found


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    """A record with the numbers that JSON has no name for: ``NaN`` and the infinite ones are texts there."""
    return {tag: float(value) if isinstance(value, str) else value for tag, value in record.items()}


class Listener:
    """Hears the events of the program: callbacks are called, the rest is printed to standard error."""

    def __init__(self, on_metrics: OnMetrics | None, on_progress: OnProgress | None, quiet: bool) -> None:
        self.on_metrics, self.on_progress, self.quiet = on_metrics, on_progress, quiet
        self.folder: pathlib.Path | None = None
        self.error = ""
        # What is no event: complaints about the command line, and of what the program itself starts.
        self.other: collections.deque[str] = collections.deque(maxlen=50)

    def hear(self, line: str) -> None:
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, TypeError, KeyError):
            self.other.append(line)
            return
        if kind == "run":
            self.folder = pathlib.Path(event["folder"])
        elif kind == "metrics" and self.on_metrics:
            self.on_metrics({**numbers(event["record"]), "folder": pathlib.Path(event["folder"])})
        elif kind in ("note", "metrics") and not self.quiet:
            print(event["text"], file=sys.stderr, flush=True)
        elif kind == "warning":
            print("warning: " + event["text"], file=sys.stderr, flush=True)
        elif kind == "error":
            self.error = event["text"].rstrip()
        elif kind == "step" and self.on_progress:
            steps = (event["step"], event["total_steps"], "steps", event["seconds_to_go"])
            self.on_progress(Progress("training", *steps, pathlib.Path(event["folder"])))
        elif kind == "stage" and self.on_progress:
            self.on_progress(Progress(event["stage"], event["done"], event["total"], event["unit"], None, None))


def call(arguments: Sequence[str], listener: Listener, stdin: IO[bytes] | None = None) -> str:
    """Runs the program to its end and gives its standard output.

    Whatever interrupts it, Ctrl-C or an error in a callback, stops the program, which saves what it has trained.
    """
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            [program(), "--events", *arguments],
            stdin=stdin or subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            # Ctrl-C reaches all processes of a terminal: the program would get it twice, and end unsaved.
            start_new_session=True,
        )
        assert child.stderr is not None
        with child.stderr:
            try:
                for line in child.stderr:
                    listener.hear(line)
                code = child.wait()
            except BaseException:
                _stop(child, child.stderr, listener)
                raise
        if code < 0:
            listener.other.append(f"error: the program was ended by signal {-code}\n")
            code = 128 - code
        if code != 0:
            raise Error(listener.error or "".join(listener.other).strip(), code)
        output.seek(0)
        return output.read().decode("utf-8", "replace")


def _stop(child: subprocess.Popen[str], events: IO[str], listener: Listener) -> None:
    """Asks the program to save and to end, and waits for it; a second Ctrl-C ends it at once."""
    listener.on_metrics = listener.on_progress = None
    listener.quiet = True
    try:
        child.send_signal(signal.SIGINT)
        for line in events:
            listener.hear(line)
        child.wait()
    except BaseException:
        child.kill()
        child.wait()
        raise
    if listener.error:
        print(listener.error, file=sys.stderr, flush=True)
