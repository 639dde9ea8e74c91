//! Kinds of position information.

/// Kind of position information in a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PositionKind {
    /// An embedding table of absolute positions from 0 on.
    Table,
    /// An embedding table of absolute positions that start at one past the padding id, whose row is padding,
    /// too.
    TableBehindPadding,
    /// Rotary positions (RoPE): queries and keys are rotated, and there is no table.
    Rotary,
    /// Attention between contents and a table of relative positions. There may also be a table of absolute
    /// positions from 0 on.
    Relative,
}
