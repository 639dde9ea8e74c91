//! Launches, bytes and matrix products that training steps of real sizes request from a GPU, recorded on the
//! CPU.
//!
//! `STEP_TABLE=1 cargo test --lib --features cuda-on-host gpu_step` prints the figures, and each product as
//! requested from cuBLASLt. Times of a GPU are computed (`Silicon`), not measured.

use std::collections::BTreeMap;
use std::io::Write;

use candle_core::{DType, Device, Tensor};

use crate::machine::Machine;
use crate::tasks::masked_lm::MaskedLm;
use crate::tasks::{Supervised, Task};
use crate::train::bench::{Case, TimedTask};
use crate::train::run;
use crate::train::step::Share;
use base::families::{EncoderConfig, ModelConfig, named_model};
use config::{
    ComputeType, MuonConfig, OptimizerType, PretrainTask, RtdConfig, TrainingConfig, WeightGradients,
};
use data::batches::Batch;
use model::models::Model;
use model::precision::{Hardware, Policy};
use ops::accumulator::Accumulator;
use ops::cuda::described::Description;
use ops::cuda::{Event, rules};
use ops::{cuda, linear};

fn case(name: &str, layers: usize, rows: usize, length: usize) -> Case {
    let mut model = named_model(name).unwrap();
    model.encoder.num_hidden_layers = layers;
    Case {
        model,
        task: pretraining(None),
        compute: ComputeType::Bf16,
        weight_gradients: WeightGradients::F32,
        gradient_checkpointing: false,
        rows,
        length,
        short_segments: false,
        optim: OptimizerType::Adamw,
        muon: MuonConfig::default(),
    }
}

fn pretraining(task: Option<PretrainTask>) -> TimedTask {
    TimedTask::Pretraining { task, rtd: RtdConfig::default(), masked_share: 0.15 }
}

/// The events of one step, after some others. The record is strict by then: a kernel or product refuses a
/// tensor that an operation of candle made in this step, and an operation of candle that reads or writes a
/// GPU tensor panics (`host/valueless.rs`, with its controls). So the events are all that the step launches,
/// and no kernel is candle's. Classifiers with soft labels and regression are not covered, since their losses
/// are composed of candle's operations.
fn step(case: &Case) -> Vec<Event> {
    let mut events = Vec::new();
    cuda::recorded(|| case.time_steps(&Device::Cpu, 2, 0.0, || events = cuda::take())).unwrap();
    events
}

fn products(events: &[Event]) -> Vec<Description> {
    let product = |event: &Event| match event {
        Event::Product(product) => Some(*product),
        _ => None,
    };
    events.iter().filter_map(product).collect()
}

/// Peak rates of a GPU by its data sheet.
struct Silicon {
    name: &'static str,
    /// Dense products of half types with sums in f32, per second.
    flops: f64,
    bytes: f64,
}

const SILICON: [Silicon; 3] = [
    Silicon { name: "H200", flops: 989e12, bytes: 4.8e12 },
    Silicon { name: "A100", flops: 312e12, bytes: 2.0e12 },
    Silicon { name: "T4", flops: 65e12, bytes: 0.32e12 },
];
const OF_PEAK: f64 = 0.7;
const OF_BANDWIDTH: f64 = 0.85;
/// From the end of a small kernel to the beginning of the next one.
const LAUNCH_SECONDS: f64 = 1.5e-6;

impl Silicon {
    /// A lower bound of the time of these events: the arithmetic of attention is left out.
    fn seconds(&self, events: &[Event]) -> f64 {
        let of_bytes = |bytes: u64| bytes as f64 / (OF_BANDWIDTH * self.bytes);
        let seconds = |event: &Event| match event {
            Event::Product(product) => {
                of_bytes(product.bytes()).max(product.flops() / (OF_PEAK * self.flops)) + LAUNCH_SECONDS
            }
            Event::Launch { bytes, .. } | Event::Clear(bytes) => of_bytes(*bytes) + LAUNCH_SECONDS,
            Event::Move(bytes) => of_bytes(2 * bytes) + LAUNCH_SECONDS,
            // Copies run at the same time as the computation, and reading waits for it.
            Event::Copy(_) | Event::Read => 0.0,
        };
        events.iter().map(seconds).sum()
    }
}

