"""Writes the golden folders under tests/golden/: tiny models, inputs, and what PyTorch transformers makes of them.

Made with Python 3.11.7, torch 2.15.0+cu132, transformers 5.23.0, safetensors 0.8.0 (`deberta_v2_emd/`
and `neobert*/` with transformers 5.24.0):

    python scripts/make_golden.py            # rewrites tests/golden/
    python scripts/make_golden.py --check    # computes all of it again and compares with what lies there

`roberta/`, `bert/`, `modernbert/`,           masked LM: logits, hidden states, loss, gradients, five AdamW steps
`distilbert/`, `xlm_roberta/`, `camembert/`,
`deberta_v2/`, `albert/`, `mpnet/`,
`neobert/` (see `neobert_reference.py`),
`deberta_v2_emd/` (see `DebertaMaskDecoder`)
`roberta_cls/`, `bert_cls/`, `electra_cls/`,  sequence classification: logits, loss, gradients; of ModernBERT with
`modernbert_cls/`, `modernbert_mean/`         the first token and with the mean of all
`distilbert_cls/`, `xlm_roberta_cls/`,
`deberta_v2_cls/`, `albert_cls/`,
`mpnet_cls/`, `neobert_cls/`
`roberta_tok/`, `bert_tok/`, `electra_tok/`,  token classification: logits, loss, gradients, five AdamW steps
`modernbert_tok/`, `distilbert_tok/`,
`deberta_v2_tok/`, `albert_tok/`,
`mpnet_tok/`, `neobert_tok/`
`roberta_reg/`, `bert_reg/`                   regression with one and two numbers: outputs, loss, gradients, five AdamW steps
`bert_nsp/`, `albert_sop/`                    masked LM and pairs of segments: logits of both, the sum of both losses, gradients, five AdamW steps
`electra_rtd/`, `deberta_v2_rtd/`             replaced-token detection, see `write_pair`
`causal.safetensors` in `bert/`, `roberta/`   the same weights and tokens in the decoder form, see `write_causal`
and `modernbert/`

Each folder is a Hugging Face folder (`config.json`, `model.safetensors`) with two more files:

inputs.safetensors, packed without padding (T tokens of 4 sequences, M labels):
    ids, token_type_ids, position_ids (from 0 in each sequence)   u32 [T]
    cu_seqlens                                                    u32 [5]
    pair_positions (first token of each sequence), pair_labels    u32 [4]; of pairs of segments only
    label_positions (indices into ids), labels                    u32 [M]; of regression the bits of f32 numbers, u32 [M O]
outputs.safetensors, f32:
    logits [M, V] or [M, classes], hidden [T, D] (last hidden states), loss [1] (mean over the labels), grad_norm [1],
    grad.NAME for each parameter, NAME as in model.safetensors; of pairs of segments pair_logits [4, 2]
    masked LM, token classification and regression only: step_losses [6] (before each of five steps, and after the last), step_grad_norms [5] (before
    clipping), final.NAME for some parameters after the fifth step

PyTorch sees a padded batch with an attention mask, and computes in f64 from the f32 weights: what a comparison finds
is then the rounding of the program under test alone. Biases and LayerNorm weights are random too, since an error in a
bias of 0 or a scale of 1 would not show. The gradient of each `attention.self.key.bias` is zero in exact arithmetic
(softmax ignores a shift), so it has no relative error: compare it with the norm of `key.weight`'s gradient instead.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import neobert_reference
import torch
import transformers
from safetensors.torch import load_file, save_file

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
LENGTHS = [13, 1, 29, 6]
LONG_LENGTHS = [97, 1, 29, 6]  # of MPNet: its distances reach the last rows of the table
FIRST_WORD = 5  # ids below are special tokens
MASK_ID = 4

SIZES = dict(hidden_size=48, num_attention_heads=2, num_hidden_layers=2, intermediate_size=52, vocab_size=101, max_position_embeddings=40)
SMALL_SIZES = dict(hidden_size=24, num_attention_heads=2, num_hidden_layers=1, intermediate_size=40, vocab_size=67, max_position_embeddings=40)
SHARED = dict(initializer_range=0.2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout=0.0)
FAMILY = {
    "roberta": dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1, layer_norm_eps=1e-5),
    "bert": dict(pad_token_id=0, type_vocab_size=2, layer_norm_eps=1e-12),
}
ELECTRA = dict(pad_token_id=0, type_vocab_size=2, layer_norm_eps=1e-12, embedding_size=20)
GENERATOR = dict(hidden_size=28, num_attention_heads=2, intermediate_size=36, embedding_size=20)
# Layers of both kinds, and sequences of up to 29 tokens, of which a local layer sees 4 to either side.
MODERNBERT = dict(vocab_size=101, hidden_size=32, num_attention_heads=2, num_hidden_layers=5, intermediate_size=44, local_attention=8)
SMALL_MODERNBERT = dict(vocab_size=67, hidden_size=20, num_attention_heads=2, num_hidden_layers=3, intermediate_size=26, local_attention=6)
MODERNBERT_SHARED = dict(initializer_range=0.2, pad_token_id=0, bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3, max_position_embeddings=40)
DISTILBERT = dict(vocab_size=67, dim=24, n_heads=2, n_layers=2, hidden_dim=40, max_position_embeddings=40, pad_token_id=0)
DISTILBERT |= dict(initializer_range=0.2, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0)
# Sequences of up to 29 tokens: some distances share a bucket, and some are beyond the last one.
DEBERTA = dict(initializer_range=0.2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=0, type_vocab_size=0, relative_attention=True)
DEBERTA |= dict(position_buckets=8, max_relative_positions=20, pos_att_type="p2c|c2p", share_att_key=True, norm_rel_ebd="layer_norm", position_biased_input=False)
# A row for each distance, maps of their own, one kind of scores, no norm, and all that v3 has not.
OTHER_DEBERTA = DEBERTA | dict(position_buckets=-1, max_relative_positions=12, pos_att_type=["p2c"], share_att_key=False, norm_rel_ebd="none")
OTHER_DEBERTA |= dict(position_biased_input=True, type_vocab_size=2)
ALBERT = dict(hidden_size=24, num_attention_heads=2, num_hidden_layers=3, intermediate_size=40, vocab_size=67, max_position_embeddings=40, embedding_size=10)
ALBERT |= dict(initializer_range=0.2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout_prob=0.0)
# The other activation, and embeddings of the width of hidden states, behind which the map stands all the same.
OTHER_ALBERT = ALBERT | dict(hidden_act="gelu", embedding_size=24)
MPNET = SMALL_SIZES | dict(
    initializer_range=0.2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_hidden_layers=2, max_position_embeddings=102
)
# Three layers, of which the first, the middle and the last begin with different norms; a feed-forward width of 40.
NEOBERT = dict(vocab_size=101, hidden_size=48, num_attention_heads=2, num_hidden_layers=3)
NEOBERT |= dict(intermediate_size=52, max_length=40)
NEOBERT |= dict(norm_eps=1e-5, decoder_init_range=0.2, classifier_dropout=0.0)
PAIR_SIZES = SMALL_SIZES | dict(hidden_size=32, vocab_size=71)
DISCRIMINATOR_WEIGHT = 50.0
ADAMW = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
WEIGHT_DECAY, MAX_GRAD_NORM, STEPS = 0.01, 1.0, 5
FINAL = ["embeddings.word_embeddings.weight", "layer.0.attention.self.query.weight", "layer.1.output.LayerNorm.weight", "layer.1.output.dense.bias"]
FINAL += ["embeddings.tok_embeddings.weight", "layers.0.attn.Wqkv.weight", "layers.1.attn_norm.weight", "layers.2.mlp.Wi.weight"]
FINAL += ["encoder.rel_embeddings.weight", "layer.0.attention.self.key_proj.bias"]
FINAL += ["encoder.relative_attention_bias.weight", "layer.0.attention.attn.q.weight"]
FINAL += ["embedding_hidden_mapping_in.weight", "albert_layers.0.attention.query.weight", "albert_layers.0.full_layer_layer_norm.weight"]

FINAL += ["model.encoder.weight", "model.transformer_encoder.0.qkv.weight"]
FINAL += ["model.transformer_encoder.1.ffn.w12.weight", "model.layer_norm.weight"]


def lengths_of(config):
    """Lengths of the sequences of a batch."""
    return LONG_LENGTHS if config.model_type == "mpnet" else LENGTHS


def is_norm(name):
    """Whether a parameter belongs to a LayerNorm."""
    return "norm" in name.lower()


def random_model(model_class, config, generator):
    """A model whose every weight comes from `generator`; the rows of padding tokens stay 0 as transformers leaves them."""
    model = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if is_norm(name) and name.endswith("weight"):
                parameter.copy_(1.0 + 0.1 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(config.initializer_range * noise)
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0
    return model


def packed_inputs(config, classes, generator, tokens=False):
    """The packed batch; for a masked LM about a quarter of the positions are labelled, with `tokens` too, else the first of each sequence."""
    ids, positions, types, label_positions, cu_seqlens = [], [], [], [], [0]
    for length in lengths_of(config):
        start = len(ids)
        words = torch.randint(FIRST_WORD, config.vocab_size, (length,), generator=generator).tolist()
        chosen = [0] if classes and not tokens or length == 1 else torch.randperm(length, generator=generator)[: (length + 3) // 4].sort().values.tolist()
        if not classes:
            for place in chosen[::2]:
                words[place] = MASK_ID
        ids += words
        positions += range(length)
        types += [int(getattr(config, "type_vocab_size", 1) > 1 and place >= length // 2 and length > 1) for place in range(length)]
        label_positions += [start + place for place in chosen]
        cu_seqlens.append(len(ids))
    bounds = (0, classes) if classes else (FIRST_WORD, config.vocab_size)
    labels = torch.randint(*bounds, (len(label_positions),), generator=generator).tolist()
    named = dict(ids=ids, position_ids=positions, token_type_ids=types, label_positions=label_positions, labels=labels, cu_seqlens=cu_seqlens)
    return {name: torch.tensor(values, dtype=torch.uint32) for name, values in named.items()}


def numbers(packed):
    """The f32 numbers whose bits are the labels."""
    return torch.from_numpy(packed["labels"].numpy().astype("uint32").view("float32"))


def padded(packed, config, classes, tokens=False):
    """The same batch as transformers wants it, and the mask of its real tokens."""
    packed = {name: tensor.long() for name, tensor in packed.items()}
    lengths = lengths_of(config)
    shape = (len(lengths), max(lengths))
    real = torch.arange(shape[1])[None, :] < torch.tensor(lengths)[:, None]
    batch = dict(input_ids=torch.full(shape, config.pad_token_id), token_type_ids=torch.zeros(shape, dtype=torch.long), attention_mask=real.long())
    batch["input_ids"][real] = packed["ids"]
    batch["token_type_ids"][real] = packed["token_type_ids"]
    if not hasattr(config, "type_vocab_size"):
        del batch["token_type_ids"]
    if config.problem_type == "regression":
        batch["labels"] = numbers(packed).view(len(LENGTHS), classes).double()
    elif classes and not tokens:
        batch["labels"] = packed["labels"]
    else:
        flat = torch.full((len(packed["ids"]),), -100)
        flat[packed["label_positions"]] = packed["labels"]
        batch["labels"] = torch.full(shape, -100)
        batch["labels"][real] = flat
    return batch, real


def step_losses(model, batch):
    """Losses and unclipped gradient norms of five AdamW steps on one batch; the model is left as they leave it."""
    named = list(model.named_parameters())
    plain = [p for n, p in named if n.endswith("bias") or is_norm(n)]
    decayed = [p for n, p in named if all(p is not q for q in plain)]
    groups = [dict(params=decayed, weight_decay=WEIGHT_DECAY), dict(params=plain, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, **ADAMW)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM).item())
        optimizer.step()
    losses.append(model(**batch).loss.item())
    return losses, norms


def write(folder, model_class, config, classes, seed, tokens=False, pairs=None):
    """One golden folder; `pairs` is what the class calls the labels of pairs of segments."""
    generator = torch.Generator().manual_seed(seed)
    model = random_model(model_class, config, generator)
    packed = packed_inputs(config, classes, generator, tokens)
    if config.problem_type == "regression":
        packed["labels"] = torch.randn(len(LENGTHS) * classes, generator=generator).view(torch.int32).view(torch.uint32)
    if pairs:
        packed["pair_positions"] = packed["cu_seqlens"][:-1].clone()
        packed["pair_labels"] = torch.randint(2, (len(LENGTHS),), generator=generator).to(torch.uint32)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(packed, folder / "inputs.safetensors")

    # Eager attention of ModernBERT makes NaN of padding that sees none of the text in its window.
    attention = "sdpa" if config.model_type == "modernbert" else "eager"
    model = model_class.from_pretrained(folder, attn_implementation=attention).double().eval()
    batch, real = padded(packed, config, classes, tokens)
    if pairs:
        batch[pairs] = packed["pair_labels"].long()
    result = model(**batch)
    result.loss.backward()
    decoded = getattr(result, "decoded", None)
    hidden = decoded if decoded is not None else model.base_model(**{name: tensor for name, tensor in batch.items() if name not in ("labels", pairs)}).last_hidden_state
    # A decoder that is tied comes by two names, of which the file has one.
    saved = load_file(folder / "model.safetensors").keys()
    named = {name: p for name, p in model.named_parameters(remove_duplicate=False) if name in saved}
    grads = {name: parameter.grad.clone() for name, parameter in named.items()}
    logits = result.prediction_logits if pairs else result.logits
    logits = logits if classes and not tokens else logits[real][packed["label_positions"].long()]
    outputs = dict(pair_logits=result[2]) if pairs else {}
    outputs |= dict(logits=logits, hidden=hidden[real], loss=result.loss.reshape(1))
    outputs["grad_norm"] = torch.stack([g.norm() for g in grads.values()]).norm().reshape(1)
    outputs |= {f"grad.{name}": grad for name, grad in grads.items()}
    if not classes or tokens or config.problem_type == "regression":
        losses, norms = step_losses(model, batch)
        outputs |= dict(step_losses=torch.tensor(losses), step_grad_norms=torch.tensor(norms))
        outputs |= {f"final.{name}": p for name, p in named.items() if any(name.endswith(f) for f in FINAL)}
    save_file({name: tensor.detach().float().contiguous() for name, tensor in outputs.items()}, folder / "outputs.safetensors")


def modernbert_decoder(encoder):
    """The decoder class of transformers with the weights of a ModernBERT for masked LM."""
    keys = {key: value for key, value in encoder.config.to_dict().items() if key not in ("model_type", "architectures", "layer_types")}
    # The class sees `local_attention / 2` tokens with the token itself; one side of the encoder's window has that many others.
    keys |= dict(layer_types=encoder.config.layer_types, local_attention=encoder.config.local_attention + 2)
    decoder = transformers.ModernBertDecoderForCausalLM(transformers.ModernBertDecoderConfig(**keys))
    weights = {}
    for name, weight in encoder.state_dict().items():
        if name.endswith("Wqkv.weight"):
            weights |= {name.replace("Wqkv", f"{part}_proj"): third for part, third in zip("qkv", weight.chunk(3))}
        else:
            weights[name.replace("head.", "lm_head.") if name.startswith("head.") else name] = weight
    decoder.load_state_dict(weights)
    return decoder


def write_causal(folder):
    """Causal language modelling with the weights and tokens of a masked-LM folder: logits of all tokens with a next one in
    their sequence, mean loss of predicting these, gradient norm, and the gradients of some parameters, by the folder's names."""
    packed, config = load_file(folder / "inputs.safetensors"), transformers.AutoConfig.from_pretrained(folder)
    if config.model_type == "modernbert":
        model = modernbert_decoder(transformers.ModernBertForMaskedLM.from_pretrained(folder))
    else:
        classes = dict(bert=transformers.BertLMHeadModel, roberta=transformers.RobertaForCausalLM)
        model = classes[config.model_type].from_pretrained(folder, is_decoder=True, attn_implementation="eager")
    model = model.double().eval()
    batch, real = padded(packed, config, 0)
    batch["labels"] = batch["input_ids"].where(real, -100)
    result = model(**batch, use_cache=False)
    result.loss.backward()
    positions = [place for start, end in zip(packed["cu_seqlens"].tolist(), packed["cu_seqlens"].tolist()[1:]) for place in range(start, end - 1)]
    labels = packed["ids"].long()[torch.tensor(positions) + 1]
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    outputs = dict(logits=result.logits[real][positions], loss=result.loss.reshape(1))
    outputs["grad_norm"] = torch.stack([grad.norm() for grad in grads.values()]).norm().reshape(1)
    for name in [name for name in grads if ".q_proj." in name]:
        grads[name.replace("q_proj", "Wqkv")] = torch.cat([grads[name.replace("q_proj", f"{part}_proj")] for part in "qkv"])
    outputs |= {f"grad.{name}": grad for name, grad in grads.items() if any(name.endswith(f) for f in FINAL)}
    outputs = {name: tensor.detach().float().contiguous() for name, tensor in outputs.items()}
    outputs |= dict(label_positions=torch.tensor(positions).to(torch.uint32), labels=labels.to(torch.uint32))
    save_file(outputs, folder / "causal.safetensors")


