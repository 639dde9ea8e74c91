//! How many processes train together, and the sum of their gradients.
//!
//! This build trains in one process. Started as one of many it refuses: every process would train the same
//! model on the same data and write to the same folder.

use crate::error::Problem;

/// Variables by which launchers tell a process how many there are.
const SIZE_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE"];

/// The processes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct World {
    /// Number of this process, from 0.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
}

impl Default for World {
    fn default() -> Self {
        Self::ALONE
    }
}

impl World {
    /// One process.
    pub const ALONE: Self = Self { rank: 0, size: 1 };

    /// Whether this is the process that writes what all share.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// The sums of all processes' numbers: of one process, its own.
    pub fn sum(&self, own: Vec<usize>) -> Vec<usize> {
        debug_assert_eq!(self.size, 1, "`detect` refuses more");
        own
    }

    /// The decision that all processes take, which is that of the first: of one process, its own.
    pub fn agree<T>(&self, own: T) -> T {
        debug_assert_eq!(self.size, 1, "`detect` refuses more");
        own
    }

    /// This process alone; an error when the environment says that it is one of several.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Problem> {
        for name in SIZE_VARIABLES {
            if let Some(size) =
                variable(name).and_then(|v| v.trim().parse::<usize>().ok()).filter(|&size| size > 1)
            {
                return Err(Problem::usage(format!(
                    "`{name}` says that this is one of {size} processes, and this build trains in one"
                ))
                .hint(format!(
                    "start one process, or unset `{name}` if the launcher sets it for a single one"
                )));
            }
        }
        Ok(Self::ALONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_is_refused_and_one_alone_is_not() {
        let with = |name: &'static str, value: &'static str| {
            move |asked: &str| (asked == name).then(|| value.to_string())
        };
        assert_eq!(World::detect(|_| None).unwrap().size, 1);
        assert_eq!(World::detect(with("SLURM_NTASKS", "1")).unwrap().size, 1);
        let error = World::detect(with("OMPI_COMM_WORLD_SIZE", "4")).unwrap_err();
        assert!(
            error.to_string().contains("`OMPI_COMM_WORLD_SIZE` says that this is one of 4 processes"),
            "{error}"
        );
        assert_eq!(error.class.exit_code(), 2);
    }
}
