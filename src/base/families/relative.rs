//! Values of DeBERTa's keys for relative positions in `config.json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Attention scores that use relative positions, in addition to the scores of contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PositionScores {
    /// None: tokens meet by their contents only.
    #[serde(rename = "none")]
    None,
    /// Content to position: queries of contents meet keys of positions.
    #[serde(rename = "c2p")]
    ContentToPosition,
    /// Position to content: queries of positions meet keys of contents.
    #[serde(rename = "p2c")]
    PositionToContent,
    /// Both.
    #[serde(rename = "p2c|c2p")]
    Both,
}

impl PositionScores {
    /// Returns true if queries of contents are multiplied with keys of positions.
    pub fn content_to_position(self) -> bool {
        matches!(self, Self::ContentToPosition | Self::Both)
    }

    /// Returns true if keys of contents are multiplied with queries of positions.
    pub fn position_to_content(self) -> bool {
        matches!(self, Self::PositionToContent | Self::Both)
    }
}

/// Norm after the table of relative positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PositionNorm {
    /// Nothing.
    None,
    /// A norm that all layers share.
    LayerNorm,
}