/// Numbers of launches, products and clearings, and the gigabytes of all three.
fn counts(events: &[Event]) -> ([usize; 3], f64) {
    let of = |kind: fn(&Event) -> bool| events.iter().filter(|event| kind(event)).count();
    let bytes = |event: &Event| match event {
        Event::Launch { bytes, .. } | Event::Clear(bytes) => *bytes,
        Event::Move(bytes) => 2 * bytes,
        Event::Product(product) => product.bytes(),
        Event::Copy(_) | Event::Read => 0,
    };
    let gigabytes = events.iter().map(bytes).sum::<u64>() as f64 / 1e9;
    let kinds: [fn(&Event) -> bool; 3] = [
        |event| matches!(event, Event::Launch { .. }),
        |event| matches!(event, Event::Product(_)),
        |event| matches!(event, Event::Clear(_)),
    ];
    (kinds.map(of), gigabytes)
}

/// Extrapolates a value of the step of a model with `layers` layers from models with one layer and two.
fn whole<T: Copy>(one: T, two: T, layers: usize, value: impl Fn(T) -> f64) -> f64 {
    value(one) + (layers - 1) as f64 * (value(two) - value(one))
}

fn print(text: &str) {
    if std::env::var_os("STEP_TABLE").is_some() {
        writeln!(std::io::stdout(), "{text}").unwrap();
    }
}

fn print_figures(name: &str, layers: usize, one: &[Event], two: &[Event]) {
    let count = |kind: usize| whole(one, two, layers, |events| counts(events).0[kind] as f64);
    let gigabytes = whole(one, two, layers, |events| counts(events).1);
    let [launches, of_products, clears] = [0, 1, 2].map(count);
    print(&format!(
        "{name}: {launches} launches, {of_products} products, {clears} clearings, {gigabytes:.1} GB; a layer {:?}",
        [0, 1, 2].map(|kind| counts(two).0[kind] - counts(one).0[kind])
    ));
    for silicon in SILICON {
        let seconds = whole(one, two, layers, |events| silicon.seconds(events));
        print(&format!("  {}: {:.1} ms a step, predicted", silicon.name, 1e3 * seconds));
    }
    let mut each: BTreeMap<String, usize> = BTreeMap::new();
    for event in two {
        let what = match event {
            Event::Product(product) => format!("{product:?} slow: {:?}", rules::slow(product)),
            Event::Launch { kernel, bytes } => format!("{kernel}, {bytes} bytes"),
            Event::Clear(bytes) => format!("clear {bytes} bytes"),
            Event::Move(bytes) => format!("move {bytes} bytes"),
            Event::Copy(_) => "copy from the host".to_string(),
            Event::Read => "copy to the host".to_string(),
        };
        *each.entry(what).or_default() += 1;
    }
    for (what, count) in each {
        print(&format!("    {count} x {what}"));
    }
}

/// Every product was checked against cuBLASLt's rules when it was recorded. No product is slow, although the
/// vocabulary has 50,265 words, and a layer has no more launches than counted here.
#[test]
fn steps_of_base_and_large_keep_the_rules_and_their_number_of_launches() {
    for (name, layers, rows, length, attention) in [("base", 12, 64, 128, 1), ("large", 24, 16, 512, 2)] {
        let [one, two] = [1, 2].map(|layers| step(&case(name, layers, rows, length)));
        print_figures(name, layers, &one, &two);
        for product in products(&two) {
            assert_eq!(rules::slow(&product), [""; 0], "{product:?}");
        }
        // The step ends with reading the loss and the norm.
        assert_eq!(two[two.len() - 2..], [Event::Read, Event::Read], "{name}");
        assert_eq!(two.iter().filter(|event| **event == Event::Read).count(), 2, "{name}");
        let a_layer: Vec<usize> = (0..3).map(|kind| counts(&two).0[kind] - counts(&one).0[kind]).collect();
        // Forward: attention, two block ends, GELU. Backward: these with one launch each for their column
        // sums, and attention in two launches, or in one for short rows. Four products forward, one of them
        // for queries, keys and values together, and ten backward, one of them for the gradients of their
        // weights together. Nothing is cleared.
        assert_eq!(a_layer, [4 + 3 + 3 + attention, 14, 0], "{name}");
        let hidden = named_model(name).unwrap().encoder.hidden_size as f64;
        let flops = |events: &[Event]| products(events).iter().map(Description::flops).sum::<f64>();
        let of_layer = 6.0 * 12.0 * hidden * hidden * (rows * length) as f64;
        assert!((flops(&two) - flops(&one) - of_layer).abs() < 1e-6 * of_layer, "{name}");
    }
}

