//! Stub: written next.
