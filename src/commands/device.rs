//! The device of `evaluate` and `predict`, which have no configuration that names one.

use anyhow::Result;
use candle_core::Device;

use crate::commands::terminal;
use crate::config::DeviceChoice;
use crate::error::Problem;
use crate::machine;
use crate::precision::Hardware;

/// The device of a choice. An error names the flag, not the key of a configuration.
pub(super) fn pick(choice: DeviceChoice) -> Result<Device> {
    let (device, without_gpu) =
        machine::pick_device(choice).map_err(|error| match error.downcast::<Problem>() {
            Ok(problem) => problem.at("--device").into(),
            Err(error) => error,
        })?;
    if let Some(reason) = without_gpu {
        terminal::note(&format!("note: no GPU is used: {reason}; {}", reason.hint()));
    }
    if let Some(cap) = Hardware::of(&device).cap {
        terminal::note(&cap);
    }
    Ok(device)
}
