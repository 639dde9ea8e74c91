//! What a training step takes with candle's own parts: autograd, candle-nn's `AdamW`, f32.
//!
//! `cargo bench --bench candle -- small,16,128 base,8,128 modernbert-base,8,128` prints a line or two for each
//! size, rows and length:
//!
//! - `candle-transformers`: its masked language model as it is: BERT for RoBERTa's sizes, DistilBERT,
//!   ModernBERT, and DeBERTa's encoder below a map to the vocabulary. Its LayerNorm has no backward and cuts
//!   the graph without a word: the line says how many of its tensors get a gradient, and the rest stays as it
//!   began. It is no training; it is what a user sees who does not look. It has no other family.
//! - `candle-nn`, for RoBERTa's sizes: the same model of candle-nn's parts, with norms composed of operations
//!   that have a gradient.
//!
//! No dropout, logits of all rows, the loss of 15 % of them: what its users write.

use std::io::Write;
use std::time::Instant;

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::loss::cross_entropy;
use candle_nn::ops::softmax;
use candle_nn::{AdamW, Embedding, Linear, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use candle_transformers::models::bert::{BertForMaskedLM, Config};
use candle_transformers::models::debertav2::DebertaV2Model;
use candle_transformers::models::distilbert::DistilBertForMaskedLM;
use candle_transformers::models::modernbert::ModernBertForMaskedLM;
use mlmtrain::families::{EncoderConfig, named_model};
use mlmtrain::rng::{Purpose, Stream};
use serde::de::DeserializeOwned;
use serde_json::json;

const WARM_UP_STEPS: usize = 2;
const STEPS: usize = 5;
const MASKED_SHARE: f64 = 0.15;

/// Post-norm layers and a tied head, as BERT has them.
struct Composed {
    words: Embedding,
    positions: Tensor,
    norm: Norm,
    layers: Vec<Layer>,
    transform: (Linear, Norm),
    bias: Tensor,
    heads: usize,
}

struct Layer {
    attention: [Linear; 4],
    feed_forward: [Linear; 2],
    norms: [Norm; 2],
}

/// LayerNorm of operations that autograd knows.
struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Norm {
    fn new(width: usize, vb: &VarBuilder) -> Result<Self> {
        let ones = candle_nn::Init::Const(1.0);
        Ok(Self { weight: vb.get_with_hints(width, "weight", ones)?, bias: vb.get(width, "bias")? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
        let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
        let normed = centred.broadcast_div(&(variance + 1e-12)?.sqrt()?)?;
        normed.broadcast_mul(&self.weight)?.broadcast_add(&self.bias)
    }
}

impl Composed {
    fn new(config: &Config, vb: &VarBuilder) -> Result<Self> {
        let (d, f) = (config.hidden_size, config.intermediate_size);
        let linear = |from, to, name: String| candle_nn::linear(from, to, vb.pp(name));
        let norm = |name: String| Norm::new(d, &vb.pp(name));
        let layer = |n: usize| {
            Ok(Layer {
                attention: [
                    linear(d, d, format!("{n}.q"))?,
                    linear(d, d, format!("{n}.k"))?,
                    linear(d, d, format!("{n}.v"))?,
                    linear(d, d, format!("{n}.o"))?,
                ],
                feed_forward: [linear(d, f, format!("{n}.up"))?, linear(f, d, format!("{n}.down"))?],
                norms: [norm(format!("{n}.norm1"))?, norm(format!("{n}.norm2"))?],
            })
        };
        Ok(Self {
            words: candle_nn::embedding(config.vocab_size, d, vb.pp("words"))?,
            positions: vb.get((config.max_position_embeddings, d), "positions")?,
            norm: norm("norm".to_string())?,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?,
            transform: (linear(d, d, "transform".to_string())?, norm("transform_norm".to_string())?),
            bias: vb.get(config.vocab_size, "bias")?,
            heads: config.num_attention_heads,
        })
    }

    /// Logits `[rows, length, V]`.
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let (rows, length) = ids.dims2()?;
        let x = self.words.forward(ids)?.broadcast_add(&self.positions.narrow(0, 0, length)?)?;
        let mut x = self.norm.forward(&x)?;
        for layer in &self.layers {
            let [q, k, v, o] = &layer.attention;
            let split = |map: &Linear| {
                map.forward(&x)?.reshape((rows, length, self.heads, ()))?.transpose(1, 2)?.contiguous()
            };
            let (q, k, v) = (split(q)?, split(k)?, split(v)?);
            let scale = (q.dim(D::Minus1)? as f64).sqrt();
            let scores = (q.matmul(&k.t()?.contiguous()?)? / scale)?;
            let mixed = softmax(&scores, D::Minus1)?.matmul(&v)?.transpose(1, 2)?.flatten_from(2)?;
            x = layer.norms[0].forward(&(&x + o.forward(&mixed)?)?)?;
            let [up, down] = &layer.feed_forward;
            x = layer.norms[1].forward(&(&x + down.forward(&up.forward(&x)?.gelu_erf()?)?)?)?;
        }
        let (map, norm) = &self.transform;
        let hidden = norm.forward(&map.forward(&x)?.gelu_erf()?)?;
        hidden.flatten_to(1)?.matmul(&self.words.embeddings().t()?)?.broadcast_add(&self.bias)
    }
}

/// Logits of ids, `[rows, length]`.
type Forward = Box<dyn Fn(&Tensor) -> Result<Tensor>>;

fn config_of(model: &EncoderConfig) -> Config {
    Config {
        vocab_size: model.vocab_size,
        hidden_size: model.hidden_size,
        num_hidden_layers: model.num_hidden_layers,
        num_attention_heads: model.num_attention_heads,
        intermediate_size: model.intermediate_size,
        ..Config::default()
    }
}

/// A configuration of candle-transformers, which reads the names that it knows.
fn read<C: DeserializeOwned>(model: &EncoderConfig) -> Result<C> {
    let (width, layers, heads) = (model.hidden_size, model.num_hidden_layers, model.num_attention_heads);
    let all = json!({
        "vocab_size": model.vocab_size, "max_position_embeddings": model.max_position_embeddings,
        "pad_token_id": 0, "initializer_range": 0.02, "layer_norm_eps": 1e-7,
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": model.intermediate_size,
        // DistilBERT
        "dim": width, "n_layers": layers, "n_heads": heads, "hidden_dim": model.intermediate_size,
        "activation": "gelu", "model_type": "distilbert",
        // ModernBERT
        "global_attn_every_n_layers": 3, "global_rope_theta": 160_000.0, "local_attention": 128,
        "local_rope_theta": 10_000.0,
        // DeBERTa-v3
        "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "type_vocab_size": 0, "relative_attention": true, "max_relative_positions": -1,
        "position_biased_input": false, "pos_att_type": "p2c|c2p", "position_buckets": 256,
        "share_att_key": true, "norm_rel_ebd": "layer_norm",
    });
    serde_json::from_value(all).map_err(candle_core::Error::wrap)
}

/// What candle-transformers has of the name; `None` where it has nothing.
fn theirs(name: &str, model: &EncoderConfig, vb: VarBuilder) -> Result<Option<Forward>> {
    Ok(Some(match name.rsplit_once('-').map(|(family, _)| family) {
        None => {
            let model = BertForMaskedLM::load(vb, &config_of(model))?;
            Box::new(move |ids| model.forward(ids, &ids.zeros_like()?, None))
        }
        Some("distilbert") => {
            let model = DistilBertForMaskedLM::load(vb, &read(model)?)?;
            Box::new(move |ids| model.forward(ids, &Tensor::zeros((1, 1), DType::U8, ids.device())?))
        }
        Some("modernbert") => {
            let model = ModernBertForMaskedLM::load(vb, &read(model)?)?;
            Box::new(move |ids| model.forward(ids, &ids.ones_like()?))
        }
        Some("deberta-v3") => {
            let encoder = DebertaV2Model::load(vb.pp("deberta"), &read(model)?)?;
            let decoder = candle_nn::linear(model.hidden_size, model.vocab_size, vb.pp("decoder"))?;
            Box::new(move |ids| decoder.forward(&encoder.forward(ids, None, None)?))
        }
        Some(_) => return Ok(None),
    }))
}

/// Median seconds of a step, and how many of the model's tensors get a gradient.
fn measure(
    variables: &VarMap,
    (ids, rows, labels): (&Tensor, &Tensor, &Tensor),
    forward: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<(f64, usize)> {
    let parameters = ParamsAdamW { lr: 1e-4, weight_decay: 0.01, ..ParamsAdamW::default() };
    let mut optimizer = AdamW::new(variables.all_vars(), parameters)?;
    let (mut seconds, mut reached) = (Vec::new(), 0);
    for _ in 0..WARM_UP_STEPS + STEPS {
        let start = Instant::now();
        let logits = forward(ids)?;
        let logits = if logits.rank() == 3 { logits.flatten_to(1)? } else { logits };
        let gradients = cross_entropy(&logits.index_select(rows, 0)?, labels)?.backward()?;
        optimizer.step(&gradients)?;
        seconds.push(start.elapsed().as_secs_f64());
        reached = variables.all_vars().iter().filter(|var| gradients.get(var).is_some()).count();
    }
    seconds.drain(..WARM_UP_STEPS);
    seconds.sort_by(f64::total_cmp);
    Ok((seconds[STEPS / 2], reached))
}

fn run(case: &str) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let parts: Vec<&str> = case.split(',').collect();
    let [size, rows, length] = parts[..] else {
        return Err(format!("`{case}` is not SIZE,ROWS,LENGTH").into());
    };
    let model = named_model(size).ok_or_else(|| format!("no model is called `{size}`"))?.encoder;
    let (rows, length): (usize, usize) = (rows.parse()?, length.parse()?);
    let device = Device::Cpu;
    let stream = Stream::new(1, Purpose::Test, 0);
    let tokens = rows * length;
    let drawn = |n: usize| stream.below(n as u64, model.vocab_size as u64) as u32;
    let ids = Tensor::from_iter((0..tokens).map(drawn), &device)?.reshape((rows, length))?;
    let masked = (tokens as f64 * MASKED_SHARE) as usize;
    let places = Tensor::from_iter((0..masked).map(|n| (n * tokens / masked) as u32), &device)?;
    let labels = Tensor::from_iter((0..masked).map(|n| drawn(tokens + n)), &device)?;
    let batch = (&ids, &places, &labels);
    let line = |name: &str, variables: &VarMap, (seconds, reached): (f64, usize)| {
        let all = variables.all_vars().len();
        let speed = tokens as f64 / seconds;
        writeln!(
            std::io::stdout(),
            "{case} f32 {name:20} {speed:7.0} tokens/s, gradients of {reached} of {all} tensors"
        )
    };

    let variables = VarMap::new();
    match theirs(size, &model, VarBuilder::from_varmap(&variables, DType::F32, &device))? {
        Some(theirs) => line("candle-transformers", &variables, measure(&variables, batch, theirs)?)?,
        None => writeln!(std::io::stdout(), "{case} f32 candle-transformers has no such family")?,
    }
    if size.contains('-') {
        return Ok(());
    }
    let variables = VarMap::new();
    let composed =
        Composed::new(&config_of(&model), &VarBuilder::from_varmap(&variables, DType::F32, &device))?;
    line("candle-nn", &variables, measure(&variables, batch, |ids| composed.forward(ids))?)?;
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    // cargo passes `--bench`.
    let cases: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    cases.iter().try_for_each(|case| run(case))
}
