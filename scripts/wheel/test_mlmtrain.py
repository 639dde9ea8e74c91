"""Tests of the package `mlmtrain`, with the program that it finds: a few small runs in a temporary folder.

    python scripts/wheel/test_mlmtrain.py      # `build-wheel.sh` does, in a fresh environment; so does `cargo test`
"""

import contextlib
import functools
import inspect
import io
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
import unittest.mock

import mlmtrain

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]

CONFIG = {
    "run": {"output_dir": "run", "seed": 7, "threads": 2},
    "data": {"sources": [{"files": [pathlib.Path("corpus.txt")], "document": "paragraph"}], "max_seq_length": 32},
    "tokenizer": {"vocab_size": 400},
    "model": {
        "roberta": {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 34,
        }
    },
    "training": {
        "per_device_train_batch_size": 8,
        "max_steps": 40,
        "learning_rate": 3e-3,
        "logging_steps": 1,
        "eval_steps": 20,
        "save_steps": 20,
    },
}

# Trains in a process of its own, and says when it is some steps ahead.
# A shell that starts these tests in the background has Ctrl-C ignored, and whoever is started by them, too.
SITTING = """
import json, mlmtrain, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
told = lambda record: record["step"] == 11 and print("ahead", flush=True)
mlmtrain.pretrain(json.load(open("long.json")), on_metrics=told)
"""


