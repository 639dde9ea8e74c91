"""NeoBERT in PyTorch, as arXiv:2502.19587 and `model.py` of chandar-lab/NeoBERT define it.

Transformers has no class for it. The names of classes, parameters and keys are those of `model.py`, so that its folders
load here and ours there. There are no packed sequences, and xformers is not needed. `NeoBERTForTokenClassification` is
not in `model.py`: it is BERT's.
"""

import torch
import transformers
from torch import nn
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

THETA = 10000.0


class NeoBERTConfig(transformers.PretrainedConfig):
    model_type = "neobert"

    def __init__(
        self,
        hidden_size=768,
        num_hidden_layers=28,
        num_attention_heads=12,
        intermediate_size=3072,
        embedding_init_range=0.02,
        decoder_init_range=0.02,
        norm_eps=1e-6,
        vocab_size=30522,
        pad_token_id=0,
        max_length=1024,
        classifier_dropout=0.1,
        **others,
    ):
        super().__init__(**others)
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.embedding_init_range = embedding_init_range
        self.decoder_init_range = decoder_init_range
        self.norm_eps = norm_eps
        self.vocab_size = vocab_size
        self.pad_token_id = pad_token_id
        self.max_length = max_length
        self.classifier_dropout = classifier_dropout

    @property
    def initializer_range(self):
        return self.decoder_init_range

    def _get_generation_parameters(self):
        """Transformers 5 takes `max_length` for one and refuses to save it."""
        return {}


def turns_of(length, size, device):
    """Complex numbers [1, S, 1, K / 2] of length 1, at the angle of each position and pair."""
    frequencies = THETA ** (-torch.arange(0, size, 2, dtype=torch.float64, device=device) / size)
    angles = torch.outer(torch.arange(length, dtype=torch.float64, device=device), frequencies)
    return torch.polar(torch.ones_like(angles), angles)[None, :, None, :]


def rotated(heads, turns):
    """Heads [B, S, H, K]: each pair of adjacent numbers is a complex number, and turns by the angle of its position."""
    wide = heads if heads.dtype == torch.float64 else heads.float()
    pairs = torch.view_as_complex(wide.unflatten(3, (-1, 2)))
    return torch.view_as_real(pairs * turns.to(pairs.dtype)).flatten(3).to(heads.dtype)


class SwiGLU(nn.Module):
    def __init__(self, hidden_size, intermediate_size):
        super().__init__()
        width = -(-int(2 * intermediate_size / 3) // 8) * 8
        self.w12 = nn.Linear(hidden_size, 2 * width, bias=False)
        self.w3 = nn.Linear(width, hidden_size, bias=False)

    def forward(self, x):
        activated, gates = self.w12(x).chunk(2, dim=-1)
        return self.w3(nn.functional.silu(activated) * gates)


class EncoderBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.wo = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.ffn = SwiGLU(config.hidden_size, config.intermediate_size)
        self.attention_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.ffn_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, x, turns, mask):
        x = x + self.attention(self.attention_norm(x), turns, mask)
        return x + self.ffn(self.ffn_norm(x))

    def attention(self, x, turns, mask):
        # For each head its query, its key and its value.
        query, key, value = self.qkv(x).unflatten(-1, (self.heads, -1)).chunk(3, dim=-1)
        query, key, value = (part.transpose(1, 2) for part in (rotated(query, turns), rotated(key, turns), value))
        return self.wo(nn.functional.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).flatten(2))


class NeoBERTPreTrainedModel(transformers.PreTrainedModel):
    config_class = NeoBERTConfig
    base_model_prefix = "model"

    @torch.no_grad()
    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            nn.init.uniform_(module.weight, -self.config.decoder_init_range, self.config.decoder_init_range)
        elif isinstance(module, nn.Embedding):
            nn.init.uniform_(module.weight, -self.config.embedding_init_range, self.config.embedding_init_range)


class NeoBERT(NeoBERTPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.encoder = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.transformer_encoder = nn.ModuleList(EncoderBlock(config) for _ in range(config.num_hidden_layers))
        self.layer_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, **_):
        mask = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
        width = self.config.hidden_size // self.config.num_attention_heads
        turns = turns_of(input_ids.shape[1], width, input_ids.device)
        x = self.encoder(input_ids)
        for layer in self.transformer_encoder:
            x = layer(x, turns, mask)
        return BaseModelOutput(last_hidden_state=self.layer_norm(x))


class NeoBERTLMHead(NeoBERTPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.model = NeoBERT(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, labels=None, **_):
        logits = self.decoder(self.model(input_ids, attention_mask).last_hidden_state)
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return MaskedLMOutput(loss=loss, logits=logits)


class NeoBERTForSequenceClassification(NeoBERTPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.model = NeoBERT(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, labels=None, **_):
        first = self.model(input_ids, attention_mask).last_hidden_state[:, 0]
        logits = self.classifier(self.dropout(torch.tanh(self.dense(self.dropout(first)))))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class NeoBERTForTokenClassification(NeoBERTPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.model = NeoBERT(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, labels=None, **_):
        logits = self.classifier(self.dropout(self.model(input_ids, attention_mask).last_hidden_state))
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return TokenClassifierOutput(loss=loss, logits=logits)


def register():
    """Makes the auto classes of transformers load folders of NeoBERT."""
    transformers.AutoConfig.register("neobert", NeoBERTConfig)
    transformers.AutoModel.register(NeoBERTConfig, NeoBERT)
    transformers.AutoModelForMaskedLM.register(NeoBERTConfig, NeoBERTLMHead)
    transformers.AutoModelForSequenceClassification.register(NeoBERTConfig, NeoBERTForSequenceClassification)
    transformers.AutoModelForTokenClassification.register(NeoBERTConfig, NeoBERTForTokenClassification)
