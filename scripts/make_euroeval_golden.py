"""Writes tests/golden/euroeval.json: random IOB2 tags, and their scores by EuroEval's definition.

Made with Python 3.11.7, seqeval 1.2.2:

    python scripts/make_euroeval_golden.py

EuroEval (`task_group_utils/token_classification.py`) has its tags in lower case. It replaces tags that end in `misc` by
`o`, in the data and in the predictions, and takes the micro average of F1 that seqeval reports, once with and once
without this replacement; where neither side has an entity the score is 1. A letter stands for a tag
(`tags[letter - "A"]`).
"""

import json
import pathlib
import random
import warnings

from seqeval.metrics import classification_report

TAGS = ["O"] + [f"{prefix}-{kind}" for kind in ("PER", "LOC", "ORG", "MISC") for prefix in "BI"]
CASES = [1 + number % 12 for number in range(100)]


def score(gold, predicted):
    if all(tag == "o" for side in (gold, predicted) for tags in side for tag in tags):
        return 1.0
    return float(classification_report(gold, predicted, output_dict=True, zero_division=0)["micro avg"]["f1-score"])


def without_misc(side):
    return [["o" if tag.endswith("misc") else tag for tag in tags] for tags in side]


def case(draw, sentences):
    # Some cases have one type, some `MISC` alone, some no entity.
    kinds = draw.choice([[1, 3, 5, 7], [1, 3, 5, 7], [1], [7], []])
    gold, predicted = [], []
    for _ in range(sentences):
        tags = []
        while len(tags) < draw.randint(1, 16):
            if kinds and draw.random() < 0.3:
                begin = draw.choice(kinds)
                tags += [begin] + [begin + 1] * draw.randint(0, 2)
            else:
                tags.append(0)
        noise = draw.choice([0.02, 0.2])
        allowed = [0] + [tag + more for tag in kinds for more in (0, 1)]
        gold.append(tags)
        predicted.append([draw.choice(allowed) if draw.random() < noise else tag for tag in tags])
    lower = [[[TAGS[tag].lower() for tag in tags] for tags in side] for side in (gold, predicted)]
    letters = lambda side: ["".join(chr(ord("A") + tag) for tag in tags) for tags in side]
    return {
        "gold": letters(gold),
        "predicted": letters(predicted),
        "micro_f1": score(*lower),
        "micro_f1_no_misc": score(*map(without_misc, lower)),
    }


def main():
    warnings.simplefilter("ignore")
    draw = random.Random(20)
    cases = [case(draw, sentences) for sentences in CASES]
    path = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "euroeval.json"
    rows = ",\n".join(json.dumps(one, separators=(",", ":")) for one in cases)
    path.write_text(f'{{"tags":{json.dumps(TAGS)},"cases":[\n{rows}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
