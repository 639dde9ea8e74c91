//! `mlmtrain init`: writes a commented configuration for a text and a budget of time, after a short
//! measurement, or for labelled files.

mod labelled;
mod sources;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::commands::init::labelled::LabelledArgs;
use crate::commands::outputs::OverwriteArgs;
use crate::commands::{bench, device, staging, terminal};
use crate::config::{
    CacheConfig, ComputeType, DataConfig, DeviceChoice, DocumentUnit, OnBadRecord, PrecisionConfig,
    SourceConfig, TrainingConfig, language_code,
};
use crate::corpus::{Corpus, Judge};
use crate::error::Problem;
use crate::estimate::{Estimate, GPU_SHARE, Rentable, Work, gpu_seconds};
use crate::families::{Family, ModelConfig};
use crate::fs::TextEncoding;
use crate::models::Blueprint;
use crate::ops::peak::gpu::data_sheet;
use crate::precision::Hardware;
use crate::quantity::{
    format_bytes, format_count, format_duration, format_grouped, format_span, parse_duration,
};
use crate::recipe::{Choice, ExpectedLanguage, FilterPreview, Plan, SHORT_LENGTH, TextSample, Wish};
use crate::tasks::run::{Shapes, TargetShare};
use crate::telemetry::{Progress, Unit};
use crate::words::counted;
use crate::{fs, machine, precision, recipe};

/// Share of the budget for training; the rest is for preparing, evaluating and saving.
const TRAINING_SHARE: f64 = 0.9;

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Files, folders or patterns of the text, as `data.sources` takes them
    #[arg(long, value_name = "PATH", required_unless_present = "train", num_args = 1.., requires = "budget")]
    pub text: Vec<String>,
    /// Field or column that holds the text, of .jsonl, .csv, .tsv and .parquet
    #[arg(long, value_name = "NAME", default_value = "text", conflicts_with = "train")]
    pub field: String,
    /// Encoding of the text or the labelled files, e.g. `windows-1252`; else UTF-8, or what a byte-order mark
    /// says
    #[arg(long, value_name = "NAME")]
    pub encoding: Option<TextEncoding>,
    /// Unit of a document in plain text; guessed when not given
    #[arg(long, value_enum, conflicts_with = "train")]
    pub document: Option<UnitChoice>,
    /// Language of the text, e.g. `fi`: documents in another one are left out
    #[arg(long, value_name = "CODE", value_parser = language, conflicts_with = "train")]
    pub language: Option<String>,
    /// Family of the model
    #[arg(
        long,
        value_name = "NAME",
        default_value = "roberta",
        value_parser = family,
        conflicts_with = "train"
    )]
    pub family: Family,
    /// How long the run may take, e.g. `10m`, `2h`, `3d`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Device of the run: cpu, cuda, cuda:1, auto (the first GPU where there is one), or the name of a GPU
    /// that is not here, e.g. H100, A100, L4, T4, "RTX 4090"
    #[arg(long, value_name = "DEVICE", default_value = "auto", conflicts_with = "train")]
    pub device: String,
    /// Threads; 0 means one for each core that this process may use
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "train")]
    pub threads: usize,
    /// Output file; `-` is standard output [default: `pretrain.yaml`, or `finetune.yaml` with --train]
    #[arg(long, short, value_name = "FILE|-")]
    pub output: Option<PathBuf>,
    /// Permission to replace a file that exists.
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Folder of the run (key `run.output_dir`), `runs/pretrain` or `runs/finetune` when not given
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<String>,
    /// Labelled files.
    #[command(flatten)]
    pub labelled: LabelledArgs,
}

/// The unit of a document in plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UnitChoice {
    /// The whole file
    File,
    /// A run of lines between blank lines
    Paragraph,
    /// A line
    Line,
}

