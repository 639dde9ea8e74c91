"""Writes tests/golden/tokenizers.json: small tokenizer folders in many forms, and the ids that transformers gives.

Made with Python 3.11.7, transformers 5.24.0, tokenizers 0.23.3:

    python scripts/make_tokenizer_golden.py

A folder is a base (one of four vocabularies with their pipeline), changes of its tokenizer.json, and the files beside
it. Of each, `AutoTokenizer.from_pretrained` tells ids and token types of single texts, pairs and words; where it
raises, or names a class that this program does not have, `refused` says so. Texts spell out no control tokens, which
are text here and tokens there, but for the folders that say how special tokens in texts are meant.
"""

import itertools
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import tokenizers
import transformers
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer

logging.disable(logging.CRITICAL)
transformers.logging.set_verbosity_error()

TRAIN = [
    "When Mary Lennox was sent to Misselthwaite Manor to live with her uncle everybody said she was the most",
    "disagreeable-looking child ever seen. It was true, too. She had a little thin face and a little thin body,",
    "thin light hair and a sour expression. Vaka vanha Väinämöinen itse tuon sanoiksi virkki.",
    "The New York Times said: oil prices rise as exports fall, says OPEC. 漢字 café naïve résumé user url",
] * 3
TEXTS = [
    "She was [E1]the most[/E1] disagreeable CHILD, café naïve 漢字!",
    "  Two  blanks, a\ttab and\nnew york New York COVID-19 <url> ",
    "Väinämöinen said: Mary's @USER uncle doesn't. markers amarkerb",
]
PAIRS = [("The child", "was seen."), ("a [E1] b", " the  Manor was true, too. She had a little thin face")]
WORDS = ["Mary", "was", "", "[E1]", "New", "York", "café", "don't", "the"]
SPELLED = "a [SEP] b </s> c [E1] d"


def of(tokenizer):
    return json.loads(tokenizer.to_str())


def word_piece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "<pad>", "</s>", "<mask>"]
    both = TRAIN + [
        text.lower().replace("é", "e").replace("ï", "i").replace("ä", "a").replace("ö", "o") for text in TRAIN
    ]
    tokenizer.train_from_iterator(
        both, trainers.WordPieceTrainer(vocab_size=330, special_tokens=special, show_progress=False)
    )
    made = of(tokenizer)
    vocab = made["model"]["vocab"]
    # The crate's own order differs from run to run.
    rest = sorted(set(vocab) - set(special))
    made["model"]["vocab"] = {entry: id for id, entry in enumerate(special + rest)}
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.decoder = decoders.WordPiece()
    made = of(tokenizer)
    made["added_tokens"] = [token for token in made["added_tokens"] if token["content"].startswith("[")]
    ids = made["model"]["vocab"]
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return of(tokenizer)


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {}
    for text in TRAIN:
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text):
            words[tuple(word)] = words.get(tuple(word), 0) + 1
    merges = []
    while len(merges) < 60:
        counts = {}
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + count
        best = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(best)
        after = {}
        for word, count in words.items():
            new, at = [], 0
            while at < len(word):
                step = 2 if word[at : at + 2] == best else 1
                new.append("".join(word[at : at + step]))
                at += step
            after[tuple(new)] = after.get(tuple(new), 0) + count
        words = after
    entries = special + alphabet + ["".join(pair) for pair in merges]
    vocab = {entry: id for id, entry in enumerate(entries)}
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab, merges=merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, lstrip=t == "<mask>", normalized=False) for t in special])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    return of(tokenizer)


def unigram(special, unk_id, cls, sep):
    pieces = {
        piece: len(piece) for text in TRAIN for word in text.split() for piece in ["▁" + word, word, *word]
    }
    rest = sorted(set(pieces) | {"▁"})
    vocab = [(name, 0.0) for name in special] + [(piece, -2.0 - 8.0 / len(piece)) for piece in rest]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=unk_id, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in special])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, special.index(cls)), (sep, special.index(sep))],
    )
    return of(tokenizer)


BASES = {
    "word_piece": word_piece(),
    "byte_level": byte_level(),
    "xlm_unigram": unigram(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], 3, "<s>", "</s>"),
    "bert_unigram": unigram(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<pad>", "<unk>"], 1, "[CLS]", "[SEP]"
    ),
}
ALL = []