def piece_tokenizer(tokenizer_class, special, **options):
    """A tokenizer as published folders have it: SentencePiece's pieces behind `special` tokens."""
    words = ["\u2581the", "\u2581cat", "\u2581sees", "\u2581dog", "\u2581a", "\u2581", "at", "og", *"abcdefghijklmnopqrstuvwxyz.,"]
    pieces = [(token, 0.0) for token in special] + [(word, -index / 4) for index, word in enumerate(words)] + [("[MASK]", 0.0)]
    return tokenizer_class(vocab=pieces, **options)


def mpnet_tokenizer():
    """The order of microsoft/mpnet-base: four of RoBERTa's tokens before BERT's vocabulary, and the mask behind it."""
    words = ["the", "cat", "sees", "dog", "a", "and", ".", ",", "##s", "##a", "##log", "##at"]
    words += ["c", "d", "l", "##o", "##g"]
    entries = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, "<mask>"]
    return transformers.MPNetTokenizer(vocab={entry: id for id, entry in enumerate(entries)})


def write_texts(folder, tokenizer, model_class):
    """Beside a classifier a tokenizer, and what both make of texts: `texts.json`."""
    tokenizer.save_pretrained(folder)
    model = model_class.from_pretrained(folder).double().eval()
    rows = []
    for text in ["the cat sees the dogs", " The dog,  a cat\tand \u00f8 ", "catalogs"]:
        inputs = tokenizer(text, return_tensors="pt")
        rows.append(dict(text=text, ids=inputs["input_ids"][0].tolist(), probabilities=model(**inputs).logits[0].softmax(-1).tolist()))
    (folder / "texts.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


class DebertaMaskDecoder(transformers.DebertaV2ForMaskedLM):
    """DeBERTa with the `EnhancedMaskDecoder` of microsoft/DeBERTa, for which transformers has no class, made of its layers:
    keys and values are the hidden states before the last layer, queries these plus absolute positions, then what that gives."""

    _keys_to_ignore_on_load_unexpected = []

    def __init__(self, config):
        super().__init__(config)
        self.deberta.embeddings.position_embeddings = torch.nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.post_init()

    def forward(self, labels, **inputs):
        encoder = self.deberta.encoder
        hidden = self.deberta(**inputs, output_hidden_states=True).hidden_states[-2]
        places = torch.arange(hidden.shape[1])
        mask, relative = encoder.get_attention_mask(inputs["attention_mask"]), encoder.get_rel_pos(hidden)
        asking = hidden + self.deberta.embeddings.position_embeddings(places)
        for _ in range(2):
            asking = encoder.layer[-1](hidden, mask, query_states=asking, relative_pos=relative, rel_embeddings=encoder.get_rel_embedding())[0]
        logits = self.cls(asking)
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))
        result = transformers.modeling_outputs.MaskedLMOutput(loss=loss, logits=logits)
        result.decoded = asking
        return result


