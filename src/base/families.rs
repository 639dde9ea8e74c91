//! The families of encoders, each described as data in a file of its own. Nothing here computes.
//!
//! No code outside this folder checks to which family a model belongs: every difference is a field of
//! [`Descriptor`].

mod albert;
mod bert;
mod bounds;
mod camembert;
mod deberta_v2;
mod descriptor;
mod distilbert;
mod electra;
mod encoder;
mod head_kinds;
mod keys;
mod modernbert;
mod mpnet;
mod named;
mod neobert;
mod parameter_names;
mod positions;
mod relative;
mod roberta;
mod xlm_roberta;

use std::fmt;
use std::ops::Deref;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::words::joined;

pub use bounds::{MOST_INITIALIZER_RANGE, MOST_LAYER_NORM_EPS, ROPE_THETA};
pub use descriptor::{
    ClassificationNames, Descriptor, EmbeddingMap, EmbeddingSharing, FeedForwardKind, GeneratorSize,
    HeadActivation, Initialisation, MaskedLmNames, NormKind, RemoteCode, ReplacedTokens, SentencePairNames,
    SpecialNames, SpecialRole, TransformNames,
};
pub use encoder::{Dropouts, EncoderConfig, HiddenAct, ModelConfig, PaddingRows, Pooling};
pub use head_kinds::HeadKind;
pub use keys::{Constant, Keys};
pub use named::{MODEL_NAMES, named_model, plain_model};
pub use parameter_names::{AttentionNames, EncoderNames, NormNames, RelativeNames};
pub use positions::PositionKind;
pub use relative::{PositionNorm, PositionScores};

/// A family, identified by its description.
#[derive(Clone, Copy)]
pub struct Family(&'static Descriptor);

impl Family {
    /// All families, in the order in which they are listed to users.
    pub const ALL: [Self; 11] = [
        Self::ROBERTA,
        Self::BERT,
        Self::ELECTRA,
        Self::MODERNBERT,
        Self::DEBERTA_V2,
        Self::DISTILBERT,
        Self::XLM_ROBERTA,
        Self::CAMEMBERT,
        Self::ALBERT,
        Self::MPNET,
        Self::NEOBERT,
    ];

    /// The family with this name, as in configurations and in `config.json`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name == name)
    }

    /// The family's special tokens, with a static lifetime.
    pub fn special_names(self) -> &'static SpecialNames {
        &self.0.special
    }

    /// The names of the parameters of the family's encoder, with a static lifetime.
    pub fn encoder_names(self) -> &'static EncoderNames {
        &self.0.names
    }

    /// The names of all families, such as "`roberta`, `bert` and `electra`", where `joined_by` is `and`.
    pub fn names(joined_by: &str) -> String {
        let names: Vec<String> = Self::ALL.iter().map(|family| format!("`{}`", family.name)).collect();
        joined(&names, joined_by)
    }
}

impl Deref for Family {
    type Target = Descriptor;

    fn deref(&self) -> &Descriptor {
        self.0
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Family {}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)
    }
}

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Family {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| {
            D::Error::custom(format!("unknown family `{name}`: there are {}", Self::names("and")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_found_by_its_name_and_keeps_to_it_in_json() {
        for family in Family::ALL {
            assert_eq!(Family::named(family.name), Some(family));
            let json = serde_json::to_string(&family).unwrap();
            assert_eq!(serde_json::from_str::<Family>(&json).unwrap(), family);
        }
        let all = "`roberta`, `bert`, `electra`, `modernbert`, `deberta-v2`, `distilbert`, `xlm-roberta`, \
                   `camembert`, `albert`, `mpnet` and `neobert`";
        assert_eq!(Family::names("and"), all);
        let error = serde_json::from_str::<Family>("\"gpt\"").unwrap_err().to_string();
        assert!(error.contains(&format!("unknown family `gpt`: there are {all}")), "{error}");
    }

    #[test]
    fn special_tokens_have_an_id_each_and_padding_has_that_of_the_defaults() {
        for family in Family::ALL {
            let special = &family.special;
            for token in [special.cls, special.sep, special.pad, special.unk, special.mask] {
                assert!(special.order.contains(&token), "{family:?} {token}");
            }
            assert_eq!(special.id(special.pad), family.defaults.pad_token_id as usize);
        }
    }
}