def case(name, base, model_type, config=None, change=None, model=None, files=None, without=()):
    ALL.append(
        {
            "name": name,
            "base": base,
            "change": change or {},
            "model": model or {},
            "without": list(without),
            "files": {
                "config.json": {"model_type": model_type},
                "tokenizer_config.json": config,
                **(files or {}),
            },
        }
    )


def token(content, **flags):
    return {
        "content": content,
        "lstrip": False,
        "rstrip": False,
        "single_word": False,
        "normalized": True,
        "special": False,
        **flags,
    }


def added(base, *tokens):
    """`added_tokens` of a base with more of them."""
    old = BASES[base]["added_tokens"]
    vocab = BASES[base]["model"]["vocab"]
    ids = itertools.count(len(vocab))
    return {"added_tokens": old + [{"id": next(ids), **each} for each in tokens]}


SPECIAL_E1 = [token("[E1]", special=True, normalized=False), token("[/E1]", special=True, normalized=False)]
NAMES = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
    "unk_token": "[UNK]",
}
SNAMES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
    "unk_token": "<unk>",
}

# Classes over each vocabulary, for models of several families.
CLASSES = [
    None,
    "BertTokenizer",
    "BertTokenizerFast",
    "DistilBertTokenizer",
    "ElectraTokenizerFast",
    "MPNetTokenizer",
    "PreTrainedTokenizerFast",
    "TokenizersBackend",
    "RobertaTokenizer",
    "RobertaTokenizerFast",
    "GPT2Tokenizer",
    "LongformerTokenizer",
    "XLMRobertaTokenizer",
    "CamembertTokenizer",
    "AlbertTokenizer",
    "DebertaV2Tokenizer",
    "DebertaTokenizer",
    "BertJapaneseTokenizer",
    "CanineTokenizer",
    "T5Tokenizer",
]
for tokenizer_class in CLASSES:
    config = {} if tokenizer_class is None else {"tokenizer_class": tokenizer_class}
    case(f"class/{tokenizer_class}/word_piece/bert", "word_piece", "bert", {**config, **NAMES})
    case(f"class/{tokenizer_class}/byte_level/bert", "byte_level", "bert", {**config, **SNAMES})
    case(f"class/{tokenizer_class}/byte_level/roberta", "byte_level", "roberta", {**config, **SNAMES})
    case(f"class/{tokenizer_class}/byte_level/modernbert", "byte_level", "modernbert", {**config, **SNAMES})
    case(
        f"class/{tokenizer_class}/xlm_unigram/xlm-roberta", "xlm_unigram", "xlm-roberta", {**config, **SNAMES}
    )
    case(
        f"class/{tokenizer_class}/bert_unigram/deberta-v2", "bert_unigram", "deberta-v2", {**config, **NAMES}
    )
for model_type in [
    "albert",
    "bert",
    "camembert",
    "deberta-v2",
    "distilbert",
    "electra",
    "modernbert",
    "mpnet",
    "roberta",
    "xlm-roberta",
]:
    for base, names in [
        ("word_piece", NAMES),
        ("byte_level", SNAMES),
        ("xlm_unigram", SNAMES),
        ("bert_unigram", NAMES),
    ]:
        case(f"model/{model_type}/{base}/no config", base, model_type)
        case(f"model/{model_type}/{base}/names", base, model_type, names)
for tokenizer_class in ["XLMRobertaTokenizer", "PreTrainedTokenizerFast", "RobertaTokenizer"]:
    base = "byte_level" if tokenizer_class == "RobertaTokenizer" else "xlm_unigram"
    case(
        f"class in config.json/{tokenizer_class}",
        base,
        "bert",
        SNAMES,
        files={"config.json": {"model_type": "bert", "tokenizer_class": tokenizer_class}},
    )

# Flags of tokenizer_config.json and of tokenizer.json, in agreement or not.
for lower, accents, chinese in itertools.product(
    [None, True, False], ["absent", None, True, False], [None, False]
):
    config = {"tokenizer_class": "BertTokenizer", **NAMES}
    if lower is not None:
        config["do_lower_case"] = lower
    if accents != "absent":
        config["strip_accents"] = accents
    if chinese is not None:
        config["tokenize_chinese_chars"] = chinese
    case(f"flags/bert/{lower}/{accents}/{chinese}", "word_piece", "bert", config)
