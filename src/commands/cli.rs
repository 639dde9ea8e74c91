//! The command line as typed: subcommands and their help texts.
//!
//! The arguments and the code of a subcommand are in the file or folder of its name. Hyper-parameters are in
//! the configuration, and `--set` changes any of them; the ones that are changed most have flags, too
//! (`training_flags`).

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};

use crate::commands::advise_network::AdviseNetworkArgs;
use crate::commands::bench::args::{BenchArgs, BenchJobArgs};
use crate::commands::checkpoint::args::CheckpointCommand;
use crate::commands::compare::CompareArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::config::ConfigCommand;
use crate::commands::config_args::{PrepareArgs, PretrainArgs};
use crate::commands::doctor::DoctorArgs;
use crate::commands::embed::EmbedArgs;
use crate::commands::evaluate::args::EvaluateArgs;
use crate::commands::example::ExampleArgs;
use crate::commands::finetune::args::FinetuneArgs;
use crate::commands::init::InitArgs;
use crate::commands::manual::ManualArgs;
use crate::commands::plan::PlanArgs;
use crate::commands::predict::args::PredictArgs;
use crate::commands::replay::ReplayArgs;
use crate::commands::report::ReportArgs;
use crate::commands::runs::RunsArgs;
use crate::commands::shards::args::ShardsCommand;
use crate::commands::tokenizer::TokenizerCommand;
use crate::commands::tune::TuneArgs;
use crate::commands::verify_resume::args::VerifyResumeArgs;
use crate::distributed;
use crate::ops::cuda;

/// The text of `--version`; `-V` prints only the number.
static VERSION: LazyLock<String> = LazyLock::new(version);

