#!/usr/bin/env python3
"""What TensorBoard and MLflow make of a run: reads its events, starts `mlflow ui` on its store and asks it for the run.

    python scripts/check_trackers.py runs/quickstart mlruns

Ends with an error where a scalar, the configuration, the hyper-parameters or the histograms are not there. Needs
`tensorboard` (2.21 was tried) and `mlflow` (3.17).
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data


def events(run):
    """Scalars, texts, hyper-parameters and histograms of a run, as TensorBoard's own reader finds them."""
    folder = next(path for path in sorted((run / "runs").iterdir()) if path.is_dir())
    board = EventAccumulator(str(folder), size_guidance={"histograms": 0, "scalars": 0})
    board.Reload()
    tags = board.Tags()
    losses = [(event.step, event.value) for event in board.Scalars("train/loss")]
    assert len(losses) > 1, losses
    config = board.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert json.loads(config.removeprefix("```json\n").removesuffix("\n```"))["training"], config
    assert "config/text_summary" in board.PluginTagToContent("text")
    content = board.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    hparams = parse_session_start_info_plugin_data(content).hparams
    assert hparams["learning_rate"].number_value > 0 and "seed" in hparams, hparams
    weights = [tag for tag in tags["histograms"] if tag.startswith("weights/")]
    assert {"weights/embeddings", "weights/layer.0", "weights/head"} <= set(weights), weights
    spread = board.Histograms("weights/layer.0")[-1].histogram_value
    assert abs(sum(spread.bucket) - spread.num) < 0.5 and spread.min < 0 < spread.max, spread
    return losses


def ask(port, method, **body):
    url = f"http://127.0.0.1:{port}/api/2.0/mlflow/{method}"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def mlflow(store, run, losses):
    """The run as `mlflow ui` tells it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", str(store), "--port", str(port), "--workers", "1"]
    server = subprocess.Popen(command, env=os.environ | {"MLFLOW_ALLOW_FILE_STORE": "true"}, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(240):
            try:
                experiments = ask(port, "experiments/search", max_results=10)["experiments"]
                break
            except (urllib.error.URLError, ConnectionError):
                assert server.poll() is None, "mlflow ui ended"
                time.sleep(0.5)
        experiment = next(one for one in experiments if one["name"] == "mlmtrain")
        found = ask(port, "runs/search", experiment_ids=[experiment["experiment_id"]])["runs"]
        told = next(one for one in found if one["info"]["run_name"] == str(run))
        assert told["info"]["status"] == "FINISHED", told["info"]
        assert any(param["key"] == "training.learning_rate" for param in told["data"]["params"])
        last = {metric["key"]: metric["value"] for metric in told["data"]["metrics"]}["train/loss"]
        assert abs(last - losses[-1][1]) < 1e-5, (last, losses[-1])
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def main():
    run, store = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    losses = events(run)
    mlflow(store, run, losses)
    print(f"TensorBoard and MLflow read {len(losses)} losses, the last {losses[-1][1]:.4f}")


if __name__ == "__main__":
    main()