for own, lower in itertools.product([True, False], [None, True, False]):
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": own,
    }
    for tokenizer_class in [
        "PreTrainedTokenizerFast",
        "BertTokenizer",
        "MPNetTokenizer",
        "DistilBertTokenizer",
    ]:
        config = {
            "tokenizer_class": tokenizer_class,
            **NAMES,
            **({} if lower is None else {"do_lower_case": lower}),
        }
        case(
            f"flags/{tokenizer_class}/{own}/{lower}", "word_piece", "bert", config, {"normalizer": normalizer}
        )
for own, prefix in itertools.product([True, False], [None, True, False]):
    words = {"type": "ByteLevel", "add_prefix_space": own, "trim_offsets": True, "use_regex": True}
    for tokenizer_class in [
        "PreTrainedTokenizerFast",
        "RobertaTokenizer",
        "GPT2Tokenizer",
        "DebertaTokenizer",
    ]:
        config = {
            "tokenizer_class": tokenizer_class,
            **SNAMES,
            **({} if prefix is None else {"add_prefix_space": prefix}),
        }
        case(
            f"prefix/{tokenizer_class}/{own}/{prefix}",
            "byte_level",
            "roberta",
            config,
            {"pre_tokenizer": words},
        )
for prefix in [None, True, False]:
    more = {} if prefix is None else {"add_prefix_space": prefix}
    case(f"prefix/XLMRobertaTokenizer/{prefix}", "xlm_unigram", "xlm-roberta", {**SNAMES, **more})
    case(f"prefix/CamembertTokenizer/{prefix}", "xlm_unigram", "camembert", {**SNAMES, **more})
    case(f"prefix/DebertaV2Tokenizer/{prefix}", "bert_unigram", "deberta-v2", {**NAMES, **more})
for more in [
    {"keep_accents": True},
    {"do_lower_case": False},
    {"keep_accents": True, "do_lower_case": False},
    {"add_prefix_space": False},
]:
    case(
        f"flags/albert/{more}",
        "bert_unigram",
        "albert",
        {
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            **more,
        },
    )
for more in [{"split_by_punct": True}, {"do_lower_case": True}, {"unk_id": 0}]:
    case(f"flags/deberta-v2/{more}", "bert_unigram", "deberta-v2", {**NAMES, **more})
for key, value in [
    ("do_lower_case", "no"),
    ("do_lower_case", None),
    ("tokenize_chinese_chars", None),
    ("truncation_side", "middle"),
]:
    case(f"flags/wrong/{key}/{value}", "word_piece", "bert", {**NAMES, key: value})

