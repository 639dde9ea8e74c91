"""Holds predictions of a folder of runs against those of transformers: every probability within 1e-4.

Called by round_trip.rs with its workplace: NAME/TASK/final is a model, NAME/TASK.said what `predict` said of
TASK.jsonl. Prints each difference; the exit code tells whether there is any.
"""

import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts"))

import neobert_reference  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

TOLERANCE = 1e-4


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def probabilities(model, encoded):
    with torch.no_grad():
        return model(**encoded).logits[0].softmax(-1)


def of_text(model, tokenizer, row, said):
    """Difference of a text's or a pair's probabilities. A special token that is spelled out in it is text."""
    texts = [row[key] for key in ("text", "a", "b") if key in row]
    found = probabilities(model, tokenizer(*texts, return_tensors="pt", split_special_tokens=True))
    names = model.config.id2label
    return max(abs(float(p) - said["probabilities"][names[i]]) for i, p in enumerate(found))


def of_words(model, tokenizer, row, said):
    """Difference of the best tag's probability, by the first token of each word; words of none are `O`."""
    encoded = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
    found, worst, seen = probabilities(model, encoded), 0.0, set()
    for token, word in zip(found, encoded.word_ids()):
        if word is None or word in seen:
            continue
        seen.add(word)
        worst = max(worst, abs(float(token.max()) - (said["scores"][word] or 0.0)))
        if model.config.id2label[int(token.argmax())] != said["tags"][word]:
            worst = max(worst, 1.0)
    unseen = set(range(len(row["tokens"]))) - seen
    return max([worst] + [1.0 for w in unseen if said["tags"][w] != "O" or said["scores"][w] is not None])


def main():
    place = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    neobert_reference.register()
    cells = wrong = 0
    for told in sorted(place.glob("*/*.said")):
        name, task = told.parent.name, told.stem
        folder = told.parent / task / "final"
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        words = task == "words"
        kind = transformers.AutoModelForTokenClassification if words else transformers.AutoModelForSequenceClassification
        model = kind.from_pretrained(folder).eval()
        compare = of_words if words else of_text
        both = zip(rows(place / f"{task}.jsonl"), rows(told))
        worst = max(compare(model, tokenizer, row, said) for row, said in both)
        cells += 1
        if worst > TOLERANCE:
            wrong += 1
            print(f"{name} {task} ({model.config.model_type}, {type(tokenizer).__name__}): {worst:.5f}")
    print(f"transformers {transformers.__version__}: {cells} folders, {wrong} differ")
    return 1 if wrong or not cells else 0


sys.exit(main())
