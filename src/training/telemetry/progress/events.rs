//! Progress as JSON lines on standard error (`--events`), for a program that started the command, such as the
//! Python package.
//!
//! Each line is an object with the key `event`: `run` (with its `folder`), `step` and `stage` (progress),
//! `metrics` (a record), `note`, `warning` or `error` (each with a `text`). Readers must ignore events and
//! keys that they do not know.

use std::io;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value, json};
use signal_hook::consts::SIGTERM;

use base::secrets;

static ON: AtomicBool = AtomicBool::new(false);
static READER_IS_GONE: AtomicBool = AtomicBool::new(false);

/// Sets whether events replace bars and lines.
pub fn set_on(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// Returns true if events were asked for.
pub fn are_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Writes an event with these fields. If the reader closed the pipe, raises SIGTERM once, so that the command
/// ends: no program is left that could stop it.
pub fn send(event: &str, fields: Value) {
    let sent = io::stderr().write_all(line(event, fields).as_bytes());
    let is_gone = sent.is_err_and(|e| e.kind() == ErrorKind::BrokenPipe);
    if is_gone && !READER_IS_GONE.swap(true, Ordering::SeqCst) {
        let _ = signal_hook::low_level::raise(SIGTERM);
    }
}

/// Writes an event whose only field is a text.
pub fn send_text(event: &str, text: &str) {
    send(event, json!({"text": text}));
}

fn line(event: &str, fields: Value) -> String {
    let mut object = Map::from_iter([("event".to_string(), event.into())]);
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    for value in object.values_mut() {
        if let Value::String(text) = value {
            *text = secrets::masked(text).into_owned();
        }
    }
    Value::from(object).to_string() + "\n"
}
