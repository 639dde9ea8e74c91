"""Writes tests/golden/bootstrap.json: intervals of differences between two models, by scipy.

    python3 scripts/make_bootstrap_golden.py      # scipy 1.17.1 and numpy 2.4.6 made the file

Two models' predictions of the same numbers; paired resampling of the examples, 100,000 times, percentile intervals of 95 %.
"""

import json
from pathlib import Path

import numpy
from scipy import stats

random = numpy.random.default_rng(7)
gold = random.normal(size=150).round(3)
left = (0.8 * gold + random.normal(scale=0.6, size=150)).round(3)
right = (0.7 * gold + random.normal(scale=0.7, size=150)).round(3)


def mse(gold, predicted, axis=-1):
    return numpy.mean((predicted - gold) ** 2, axis=axis)


def pearson(gold, predicted, axis=-1):
    gold = gold - gold.mean(axis=axis, keepdims=True)
    predicted = predicted - predicted.mean(axis=axis, keepdims=True)
    return (gold * predicted).sum(axis) / numpy.sqrt((gold**2).sum(axis) * (predicted**2).sum(axis))


cases = []
for metric, score in [("mse", mse), ("pearson", pearson)]:
    difference = lambda g, a, b, axis=-1: score(g, a, axis) - score(g, b, axis)
    found = stats.bootstrap(
        (gold, left, right), difference, paired=True, vectorized=True, n_resamples=100_000, batch=1000,
        confidence_level=0.95, method="percentile", rng=numpy.random.default_rng(1),
    )
    cases.append({
        "metric": metric,
        "gold": gold.tolist(),
        "left": left.tolist(),
        "right": right.tolist(),
        "difference": float(difference(gold, left, right)),
        "low": round(float(found.confidence_interval.low), 6),
        "high": round(float(found.confidence_interval.high), 6),
        "standard_error": round(float(found.standard_error), 6),
    })

path = Path(__file__).parent.parent / "tests/golden/bootstrap.json"
path.write_text(json.dumps({"cases": cases}) + "\n", encoding="utf-8")
