//! Runs third-party code that may panic on broken files. A panic becomes an error, and its message is not
//! printed.

use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs `run` and returns its value, or its error or panic as a message. After an error, values that `run`
/// was changing must not be used.
pub fn quietly<T, E: Display>(run: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                before(panic);
            }
        }));
    });
    let was_quiet = IS_QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    IS_QUIET.set(was_quiet);
    match outcome {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err("its parts contradict each other".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(quietly(|| Ok::<_, String>(1)), Ok(1));
        assert_eq!(quietly(|| Err::<u8, _>("no")), Err("no".to_string()));
        assert_eq!(
            quietly(|| -> Result<u8, String> { panic!("oh") }),
            Err("its parts contradict each other".to_string())
        );
        assert!(!IS_QUIET.get());
    }
}
