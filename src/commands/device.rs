//! The device of commands without a configuration, such as `evaluate` and `predict`.

use anyhow::Result;
use candle_core::Device;

use crate::commands::terminal;
use crate::config::DeviceChoice;
use crate::error::Problem;
use crate::machine;
use crate::precision::Hardware;

/// Opens the chosen device. Errors name the flag `--device` instead of a configuration key.
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
