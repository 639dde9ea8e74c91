"""Writes tests/golden/multi_label.json: what scikit-learn says of random sets of labels.

    python3 scripts/make_multi_label_golden.py      # scikit-learn 1.9.1 made the file

Among them labels that no example has or is said to have, and examples without labels on either side.
"""

import json
import random
from pathlib import Path

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

ROOT = Path(__file__).parent.parent


def case(draw, labels, examples, share):
    def rows():
        return [[label for label in range(labels) if draw.random() < share] for _ in range(examples)]

    gold, predicted = rows(), rows()
    # Half of the examples are told right, but for a label here and there.
    for row in range(0, examples, 2):
        predicted[row] = [label for label in gold[row] if draw.random() < 0.9]
    hot = [np.array([[label in row for label in range(labels)] for row in rows], dtype=int)
           for rows in (gold, predicted)]
    of = precision_recall_fscore_support(*hot, average=None, zero_division=0)
    score = {average: float(f1_score(*hot, average=average, zero_division=0))
             for average in ("micro", "macro", "samples")}
    return {
        "labels": labels,
        "gold": gold,
        "predicted": predicted,
        "f1_micro": score["micro"],
        "f1_macro": score["macro"],
        "f1_samples": score["samples"],
        "exact_match": float(accuracy_score(*hot)),
        "per_label": [[float(value) for value in row] for row in zip(*of)],
    }


draw = random.Random(1)
shapes = [(labels, examples) for labels in (2, 3, 8, 30) for examples in (1, 2, 40)]
cases = [case(draw, labels, examples, share) for labels, examples in shapes for share in (0.05, 0.4)]
path = ROOT / "tests/golden/multi_label.json"
path.write_text(json.dumps({"cases": cases}) + "\n", encoding="utf-8")
