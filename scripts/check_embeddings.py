#!/usr/bin/env python3
"""Makes vectors of texts with PyTorch transformers, one text at a time, and compares with what `mlmtrain embed` wrote.

    mlmtrain embed --model MODEL --file texts.txt --output vectors.npy --device cpu
    python3 scripts/check_embeddings.py MODEL texts.txt vectors.npy [--pooling mean|cls] [--normalize]

texts.txt holds a text a line. Prints the largest difference; the exit code is 1 where it is over 1e-4. Needs torch,
transformers and numpy."""

import argparse
import sys

import numpy
import torch
from transformers import AutoModel, AutoTokenizer


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("texts")
    arguments.add_argument("vectors")
    arguments.add_argument("--pooling", choices=["mean", "cls"], default="mean")
    arguments.add_argument("--normalize", action="store_true")
    options = arguments.parse_args()
    model, tokenizer = AutoModel.from_pretrained(options.model).eval(), AutoTokenizer.from_pretrained(options.model)
    with open(options.texts, encoding="utf-8") as lines:
        texts = [line for line in lines.read().split("\n") if line]
    vectors = numpy.load(options.vectors)
    if len(vectors) != len(texts):
        sys.exit(f"{len(vectors)} vectors of {len(texts)} texts")
    worst = 0.0
    longest = min(tokenizer.model_max_length, model.config.max_position_embeddings)
    with torch.no_grad():
        for text, vector in zip(texts, vectors):
            hidden = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=longest)).last_hidden_state[0]
            pooled = hidden.mean(0) if options.pooling == "mean" else hidden[0]
            pooled = torch.nn.functional.normalize(pooled, dim=0) if options.normalize else pooled
            worst = max(worst, (pooled - torch.from_numpy(vector)).abs().max().item())
    print(f"{len(texts)} texts, largest difference {worst:.1e}")
    sys.exit(worst > 1e-4 or not texts)


if __name__ == "__main__":
    main()
