//! Puts the values of a model folder into the parameters of a model, or says that they would not do.
//!
//! How rows of tables are chosen stands in `refit.rs`, those of a head in `label_rows.rs`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

use anyhow::Result;
use candle_core::Tensor;

use crate::error::Class;
use crate::error::Problem;
use crate::families::HeadKind;
use crate::interop::PretrainedFolder;
use crate::interop::folder::note_unused;
use crate::interop::label_rows::LabelRows;
use crate::interop::names;
use crate::interop::names::Mapped;
use crate::interop::refit::Refit;
use crate::layers::Layout;
use crate::layers::Parameters;
use crate::layers::Part;

/// The result of filling a model from a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filled {
    /// Parameters of the head that the folder has not, or for other labels: they keep their initial values.
    pub new: Vec<String>,
    /// Notes for the log: tensors that the model lacks, and rows of the head that were kept.
    pub notes: Vec<String>,
}

/// How parameters come out of a folder.
#[derive(Clone, Copy, Default)]
struct How<'a> {
    /// True if the head keeps its initial values where the folder has no fitting ones.
    head_may_be_new: bool,
    refit: Option<&'a Refit>,
    label_rows: Option<&'a LabelRows>,
}

impl PretrainedFolder {
    /// Puts the folder's values into the parameters of a model; a missing or misshapen tensor is an error
    /// that names it, unless it is of the head and `head_may_be_new`.
    pub fn fill(&self, parameters: &Parameters, head_may_be_new: bool) -> Result<Filled> {
        self.fill_as(parameters, &parameters.layout().own_names(), head_may_be_new)
    }

    /// As [`PretrainedFolder::fill`] for the parameters of `names`: each with its canonical name.
    pub fn fill_as(
        &self,
        parameters: &Parameters,
        names: &[(String, String)],
        head_may_be_new: bool,
    ) -> Result<Filled> {
        self.fill_with(parameters, names, How { head_may_be_new, ..How::default() })
    }

    /// As [`PretrainedFolder::fill_as`] for a model with another vocabulary or more positions; its head may
    /// be new.
    pub fn fill_refitted(
        &self,
        parameters: &Parameters,
        names: &[(String, String)],
        refit: &Refit,
    ) -> Result<Filled> {
        self.fill_with(parameters, names, How { head_may_be_new: true, refit: Some(refit), label_rows: None })
    }

    /// As [`PretrainedFolder::fill`] for a head of kind `head` with these labels: one that the folder's head has by
    /// the same name keeps its row, any other begins with its initial values.
    pub fn fill_labelled(
        &self,
        parameters: &Parameters,
        head: HeadKind,
        labels: &[String],
    ) -> Result<Filled> {
        let rows = LabelRows::new(self, head, labels);
        let how = How { head_may_be_new: true, refit: None, label_rows: Some(&rows) };
        let mut filled = self.fill_with(parameters, &parameters.layout().own_names(), how)?;
        if self.sources.contains_key(&format!("{}.weight", rows.output())) && !self.is_untrained {
            filled.notes.push(rows.told(&filled.new));
        }
        Ok(filled)
    }

    /// The error of filling a model of this layout, if there is one, by reading the tensors and keeping none.
    pub fn check(&self, layout: &Layout, names: &[(String, String)], refit: Option<&Refit>) -> Result<()> {
        let how = How { head_may_be_new: true, refit, label_rows: None };
        self.each_value(layout, names, how, &mut |_, _| Ok(())).map(drop)
    }

    fn fill_with(&self, parameters: &Parameters, names: &[(String, String)], how: How<'_>) -> Result<Filled> {
        let initial = how.label_rows.map(|_| parameters.named()).transpose()?.unwrap_or_default();
        self.each_value(parameters.layout(), names, how, &mut |name, value| {
            let Some(rows) = how.label_rows.filter(|rows| rows.are_of(name)) else {
                return Ok(parameters.set(name, value)?);
            };
            let Some((_, initial)) = initial.iter().find(|(known, _)| known == name) else { return Ok(()) };
            Ok(parameters.set(name, &rows.of(value, initial)?)?)
        })
    }

    /// Shows the folder's value of each parameter to `take`.
    fn each_value(
        &self,
        layout: &Layout,
        names: &[(String, String)],
        how: How<'_>,
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
            let may_be_new = how.head_may_be_new && spec.part == Part::Head;
            let name = match (how.refit, spec.part) {
                (Some(refit), Part::Layer(layer)) => {
                    refit.of_layer(name, self.config.family.names.layers, layer)
                }
                _ => name.into(),
            };
            let rows = how.label_rows.filter(|rows| rows.are_of(&name));
            let shape = rows.map_or(spec.shape.clone(), |rows| rows.old_shape(&spec.shape));
            let is_kept = rows.is_none_or(LabelRows::keep_any);
            match self.tensor(&name, &shape, how.refit) {
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

    /// The tensor of a canonical name, in f32 on the CPU.
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
            name if name == names::word_embedding(family) || name == family.masked_lm.bias => {
                refit.of_words(&tensor)
            }
            name if names::position_embedding(family).is_some_and(|table| name == table) => {
                refit.of_positions(&tensor, shape[0])
            }
            _ => Ok(tensor),
        }
    }

    pub(super) fn missing(&self, name: &str, part: Part) -> Problem {
        let problem = self.weights.problem(&format!("tensor `{name}` is missing"));
        let head = self.config.family.masked_lm.dense;
        let is_masked_lm = head.split('.').next() == name.split('.').next();
        problem.hint(if part == Part::Head && is_masked_lm {
            format!(
                "a masked language model has `{head}.*`; this folder may hold an encoder or a classifier only"
            )
        } else {
            "does `config.json` belong to these weights?".to_string()
        })
    }

    /// The decoder may lie in the file as a copy of the word embedding, and as nothing else.
    pub(super) fn check_tied_decoder(&self) -> Result<()> {
        let family = self.config.family;
        let Some(embedding) = self.sources.get(&names::word_embedding(family)) else { return Ok(()) };
        let is_decoder = |name: &&str| names::canonical(family, name) == Mapped::TiedDecoder;
        for name in self.weights.names().filter(is_decoder) {
            let (decoder, embedding) = (self.weights.load(name)?, self.weights.load(embedding)?);
            let values = |t: &Tensor| t.flatten_all()?.to_vec1::<f32>();
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

/// Why a tensor cannot be taken.
enum Unfit {
    Missing,
    Misshapen(Problem),
    Unreadable(anyhow::Error),
}
