//! Words of DeBERTa's `config.json` for relative positions.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// Which scores of attention know relative positions, beside those of contents.
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
    /// Whether queries meet keys of positions.
    pub fn content_to_position(self) -> bool {
        matches!(self, Self::ContentToPosition | Self::Both)
    }

    /// Whether keys meet queries of positions.
    pub fn position_to_content(self) -> bool {
        matches!(self, Self::PositionToContent | Self::Both)
    }
}

/// What stands behind the table of relative positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PositionNorm {
    /// Nothing.
    None,
    /// A norm that all layers share.
    LayerNorm,
}