/// A product writes the gradient of each weight of a layer; the norm and the update read it. In bf16 that is
/// two bytes less each time, and the only further launch is that of the norm of the second buffer.
#[test]
fn gradients_in_bf16_save_memory_traffic_and_a_layer_has_as_many_launches() {
    let [single, half] = [WeightGradients::F32, WeightGradients::Bf16].map(|weight_gradients| {
        let steps = [1, 2].map(|layers| step(&Case { weight_gradients, ..case("base", layers, 64, 128) }));
        for product in products(&steps[1]) {
            assert_eq!(rules::slow(&product), [""; 0], "{product:?}");
        }
        steps.map(|events| counts(&events))
    });
    let further = [0, 1].map(|layers| half[layers].0[0] - single[layers].0[0]);
    assert_eq!(further, [1, 1], "launches");
    for layers in [0, 1] {
        assert_eq!(half[layers].0[1..], single[layers].0[1..], "products and clearings");
    }
    let hidden = named_model("base").unwrap().encoder.hidden_size as f64;
    let of_layer = 3.0 * 2.0 * (12.0 * hidden * hidden + 3.0 * hidden) / 1e9;
    let saved = [single, half].map(|steps| steps[1].1 - steps[0].1);
    assert!((saved[0] - saved[1] - of_layer).abs() < 0.01 * of_layer, "{saved:?} GB, {of_layer} less");
}

/// The masked language model of DeBERTa-v3, with the vocabulary of the published model.
#[test]
fn steps_with_relative_positions_keep_the_rules_and_their_number_of_launches() {
    let [one, two] = [1, 2].map(|layers| step(&case("deberta-v3-base", layers, 64, 128)));
    print_figures("deberta-v3-base", 12, &one, &two);
    for product in products(&two) {
        assert_eq!(rules::slow(&product), [""; 0], "{product:?}");
    }
    let a_layer: Vec<usize> = (0..3).map(|kind| counts(&two).0[kind] - counts(&one).0[kind]).collect();
    // The launches of base, and in addition dropout of the table and of its gradient, which is added to the
    // gradients of the other layers, and two biases whose gradients have begun when their maps are applied to
    // contents as well. Products: the projections of the table; the position scores, twice, and their way
    // back to contents and table, two each; the gradients of the projections and of their inputs, 1 + 2; and
    // one for each of the weights of queries, keys and values, of which two have begun. Cleared are the rows
    // of both tables' gradients that no distance reaches, at their start and end.
    assert_eq!(a_layer, [12 + 3 + 2, 14 + 1 + 2 + 2 + 4 + 1 + 2 + 2, 4]);
}

#[test]
fn steps_of_a_pair_and_of_other_types_keep_the_rules() {
    let pair = case("electra-base", 1, 8, 128);
    // The generator has half of the layers.
    let disentangled = Case {
        task: pretraining(Some(PretrainTask::ReplacedTokenDetection)),
        ..case("deberta-v3-base", 2, 2, 128)
    };
    for case in [
        case("modernbert-base", 1, 2, 128),
        case("neobert-base", 1, 2, 128),
        Case { gradient_checkpointing: true, ..disentangled.clone() },
        disentangled,
        Case { compute: ComputeType::F16, ..case("tiny", 1, 3, 37) },
        Case { weight_gradients: WeightGradients::Bf16, ..case("tiny", 1, 3, 37) },
        Case { compute: ComputeType::F32, ..case("tiny", 1, 3, 37) },
        Case { gradient_checkpointing: true, ..pair.clone() },
        pair,
    ] {
        let events = step(&case);
        assert!(products(&events).len() >= 18, "{:?}", case.model.family);
        print_figures("one layer", 1, &events, &events);
    }
}

