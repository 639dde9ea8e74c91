//! Copies the tensors of a model folder into the parameters of a model, or returns an error if they do not
//! fit.
//!
//! `refit.rs` chooses the rows of embedding tables, `label_rows.rs` the rows of a head.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use candle_core::Tensor;

use crate::interop::folder::note_unused;
use crate::interop::label_rows::LabelRows;
use crate::interop::names::Mapped;
use crate::interop::refit::Refit;
use crate::interop::{PretrainedFolder, names};
use crate::layers::{Layout, Parameters, Part};
use base::error::{Class, Problem};
use base::families::HeadKind;

/// The result of filling a model from a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filled {
    /// Parameters of the head that the folder lacks or has for other labels: they keep their initial values.
    pub new: Vec<String>,
    /// Notes for the log: tensors of the folder that the model does not use, and rows of the head that were
    /// kept.
    pub notes: Vec<String>,
}

/// Options of one fill.
#[derive(Clone, Copy, Default)]
struct FillOptions<'a> {
    /// If true, parameters of the head without a fitting tensor keep their initial values; else they are an
    /// error.
    head_may_be_new: bool,
    refit: Option<&'a Refit>,
    label_rows: Option<&'a LabelRows>,
}

impl PretrainedFolder {
    /// Copies the folder's tensors into the parameters of a model. A missing tensor or one of another shape
    /// is an error that names it, unless it belongs to the head and `head_may_be_new`.
    pub fn fill(&self, parameters: &Parameters, head_may_be_new: bool) -> Result<Filled> {
        self.fill_as(parameters, &parameters.layout().own_names(), head_may_be_new)
    }

    /// Like [`PretrainedFolder::fill`], for the parameters in `names` only: pairs of the parameter's own name
    /// and its canonical name in the folder.
    pub fn fill_as(
        &self,
        parameters: &Parameters,
        names: &[(String, String)],
        head_may_be_new: bool,
    ) -> Result<Filled> {
        self.fill_with(parameters, names, FillOptions { head_may_be_new, ..FillOptions::default() })
    }

    /// Like [`PretrainedFolder::fill_as`], for a model with another vocabulary, more positions or more
    /// layers; its head may be new.
    pub fn fill_refitted(
        &self,
        parameters: &Parameters,
        names: &[(String, String)],
        refit: &Refit,
    ) -> Result<Filled> {
        self.fill_with(
            parameters,
            names,
            FillOptions { head_may_be_new: true, refit: Some(refit), label_rows: None },
        )
    }

    /// Like [`PretrainedFolder::fill`], for a head of kind `head` with these labels. A label that the
    /// folder's head has under the same name keeps its row; any other starts from its initial values.
    pub fn fill_labelled(
        &self,
        parameters: &Parameters,
        head: HeadKind,
        labels: &[String],
    ) -> Result<Filled> {
        let rows = LabelRows::new(self, head, labels);
        let options = FillOptions { head_may_be_new: true, refit: None, label_rows: Some(&rows) };
        let mut filled = self.fill_with(parameters, &parameters.layout().own_names(), options)?;
        if self.sources.contains_key(&format!("{}.weight", rows.output())) && !self.is_untrained {
            filled.notes.push(rows.describe(&filled.new));
        }
        Ok(filled)
    }

    /// Returns the error that filling a model of this layout would give, if any. Reads the tensors and keeps
    /// none.
    pub fn check(&self, layout: &Layout, names: &[(String, String)], refit: Option<&Refit>) -> Result<()> {
        let options = FillOptions { head_may_be_new: true, refit, label_rows: None };
        self.each_value(layout, names, options, &mut |_, _| Ok(())).map(drop)
    }

    fn fill_with(
        &self,
        parameters: &Parameters,
        names: &[(String, String)],
        options: FillOptions<'_>,
    ) -> Result<Filled> {
        let initial = options.label_rows.map(|_| parameters.named()).transpose()?.unwrap_or_default();
        self.each_value(parameters.layout(), names, options, &mut |name, value| {
            let Some(rows) = options.label_rows.filter(|rows| rows.covers(name)) else {
                return Ok(parameters.set(name, value)?);
            };
            let Some((_, initial)) = initial.iter().find(|(known, _)| known == name) else { return Ok(()) };
            Ok(parameters.set(name, &rows.merge(value, initial)?)?)
        })
    }