impl From<UnitChoice> for DocumentUnit {
    fn from(choice: UnitChoice) -> Self {
        match choice {
            UnitChoice::File => Self::File,
            UnitChoice::Paragraph => Self::Paragraph,
            UnitChoice::Line => Self::Line,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

/// Parses the name of a family. Families whose layers share weights are refused: the number of parameters, by
/// which a size is chosen, would not grow with the number of layers.
fn family(name: &str) -> Result<Family, String> {
    let mut families = Family::ALL.into_iter().filter(|family| !family.shares_layers);
    let names: Vec<&str> = families.clone().map(|family| family.name).collect();
    families.find(|family| family.name == name).ok_or_else(|| format!("not one of {}", names.join(", ")))
}

fn language(code: &str) -> Result<String, String> {
    let known = language_code(code).map(|_| code.to_ascii_lowercase());
    known.ok_or_else(|| {
        "no language that can be told apart; codes are those of ISO 639, such as `fi`".to_string()
    })
}

/// Most rows of a micro-batch on a CPU: enough to keep it busy, and few enough for its memory.
const CPU_ROWS: usize = 32;

/// Most rows of a micro-batch on a GPU.
const GPU_ROWS: usize = 128;

/// The source of training speeds.
enum Speed {
    /// Measurements on this machine.
    Here { device: DeviceChoice, on_gpu: bool, compute: ComputeType, threads: usize },
    /// Predictions for a GPU with this name, from its data sheet: of one for rent with its memory, of others
    /// from operations per second alone.
    Elsewhere { name: String, gpu: Option<Rentable>, peak_flops: f64 },
}

/// Runs the subcommand.
pub fn run(args: &InitArgs) -> Result<()> {
    let command = if args.labelled.train.is_some() { "finetune" } else { "pretrain" };
    let output = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{command}.yaml")));
    let output_dir = args.output_dir.clone().unwrap_or_else(|| format!("runs/{command}"));
    if output != Path::new("-") {
        let labelled =
            [&args.labelled.train, &args.labelled.eval, &args.labelled.model].into_iter().flatten();
        let named: Vec<PathBuf> = args.text.iter().map(PathBuf::from).chain(labelled.cloned()).collect();
        // Files that a pattern matches are inputs, too.
        let matched: Vec<PathBuf> =
            named.iter().filter_map(|path| fs::matching(path.to_str()?).ok()).flatten().collect();
        let inputs: Vec<&Path> = named.iter().chain(&matched).map(PathBuf::as_path).collect();
        args.overwrite.require(&[fs::Output::new("--output", &output)], &inputs)?;
    }
    match (&args.labelled.train, args.budget) {
        (Some(train), _) => labelled::run(&args.labelled, args.encoding, train, &output, output_dir),
        (None, Some(budget)) => write_pretraining(args, budget, &output, output_dir),
        (None, None) => unreachable!("the parser wants a budget beside a text"),
    }
}

/// Reads a sample of the text. The configuration's `sources` leave out records that cannot be read only where
/// the sample has some.
///
/// # Errors
/// Returns an error if no record of a file can be read, with the reason of the first one.
fn read_sample(staged: &DataConfig, sources: &mut [SourceConfig], progress: &Progress) -> Result<TextSample> {
    let sample = TextSample::read(staged).or_else(|_| {
        // If nothing at all can be read, the first record that cannot be read says why.
        let strict = staged.sources.iter().cloned().map(fails_on_bad_records);
        TextSample::read(&DataConfig { sources: strict.collect(), ..staged.clone() })
    })?;
    for file in sample.bad_files.iter().filter(|file| file.documents == 0) {
        let files = vec![file.path.display().to_string()];
        let source = SourceConfig { files, ..staged.sources[file.source].clone() };
        let alone = DataConfig { sources: vec![fails_on_bad_records(source)], ..staged.clone() };
        TextSample::read(&alone)
            .context("no record of this file can be read (`--field` holds for all files of `init`)")?;
    }
    for (index, source) in sources.iter_mut().enumerate() {
        let files = sample.bad_files.iter().filter(|file| file.source == index);
        let found: Vec<String> = files
            .map(|file| format!("{} in `{}`", format_grouped(file.bad_records), file.path.display()))
            .collect();
        if found.is_empty() {
            source.on_bad_record = OnBadRecord::Fail;
            continue;
        }
        progress.warn(&format!(
            "records of the sample that cannot be read: {}; the configuration leaves such ones out \
             (`on_bad_record: skip`), and without that key `prepare` names the first of them",
            found.join(", ")
        ));
    }
    Ok(sample)
}

fn fails_on_bad_records(source: SourceConfig) -> SourceConfig {
    SourceConfig { on_bad_record: OnBadRecord::Fail, ..source }
}

/// Measures how much of a sample is in other languages than the expected one, and says it.
fn expected_language(code: &str, sample: &TextSample, progress: &Progress) -> Result<ExpectedLanguage> {
    let language = ExpectedLanguage::new(code, sample)?;
    let [documents, text] = [language.documents, language.text].map(|share| 100.0 * share);
    let line = format!(
        "not in `{code}`: {documents:.1} % of the documents, {text:.1} % of the text; they are left out"
    );
    if language.text > 0.5 {
        progress.warn(&format!("{line} (`--language` names the language of the documents that stay)"));
    } else {
        progress.note(&line);
    }
    Ok(language)
}

/// Writes a configuration of `pretrain` for a text.
fn write_pretraining(args: &InitArgs, budget: Duration, output: &Path, output_dir: String) -> Result<()> {
    machine::use_threads(args.threads)?;
    let progress = Progress::detect(terminal::is_quiet());
    let speed = Speed::new(args)?;
    let template = sources::template(&args.field, args.encoding);
    let mut sources = sources::sources(&args.text, &template, args.document.map(UnitChoice::into))?;
    let data = DataConfig { sources: sources.clone(), ..DataConfig::default() };
    let staged = staging::staged(data, &CacheConfig::default())?;
    let mut sample = read_sample(&staged, &mut sources, &progress)?;
    progress.note(&format!(
        "the text: {} in {}, about {} decompressed",
        format_bytes(sample.disk_bytes),
        counted(sample.files, "file"),
        format_bytes(sample.text_bytes as u64)
    ));
    let corpus = Corpus::open(&staged)?;
    let notes = corpus.notes().iter().cloned().chain(sources::notes_on_fields(&corpus, &template));
    for note in notes {
        progress.note(&note);
    }
    let crawl = match recipe::crawl_reason(corpus.files()) {
        Some(reason) => Some((reason, recipe::preview_filters(&sample)?)),
        None => None,
    };
    if let Some((reason, previews)) = &crawl {
        show_previews(reason, previews, &progress);
        let filters = recipe::crawl_filters(previews);
        sample = sample.filtered(&Judge::new(&DataConfig { filters, ..DataConfig::default() })?);
    }
    let language = args.language.as_deref().map(|code| expected_language(code, &sample, &progress));
    let language = language.transpose()?;
    if let Some(language) = &language {
        let filters = ExpectedLanguage::filter(&language.code);
        sample = sample.filtered(&Judge::new(&DataConfig { filters, ..DataConfig::default() })?);
    }
    let measuring = progress.stage("measuring the speed of models", Unit::Items, None);
    let training_seconds = budget.as_secs_f64() * TRAINING_SHARE;
    let choice = recipe::choose(
        training_seconds,
        |vocab_size| Ok(sample.cut(vocab_size)?.tokens),
        |size, vocab_size| {
            let found = speed.tokens_per_second(
                &size.model(args.family, vocab_size, SHORT_LENGTH),
                speed.rows(),
                SHORT_LENGTH,
                size.mlm_probability(),
            )?;
            measuring.advance(1);
            Ok(found)
        },
    )?;
    let Some(choice) = choice else {
        return Err(Problem::new("not even the smallest model fits into memory").into());
    };
    let long_share = sample.cut(choice.vocab_size)?.long_share;
    let (plan, long_factor) = planned(choice, args.family, &speed, training_seconds, long_share)?;
    let choice = plan.choice;
    measuring.finish("done");

    let wish = Wish {
        sources,
        crawl,
        language,
        budget: format_duration(budget),
        device: speed.device_name(),
        measured_on: speed.place(),
        output_dir,
        family: args.family,
    };
    let yaml = recipe::to_yaml(&wish, &sample, &plan);
    if output == Path::new("-") {
        return yaml.lines().try_for_each(terminal::stdout_line);
    }
    fs::write_bytes(output, yaml.as_bytes())?;
    let size = choice.size;
    let seconds = Duration::from_secs_f64(plan.seconds(long_factor));
    let lines = [
        format!(
            "wrote `{}`: {} of {} layers, {} wide, vocabulary {}",
            output.display(),
            args.family.title,
            size.layers,
            size.hidden,
            choice.vocab_size
        ),
        format!(
            "predicted: {} of training, {} steps, {} tokens at {} tokens/s; {:.1} epochs{}",
            format_span(seconds.as_secs_f64()),
            plan.steps,
            format_count(plan.tokens()),
            format_count(choice.tokens_per_second as u64),
            plan.tokens() as f64 / choice.text_tokens,
            if choice.is_limited_by_text() { ": the text is the limit, not the budget" } else { "" },
        ),
        format!("next: mlmtrain pretrain --config {}", output.display()),
    ];
    lines.iter().try_for_each(|line| terminal::stdout_line(line))
}

/// Returns the plan for a choice that was made for `training_seconds` with the speed of the largest batches,
/// and the time of a token in a long row relative to one in a short row. A short training has smaller
/// batches, and on a GPU they are slower.
fn planned(
    mut choice: Choice,
    family: Family,
    speed: &Speed,
    training_seconds: f64,
    long_share: f64,
) -> Result<(Plan, f64)> {
    let mut plan = Plan::new(choice, speed.rows(), long_share);
    let model = choice.size.model(family, choice.vocab_size, plan.max_seq_length);
    let masked_share = choice.size.mlm_probability();
    if plan.rows < speed.rows()
        && let Some(found) = speed.tokens_per_second(&model, plan.rows, SHORT_LENGTH, masked_share)?
    {
        choice.tokens_per_second = found;
        choice.tokens = choice.tokens.min(found * training_seconds);
        plan = Plan::new(choice, plan.rows, long_share);
    }
    if !plan.has_long_rows() {
        return Ok((plan, 1.0));
    }
    let rows = plan.rows * SHORT_LENGTH / plan.max_seq_length;
    let long = speed.tokens_per_second(&model, rows, plan.max_seq_length, masked_share)?;
    Ok((plan, long.map_or(1.0, |long| choice.tokens_per_second / long)))
}

/// Prints how much of a crawl each filter drops.
fn show_previews(reason: &str, previews: &[FilterPreview], progress: &Progress) {
    progress.note(&format!("the text seems to be a crawl: {reason}; each filter, used alone, drops:"));
    for FilterPreview { key, documents, text, is_used, .. } in previews {
        let note = if *is_used { "" } else { "   (commented out)" };
        let [documents, text] = [documents, text].map(|share| 100.0 * share);
        progress.note(&format!(
            "  {key:<12}{documents:>5.1} % of the documents, {text:>5.1} % of the text{note}"
        ));
    }
}

impl Speed {
    /// Chooses the source of speeds for the device of `args`.
    fn new(args: &InitArgs) -> Result<Self> {
        if let Some(choice) = DeviceChoice::named(&args.device) {
            let device = device::pick(choice)?;
            let compute = Hardware::of(&device).best();
            let on_gpu = !device.is_cpu();
            return Ok(Self::Here { device: choice, on_gpu, compute, threads: args.threads });
        }
        let half = precision::dtype(ComputeType::Bf16);
        match data_sheet(&args.device, half, false) {
            Some(peak_flops) => {
                let gpu = Rentable::named(&args.device);
                Ok(Self::Elsewhere { name: args.device.clone(), gpu, peak_flops })
            }
            None => Err(Problem::usage(format!(
                "`{}` is no device that is known",
                terminal::printable(&args.device)
            ))
            .at("--device")
            .hint("take cpu, cuda, auto, or a GPU's name: H200, H100, A100, A10G, L40S, L4, T4, \"RTX 4090\"")
            .into()),
        }
    }

    /// Training speed of a model with micro-batches of `rows` rows of `length` tokens; `None` if it does not
    /// fit into memory.
    fn tokens_per_second(
        &self,
        model: &ModelConfig,
        rows: usize,
        length: usize,
        masked_share: f64,
    ) -> Result<Option<f64>> {
        match self {
            Self::Here { device, compute, threads, .. } => {
                let shape = bench::BatchShape { rows, length, is_causal: false };
                bench::tokens_per_second(model, shape, masked_share, *device, *compute, *threads)
            }
            Self::Elsewhere { gpu: Some(gpu), .. } => {
                let shapes = Shapes {
                    outline: Box::new(Blueprint::masked_lm(model)),
                    model: model.clone(),
                    length,
                    targets: TargetShare::OfTokens(masked_share),
                };
                let training =
                    TrainingConfig { per_device_train_batch_size: rows.into(), ..TrainingConfig::default() };
                let found =
                    Estimate::on_gpu(gpu, &training, &shapes, &PrecisionConfig::default(), |training| {
                        Work::new(training, length, 1)
                    });
                Ok(found.ok().map(|found| found.tokens_per_second))
            }
            Self::Elsewhere { peak_flops, .. } => {
                let tokens = (rows * length) as f64;
                let flops = Blueprint::masked_lm(model).flops(tokens, length as f64, masked_share * tokens);
                Ok(Some(tokens / gpu_seconds(flops, *peak_flops)))
            }
        }
    }

    /// Most rows of [`SHORT_LENGTH`] tokens in a micro-batch.
    fn rows(&self) -> usize {
        if matches!(self, Self::Here { on_gpu: false, .. }) { CPU_ROWS } else { GPU_ROWS }
    }

    /// Key `run.device` of the configuration.
    fn device_name(&self) -> String {
        match self {
            Self::Here { device, .. } => device.name(),
            Self::Elsewhere { .. } => DeviceChoice::Cuda(0).name(),
        }
    }

    /// Description of the machine for the head of the configuration.
    fn place(&self) -> String {
        match self {
            Self::Here { compute, .. } => {
                format!(
                    "this machine (measured in {}, {})",
                    compute.name(),
                    machine::threads_text(rayon::current_num_threads())
                )
            }
            Self::Elsewhere { name, .. } => {
                format!(
                    "a GPU of the kind {name} (not measured: {:.0} % of its data sheet)",
                    100.0 * GPU_SHARE
                )
            }
        }
    }
}
