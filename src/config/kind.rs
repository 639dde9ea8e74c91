//! The two kinds of configurations.

/// The command that a configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `pretrain` and `prepare`.
    Pretrain,
    /// `finetune`.
    Finetune,
}