# What the folder names: with `enhanced_mask_decoder`, a key of ours, it is still that model to transformers.
DebertaMaskDecoder.__name__ = "DebertaV2ForMaskedLM"


class DebertaDiscriminator(transformers.DebertaV2PreTrainedModel):
    """DeBERTa with the head that microsoft/DeBERTa calls `LMMaskPredictionHead`: transformers has no class for it."""

    def __init__(self, config):
        super().__init__(config)
        width = config.hidden_size
        self.deberta = transformers.DebertaV2Model(config)
        head = dict(LayerNorm=torch.nn.LayerNorm(width, config.layer_norm_eps), dense=torch.nn.Linear(width, width), classifier=torch.nn.Linear(width, 1))
        self.mask_predictions = torch.nn.ModuleDict(head)
        self.post_init()

    def forward(self, **inputs):
        hidden, head = self.deberta(**inputs).last_hidden_state, self.mask_predictions
        normed = head["LayerNorm"](hidden[:, :1] + hidden)
        logits = head["classifier"](torch.nn.functional.gelu(head["dense"](normed))).squeeze(-1)
        return transformers.modeling_outputs.TokenClassifierOutput(logits=logits)


def word_embeddings(model):
    return model.base_model.embeddings.word_embeddings


def write_pair(folder, seed, classes, configs, is_whole):
    """A generator and a discriminator in folders of their own, with the ids that were drawn.

    Where sharing `is_whole` (ELECTRA), both have one set of embeddings. Else (DeBERTa-v3) the discriminator's word
    embedding is the generator's, which gets no gradient from it, plus one of its own, under whose name that one's
    gradient stands; its folder holds the sum.

    inputs.safetensors has `drawn` [M] besides. outputs.safetensors has generator_logits [M, V], discriminator_logits [T],
    generator_loss, discriminator_loss, loss (generator + 50 x discriminator), grad_norm, generator.grad.NAME,
    discriminator.grad.NAME (those of the embeddings are the sums over both, under the discriminator's name), and of five
    steps on the same drawn ids step_generator_losses and step_discriminator_losses [6], step_grad_norms [5].
    """
    draw = torch.Generator().manual_seed(seed)
    made = {name: random_model(classes[name], configs[name], draw) for name in classes}
    if is_whole:
        made["generator"].electra.embeddings.load_state_dict(made["discriminator"].electra.embeddings.state_dict())
    else:
        with torch.no_grad():
            word_embeddings(made["discriminator"]).weight += word_embeddings(made["generator"]).weight
    packed = packed_inputs(configs["discriminator"], 0, draw)
    # Every third drawn id is the original one.
    words = torch.randint(FIRST_WORD, configs["generator"].vocab_size, packed["labels"].shape, generator=draw).to(torch.uint32)
    packed["drawn"] = torch.where(torch.arange(len(words)) % 3 == 0, packed["labels"].long(), words.long()).to(torch.uint32)
    for name, model in made.items():
        model.save_pretrained(folder / name)
        (folder / name / "generation_config.json").unlink(missing_ok=True)
    if not is_whole:
        # The published folders name no class either.
        path = folder / "discriminator" / "config.json"
        keys = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({key: value for key, value in keys.items() if key != "architectures"}, indent=2) + "\n", encoding="utf-8")
    save_file(packed, folder / "inputs.safetensors")

    pair = {name: classes[name].from_pretrained(folder / name, attn_implementation="eager").eval() for name in classes}
    shared, own = word_embeddings(pair["generator"]), word_embeddings(pair["discriminator"])
    if is_whole:
        pair["generator"].electra.embeddings = pair["discriminator"].electra.embeddings
        pair["generator"].tie_weights()
        assert pair["generator"].generator_lm_head.weight is own.weight
    else:
        with torch.no_grad():
            own.weight -= shared.weight
        own.register_forward_hook(lambda _, ids, rows: rows + torch.nn.functional.embedding(ids[0], shared.weight.detach()))
    pair = {name: model.double() for name, model in pair.items()}
    batch, real = padded(packed, configs["discriminator"], 0)
    places = packed["label_positions"].long()
    corrupted, flat = batch["input_ids"].clone(), packed["ids"].long()
    flat[places] = packed["drawn"].long()
    corrupted[real] = flat
    replaced = torch.zeros(len(flat), dtype=torch.double)
    replaced[places] = (packed["drawn"] != packed["labels"]).double()
    common = {name: batch[name] for name in ("token_type_ids", "attention_mask")}

    def losses():
        generator_logits = pair["generator"](input_ids=batch["input_ids"], **common).logits[real][places]
        discriminator_logits = pair["discriminator"](input_ids=corrupted, **common).logits[real]
        generator = torch.nn.functional.cross_entropy(generator_logits, packed["labels"].long())
        discriminator = torch.nn.functional.binary_cross_entropy_with_logits(discriminator_logits, replaced)
        return generator, discriminator, generator_logits, discriminator_logits

    named = {f"discriminator.{name}": p for name, p in pair["discriminator"].named_parameters()}
    known = {id(p) for p in named.values()}
    named |= {f"generator.{name}": p for name, p in pair["generator"].named_parameters() if id(p) not in known}
    generator, discriminator, generator_logits, discriminator_logits = losses()
    (generator + DISCRIMINATOR_WEIGHT * discriminator).backward()
    grads = {name: p.grad.clone() for name, p in named.items()}
    outputs = dict(generator_logits=generator_logits, discriminator_logits=discriminator_logits)
    outputs |= dict(generator_loss=generator.reshape(1), discriminator_loss=discriminator.reshape(1))
    outputs["loss"] = (generator + DISCRIMINATOR_WEIGHT * discriminator).reshape(1)
    outputs["grad_norm"] = torch.stack([g.norm() for g in grads.values()]).norm().reshape(1)
    outputs |= {name.replace(".", ".grad.", 1): grad for name, grad in grads.items()}
    plain = [p for n, p in named.items() if n.endswith("bias") or "LayerNorm" in n]
    decayed = [p for p in named.values() if all(p is not q for q in plain)]
    groups = [dict(params=decayed, weight_decay=WEIGHT_DECAY), dict(params=plain, weight_decay=0.0)]
    optimizer, steps, norms = torch.optim.AdamW(groups, **ADAMW), [], []
    for step in range(STEPS + 1):
        optimizer.zero_grad()
        generator, discriminator, *_ = losses()
        steps.append((generator.item(), discriminator.item()))
        if step < STEPS:
            (generator + DISCRIMINATOR_WEIGHT * discriminator).backward()
            norms.append(torch.nn.utils.clip_grad_norm_(named.values(), MAX_GRAD_NORM).item())
            optimizer.step()
    outputs["step_generator_losses"], outputs["step_discriminator_losses"] = torch.tensor(steps).unbind(1)
    outputs["step_grad_norms"] = torch.tensor(norms)
    save_file({name: tensor.detach().float().contiguous() for name, tensor in outputs.items()}, folder / "outputs.safetensors")