/// The copies that the next step needs are sent before anything of this step is read back, and the next step
/// itself copies nothing.
#[test]
fn the_next_batch_is_sent_before_the_loss_is_read() {
    cuda::recorded(|| {
        let model = Model::masked_lm(&named_model("tiny").unwrap(), 1, &Device::Cpu).unwrap();
        let task = MaskedLm { model };
        let policy = Policy::plain(ComputeType::F32, &Hardware::cpu()).unwrap();
        let machine = Machine::alone(&Device::Cpu, policy);
        let mut stepper = run::stepper(task.parameters(), &TrainingConfig::default(), &machine, 1).unwrap();
        let batch = || [Batch::of_segment((5..105).collect(), vec![3, 50, 77])];
        stepper.run(&task, &batch(), 1, 1e-3).unwrap();
        cuda::take();
        let [mut ahead] = batch();
        task.planner().expect("there is a GPU to plan for")(&mut ahead);
        let share = Share { micro: &batch(), micro_batches: 1, is_interrupted: &|| false };
        stepper.run_share(&task, share, 2, 1e-3, || task.send(&mut ahead).unwrap()).unwrap();
        let copies = |events: &[Event]| {
            let is_copy = |(_, event): &(usize, &Event)| matches!(event, Event::Copy(_));
            events.iter().enumerate().filter(is_copy).map(|(at, _)| at).collect::<Vec<usize>>()
        };
        let events = cuda::take();
        assert_eq!(copies(&events), [0, events.len() - 3]);
        assert_eq!(events[events.len() - 2..], [Event::Read, Event::Read]);
        stepper.run(&task, &[ahead], 3, 1e-3).unwrap();
        assert_eq!(copies(&cuda::take()), [0; 0]);
    });
}

/// The whole step of a classifier of DeBERTa and of MPNet, of which no kernel is candle's.
#[test]
fn a_step_of_a_classifier_with_relative_positions_keeps_the_rules() {
    keeps_the_rules("deberta-v3-base", "disentangled_attention");
    keeps_the_rules("mpnet-base", "biased_attention");
}

fn keeps_the_rules(model: &str, op: &str) {
    let events = cuda::recorded(|| {
        let ModelConfig { family, encoder } = named_model(model).unwrap();
        let config = ModelConfig { encoder: EncoderConfig { num_hidden_layers: 1, ..encoder }, family };
        let model = Model::classifier(&config, 2, 1, &Device::Cpu).unwrap();
        let task = Supervised { model: model.computing_in(DType::BF16).unwrap() };
        let policy = Policy::plain(ComputeType::Bf16, &Hardware::cpu()).unwrap();
        let machine = Machine::alone(&Device::Cpu, policy);
        let mut stepper = run::stepper(task.parameters(), &TrainingConfig::default(), &machine, 1).unwrap();
        for step in 1..=2 {
            // What the first step has prepared is kept and not prepared again.
            if step == 2 {
                cuda::take();
            }
            let batch = Batch { labels: vec![1], ..Batch::of_segment((5..105).collect(), vec![0]) };
            stepper.run(&task, &[batch], step, 1e-3).unwrap();
        }
        cuda::take()
    });
    let launched = |name: &str| {
        let is_one = |event: &&Event| matches!(event, Event::Launch { kernel, .. } if kernel == name);
        events.iter().filter(is_one).count()
    };
    // Dropout, as in the published models.
    let kernels = ["forward_64_dropout", "backward_queries_64_dropout", "backward_keys_64_dropout"];
    let launched = kernels.map(|name| launched(&format!("{op}_{name}_bf16")));
    assert_eq!((launched, events.iter().filter(|event| **event == Event::Read).count()), ([1; 3], 2));
}

/// The last map of a classifier has as many outputs as labels: two or three.
#[test]
fn products_of_a_classifier_keep_the_rules() {
    for (dtype, labels) in [DType::BF16, DType::F16, DType::F32].into_iter().flat_map(|t| [(t, 2), (t, 3)]) {
        let zeros = |shape: [usize; 2], dtype| Tensor::zeros(&shape, dtype, &Device::Cpu).unwrap();
        let asked = cuda::recorded(|| {
            let x = zeros([32, 768], dtype);
            let weight = zeros([labels, 768], dtype);
            let dy = zeros([32, labels], dtype);
            let bias = Tensor::zeros(labels, DType::F32, &Device::Cpu).unwrap();
            linear::forward(&x, &weight, Some(&bias)).unwrap();
            linear::backward_input(&dy, &weight).unwrap();
            let dweight = zeros([labels, 768], DType::F32);
            let dbias = Accumulator { sum: &bias, begun: false };
            linear::backward_parameters(&dy, &x, &dweight, Some(dbias)).unwrap();
            products(&cuda::take())
        });
        assert_eq!(asked.len(), 3);
        for product in asked {
            rules::check(&product).unwrap();
        }
    }
}