# Added tokens, by every file and with every flag.
BERT = {"tokenizer_class": "BertTokenizer", **NAMES}
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
for config, kind in [(BERT, "bert"), ({**FAST, **NAMES}, "general")]:
    case(f"added/{kind}/markers", "word_piece", "bert", config, added("word_piece", *SPECIAL_E1))
    case(
        f"added/{kind}/ordinary",
        "word_piece",
        "bert",
        config,
        added("word_piece", token("[E1]"), token("new york"), token("COVID-19")),
    )
    size = len(BASES["word_piece"]["model"]["vocab"])
    listed = {"COVID-19": size, "@USER": size + 1, "new york": size + 2, "<url>": size + 3}
    case(f"added/{kind}/added_tokens.json", "word_piece", "bert", config, files={"added_tokens.json": listed})
    case(
        f"added/{kind}/added_tokens.json with a gap",
        "word_piece",
        "bert",
        config,
        files={"added_tokens.json": {"@USER": size + 7, "<url>": size + 3}},
    )
    case(
        f"added/{kind}/added_tokens.json of an entry",
        "word_piece",
        "bert",
        config,
        files={"added_tokens.json": {"was": size}},
    )
    case(
        f"added/{kind}/special_tokens_map.json",
        "word_piece",
        "bert",
        config,
        files={"special_tokens_map.json": {"additional_special_tokens": ["[E1]", "[/E1]"]}},
    )
    case(
        f"added/{kind}/both old files",
        "word_piece",
        "bert",
        config,
        files={
            "special_tokens_map.json": {"additional_special_tokens": ["[E1]"]},
            "added_tokens.json": {"[E1]": size, "<url>": size + 1},
        },
    )
    for flags in [
        {},
        {"lstrip": True},
        {"rstrip": True},
        {"single_word": True},
        {"normalized": False},
        {"special": True, "normalized": False},
    ]:
        decoder = {
            str(size): token("marker", **flags),
            str(size + 1): token("new york", **flags),
            str(size + 2): token("[E1]", **flags),
        }
        case(
            f"added/{kind}/added_tokens_decoder/{flags}",
            "word_piece",
            "bert",
            {**config, "added_tokens_decoder": decoder},
        )
        tokens = [token(content, **flags) for content in ["marker", "new york", "[E1]"]]
        case(
            f"added/{kind}/tokenizer.json/{flags}", "word_piece", "bert", config, added("word_piece", *tokens)
        )
    decoder = {str(size): token("[E1]", normalized=False)}
    case(
        f"added/{kind}/decoder against tokenizer.json",
        "word_piece",
        "bert",
        {**config, "added_tokens_decoder": decoder},
        added("word_piece", *SPECIAL_E1),
    )
    case(
        f"added/{kind}/decoder and old file",
        "word_piece",
        "bert",
        {**config, "added_tokens_decoder": decoder},
        files={"added_tokens.json": {"<url>": size}},
    )
    for key in ["additional_special_tokens", "extra_special_tokens"]:
        case(f"added/{kind}/{key}", "word_piece", "bert", {**config, key: ["[E1]", "<url>"]})
    case(
        f"added/{kind}/extra_special_tokens table",
        "word_piece",
        "bert",
        {**config, "extra_special_tokens": {"open_token": "[E1]"}},
    )
    case(f"added/{kind}/own role", "word_piece", "bert", {**config, "url_token": "<url>"})
    case(
        f"added/{kind}/split",
        "word_piece",
        "bert",
        {**config, "split_special_tokens": True},
        added("word_piece", *SPECIAL_E1),
    )
    case(
        f"spelled/{kind}/recognised",
        "word_piece",
        "bert",
        {**config, "split_special_tokens": False},
        added("word_piece", *SPECIAL_E1),
    )
    case(
        f"spelled/{kind}/text",
        "word_piece",
        "bert",
        {**config, "split_special_tokens": True},
        added("word_piece", *SPECIAL_E1),
    )
for base, model_type, config in [
    ("byte_level", "roberta", SNAMES),
    ("byte_level", "modernbert", SNAMES),
    ("xlm_unigram", "xlm-roberta", SNAMES),
    ("bert_unigram", "deberta-v2", NAMES),
]:
    case(f"added/{model_type}/markers", base, model_type, config, added(base, *SPECIAL_E1))
    case(
        f"added/{model_type}/ordinary",
        base,
        model_type,
        config,
        added(base, token("[E1]", lstrip=True), token("New York")),
    )
    case(
        f"added/{model_type}/prefix",
        base,
        model_type,
        {**config, "add_prefix_space": True},
        added(base, *SPECIAL_E1),
    )
    case(
        f"added/{model_type}/added_tokens.json",
        base,
        model_type,
        config,
        files={"added_tokens.json": {"<url>": len(BASES[base]["model"]["vocab"])}},
    )