def write_files():
    draw = random.Random(7)
    words = [["cat", "dog", "fox", "wolf"], ["sees", "hears", "likes"], ["sleeps", "runs home", "sings all day"]]
    animals, verbs, ends = words
    sentence = lambda: f"the {draw.choice(animals)} {draw.choice(verbs)} the {draw.choice(animals)} and {draw.choice(ends)}."
    text = "\n\n".join(" ".join([f"story {number}."] + [sentence() for _ in range(8)]) for number in range(400))
    pathlib.Path("corpus.txt").write_text(text)
    rows = [f"the {animal} {verb} me,{animal}" for animal in ("cat", "wolf") for verb in verbs for _ in range(4)]
    pathlib.Path("labelled.csv").write_text("\n".join(["text,label", *rows]) + "\n")


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.before = os.getcwd()
        os.chdir(cls.place.name)
        write_files()
        cls.records, cls.progress = [], []
        callbacks = {"on_metrics": cls.records.append, "on_progress": cls.progress.append}
        cls.run_ = mlmtrain.pretrain(CONFIG, quiet=True, **callbacks)

    @classmethod
    def tearDownClass(cls):
        os.chdir(cls.before)
        cls.place.cleanup()

    def test_a_run_tells_what_it_does_and_what_it_left(self):
        run = self.run_
        self.assertEqual(run.folder, pathlib.Path("run"))
        self.assertIn("trained 40 steps", run.report)
        losses = [record["train/loss"] for record in self.records if "train/loss" in record]
        self.assertEqual(len(losses), 40)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual({record.pop("folder") for record in self.records}, {run.folder})
        self.assertEqual(self.records, run.metrics)
        self.assertEqual(run.results["eval_loss"], run.metrics[-1]["eval/loss"])
        self.assertTrue((run.model / "model.safetensors").exists())
        last = [told for told in self.progress if told.what == "training"][-1]
        self.assertEqual((last.done, last.total, last.unit, last.folder), (40, 40, "steps", run.folder))
        self.assertIn("bytes", {told.unit for told in self.progress})
        with contextlib.suppress(ModuleNotFoundError):
            table = run.frame()
            self.assertEqual(list(table["step"]), list(range(1, 41)))
            self.assertEqual(table["eval/loss"].iloc[-1], run.results["eval_loss"])
        self.assertIn("<svg", run.html())
        self.assertTrue(run._repr_html_().startswith("<iframe"))
        self.assertIn("nothing was done", mlmtrain.pretrain(CONFIG, quiet=True).report)

    def test_an_error_is_an_exception_with_its_hint(self):
        with self.assertRaises(mlmtrain.Error) as raised:
            mlmtrain.pretrain({**CONFIG, "trainign": {"max_steps": 3}})
        error = raised.exception
        self.assertEqual((error.exit_code, error.hint), (2, "did you mean `training`?"))
        self.assertTrue(error.message.startswith("config:"), error)
        self.assertEqual(str(error), f"error: {error.message}\n  hint: {error.hint}")
        with self.assertRaisesRegex(mlmtrain.Error, "unexpected argument '--resme'"):
            mlmtrain.pretrain(CONFIG, resme="never")
        with self.assertRaisesRegex(mlmtrain.Error, "gone.txt"):
            mlmtrain.pretrain(CONFIG, set={"run.output_dir": "other", "data.sources": [{"files": ["gone.txt"]}]})
        with self.assertRaises(ValueError):
            mlmtrain.pretrain(CONFIG, set={"training.learning_rate": math.nan})

    def test_whatever_interrupts_a_run_it_saves_and_goes_on(self):
        long = {**CONFIG, "run": {**CONFIG["run"], "output_dir": "straight"}}
        # No checkpoint is due on the way: what there is, the interruptions left.
        training = {**CONFIG["training"], "max_steps": 400, "save_steps": 1000}
        long = json.loads(json.dumps({**long, "training": training}, default=str))
        straight = mlmtrain.pretrain(long, quiet=True)
        long["run"]["output_dir"] = "broken"
        pathlib.Path("long.json").write_text(json.dumps(long))

        def steps():
            return [int(path.name.split("-")[1]) for path in pathlib.Path("broken").glob("checkpoint-*")]

        class Enough(Exception):
            pass

        def stop(record):
            if record["step"] == 5:
                raise Enough

        with self.assertRaises(Enough):
            mlmtrain.pretrain(long, on_metrics=stop)
        self.assertTrue(5 <= max(steps()) < 400, steps())
        self.assertEqual(mlmtrain.Run("broken").results, {})
        # Ctrl-C of a terminal goes to all processes of the group; a Python that is killed says nothing to anybody.
        for signal_, code in ((signal.SIGINT, -signal.SIGINT), (signal.SIGKILL, -signal.SIGKILL)):
            before = max(steps())
            script = SITTING.replace("11", str(before + 6))
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            child = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, **streams)
            self.assertEqual(child.stdout.readline(), "ahead\n")
            os.killpg(child.pid, signal_)
            said = child.communicate()[1]
            self.assertEqual(child.returncode, code, said)
            if signal_ == signal.SIGINT:
                self.assertRegex(said, "note: stopped by Ctrl-C; step [0-9]+ is saved")
                self.assertTrue(before < max(steps()) < 400, steps())
        # The program ends by itself, and lets go of the folder when it has saved.
        while True:
            try:
                resumed = mlmtrain.pretrain(long, quiet=True)
                break
            except mlmtrain.Error as error:
                self.assertIn("is in use by another run", str(error))
        self.assertEqual(resumed.metrics[-1]["eval/loss"], straight.metrics[-1]["eval/loss"])
        weights = [(run.model / "model.safetensors").read_bytes() for run in (straight, resumed)]
        self.assertEqual(*weights)

    def test_models_are_tuned_scored_and_used(self):
        options = {"task": "classify", "model": self.run_.model, "train": "labelled.csv", "eval": "labelled.csv"}
        settings = {"training.num_train_epochs": 2, "training.learning_rate": 1e-05, "data.max_seq_length": 32}
        folders = set()
        tuned = mlmtrain.finetune(
            seeds=[1, 2],
            output_dir="tuned",
            set=settings,
            on_metrics=lambda record: folders.add(record["folder"]),
            quiet=True,
            **options,
        )
        self.assertIn("eval_accuracy_mean", tuned.results)
        self.assertEqual([run.folder.name for run in tuned.runs], ["seed-1", "seed-2"])
        self.assertEqual(folders, {run.folder for run in tuned.runs})
        self.assertEqual(tuned.model, tuned.folder / "seed-1" / "final")
        scores = mlmtrain.evaluate(tuned.model, "labelled.csv", quiet=True)
        self.assertAlmostEqual(scores["eval_accuracy"], tuned.runs[0].results["eval_accuracy"])
        # All ends of lines are kept, and what else a row has comes back.
        texts = ["the cat\nsees me\u2028", {"text": "the wolf likes me", "id": 3}]
        found = mlmtrain.predict(texts, model=tuned.model, quiet=True)
        self.assertEqual([set(line) >= {"label", "score"} for line in found], [True] * 2)
        self.assertEqual((found[0]["text"], found[1]["id"]), (texts[0], 3))
        pair = mlmtrain.predict([("the wolf", "hears me")], model=tuned.model, quiet=True)
        self.assertEqual(pair[0]["text_pair"], "hears me")
        masked = mlmtrain.predict("the <mask> sees the cat.", model=self.run_.model, quiet=True)
        self.assertEqual(len(masked[0]["masks"][0]), 5)
        self.assertEqual(mlmtrain.predict([], model=tuned.model), [])
        rows = mlmtrain.predict(pathlib.Path("labelled.csv"), model=tuned.model, quiet=True)
        self.assertEqual(len(rows), 24)
        planned = mlmtrain.plan(CONFIG, device=["l4"], price={"l4": 0.5}, quiet=True)
        self.assertIn("0.5", json.dumps(planned))
        embed = functools.partial(mlmtrain.embed, model=tuned.model, normalize=True, quiet=True)
        vectors = embed(["the cat", "the wolf hears me"])
        self.assertEqual(len(vectors), 2)
        for vector in vectors:
            self.assertAlmostEqual(sum(float(value) ** 2 for value in vector), 1.0, 5)
        with unittest.mock.patch.dict(sys.modules, {"numpy": None}):
            self.assertEqual(embed(["the cat", "the wolf hears me"]), [list(vector) for vector in vectors])
        task = {"name": "animals", "data": {"train_file": "labelled.csv", "eval_file": "labelled.csv"}}
        tasks = {"seeds": [1], "tasks": [task], "training": {"max_steps": 2}}
        compared = mlmtrain.compare([self.run_.model], tasks, output_dir="compared", quiet=True)
        self.assertIn("animals", json.dumps(compared))
        prepared = mlmtrain.prepare(CONFIG, quiet=True, set={"data.prepared_dir": "prepared"})
        self.assertEqual(prepared["sources"][0]["read"]["documents"], 400)
        config = mlmtrain.init("corpus.txt", "1m", device="H100", output="budget.yaml", quiet=True)
        self.assertIn("max_steps:", config.read_text("utf-8"))
        self.assertIn("<svg", mlmtrain.report(tuned, output="tuned.html").read_text("utf-8"))
        with self.assertRaisesRegex(ValueError, "nothing is trained"):
            mlmtrain.finetune(dry_run=True, set=settings, sweep=["learning_rate=1e-3,1e-4"], **options)

    def test_the_written_examples_run(self):
        # The notebook trains others there.
        shutil.rmtree("runs/topics", ignore_errors=True)
        tuned = {"model": self.run_.model, "train": "labelled.csv", "eval": "labelled.csv", "max_steps": 2}
        topics = mlmtrain.finetune(task="classify", output_dir="runs/topics", quiet=True, **tuned)
        self.assertEqual(topics.model, pathlib.Path("runs/topics/final"))
        for name in ("train.csv", "dev.csv", "test.csv"):
            shutil.copy("labelled.csv", name)
        pathlib.Path("texts.txt").write_text("the cat sees me\n")
        pathlib.Path("my.yaml").write_text(json.dumps(CONFIG, default=str))

        def small(config, set=None, **options):
            # The sizes of what is written there take hours.
            if isinstance(config, str):
                return pretrain(config, set=set, **options)
            run = {**CONFIG["run"], "output_dir": config["run"]["output_dir"]}
            return pretrain({**CONFIG, "run": run}, set={"training.max_steps": 4}, **options)

        pretrain = mlmtrain.pretrain
        # The others use what `pretrain` leaves; `init` measures for a while.
        functions = set(mlmtrain.__all__) - {"Error", "Progress", "Run", "init", "pretrain"}
        functions = ["pretrain", *sorted(functions)]
        documented = [mlmtrain, *(getattr(mlmtrain, name) for name in functions)]
        with unittest.mock.patch.object(mlmtrain, "pretrain", small), contextlib.redirect_stderr(io.StringIO()):
            for of in documented:
                blocks = re.findall(r"::\n\n((?:(?:    .*)?\n)+)", inspect.cleandoc(of.__doc__) + "\n")
                self.assertTrue(blocks, of)
                for block in blocks:
                    exec(compile(textwrap.dedent(block), str(of), "exec"), {"mlmtrain": mlmtrain})
        self.assertTrue(pathlib.Path("mine.html").exists() and pathlib.Path("vectors.npy").exists())

    def test_the_notebook_runs(self):
        notebook = json.loads((SCRIPTS / "notebook" / "quickstart.ipynb").read_text("utf-8"))
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        self.assertEqual([cell["outputs"] for cell in cells], [[]] * len(cells), "what it shows is not kept")
        code = "\n".join("".join(cell["source"]) for cell in cells)
        os.environ.setdefault("MPLBACKEND", "Agg")
        # Three classifiers take minutes in a build for tests.
        short = functools.partial(mlmtrain.finetune, set={"training.max_steps": 10})
        fewer_steps = unittest.mock.patch.object(mlmtrain, "finetune", short)
        with fewer_steps, contextlib.redirect_stdout(io.StringIO()) as told:
            exec(compile(code, "quickstart.ipynb", "exec"), {})
        self.assertIn("trained 60 steps", told.getvalue())
        self.assertTrue(told.getvalue().endswith(" | did you mean `max_steps`? | 2\n"), told.getvalue())


if __name__ == "__main__":
    unittest.main()
