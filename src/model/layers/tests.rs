//! Encoder layers of every kind, compared with the same functions composed of the ops' references.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor};

use crate::layers::context::Pass;
use crate::layers::encoder_layer::EncoderLayer;
use crate::layers::feed_forward::{Activation, FeedForward};
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::layers::output_block::OutputBlock;
use crate::layers::self_attention::{Positions, SelfAttention};
use crate::layers::{
    Chosen, Context, Gradients, Init, NormPlacement, Parameters, Registry, Rows, Site, Stream,
};
use ops::activation::Function;
use ops::attention::Reach;
use ops::layer_norm::Form;
use ops::rotary::Angles;
use ops::testing::{assert_close, device, fresh, on_each_device, reference_gradients};
use ops::{activation, attention, gated, layer_norm, rotary};

const LAYERS: usize = 2;
const D: usize = 12;
const F: usize = 10;
const HEADS: usize = 2;
const EPS: f64 = 1e-5;
const THETA: f64 = 50.0;
const BOUNDS: [u32; 4] = [0, 9, 9, 14];
const TOKENS: usize = 14;
/// Rows that are chosen from the last layer: not in order, and one of them twice.
const CHOSEN: [u32; 5] = [8, 0, 13, 4, 0];

/// The variants of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Make {
    placement: NormPlacement,
    is_rotary: bool,
    window: Option<usize>,
    is_causal: bool,
    activation: Activation,
    form: Form,
    /// True if maps and norms have biases; without biases, queries, keys and values are one tensor.
    has_biases: bool,
}

const BERT: Make = Make {
    placement: NormPlacement::After,
    is_rotary: false,
    window: None,
    is_causal: false,
    activation: Activation::Pointwise(Function::Gelu),
    form: Form::LayerNorm,
    has_biases: true,
};

const MODERN: Make = Make {
    placement: NormPlacement::Before,
    is_rotary: true,
    window: Some(3),
    is_causal: false,
    activation: Activation::Gated(gated::Function::Gelu),
    form: Form::LayerNorm,
    has_biases: false,
};

const NEO: Make = Make {
    window: None,
    activation: Activation::Gated(gated::Function::Silu),
    form: Form::RmsNorm,
    ..MODERN
};

impl Make {
    fn layer(self, registry: &mut Registry, layer: usize) -> EncoderLayer {
        let [query, key, value] = if self.has_biases {
            ["query", "key", "value"].map(|name| linear(registry, &format!("{layer}.{name}"), [D, D], true))
        } else {
            let weights = registry.weight_of_maps(format!("{layer}.qkv.weight"), D, D, Init::Normal);
            weights.map(|weight| Linear { weight, bias: None, inputs: D, outputs: D })
        };
        let is_gated = matches!(self.activation, Activation::Gated(_));
        let has_bias = self.has_biases && !is_gated;
        let wide = if is_gated { 2 * F } else { F };
        EncoderLayer {
            attention: SelfAttention {
                heads: HEADS,
                positions: if self.is_rotary {
                    Positions::Rotary(Arc::new(Angles::new(D / HEADS, THETA)))
                } else {
                    Positions::Absolute
                },
                window: self.window,
                dropout: 0.0,
                site: Site::AttentionProbabilities(layer),
                query,
                key,
                value,
                output: self.output(registry, &format!("{layer}.attention"), D, Site::AttentionOutput(layer)),
            },
            feed_forward: FeedForward {
                intermediate: linear(registry, &format!("{layer}.wide"), [D, wide], has_bias),
                activation: self.activation,
                dropout: 0.0,
                output: self.output(registry, &format!("{layer}.feed_forward"), F, Site::FeedForward(layer)),
            },
        }
    }

    /// The end of a block whose parameters have names that begin with `name`.
    fn output(self, registry: &mut Registry, name: &str, inputs: usize, site: Site) -> OutputBlock {
        OutputBlock {
            dense: linear(registry, &format!("{name}.out"), [inputs, D], self.has_biases),
            norm: Norm::new(registry, &format!("{name}.norm"), D, self.form, EPS, self.has_biases),
            placement: self.placement,
            site,
            dropout: 0.0,
        }
    }

