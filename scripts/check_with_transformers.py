"""Loads a model folder with PyTorch transformers and compares what it says with what mlmtrain said.

Wants torch, transformers (5.23 when this was written) and safetensors. Exits with 1 on any difference.

    python scripts/check_with_transformers.py runs/quickstart/model --logits logits.safetensors
    python scripts/check_with_transformers.py runs/ag_news/model --predictions predictions.jsonl

A masked LM or a token classifier is compared by the file of `mlmtrain evaluate --dump-logits logits.safetensors`, packed without padding:
    ids, position_ids (from 0 in each sequence), token_type_ids (may be absent)   u32 [T]
    cu_seqlens                                                                    u32 [sequences + 1]
    label_positions (indices into ids)                                            u32 [M]
    logits                                                                        f32 [M, V] or [M, labels]
A classifier is compared by the rows of `mlmtrain predict`: {"text", "label", "score", "probabilities"}, or with any number of
labels {"text", "labels", "scores", "probabilities"}; a regression model by {"text", "prediction"};
a discriminator of ELECTRA or DeBERTa as well: {"text", "tokens", "replaced"}; a token classifier too: {"tokens", "tags", "scores"} (rows
that do not fit the model are passed over: transformers has no windows).
Without either file only the folder itself is checked: no missing, unexpected or misshapen tensors, and a tokenizer whose
special tokens are those of config.json.
"""

import argparse
import json
import pathlib
import sys

import neobert_reference
import torch
import transformers
from make_golden import DebertaDiscriminator
from safetensors.torch import load_file

TOLERANCE = 1e-4
PAIRS = ("BertForPreTraining", "AlbertForPreTraining")  # masked LMs with a head for pairs of segments
BATCH_ROWS = 16


class Mismatch(Exception):
    """What differs, for the one who ran the script."""


