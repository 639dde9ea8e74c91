//! How models learn where tokens stand.

/// How a model learns where tokens stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PositionKind {
    /// By a table of positions from 0 on.
    Table,
    /// By a table of positions that count from one past the padding id, whose row is padding too.
    TableBehindPadding,
    /// Queries and keys are turned by angles: there is no table.
    Rotary,
    /// Queries and keys meet a table of relative positions; beside it there may be one of positions from 0
    /// on.
    Relative,
}
