//! Replacement of masked ids by drawn ones on the CPU.

use crate::computed::Computed;
use crate::replace_tokens::{Masked, Replaced};

pub(super) fn forward(masked: Masked<'_>, drawn: &[u32]) -> Replaced {
    let mut ids = masked.ids.host().to_vec();
    let mut replaced = vec![0; ids.len()];
    let places = masked.positions.host().iter().zip(masked.originals.host());
    for ((&at, &original), &drawn) in places.zip(drawn) {
        ids[at as usize] = drawn;
        replaced[at as usize] = u32::from(drawn != original);
    }
    Replaced { ids: Computed::on_host(ids), replaced: Computed::on_host(replaced) }
}
