//! `mlmtrain evaluate --task minimal-pairs`: scores a pretrained model by how often it finds the right one of
//! two sentences likelier.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use candle_core::Device;
use serde_json::Value;

use crate::commands::evaluate::args::EvaluateArgs;
use crate::commands::evaluate::{evaluation_of, require_outputs};
use crate::commands::terminal::Output;
use crate::commands::{model_folder, staging, terminal};
use crate::config::CleaningConfig;
use crate::error::Problem;
use crate::fs;
use crate::tasks::minimal_pairs::{Judged, Likelihood, Masking, Pair, read_pairs, report};
use crate::tasks::trained::require_json_lines;
use crate::telemetry::{Progress, Unit};

/// Scores every pair, writes the scores of all pairs if the user wants them, and prints the share of right
/// ones.
pub(super) fn run(args: &EvaluateArgs, device: &Device) -> Result<()> {
    let to_terminal = args.scores.as_deref() == Some(Path::new("-"));
    if to_terminal && args.json {
        let problem = Problem::usage("`--json` and `--scores -` both want standard output");
        return Err(problem.hint("give `--scores` a file").into());
    }
    let masking = if args.mask_rest_of_word { Masking::RestOfWord } else { Masking::Token };
    let data = staging::input(&args.data)?;
    let folder = model_folder::resolve(&args.model)?;
    require_outputs(args, &data, &folder)?;
    let cleaning = CleaningConfig::default();
    let evaluation = evaluation_of(args, &data, None, &cleaning);
    evaluation.refuse_predictions()?;
    evaluation.refuse_all_but(&[], "minimal pairs")?;
    if let Some(path) = args.scores.as_deref().filter(|_| !to_terminal) {
        require_json_lines("--scores", path, &[])?;
    }
    let pairs = read_pairs(&data, args.columns.encoding)?;
    let model = Likelihood::open(&folder, device, masking)?;
    let total = 2 * pairs.len() as u64;
    let stage = Progress::detect(terminal::is_quiet()).stage("sentences", Unit::Items, Some(total));
    let judged = model.judge(&pairs, &mut |count| stage.advance(count))?;
    stage.finish("scored");
    let mut lines = pairs.iter().zip(&judged).map(|(pair, judged)| scores_line(pair, *judged));
    match &args.scores {
        Some(_) if to_terminal => {
            let mut out = Output::stdout();
            lines.try_for_each(|line| out.line(&line))?;
            out.finish()?;
        }
        Some(path) => {
            fs::write_atomic(path, |file| lines.try_for_each(|line| Ok(writeln!(file, "{line}")?)))?;
        }
        None => {}
    }
    let found = report(&pairs, &judged);
    if args.json {
        return terminal::stdout_line(&Value::from(found.json).to_string());
    }
    // Names of phenomena come from the file and are escaped.
    let mut lines = found.lines.iter().map(|line| terminal::printable(line));
    if to_terminal {
        lines.for_each(|line| terminal::note(&line));
        return Ok(());
    }
    lines.try_for_each(|line| terminal::stdout_line(&line))
}

/// The fields of a pair and its two scores, as a JSON line.
fn scores_line(pair: &Pair, judged: Judged) -> String {
    let mut fields = pair.fields.clone();
    fields.insert("good_score".into(), judged.good.into());
    fields.insert("bad_score".into(), judged.bad.into());
    Value::from(fields).to_string()
}