fn version() -> String {
    let (mpi, nccl) = (distributed::MPI.then_some("MPI"), distributed::NCCL.then_some("NCCL"));
    let processes: Vec<&str> = mpi.into_iter().chain(nccl).collect();
    let features = [("cuda", cuda::GPU_CODE.is_some()), ("nccl", nccl.is_some()), ("mpi", mpi.is_some())];
    let missing: Vec<&str> = features.iter().filter(|(_, is_in)| !is_in).map(|(name, _)| *name).collect();
    let lines = [
        Some(env!("CARGO_PKG_VERSION").to_string()),
        cuda::GPU_CODE.map(|code| format!("code for GPUs: {code}")),
        (!processes.is_empty()).then(|| format!("processes: {}", processes.join(", "))),
        (!missing.is_empty()).then(|| format!("built without the features: {}", missing.join(", "))),
    ];
    lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// The heading of options that every command has.
const GLOBAL: &str = "Options of every command";

/// Pretrain and fine-tune masked language models: one binary, no Python.
#[derive(Debug, Parser)]
#[command(
    name = "mlmtrain",
    version,
    long_version = VERSION.as_str(),
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  mlmtrain example quickstart
  mlmtrain pretrain --config quickstart.yaml
  mlmtrain finetune --task classify --model runs/quickstart/final --train train.csv --eval dev.csv
  mlmtrain predict --model runs/agnews/final --input headlines.txt
  mlmtrain config show quickstart.yaml

Exit codes: 0 done, 1 failed, 2 wrong command line or configuration, 74 disk full or failing,
75 lost another process of the run (start it again), 76 training diverged, 128 + n stopped by signal n after a checkpoint")]
pub struct Cli {
    /// Print no progress and no notes, only results and errors
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub quiet: bool,
    /// Also print decisions: files, hashes, checkpoints
    #[arg(short, long, global = true, conflicts_with = "quiet", help_heading = GLOBAL)]
    pub verbose: bool,
    /// Add notes, warnings and errors to this file as well, each with its time in UTC
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub log_file: Option<PathBuf>,
    /// Write progress, notes and errors to standard error as JSON lines for another program; if that program
    /// exits, stop as on SIGTERM
    #[arg(long, global = true, conflicts_with = "quiet", help_heading = GLOBAL)]
    pub events: bool,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write an example to try out: its configuration and its text, which the program carries
    ///
    /// A file that is there already stays as it is: one that differs is an error, and then nothing is
    /// written. Paths of a configuration start in the current folder, so go to FOLDER before the next
    /// command.
    #[command(after_help = "Examples:
  mlmtrain example quickstart
  mlmtrain example quickstart try-it
  mlmtrain example classify")]
    Example(ExampleArgs),
    /// Write a configuration for a text and a budget of time, or for labelled files
    ///
    /// Of a text: looks at it, measures for some seconds how fast this machine trains models of several
    /// sizes, and writes the configuration of the largest one that the budget trains well. Of labelled files:
    /// finds the columns, counts labels and lengths. The file has the reason of each choice.
    #[command(after_help = "Examples:
  mlmtrain init --text corpus/*.txt --budget 2h
  mlmtrain init --text finnish.jsonl.gz --language fi --budget 10m --output finnish.yaml
  mlmtrain init --text corpus/ --field content --budget 3d --device H100 --output -
  mlmtrain init --train train.csv --eval dev.csv --model runs/quickstart/final")]
    Init(InitArgs),
    /// Say what a run takes here and on rented GPUs: memory, time, energy, money
    ///
    /// For a configuration of `pretrain` or of `finetune`. This machine is measured for some seconds, other
    /// devices are predicted from operations and bytes. If the batch does not fit in memory, plans a smaller
    /// one with more accumulation steps; the update is the same. Nothing is written.
    #[command(after_help = "Examples:
  mlmtrain plan --config configs/roberta-base.yaml --tokens 10B
  mlmtrain plan --config my.yaml --device h100,l4 --price h100=1.99,l4=0.60 --tokens 10B
  mlmtrain plan --config my.yaml --device here,cpu,l4 --prices seller.yaml --json")]
    Plan(PlanArgs),
    /// Say what the network between several processes costs a pretraining run, and what to set
    ///
    /// Started as the run will be, on its machines. It measures for some seconds how fast gradients are added
    /// up over all processes and how long a micro-batch takes, and predicts what accumulation, the type in
    /// which gradients travel, and overlap will give. Nothing is written.
    #[command(after_help = "Examples:
  mpirun -np 4 --hostfile hosts mlmtrain advise-network --config my.yaml
  mpirun -np 2 mlmtrain advise-network --config my.yaml --seconds 3 --json")]
    AdviseNetwork(AdviseNetworkArgs),
    /// Train a masked language model, or an ELECTRA, on raw text
    ///
    /// Builds the tokenizer and the shards if they are missing, then trains. Run it again to resume.
    #[command(after_help = "Examples:
  mlmtrain pretrain --config configs/quickstart.yaml
  mlmtrain pretrain --config configs/quickstart.yaml --max-steps 200 \\
      --set run.output_dir=runs/short
  mlmtrain pretrain --config configs/roberta-base.yaml --dry-run
  mlmtrain pretrain --config my.yaml --model runs/quickstart/final
  mlmtrain pretrain --config my.yaml --decay-from runs/mine/checkpoint-9000 \\
      --set training.lr_decay_steps=1000 --set run.output_dir=runs/decayed
  mlmtrain pretrain --config configs/quickstart.yaml --resume runs/quickstart/checkpoint-500")]
    Pretrain(PretrainArgs),
    /// Make the tokenizer and the shards of a configuration, without training
    ///
    /// Reads, cleans, filters and deduplicates the corpus, and leaves a report (report.html, report.json) of
    /// what was left out. It may be stopped at any moment: the same command continues after its last
    /// finished part.
    #[command(after_help = "Examples:
  mlmtrain prepare --config configs/quickstart.yaml
  mlmtrain prepare --config configs/corpus/sample.yaml --set data.filters.length.min_words=10
  zcat crawl.gz | mlmtrain prepare --config my.yaml --set 'data.sources.0.files=[\"-\"]'")]
    Prepare(PrepareArgs),
    /// Fine-tune a model on labelled examples
    ///
    /// Takes a configuration, or the flags for its usual keys, or both: flags win. With `--sweep` it
    /// trains a grid of settings, each with all seeds, prints one table, keeps the best model, and
    /// resumes where it was stopped; with `--fractions` it draws a learning curve.
    #[command(after_help = "Examples:
  mlmtrain finetune --task classify --config configs/finetune-sample.yaml
  mlmtrain finetune --task classify --model runs/quickstart/final --train train.csv --eval dev.csv
  mlmtrain finetune --task classify --model models/minilm --train train.tsv --eval dev.tsv \\
      --text-column sentence1 --text-pair-column sentence2 --label-column entailment
  mlmtrain finetune --task regression --model models/minilm --train train.tsv --eval dev.tsv
  mlmtrain finetune --task token-classify --model models/minilm --train train.conll --eval dev.conll
  mlmtrain finetune --task classify --config a.yaml --max-train-fraction 0.1 \\
      --seeds 1,2,3 --learning-rate 3e-5
  mlmtrain finetune --config configs/finetune-sample.yaml --sweep learning_rate=3e-4,1e-3,3e-3
  mlmtrain finetune --config a.yaml --sweep learning_rate=1e-5,3e-5,5e-5 \\
      --sweep seed=1,2,3 --sweep num_train_epochs=2,4
  mlmtrain finetune --config a.yaml --fractions 0.01,0.1,0.5,1 --seeds 1,2,3")]
    Finetune(Box<FinetuneArgs>),
    /// Find the best values of some keys for pretraining or fine-tuning, within a budget of time
    ///
    /// Trains all candidates for some steps, lets the best third continue, and so on until two have reached
    /// the end (successive halving). All are compared at the same step of the same schedule: by the
    /// validation loss, or for fine-tuning by `training.metric_for_best_model`. Without `--vary`, nine
    /// learning rates from a tenth to ten times that of the configuration. Prints one table and writes the
    /// winner's configuration. It may be stopped at any moment: the same command continues.
    #[command(after_help = "Examples:
  mlmtrain tune --config configs/quickstart.yaml --budget 20m --set run.output_dir=runs/rates
  mlmtrain tune --config my.yaml --budget 2h --vary learning_rate=1e-4..1e-2 \\
      --vary weight_decay=0,0.01,0.1 --set run.output_dir=runs/tuned --output best.yaml
  mlmtrain tune --config configs/finetune-sample.yaml --budget 5m --vary learning_rate=1e-3,3e-3
  mlmtrain tune --config a.yaml --budget 1h --dry-run")]
    Tune(TuneArgs),
    /// Compare models on a list of tasks: each fine-tuned with the same budget, over seeds, with intervals
    ///
    /// In addition to the models, it scores an untrained twin of each architecture, and counted words (TF-IDF
    /// with logistic regression) or a dictionary of entities: what a model has to beat. Each pair gets the
    /// interval of its difference, by a bootstrap over examples and seeds, and the number of seeds that would
    /// make the difference clear. It may be stopped at any moment: the same command continues, and leaves the
    /// same tables. Weights are not kept.
    ///
    /// With `--protocol euroeval` it follows EuroEval's protocol for encoders instead: ten iterations, each
    /// on examples drawn with replacement, scored on validation and test files, next to published scores.
    #[command(after_help = "Examples:
  mlmtrain compare --models runs/quickstart/final runs/quickstart-electra/final \\
      --tasks configs/tasks/compare-sample.yaml
  mlmtrain compare --models models/ours models/theirs \\
      --tasks configs/tasks/compare-finnish.yaml --seeds 1,2,3,4,5
  mlmtrain compare --models models/ours models/theirs --tasks tasks.yaml \\
      --set training.num_train_epochs=1 --output-dir runs/quick --dry-run
  mlmtrain compare --models models/ours models/theirs --protocol euroeval \\
      --tasks configs/tasks/euroeval-finnish.yaml --sample 1024,256,2048")]
    Compare(CompareArgs),
    /// Score a model on a file: labelled examples, tagged words, or text for a masked language model
    #[command(after_help = "Examples:
  mlmtrain evaluate --model runs/agnews/final --data test.csv
  mlmtrain evaluate --model runs/wnut17/final --data dev.conll --predictions dev.jsonl
  mlmtrain evaluate --model runs/quickstart/final --data novels.txt.zst --json
  mlmtrain evaluate --model runs/quickstart/final --task minimal-pairs \\
      --data blimp.jsonl.zst --scores scores.jsonl")]
    Evaluate(EvaluateArgs),
    /// Label texts, or fill in their masks: one JSON line each on standard output
    ///
    /// A line has `text` (and `text_pair`), then `label`, `score` and `probabilities`, or `prediction` (a
    /// number, or several by name), or `entities` with their places in characters, or `masks`, or `tokens`
    /// and how probably each was `replaced` (ELECTRA's discriminator); of tagged words it has `tokens`,
    /// `tags` and `scores`. All other columns of the input follow under their own names; those that clash
    /// with names of the output get the prefix `input_`: `label` becomes `input_label`.
    #[command(after_help = "Examples:
  mlmtrain predict --model runs/agnews/final --input headlines.txt > labels.jsonl
  mlmtrain predict --model runs/agnews/final --input news.csv.gz --text-column title
  mlmtrain predict --model runs/wnut17/final --input words.conll > tags.jsonl
  zcat news.csv.gz | mlmtrain predict --model runs/agnews/final --input - --format csv
  echo 'The capital of France is <mask>.' | mlmtrain predict --model runs/quickstart/final --input -")]
    Predict(PredictArgs),
    /// Make a vector of each text: the encoder's last hidden states, pooled
    ///
    /// Any model folder has an encoder, whatever it was trained for. Texts that are longer than the model
    /// takes, or than those that it was trained on, are cut and counted.
    #[command(after_help = "Examples:
  mlmtrain embed --model runs/quickstart/final --file texts.txt --output vectors.npy
  mlmtrain embed --model models/minilm --file news.csv.gz --text-column title \\
      --output titles.npy --normalize
  mlmtrain embed --model runs/agnews/final --file pairs.jsonl --pooling cls --output pairs.npy")]
    Embed(EmbedArgs),
    /// List the runs below a folder: task, state, step, loss and score of each
    ///
    /// A run is `running` while a process holds its folder, `complete`, `diverged`, or `stopped`: the command
    /// that began it resumes it. A run of several seeds has their mean, and each seed is listed after it. On
    /// a narrow terminal some columns are left out; `--json` has them all.
    #[command(after_help = "Examples:
  mlmtrain runs
  mlmtrain runs /data/experiments --json")]
    Runs(RunsArgs),
    /// Look back at runs: one HTML page with curves, scores, mistakes, time, machine and differences
    ///
    /// The page needs neither network nor scripts. Runs may be unfinished or interrupted; several are drawn
    /// over each other.
    #[command(after_help = "Examples:
  mlmtrain report runs/quickstart
  mlmtrain report runs/a runs/b -o a-and-b.html
  mlmtrain report runs/topics -o - > topics.html")]
    Report(ReportArgs),
    /// Repeat the last step of a diverged run, and report the first value that is not finite
    ///
    /// A run that ends with exit code 76 leaves a folder `diverged-<step>`: the model before that step, and
    /// its batches. Nothing is written.
    #[command(after_help = "Examples:
  mlmtrain replay runs/mine/diverged-1210
  mlmtrain replay runs/mine/diverged-1210 --json > tensors.jsonl")]
    Replay(ReplayArgs),
    /// Look into tokenised text as a model sees it, or check it for damage
    #[command(subcommand)]
    Shards(ShardsCommand),
    /// List, check, average or delete checkpoints; check any model folder for damage
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Prove that a run of a configuration, stopped and resumed, ends in the same bytes as an undisturbed one
    ///
    /// Trains some steps straight, and the same steps in another folder with a SIGTERM or a SIGKILL every few
    /// steps, and compares weights, moments and state. Both folders are next to `run.output_dir`, which is
    /// not touched, and are deleted at the end; prepared data is used in place. Exit code 0 when all bytes
    /// are the same, 1 when not, with the first tensor that differs.
    #[command(after_help = "Examples:
  mlmtrain verify-resume --config configs/quickstart.yaml
  mlmtrain verify-resume --config my.yaml --steps 100 --set precision.compute=bf16
  mlmtrain verify-resume --config configs/finetune-sample.yaml --steps 8")]
    VerifyResume(VerifyResumeArgs),
    /// Use a tokenizer on its own
    #[command(subcommand)]
    Tokenizer(TokenizerCommand),
    /// Measure whole training steps: speed, share of the machine's peak, memory
    ///
    /// Each row trains on synthetic batches in a process of its own: forward, backward, clipping, AdamW, 15 %
    /// of tokens masked, or with `--task classify` a label a row. All tokens of a row are real; fine-tuning
    /// pads nothing, so that `--length` is best the mean length of the texts. MFU is the share of the peak
    /// that this machine reaches in the row's compute type, measured at the beginning.
    #[command(after_help = "Examples:
  mlmtrain bench --model tiny,small,base --batch 8,16 --length 128 --compute f32,bf16
  mlmtrain bench --model configs/quickstart.yaml
  mlmtrain bench --model base --batch 8 --steps 20 --threads 2 --json > base.jsonl
  mlmtrain bench --task classify --model large --device cpu,cuda --batch 8,32 --compute bf16 \\
    --examples 120000 --usd-per-hour 2.5
  mlmtrain bench --model base,large --length 128,512 --compute bf16 \\
      --most-rows-on 16GB,24GB,40GB,80GB")]
    Bench(BenchArgs),
    /// One measurement of `bench`, in a process of its own
    #[command(hide = true)]
    BenchJob(BenchJobArgs),
    /// Tell what this machine has (processor, memory, GPUs, CUDA's libraries, disk) and what a run would
    /// take of it
    ///
    /// Nothing fails: what cannot be found out is `unknown`. A run takes the widest instructions that the
    /// processor has; MLMTRAIN_CPU=avx2, avx512, avx512-bf16 or amx caps them, to compare with another
    /// machine or to get round a processor's trouble.
    #[command(after_help = "Examples:
  mlmtrain doctor
  mlmtrain doctor --json > machine.json
  MLMTRAIN_CPU=avx2 mlmtrain doctor")]
    Doctor(DoctorArgs),
    /// Check, show or describe configurations
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell
    #[command(after_help = "Examples:
  mlmtrain completions bash > ~/.local/share/bash-completion/completions/mlmtrain
  mlmtrain completions fish > ~/.config/fish/completions/mlmtrain.fish")]
    Completions(CompletionsArgs),
    /// Write a manual page for each command
    #[command(after_help = "Examples:
  mlmtrain manual ~/.local/share/man/man1")]
    Manual(ManualArgs),
}