def load(folder):
    """The model and tokenizer of a folder; a tensor too many or too few is a mismatch."""
    config = transformers.AutoConfig.from_pretrained(folder)
    architecture = (config.architectures or ["none"])[0]
    if architecture.endswith(("ForMaskedLM", "NeoBERTLMHead")):
        auto = transformers.AutoModelForMaskedLM
    elif architecture.endswith("ForSequenceClassification"):
        auto = transformers.AutoModelForSequenceClassification
    elif architecture.endswith("ForTokenClassification"):
        auto = transformers.AutoModelForTokenClassification
    elif architecture in ("ElectraForPreTraining", *PAIRS):
        auto = transformers.AutoModelForPreTraining
    elif config.model_type == "deberta-v2" and architecture == "none":
        # transformers has no class for a discriminator of DeBERTa; its encoder there has these tensors and no others.
        auto, architecture = DebertaDiscriminator, "DebertaDiscriminator"
    else:
        raise Mismatch(f"config.json: architecture `{architecture}` is neither a masked LM, a sequence or token classifier nor a discriminator")
    # Eager attention of ModernBERT makes NaN of padding that sees none of the text in its window.
    attention = "sdpa" if config.model_type == "modernbert" else "eager"
    model, info = auto.from_pretrained(folder, output_loading_info=True, dtype=torch.float32, attn_implementation=attention)
    for kind, names in info.items():
        if names:
            raise Mismatch(f"model.safetensors: {kind}: {names}")
    if type(model).__name__ != architecture:
        raise Mismatch(f"config.json: `{architecture}` was loaded as `{type(model).__name__}`")
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def check_tokenizer(tokenizer, config):
    """The tokenizer frames a text with its special tokens, and knows no id that the model lacks."""
    if len(tokenizer) > config.vocab_size:
        raise Mismatch(f"tokenizer.json has {len(tokenizer)} tokens, config.json says {config.vocab_size}")
    ids = tokenizer("A house, a tree & 3 birds.")["input_ids"]
    if ids[0] != tokenizer.cls_token_id or ids[-1] != tokenizer.sep_token_id or ids[0] is None:
        raise Mismatch(f"tokenizer.json does not frame a text with its special tokens: {tokenizer.convert_ids_to_tokens(ids)}")
    wanted = {"pad_token_id": tokenizer.pad_token_id}
    if config.model_type in ("roberta", "modernbert", "albert", "mpnet"):
        wanted |= {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    if config.model_type == "modernbert":
        wanted |= {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    for name, found in wanted.items():
        if getattr(config, name) != found:
            raise Mismatch(f"config.json: {name} is {getattr(config, name)}, the tokenizer says {found}")


def padded(sequences, fill):
    return torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=fill)


@torch.no_grad()
def masked_lm_difference(model, path):
    """The largest absolute difference of a logit, and how many logits were compared."""
    file = {name: tensor if tensor.is_floating_point() else tensor.long() for name, tensor in load_file(path).items()}
    bounds = file["cu_seqlens"].tolist()
    ids = [file["ids"][a:b] for a, b in zip(bounds, bounds[1:])]
    types = file.get("token_type_ids", torch.zeros_like(file["ids"]))
    if file["position_ids"].tolist() != [place for a, b in zip(bounds, bounds[1:]) for place in range(b - a)]:
        raise Mismatch(f"{path}: position_ids do not count from 0 in each sequence")
    if bounds[-1] != len(file["ids"]) or not len(file["label_positions"]):
        raise Mismatch(f"{path}: cu_seqlens end at {bounds[-1]} of {len(file['ids'])} ids, {len(file['label_positions'])} positions")
    wanted = torch.zeros(bounds[-1], dtype=torch.long).index_fill_(0, file["label_positions"], 1)
    if wanted.sum() != len(file["logits"]) or not bool((file["label_positions"].diff() > 0).all()):
        raise Mismatch(f"{path}: {len(file['logits'])} rows of logits for {wanted.sum()} positions, which must ascend")
    chosen = []
    for start in range(0, len(ids), BATCH_ROWS):
        rows = ids[start : start + BATCH_ROWS]
        spans = list(zip(bounds, bounds[1:]))[start : start + BATCH_ROWS]
        real = padded([torch.ones_like(row) for row in rows], 0)
        inputs = dict(input_ids=padded(rows, model.config.pad_token_id), attention_mask=real)
        if hasattr(model.config, "type_vocab_size"):
            inputs["token_type_ids"] = padded([types[a:b] for a, b in spans], 0)
        result = model(**inputs)
        logits = getattr(result, "prediction_logits", None)
        logits = (result.logits if logits is None else logits)[real.bool()]
        chosen.append(logits[wanted[spans[0][0] : spans[-1][1]].bool()])
    theirs = torch.cat(chosen)
    if theirs.shape != file["logits"].shape:
        raise Mismatch(f"{path}: logits are {list(file['logits'].shape)}, transformers makes {list(theirs.shape)}")
    difference = (theirs - file["logits"]).abs().max().item()
    if not difference < TOLERANCE:  # also where it is not a number
        raise Mismatch(f"{path}: logits differ by up to {difference:.3g}, at most {TOLERANCE} is wanted")
    return difference, theirs.numel()


def classifier_difference(model, tokenizer, path, limit, max_length):
    """The largest absolute difference of a probability, and how many rows were compared."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()][:limit]
    if not rows:
        raise Mismatch(f"{path}: has no rows")
    pipeline = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    texts = [{"text": row["text"], "text_pair": row["text_pair"]} if "text_pair" in row else row["text"] for row in rows]
    worst = 0.0
    for number, (row, text) in enumerate(zip(rows, texts), start=1):
        answer = pipeline(text, top_k=None, truncation=True, max_length=max_length)
        answer = answer[0] if isinstance(answer[0], list) else answer
        theirs = {item["label"]: item["score"] for item in answer}
        if theirs.keys() != row["probabilities"].keys():
            raise Mismatch(f"{path}:{number}: labels {list(row['probabilities'])}, transformers has {list(theirs)}")
        apart = [abs(row["probabilities"][label] - score) for label, score in theirs.items()]
        if "labels" in row:  # any number of them
            apart += [abs(theirs[label] - score) for label, score in zip(row["labels"], row["scores"], strict=True)]
            row["label"], row["score"] = max(row["probabilities"].items(), key=lambda item: item[1])
        best = max(theirs.values())
        if row["label"] != max(theirs, key=theirs.get) and best - theirs[row["label"]] > TOLERANCE:
            raise Mismatch(f"{path}:{number}: label `{row['label']}`, transformers says `{max(theirs, key=theirs.get)}`")
        apart.append(abs(row["score"] - best))
        if not max(apart) < TOLERANCE:
            raise Mismatch(f"{path}:{number}: probabilities differ by up to {max(apart):.3g}, at most {TOLERANCE} is wanted")
        worst = max(worst, *apart)
    return worst, len(rows)


@torch.no_grad()
def discriminator_difference(model, tokenizer, path, limit):
    """The largest absolute difference of a logit, and how many tokens were compared."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()][:limit]
    worst, count = 0.0, 0
    for number, row in enumerate(rows, start=1):
        logits = model(**tokenizer(row["text"], return_tensors="pt")).logits[0, 1:-1].double()
        ours = torch.tensor(row["replaced"], dtype=torch.double).logit()
        if logits.shape != ours.shape:
            raise Mismatch(f"{path}:{number}: {len(ours)} tokens, transformers has {len(logits)}")
        worst, count = max(worst, (logits - ours).abs().max().item()), count + len(ours)
    if not rows or not worst < TOLERANCE:
        raise Mismatch(f"{path}: logits differ by up to {worst:.3g} in {len(rows)} rows, at most {TOLERANCE} is wanted")
    return worst, count


@torch.no_grad()
def regression_difference(model, tokenizer, path, limit, max_length):
    """The largest absolute difference of a predicted number, and how many were compared."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()][:limit]
    worst, count = 0.0, 0
    for number, row in enumerate(rows, start=1):
        inputs = tokenizer(row["text"], row.get("text_pair"), truncation=True, max_length=max_length, return_tensors="pt")
        theirs = model(**inputs).logits[0]
        ours = row["prediction"] if isinstance(row["prediction"], dict) else {model.config.id2label[0]: row["prediction"]}
        if list(ours) != [model.config.id2label[id] for id in range(len(theirs))]:
            raise Mismatch(f"{path}:{number}: numbers {list(ours)}, config.json has {model.config.id2label}")
        apart = (theirs - torch.tensor(list(ours.values()))).abs().max().item()
        if not apart < TOLERANCE:
            raise Mismatch(f"{path}:{number}: numbers differ by up to {apart:.3g}, at most {TOLERANCE} is wanted")
        worst, count = max(worst, apart), count + len(ours)
    if not count:
        raise Mismatch(f"{path}: has no rows")
    return worst, count


@torch.no_grad()
def tagger_difference(model, tokenizer, path, limit, max_length):
    """The largest absolute difference of a tag's probability, and how many words were compared."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()][:limit]
    worst, count = 0.0, 0
    for number, row in enumerate(rows, start=1):
        encoded = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
        words = encoded.word_ids(0)
        firsts = [place for place, word in enumerate(words) if word is not None and word not in words[:place]]
        # A word of no pieces is unknown to us and nothing to transformers.
        if len(words) > max_length or len(firsts) != len(row["tokens"]):
            continue
        best, ids = model(**encoded).logits[0].softmax(-1)[firsts].max(-1)
        theirs = [model.config.id2label[id] for id in ids.tolist()]
        apart = (best - torch.tensor(row["scores"])).abs().max().item()
        if not apart < TOLERANCE:
            raise Mismatch(f"{path}:{number}: probabilities differ by up to {apart:.3g}, at most {TOLERANCE} is wanted")
        if theirs != row["tags"]:
            raise Mismatch(f"{path}:{number}: tags {row['tags']}, transformers says {theirs}")
        worst, count = max(worst, apart), count + len(theirs)
    if not count:
        raise Mismatch(f"{path}: nothing to compare in {len(rows)} rows")
    return worst, count


def check(arguments):
    """A sentence that says what was compared, or Mismatch."""
    model, tokenizer = load(arguments.folder)
    check_tokenizer(tokenizer, model.config)
    name = type(model).__name__
    classifier = name.endswith("ForSequenceClassification")
    if arguments.logits:
        if classifier:
            raise Mismatch(f"{name} has no token logits: use --predictions")
        difference, count = masked_lm_difference(model, arguments.logits)
        return f"{name}: {count} logits, largest difference {difference:.3g}"
    if arguments.predictions:
        if name in ("ElectraForPreTraining", "DebertaDiscriminator"):
            difference, count = discriminator_difference(model, tokenizer, arguments.predictions, arguments.limit)
            return f"{name}: {count} tokens, largest difference of a logit {difference:.3g}"
        if name.endswith("ForTokenClassification"):
            # As run_ner.py loads it: each word begins with a blank.
            tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.folder, add_prefix_space=True)
            difference, count = tagger_difference(model, tokenizer, arguments.predictions, arguments.limit, arguments.max_length)
            return f"{name}: {count} words, the same tags, largest difference of a probability {difference:.3g}"
        if classifier and model.config.problem_type == "regression":
            difference, count = regression_difference(model, tokenizer, arguments.predictions, arguments.limit, arguments.max_length)
            return f"{name}: {count} numbers, largest difference {difference:.3g}"
        if not classifier:
            raise Mismatch(f"{name} is no classifier: use --logits")
        difference, count = classifier_difference(model, tokenizer, arguments.predictions, arguments.limit, arguments.max_length)
        return f"{name}: {count} rows, the same labels, largest difference of a probability {difference:.3g}"
    return f"{name}: {sum(p.numel() for p in model.parameters())} parameters, no tensor missing or unexpected"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="model folder: config.json, model.safetensors, tokenizer.json")
    parser.add_argument("--logits", type=pathlib.Path, help="safetensors file with our ids and logits (masked LM, token classifier)")
    parser.add_argument("--predictions", type=pathlib.Path, help="JSONL file of our predictions (classifier)")
    parser.add_argument("--limit", type=int, default=200, help="most predictions to compare (default 200)")
    parser.add_argument("--max-length", type=int, default=128, help="tokens that the predictions were cut to (default 128)")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    neobert_reference.register()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        print(f"ok: {check(arguments)}")
    except (Mismatch, OSError, KeyError, ValueError, RuntimeError) as error:
        print(f"mismatch: {type(error).__name__}: {error}" if not isinstance(error, Mismatch) else f"mismatch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