def write_all(root):
    classes = dict(generator=transformers.ElectraForMaskedLM, discriminator=transformers.ElectraForPreTraining)
    configs = dict(
        generator=transformers.ElectraConfig(**(SIZES | SHARED | ELECTRA | GENERATOR)),
        discriminator=transformers.ElectraConfig(**(SIZES | SHARED | ELECTRA)),
    )
    write_pair(root / "electra_rtd", 300, classes, configs, is_whole=True)
    electra = transformers.ElectraConfig(**(SMALL_SIZES | SHARED | ELECTRA), num_labels=3)
    write(root / "electra_cls", transformers.ElectraForSequenceClassification, electra, 3, 301)
    write(root / "electra_tok", transformers.ElectraForTokenClassification, electra, 3, 302, tokens=True)
    for seed, family in enumerate(FAMILY):
        config_class, lm, classifier, tagger = {
            "roberta": (transformers.RobertaConfig, transformers.RobertaForMaskedLM, transformers.RobertaForSequenceClassification, transformers.RobertaForTokenClassification),
            "bert": (transformers.BertConfig, transformers.BertForMaskedLM, transformers.BertForSequenceClassification, transformers.BertForTokenClassification),
        }[family]
        write(root / family, lm, config_class(**SIZES, **SHARED, **FAMILY[family]), 0, 100 + seed)
        write(root / f"{family}_cls", classifier, config_class(**SMALL_SIZES, **SHARED, **FAMILY[family], num_labels=3), 3, 200 + seed)
        write(root / f"{family}_tok", tagger, config_class(**SMALL_SIZES, **SHARED, **FAMILY[family], num_labels=5), 5, 210 + seed, tokens=True)
        config = config_class(**SMALL_SIZES, **SHARED, **FAMILY[family], num_labels=1 + seed, problem_type="regression")
        write(root / f"{family}_reg", classifier, config, 1 + seed, 220 + seed)


    modern = transformers.ModernBertConfig(**MODERNBERT, **MODERNBERT_SHARED, global_rope_theta=500.0, local_rope_theta=30.0)
    write(root / "modernbert", transformers.ModernBertForMaskedLM, modern, 0, 400)
    for seed, pooling in enumerate(["cls", "mean"], 401):
        modern = transformers.ModernBertConfig(**SMALL_MODERNBERT, **MODERNBERT_SHARED, classifier_pooling=pooling, num_labels=3)
        write(root / f"modernbert_{pooling}", transformers.ModernBertForSequenceClassification, modern, 3, seed)
    tiny = SMALL_SIZES | SHARED | FAMILY["roberta"]
    write(root / "xlm_roberta", transformers.XLMRobertaForMaskedLM, transformers.XLMRobertaConfig(**tiny), 0, 500)
    write(root / "xlm_roberta_cls", transformers.XLMRobertaForSequenceClassification, transformers.XLMRobertaConfig(**tiny, num_labels=3), 3, 501)
    write(root / "camembert", transformers.CamembertForMaskedLM, transformers.CamembertConfig(**tiny), 0, 502)
    distilled = transformers.DistilBertConfig(**DISTILBERT)
    write(root / "distilbert", transformers.DistilBertForMaskedLM, distilled, 0, 503)
    distilled = transformers.DistilBertConfig(**DISTILBERT, num_labels=3)
    write(root / "distilbert_cls", transformers.DistilBertForSequenceClassification, distilled, 3, 504)
    deberta = transformers.DebertaV2Config(**SIZES, **DEBERTA)
    write(root / "deberta_v2", transformers.DebertaV2ForMaskedLM, deberta, 0, 600)
    deberta = transformers.DebertaV2Config(**SMALL_SIZES | dict(num_hidden_layers=2), **DEBERTA | dict(share_att_key=False), enhanced_mask_decoder=True)
    write(root / "deberta_v2_emd", DebertaMaskDecoder, deberta, 0, 604)
    deberta = transformers.DebertaV2Config(**SMALL_SIZES, **OTHER_DEBERTA, num_labels=3)
    write(root / "deberta_v2_cls", transformers.DebertaV2ForSequenceClassification, deberta, 3, 601)
    special = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
    write_texts(root / "deberta_v2_cls", piece_tokenizer(transformers.DebertaV2Tokenizer, special, unk_id=3), transformers.DebertaV2ForSequenceClassification)
    deberta = transformers.DebertaV2Config(**SMALL_SIZES, **DEBERTA | dict(share_att_key=False), num_labels=5)
    write(root / "deberta_v2_tok", transformers.DebertaV2ForTokenClassification, deberta, 5, 602, tokens=True)
    classes = dict(generator=transformers.DebertaV2ForMaskedLM, discriminator=DebertaDiscriminator)
    layers = dict(generator=1, discriminator=2)
    configs = {name: transformers.DebertaV2Config(**PAIR_SIZES | dict(num_hidden_layers=layers[name]), **DEBERTA) for name in classes}
    write_pair(root / "deberta_v2_rtd", 603, classes, configs, is_whole=False)
    write(root / "distilbert_tok", transformers.DistilBertForTokenClassification, distilled, 3, 505, tokens=True)
    modern = transformers.ModernBertConfig(**SMALL_MODERNBERT, **MODERNBERT_SHARED, num_labels=5)
    write(root / "modernbert_tok", transformers.ModernBertForTokenClassification, modern, 5, 410, tokens=True)
    bert = transformers.BertConfig(**SMALL_SIZES, **SHARED, **FAMILY["bert"])
    write(root / "bert_nsp", transformers.BertForPreTraining, bert, 0, 800, pairs="next_sentence_label")
    albert = transformers.AlbertConfig(**ALBERT)
    write(root / "albert_sop", transformers.AlbertForPreTraining, albert, 0, 801, pairs="sentence_order_label")
    write(root / "albert", transformers.AlbertForMaskedLM, transformers.AlbertConfig(**ALBERT), 0, 700)
    albert = transformers.AlbertConfig(**OTHER_ALBERT, num_labels=3)
    write(root / "albert_cls", transformers.AlbertForSequenceClassification, albert, 3, 701)
    tokenizer = piece_tokenizer(transformers.AlbertTokenizer, ("<pad>", "<unk>", "[CLS]", "[SEP]"))
    write_texts(root / "albert_cls", tokenizer, transformers.AlbertForSequenceClassification)
    write(root / "albert_tok", transformers.AlbertForTokenClassification, transformers.AlbertConfig(**ALBERT, num_labels=5), 5, 702, tokens=True)
    write(root / "mpnet", transformers.MPNetForMaskedLM, transformers.MPNetConfig(**MPNET), 0, 900)
    classifier = transformers.MPNetConfig(**MPNET, num_labels=3)
    write(root / "mpnet_cls", transformers.MPNetForSequenceClassification, classifier, 3, 901)
    write_texts(root / "mpnet_cls", mpnet_tokenizer(), transformers.MPNetForSequenceClassification)
    tagger = transformers.MPNetConfig(**MPNET, num_labels=5)
    write(root / "mpnet_tok", transformers.MPNetForTokenClassification, tagger, 5, 902, tokens=True)
    neo = neobert_reference.NeoBERTConfig(**NEOBERT)
    write(root / "neobert", neobert_reference.NeoBERTLMHead, neo, 0, 1000)
    neo = neobert_reference.NeoBERTConfig(**NEOBERT, num_labels=3)
    write(root / "neobert_cls", neobert_reference.NeoBERTForSequenceClassification, neo, 3, 1001)
    neo = neobert_reference.NeoBERTConfig(**NEOBERT, num_labels=5)
    write(root / "neobert_tok", neobert_reference.NeoBERTForTokenClassification, neo, 5, 1002, tokens=True)
    for name in ["bert", "roberta", "modernbert"]:
        write_causal(root / name)


def compare(root):
    """The largest difference of any tensor between `root` and the committed folders, relative to its norm; None when names differ."""
    worst = 0.0
    for made in sorted(root.glob("**/*.safetensors")):
        new, old = load_file(made), load_file(GOLDEN / made.relative_to(root))
        if new.keys() != old.keys():
            return None
        for name, tensor in new.items():
            scale = max(old[name].double().norm().item(), 1e-6)
            worst = max(worst, (tensor.double() - old[name].double()).norm().item() / scale)
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with tests/golden/ instead of writing it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    if not arguments.check:
        for folder in filter(pathlib.Path.is_dir, GOLDEN.iterdir()):
            shutil.rmtree(folder)
        write_all(GOLDEN)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write_all(pathlib.Path(folder))
        worst = compare(pathlib.Path(folder))
    print(f"largest relative difference: {worst}")
    return 0 if worst is not None and worst < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
