#!/usr/bin/env python3
"""Scores minimal pairs with PyTorch transformers, one masked token at a time, and compares with what
`mlmtrain evaluate --task minimal-pairs --scores FILE` wrote.

    python3 scripts/check_minimal_pairs.py MODEL SCORES.jsonl [--pairs 50]

MODEL is a folder with a masked-LM head, or a discriminator. Prints the largest difference; the exit code is 1 where it
is over 1e-4 of a score. Needs torch and transformers."""

import argparse
import json
import sys

import torch
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer


def masked_score(model, tokenizer, text):
    ids = tokenizer(text, return_tensors="pt")["input_ids"][0]
    places = range(1, len(ids) - 1)
    rows = ids.repeat(len(places), 1)
    for row, place in enumerate(places):
        rows[row, place] = tokenizer.mask_token_id
    log_probabilities = model(rows).logits.log_softmax(-1)
    return sum(log_probabilities[row, place, ids[place]].item() for row, place in enumerate(places))


def told_score(model, tokenizer, text):
    logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
    return -torch.nn.functional.softplus(logits[1:-1]).sum().item()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("scores")
    arguments.add_argument("--pairs", type=int, default=50)
    options = arguments.parse_args()
    is_told = AutoConfig.from_pretrained(options.model).architectures[0] == "ElectraForPreTraining"
    kind, score = (AutoModelForPreTraining, told_score) if is_told else (AutoModelForMaskedLM, masked_score)
    model, tokenizer = kind.from_pretrained(options.model).eval(), AutoTokenizer.from_pretrained(options.model)
    worst, count = 0.0, 0
    with torch.no_grad(), open(options.scores) as lines:
        for line in list(lines)[: options.pairs]:
            pair = json.loads(line)
            for name in ["good", "bad"]:
                expected = score(model, tokenizer, pair.get(name) or pair[f"sentence_{name}"])
                worst = max(worst, abs(expected - pair[f"{name}_score"]) / max(1.0, abs(expected)))
                count += 1
    print(f"{count} sentences, largest relative difference {worst:.1e}")
    sys.exit(worst > 1e-4 or count == 0)


if __name__ == "__main__":
    main()