# Names of special tokens that one file alone tells, and their flags.
MASK = {"__type": "AddedToken", **token("[MASK]", lstrip=True, normalized=False, special=True)}
case("names/mask with flags", "word_piece", "bert", {**BERT, "mask_token": MASK})
case(
    "names/renamed",
    "word_piece",
    "bert",
    {"tokenizer_class": "BertTokenizer", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"},
)
case(
    "names/renamed by the map",
    "word_piece",
    "bert",
    {"tokenizer_class": "BertTokenizer"},
    files={
        "special_tokens_map.json": {
            "cls_token": "<s>",
            "sep_token": {
                "content": "</s>",
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
            },
        }
    },
)
case(
    "names/map against config",
    "word_piece",
    "bert",
    {"tokenizer_class": "BertTokenizer", "cls_token": "[MASK]"},
    files={"special_tokens_map.json": {"cls_token": "<s>"}},
)
case(
    "names/map and decoder",
    "word_piece",
    "bert",
    {
        "tokenizer_class": "BertTokenizer",
        "cls_token": "[MASK]",
        "added_tokens_decoder": {"4": token("[MASK]", special=True, normalized=False)},
    },
    files={"special_tokens_map.json": {"cls_token": "<s>"}},
)
case(
    "names/roberta renamed", "byte_level", "roberta", {**SNAMES, "cls_token": "<mask>", "sep_token": "<unk>"}
)
case(
    "names/xlm renamed", "xlm_unigram", "xlm-roberta", {**SNAMES, "bos_token": "<mask>", "cls_token": "<unk>"}
)

# Templates.
TWICE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"SpecialToken": {"id": "[MASK]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
        {"Sequence": {"id": "B", "type_id": 1}},
    ],
    "special_tokens": {
        name: {"id": name, "ids": [id], "tokens": [name]}
        for name, id in [("[CLS]", 2), ("[SEP]", 3), ("[MASK]", 4)]
    },
}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
for tokenizer_class in ["PreTrainedTokenizerFast", "BertTokenizer"]:
    for inputs in [None, ["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]]:
        config = {
            "tokenizer_class": tokenizer_class,
            **NAMES,
            **({} if inputs is None else {"model_input_names": inputs}),
        }
        case(
            f"template/{tokenizer_class}/{inputs}/own",
            "word_piece",
            "bert",
            config,
            {"post_processor": TWICE},
        )
        case(f"template/{tokenizer_class}/{inputs}/bert", "word_piece", "bert", config)
        case(
            f"template/{tokenizer_class}/{inputs}/none",
            "word_piece",
            "bert",
            config,
            {"post_processor": None},
        )
        processors_ = [BYTES, TWICE]
        case(
            f"template/{tokenizer_class}/{inputs}/sequence",
            "word_piece",
            "bert",
            config,
            {"post_processor": {"type": "Sequence", "processors": processors_}},
        )
        case(
            f"template/{tokenizer_class}/{inputs}/bert processing",
            "word_piece",
            "bert",
            config,
            {"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}},
        )

# Truncation; the model's own length comes first in this program, so that the limit is in the file.
for side, own in itertools.product([None, "left", "right"], [None, "Left", "Right"]):
    config = {**BERT, "model_max_length": 9, **({} if side is None else {"truncation_side": side})}
    truncation = (
        None
        if own is None
        else {"direction": own, "max_length": 128, "strategy": "LongestFirst", "stride": 0}
    )
    case(f"truncation/{side}/{own}", "word_piece", "bert", config, {"truncation": truncation})
    case(
        f"truncation/general/{side}/{own}",
        "byte_level",
        "modernbert",
        {**config, **FAST, **SNAMES},
        {"truncation": truncation},
    )
for length in [512, 1e30, int(1e30), None]:
    case(f"length/{length}", "word_piece", "bert", {**BERT, "model_max_length": length})

# Models of tokenizer.json that say what a class says otherwise.
case("model/dropout", "byte_level", "roberta", SNAMES, model={"dropout": 0.5})
case("model/prefix of pieces", "word_piece", "bert", BERT, model={"max_input_chars_per_word": 5})
case("model/general limit", "word_piece", "bert", {**FAST, **NAMES}, model={"max_input_chars_per_word": 5})
case("model/unk id", "xlm_unigram", "xlm-roberta", SNAMES, model={"unk_id": 1})
case("model/general unk id", "xlm_unigram", "xlm-roberta", {**FAST, **SNAMES}, model={"unk_id": 1})
case(
    "model/normalizer of a class",
    "word_piece",
    "bert",
    BERT,
    {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "NFKC"},
                {"type": "Replace", "pattern": {"String": "child"}, "content": "was"},
            ],
        }
    },
)
case("model/words of a class", "word_piece", "bert", BERT, {"pre_tokenizer": {"type": "WhitespaceSplit"}})
case(
    "model/words of no class",
    "word_piece",
    "bert",
    {**FAST, **NAMES},
    {"pre_tokenizer": {"type": "WhitespaceSplit"}},
)

# Folders from before tokenizer.json; their vocabularies are those of the base.
vocab = BASES["word_piece"]["model"]["vocab"]
vocab_txt, table, merges_txt = "entries", "ids", "merges"
for config in [
    None,
    {"do_lower_case": False},
    {"do_lower_case": True, "strip_accents": False},
    {"tokenizer_class": "BertTokenizer"},
]:
    for model_type in ["bert", "electra", "distilbert", "mpnet"]:
        case(
            f"old/{model_type}/{config}",
            "word_piece",
            model_type,
            config,
            files={"vocab.txt": vocab_txt},
            without=["tokenizer.json"],
        )
