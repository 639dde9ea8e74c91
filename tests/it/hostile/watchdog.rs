//! Runs something on a thread and says how it ended; one that hangs is left behind.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than this is a hang.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// How it ended.
pub(super) enum Ended<T> {
    Well(T),
    Panicked(String),
    Hung,
}

pub(super) fn run<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Ended<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(work));
        // Once the limit has passed, the receiver is gone.
        let _ = sender.send(result);
    });
    match receiver.recv_timeout(limit) {
        Ok(Ok(value)) => Ended::Well(value),
        Ok(Err(panic)) => Ended::Panicked(message(panic.as_ref())),
        Err(_) => Ended::Hung,
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
