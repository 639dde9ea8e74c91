"""Writes tests/golden/tf_idf.json: what scikit-learn says of the sample topics.

    python3 scripts/make_floor_golden.py      # scikit-learn 1.9.1 made the file

Words and pairs of words with sublinear TF-IDF, L2 logistic regression by LBFGS, run to its end; once with all three
topics, once with two of them.
"""

import csv
import json
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

ROOT = Path(__file__).parent.parent


def rows(name):
    with open(ROOT / "configs/samples" / name, newline="", encoding="utf-8") as file:
        return [(row["label"], row["text"]) for row in csv.DictReader(file)]


def case(labels):
    train = [row for row in rows("topics-train.csv") if row[0] in labels]
    dev = [row for row in rows("topics-dev.csv") if row[0] in labels]
    ids = [labels.index(label) for label, _ in train]
    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    model = LogisticRegression(tol=1e-9, max_iter=10_000)
    model.fit(features.fit_transform([text for _, text in train]), ids)
    probabilities = model.predict_proba(features.transform([text for _, text in dev]))
    return {
        "classes": len(labels),
        "train": [text for _, text in train],
        "ids": ids,
        "eval": [text for _, text in dev],
        "probabilities": [[round(float(p), 9) for p in row] for row in probabilities],
    }


golden = {"cases": [case(["crime", "garden", "sea"]), case(["garden", "sea"])]}
path = ROOT / "tests/golden/tf_idf.json"
path.write_text(json.dumps(golden, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