    /// Calls `take` with the name and the folder's tensor of each parameter.
    fn each_value(
        &self,
        layout: &Layout,
        names: &[(String, String)],
        options: FillOptions<'_>,
        take: &mut dyn FnMut(&str, &Tensor) -> Result<()>,
    ) -> Result<Filled> {
        let mut filled = Filled::default();
        if self.is_untrained {
            return Ok(filled);
        }
        let mut taken: BTreeSet<Cow<'_, str>> = BTreeSet::new();
        let names: BTreeMap<&str, &str> =
            names.iter().map(|(own, name)| (own.as_str(), name.as_str())).collect();
        for spec in layout.specs() {
            let Some(&name) = names.get(spec.name.as_str()) else { continue };
            let may_be_new = options.head_may_be_new && spec.part == Part::Head;
            let name = match (options.refit, spec.part) {
                (Some(refit), Part::Layer(layer)) => {
                    refit.source_name(name, self.config.family.names.layers, layer)
                }
                _ => name.into(),
            };
            let rows = options.label_rows.filter(|rows| rows.covers(&name));
            let shape = rows.map_or(spec.shape.clone(), |rows| rows.old_shape(&spec.shape));
            let is_kept = rows.is_none_or(LabelRows::keep_any);
            match self.tensor(&name, &shape, options.refit) {
                Ok(tensor) if is_kept => {
                    taken.insert(name);
                    take(&spec.name, &tensor)?;
                }
                Ok(_) => {
                    taken.insert(name);
                    filled.new.push(spec.name.clone());
                }
                Err(Unfit::Missing | Unfit::Misshapen(_)) if may_be_new => filled.new.push(spec.name.clone()),
                Err(Unfit::Missing) => return Err(self.missing(&name, spec.part).into()),
                Err(Unfit::Misshapen(problem)) => return Err(problem.into()),
                Err(Unfit::Unreadable(error)) => return Err(error),
            }
        }
        if taken.contains(self.config.family.masked_lm.bias) {
            self.check_tied_decoder()?;
        }
        let left = self.sources.iter().filter(|(name, _)| !taken.contains(name.as_str()));
        let left: Vec<&str> = left.map(|(_, source)| source.as_str()).collect();
        note_unused(&mut filled.notes, &self.weights, &left);
        Ok(filled)
    }

    /// Returns the tensor with a canonical name, refitted and in f32 on the CPU, or why it does not fit.
    fn tensor(&self, name: &str, shape: &[usize], refit: Option<&Refit>) -> Result<Tensor, Unfit> {
        let source = self.sources.get(name).ok_or(Unfit::Missing)?;
        let mut tensor = self.weights.load(source).map_err(Unfit::Unreadable)?;
        if let Some(refit) = refit {
            tensor = self.refitted(name, tensor, shape, refit).map_err(|e| Unfit::Unreadable(e.into()))?;
        }
        if tensor.dims() == shape {
            return Ok(tensor);
        }
        Err(Unfit::Misshapen(self.misshapen(source, tensor.dims(), shape)))
    }

    pub(super) fn misshapen(&self, source: &str, found: &[usize], wanted: &[usize]) -> Problem {
        let message = format!("tensor `{source}` is {found:?}, the model of `config.json` wants {wanted:?}");
        self.weights.problem(&message)
    }

    fn refitted(
        &self,
        name: &str,
        tensor: Tensor,
        shape: &[usize],
        refit: &Refit,
    ) -> candle_core::Result<Tensor> {
        let family = self.config.family;
        match name {
            name if name == names::word_embedding(family)
                || name == family.masked_lm.bias
                || name.strip_suffix(".weight") == Some(family.masked_lm.decoder) =>
            {
                refit.refit_words(&tensor)
            }
            name if names::position_embedding(family).is_some_and(|table| name == table) => {
                refit.refit_positions(&tensor, shape[0])
            }
            _ => Ok(tensor),
        }
    }

    pub(super) fn missing(&self, name: &str, part: Part) -> Problem {
        let problem = self.weights.problem(&format!("tensor `{name}` is missing"));
        let head = self.config.family.masked_lm.first();
        let is_masked_lm = head.split('.').next() == name.split('.').next();
        problem.hint(if part == Part::Head && is_masked_lm {
            format!(
                "a masked language model has `{head}.*`; this folder may hold an encoder or a classifier only"
            )
        } else {
            "does `config.json` belong to these weights?".to_string()
        })
    }

    /// Refuses a stored decoder weight that is not an exact copy of the word embedding.
    pub(super) fn check_tied_decoder(&self) -> Result<()> {
        let family = self.config.family;
        let Some(embedding) = self.sources.get(&names::word_embedding(family)) else { return Ok(()) };
        for name in self.weights.names() {
            if names::canonical(family, name) != Mapped::TiedDecoder {
                continue;
            }
            let decoder = self.weights.load(name)?;
            let embedding = self.weights.load(embedding)?;
            if decoder.dims() != embedding.dims() || values(&decoder)? != values(&embedding)? {
                let message = format!(
                    "tensor `{name}` differs from the word embedding: a masked language model with a decoder of its \
                     own (`tie_word_embeddings: false`) is not supported"
                );
                return Err(Problem { class: Class::Usage, ..self.weights.problem(&message) }
                    .hint(
                        "fine-tune it for a task: its encoder is read; or take a model whose decoder is tied",
                    )
                    .into());
            }
        }
        Ok(())
    }
}

fn values(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

/// The reason why a tensor of the folder does not fit.
enum Unfit {
    Missing,
    Misshapen(Problem),
    Unreadable(anyhow::Error),
}
