"""Writes tests/golden/tf_idf.json and ridge.json: what scikit-learn says of the sample topics.

    python3 scripts/make_floor_golden.py      # scikit-learn 1.9.1 made the file

Words and pairs of words with sublinear TF-IDF, L2 logistic regression by LBFGS, run to its end; once with all three
topics, once with two of them. Then ridge regression of two numbers of each text: its length in words, and the
share of its letters that are vowels.
"""

import csv
import json
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

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


def numbers(text):
    letters = [letter for letter in text.lower() if letter.isalpha()]
    return [len(text.split()), round(sum(letter in "aeiou" for letter in letters) / len(letters), 6)]


def ridge():
    train, dev = ([text for _, text in rows(name)] for name in ("topics-train.csv", "topics-dev.csv"))
    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    model = Ridge(solver="sparse_cg", tol=1e-12)
    model.fit(features.fit_transform(train), [numbers(text) for text in train])
    said = model.predict(features.transform(dev))
    return {"train": train, "numbers": [numbers(text) for text in train], "eval": dev,
            "said": [[round(float(value), 9) for value in row] for row in said]}


path = ROOT / "tests/golden/ridge.json"
path.write_text(json.dumps(ridge(), ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