    /// The hidden states after all layers, composed of references.
    fn composed(self, x: &Tensor, named: &Named<'_>) -> Result<Tensor> {
        let mut input = x.clone();
        let mut residual = x.clone();
        for layer in 0..LAYERS {
            let maps = match named.find(&format!("{layer}.qkv.weight")) {
                Some(whole) => [0, 1, 2].map(|map| input.matmul(&whole.narrow(0, map * D, D)?.t()?)),
                None => {
                    ["query", "key", "value"].map(|name| named.linear(&input, &format!("{layer}.{name}")))
                }
            };
            let [q, k, v] = maps;
            let q = self.rotated(q?)?;
            let k = self.rotated(k?)?;
            let o = attention::reference::forward(&q, &k, &v?, HEADS, &BOUNDS, self.reach(), None)?;
            (input, residual) = self.end(&o, &residual, &format!("{layer}.attention"), named)?;
            let name = format!("{layer}.wide");
            let wide = named.product(&input, &name)?;
            let no_bias = Tensor::zeros(F, wide.dtype(), wide.device())?;
            let middle = match self.activation {
                Activation::Gated(function) => gated::reference::forward(function, &wide)?,
                Activation::Pointwise(function) => {
                    let bias = named.find(&format!("{name}.bias")).unwrap_or(&no_bias);
                    activation::reference::forward(function, &wide, bias)?
                }
            };
            (input, residual) = self.end(&middle, &residual, &format!("{layer}.feed_forward"), named)?;
        }
        Ok(input)
    }

    fn reach(self) -> Reach {
        let both_sides = self.window.map_or(Reach::ALL, Reach::window);
        if self.is_causal { both_sides.causal() } else { both_sides }
    }

    /// Queries or keys, rotated if positions are rotary.
    fn rotated(self, x: Tensor) -> Result<Tensor> {
        if self.is_rotary { rotary::reference::forward(&x, HEADS, &BOUNDS, THETA) } else { Ok(x) }
    }

    /// Input and residual of the next block after block `name`.
    fn end(self, x: &Tensor, residual: &Tensor, name: &str, named: &Named<'_>) -> Result<(Tensor, Tensor)> {
        let sum = (residual + named.linear(x, &format!("{name}.out"))?)?;
        let [weight, bias] = ["weight", "bias"].map(|part| named.find(&format!("{name}.norm.{part}")));
        let normed = layer_norm::reference::forward(self.form, &sum, weight.unwrap(), bias, EPS)?;
        Ok(match self.placement {
            NormPlacement::After => (normed.clone(), normed),
            NormPlacement::Before => (normed, sum),
        })
    }
}

/// A map with parameters `<name>.weight` and `<name>.bias`.
fn linear(registry: &mut Registry, name: &str, sizes: [usize; 2], has_bias: bool) -> Linear {
    Linear::initialised(registry, name, sizes, Init::Normal, has_bias)
}

/// Parameters by name, for the composed layers.
struct Named<'a>(Vec<(String, &'a Tensor)>);

impl Named<'_> {
    fn find(&self, name: &str) -> Option<&Tensor> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, tensor)| *tensor)
    }

    /// The product with the weight of a map.
    fn product(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        x.matmul(&self.find(&format!("{name}.weight")).unwrap().t()?)
    }

    /// The output of a map, with its bias if there is one.
    fn linear(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let y = self.product(x, name)?;
        match self.find(&format!("{name}.bias")) {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        }
    }
}

/// Compares output and gradients of layers of this kind with the composed ones.
fn compare(make: Make) {
    for chosen in [None, Some(&CHOSEN[..])] {
        compare_rows(make, chosen);
    }
}

fn compare_rows(make: Make, chosen: Option<&[u32]>) {
    let mut registry = Registry::default();
    let layers: Vec<EncoderLayer> = (0..LAYERS).map(|layer| make.layer(&mut registry, layer)).collect();
    let parameters = Parameters::initialise(registry.layout(), 0.3, 1, &device()).unwrap();
    // Norms and biases begin as ones and zeros, which would hide a mistake.
    for (id, spec) in (10..).zip(parameters.layout().specs().filter(|spec| spec.init != Init::Normal)) {
        parameters.set(&spec.name, &fresh(spec.shape.clone(), id)).unwrap();
    }
    let given = chosen.map_or(TOKENS, <[u32]>::len);
    let x = fresh((TOKENS, D), 1);
    let dy = fresh((given, D), 2);
    let keys = [0; TOKENS];
    let is_causal = make.is_causal;
    let rows = Rows { cu_seqlens: (&BOUNDS).into(), token_keys: (&keys).into(), is_causal };
    let ctx = Context { parameters: &parameters, rows, pass: None };
    let gradients = Gradients::new(&parameters).unwrap();
    let mut stream = Stream::from(x.clone());
    let mut saved = Vec::new();
    // Only the last layer computes chosen rows.
    let asked = |layer: usize| {
        let positions = chosen.filter(|_| layer == LAYERS - 1)?;
        Some(Chosen { positions: positions.into(), keys: (&keys[..positions.len()]).into() })
    };
    for (index, layer) in layers.iter().enumerate() {
        let (next, of_layer) = layer.forward(&stream, None, asked(index), &ctx).unwrap();
        saved.push(of_layer);
        stream = next;
    }
    let mut gradient = Stream::from(dy.clone());
    for ((index, layer), saved) in layers.iter().enumerate().zip(&saved).rev() {
        gradient = layer.backward(&gradient, saved, None, asked(index), &ctx, &gradients).unwrap();
    }
    assert!(gradient.residual.is_none());

    let named = parameters.named().unwrap();
    let inputs: Vec<&Tensor> = std::iter::once(&x).chain(named.iter().map(|(_, t)| t)).collect();
    let composed = |i: &[Tensor]| {
        let named = Named(named.iter().map(|(name, _)| name.clone()).zip(&i[1..]).collect());
        let all = make.composed(&i[0], &named)?;
        match chosen {
            None => Ok(all),
            Some(chosen) => all.index_select(&Tensor::new(chosen, &Device::Cpu)?, 0),
        }
    };
    let (want, want_gradients) = reference_gradients(composed, &inputs, &dy);
    assert_close(&format!("output of {make:?}, {chosen:?}"), &stream.input, &want, 2e-6);
    assert_close(
        &format!("input gradient of {make:?}, {chosen:?}"),
        &gradient.input,
        &want_gradients[0],
        1e-5,
    );
    let flat = gradients.flat().unwrap();
    for (spec, want) in parameters.layout().specs().zip(&want_gradients[1..]) {
        // A key's bias adds the same number to all scores of a query: without rotation its gradient is only
        // rounding.
        if spec.name.ends_with("key.bias") && !make.is_rotary {
            continue;
        }
        let got = flat.narrow(0, spec.range.start, spec.range.len()).unwrap();
        let got = got.reshape(spec.shape.as_slice()).unwrap();
        assert_close(&format!("`{}` of {make:?}, {chosen:?}", spec.name), &got, want, 2e-5);
    }
}

