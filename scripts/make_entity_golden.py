"""Writes tests/golden/seqeval.json: random tag sequences and what seqeval says of them.

Made with Python 3.11.7, seqeval 1.2.2, numpy 2.4.6:

    python scripts/make_entity_golden.py

2,000 sentences in 200 cases of 1 to 19. Half of the predictions are the tags of the data with a few of them changed,
half are independent. Tags are drawn from IOB1, IOB2 and BIOES together, so that most sequences follow no scheme; a
letter stands for a tag (`tags[letter - "A"]`). `overall` and each of `by_type` are precision, recall, F1 and support.
"""

import json
import pathlib
import random
import warnings

from seqeval.metrics import accuracy_score, classification_report

TAGS = ["O"] + [f"{prefix}-{kind}" for kind in ("PER", "LOC", "creative-work") for prefix in "BIES"] + ["B", "I"]
CASES = [1 + number % 19 for number in range(200)]
CASES[-1] += 2000 - sum(CASES)


def case(draw, sentences):
    # Some cases draw from all tags, some from one scheme, which then has few malformed sequences.
    allowed = draw.choice([range(len(TAGS)), [0, 0, 0, 1, 2, 2], [0, 0, 2, 2, 6], [0, 1, 2, 3, 4, 5, 6, 7, 8], [0]])
    gold, predicted = [], []
    for _ in range(sentences):
        length = draw.randint(1, 14)
        tags = [draw.choice(allowed) for _ in range(length)]
        noise = draw.choice([0.1, 1.0])
        gold.append(tags)
        predicted.append([draw.choice(allowed) if draw.random() < noise else tag for tag in tags])
    names = [[[TAGS[tag] for tag in tags] for tags in side] for side in (gold, predicted)]
    report = classification_report(*names, output_dict=True, zero_division=0) if entities(names) else {}
    numbers = lambda row: [float(row[key]) for key in ("precision", "recall", "f1-score", "support")]
    letters = lambda side: ["".join(chr(ord("A") + tag) for tag in tags) for tags in side]
    return {
        "gold": letters(gold),
        "predicted": letters(predicted),
        "overall": numbers(report["micro avg"]) if report else [0.0] * 4,
        "by_type": {name: numbers(row) for name, row in sorted(report.items()) if not name.endswith(" avg")},
        "accuracy": float(accuracy_score(*names)),
    }


def entities(names):
    """Without any entity seqeval has no averages to report."""
    return any(tag != "O" for side in names for tags in side for tag in tags)


def main():
    warnings.simplefilter("ignore")
    draw = random.Random(20)
    cases = [case(draw, sentences) for sentences in CASES]
    path = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "seqeval.json"
    rows = ",\n".join(json.dumps(one, separators=(",", ":")) for one in cases)
    path.write_text(f'{{"tags":{json.dumps(TAGS)},"cases":[\n{rows}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
