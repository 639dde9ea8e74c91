//! Limits of this process (`ulimit`), read from `/proc/self/limits`.

use std::path::Path;

use crate::fs::read_system_text;

/// Limit on the address space of a process, in bytes (`ulimit -v`).
pub(super) const ADDRESS_SPACE: &str = "Max address space";

/// Limit on the size of a written file, in bytes (`ulimit -f`).
pub(super) const FILE_SIZE: &str = "Max file size";

/// Returns the soft limit called `name`; `None` if it is unlimited. `root` is `/` outside of tests.
pub(super) fn limit_bytes(root: &Path, name: &str) -> Option<u64> {
    limit_in(&read_system_text(&root.join("proc/self/limits"))?, name)
}

fn limit_in(text: &str, name: &str) -> Option<u64> {
    let values = text.lines().find_map(|line| line.strip_prefix(name))?;
    values.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_a_line_is_the_limit_that_holds() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max file size             40960                unlimited            bytes     \n\
                    Max address space         unlimited            unlimited            bytes     \n";
        assert_eq!((limit_in(text, FILE_SIZE), limit_in(text, ADDRESS_SPACE)), (Some(40_960), None));
        assert_eq!(limit_in("", FILE_SIZE), None);
    }
}