#[test]
fn layers_of_bert_modern_bert_and_neo_bert_are_what_their_parts_compose() {
    on_each_device(|| [BERT, MODERN, NEO].into_iter().for_each(compare));
}

#[test]
fn each_part_of_a_layer_is_a_choice_of_its_own() {
    on_each_device(|| {
        compare(Make { placement: NormPlacement::Before, ..BERT });
        compare(Make { is_rotary: true, ..BERT });
        compare(Make { window: Some(2), ..BERT });
        compare(Make { is_causal: true, ..BERT });
        compare(Make { is_causal: true, ..MODERN });
        compare(Make { activation: Activation::Gated(gated::Function::Gelu), ..BERT });
        compare(Make { form: Form::RmsNorm, ..BERT });
        compare(Make { activation: Activation::Pointwise(Function::GeluTanh), ..BERT });
        compare(Make { has_biases: false, ..BERT });
        compare(Make { placement: NormPlacement::After, ..MODERN });
    });
}

/// Chosen rows have the same dropout as when all rows are computed.
#[test]
fn chosen_rows_are_those_of_a_whole_layer_with_dropout() {
    on_each_device(|| {
        for make in [BERT, MODERN, NEO] {
            let mut registry = Registry::default();
            let mut layer = make.layer(&mut registry, 0);
            layer.attention.dropout = 0.2;
            layer.attention.output.dropout = 0.3;
            // Only one of the two is used, since they share a random stream.
            let of_block = if make == BERT { 0.3 } else { 0.0 };
            (layer.feed_forward.dropout, layer.feed_forward.output.dropout) = (0.3 - of_block, of_block);
            let parameters = Parameters::initialise(registry.layout(), 0.3, 1, &device()).unwrap();
            let keys: Vec<u64> = (100..100 + TOKENS as u64).collect();
            let rows = Rows { cu_seqlens: (&BOUNDS).into(), token_keys: (&keys).into(), is_causal: false };
            let ctx = Context { parameters: &parameters, rows, pass: Some(Pass::new(1, 1)) };
            let x = Stream::from(fresh((TOKENS, D), 1));
            let of_chosen = CHOSEN.map(|position| keys[position as usize]);
            let chosen = Chosen { positions: (&CHOSEN).into(), keys: (&of_chosen).into() };
            let of_all = |dy: Tensor, chosen: Option<Chosen<'_>>| {
                let gradients = Gradients::new(&parameters).unwrap();
                let (y, saved) = layer.forward(&x, None, chosen, &ctx).unwrap();
                let dx = layer.backward(&dy.into(), &saved, None, chosen, &ctx, &gradients).unwrap();
                (y.input, dx.input, gradients.flat().unwrap().clone())
            };
            let dy = fresh((CHOSEN.len(), D), 2);
            let (y, dx, gradients) = of_all(dy.clone(), Some(chosen));
            let spread = Chosen::backward(Some(chosen), dy, TOKENS).unwrap();
            let (all, want_dx, want_gradients) = of_all(spread, None);
            let want = Chosen::gather(Some(chosen), &all).unwrap();
            assert_close(&format!("output of {make:?}"), &y, &want, 1e-6);
            assert_close(&format!("input gradient of {make:?}"), &dx, &want_dx, 2e-6);
            assert_close(&format!("gradients of {make:?}"), &gradients, &want_gradients, 2e-6);
        }
    });
}