size = len(vocab)
case(
    "old/added",
    "word_piece",
    "bert",
    {"do_lower_case": True},
    without=["tokenizer.json"],
    files={"vocab.txt": vocab_txt, "added_tokens.json": {"@USER": size, "new york": size + 1}},
)
case(
    "old/special",
    "word_piece",
    "bert",
    {"do_lower_case": True},
    without=["tokenizer.json"],
    files={
        "vocab.txt": vocab_txt,
        "added_tokens.json": {"[E1]": size},
        "special_tokens_map.json": {"additional_special_tokens": ["[E1]"]},
    },
)
case(
    "old/decoder",
    "word_piece",
    "bert",
    {"added_tokens_decoder": {str(size): token("New York"), str(size + 1): token("[E1]", special=True)}},
    without=["tokenizer.json"],
    files={"vocab.txt": vocab_txt},
)
for config in [None, {"add_prefix_space": True}, {"tokenizer_class": "GPT2Tokenizer", **SNAMES}]:
    case(
        f"old/roberta/{config}",
        "byte_level",
        "roberta",
        config,
        files={"vocab.json": table, "merges.txt": merges_txt},
        without=["tokenizer.json"],
    )
case("old/general", "word_piece", "bert", FAST, files={"vocab.txt": vocab_txt}, without=["tokenizer.json"])

OURS = {
    "BertTokenizer",
    "DistilBertTokenizer",
    "MPNetTokenizer",
    "RobertaTokenizer",
    "GPT2Tokenizer",
    "XLMRobertaTokenizer",
    "CamembertTokenizer",
    "AlbertTokenizer",
    "DebertaV2Tokenizer",
    "DebertaTokenizer",
    "HerbertTokenizer",
    "TokenizersBackend",
}


def of_base(model, content):
    """A vocabulary file of a base."""
    vocab = model["vocab"]
    if content == "entries":
        return "".join(f"{entry}\n" for entry in sorted(vocab, key=vocab.get))
    if content == "ids":
        return json.dumps(vocab, ensure_ascii=False)
    return "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in model["merges"])


def write(folder, spec):
    base = json.loads(json.dumps(BASES[spec["base"]]))
    base.update(spec["change"])
    base["model"].update(spec["model"])
    files = {"tokenizer.json": base, **spec["files"]}
    for name, content in files.items():
        if name in spec["without"] or content is None:
            continue
        text = (
            of_base(base["model"], content)
            if isinstance(content, str)
            else json.dumps(content, ensure_ascii=False)
        )
        (folder / name).write_text(text, encoding="utf-8")


def told(spec):
    folder = Path(tempfile.mkdtemp())
    try:
        write(folder, spec)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        if type(tokenizer).__name__ not in OURS:
            return {"refused": type(tokenizer).__name__}
        limit = tokenizer.model_max_length < 1000
        texts = [SPELLED] if spec["name"].startswith("spelled/") else TEXTS

        def encoded(*args, **more):
            found = tokenizer(*args, **more)
            types = found.get("token_type_ids", [0] * len(found["input_ids"]))
            return [found["input_ids"], types if any(types) else []]

        cut = {"truncation": True} if limit else {}
        return {
            "single": [encoded(text, **cut) for text in texts],
            "pair": [encoded(*pair, **cut) for pair in PAIRS],
            "words": None if limit else encoded(WORDS, is_split_into_words=True)[0],
        }
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"[:80].replace(str(folder), "FOLDER")}
    finally:
        shutil.rmtree(folder)


def main():
    assert transformers.__version__ == "5.24.0" and tokenizers.__version__ == "0.23.3", "other versions"
    cases, outcomes = [], {}
    for spec in ALL:
        found = told(spec)
        if "refused" not in found:
            found = {"outcome": outcomes.setdefault(json.dumps(found), len(outcomes))}
        cases.append({**{key: value for key, value in spec.items() if value or key == "base"}, **found})
    made = {
        "texts": TEXTS,
        "spelled": SPELLED,
        "pairs": PAIRS,
        "words": WORDS,
        "bases": BASES,
        "outcomes": [json.loads(each) for each in outcomes],
    }
    lines = ",\n".join(json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in cases)
    head = json.dumps(made, ensure_ascii=False, separators=(",", ":"))[:-1]
    path = Path(__file__).parent.parent / "tests/golden/tokenizers.json"
    path.write_text(f'{head},"cases":[\n{lines}\n]}}\n', encoding="utf-8")
    refused = sum("refused" in each for each in cases)
    print(f"{len(cases)} folders, {refused} refused, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
