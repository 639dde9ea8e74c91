//! The program: parses the command line, runs the command, prints the error chain and sets the exit code.
//!
//! A terminal that is gone is no reason to panic: text that cannot be printed is dropped.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;
use mlmtrain::commands::cli::Cli;
use mlmtrain::commands::terminal::ReaderGone;
use mlmtrain::commands::{terminal, usage};
use mlmtrain::distributed::AbortOnPanic;
use mlmtrain::error::Class;
use mlmtrain::ops::memory::LargeBlocks;
use mlmtrain::telemetry::{events, log};
use mlmtrain::{commands, distributed, error};

#[global_allocator]
static ALLOCATOR: LargeBlocks = LargeBlocks;

fn main() -> ExitCode {
    // SAFETY: there is no other thread yet.
    unsafe { distributed::set_preferences() };
    let arguments = commands::home::expand(std::env::args_os());
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(message) => return print_usage(&usage::with_tips(message, &arguments)),
    };
    distributed::tell_with(|text| drop(writeln!(std::io::stderr(), "{text}")));
    name_panics();
    let _others = AbortOnPanic;
    match commands::run(&cli) {
        Ok(()) => ended_well(),
        Err(e) if e.downcast_ref::<ReaderGone>().is_some() => ended_well(),
        Err(e) => {
            let text = distributed::named() + &usage::in_flags(&error::render(&e), &arguments);
            let warning = log::add(&text);
            if events::are_on() {
                if let Some(warning) = &warning {
                    events::send_text("note", warning);
                }
                events::send_text("error", &text);
            } else {
                let warning = warning.map(|warning| warning + "\n").unwrap_or_default();
                let _ = std::io::stderr().write_all((warning + &safe(&text)).as_bytes());
            }
            let code = error::class_of(&e).exit_code();
            distributed::abort(code);
            ExitCode::from(code)
        }
    }
}

/// Prints the process (its rank) before the message of a panic, if there are several processes.
fn name_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(place) = distributed::place() {
            let _ = writeln!(std::io::stderr(), "a panic in {place}:");
        }
        tell(panic);
    }));
}

/// Leaves the group of processes, which waits until all of them are here, and returns success.
fn ended_well() -> ExitCode {
    distributed::leave();
    ExitCode::SUCCESS
}

/// Escapes control characters: an error may quote a label or a name from outside.
fn safe(text: &str) -> String {
    text.lines().map(|line| terminal::printable(line) + "\n").collect()
}

/// Prints help or version to standard output, a wrong command line to standard error.
fn print_usage(message: &clap::Error) -> ExitCode {
    let printed = message.print().and_then(|()| std::io::stdout().flush());
    match printed {
        _ if message.use_stderr() => ExitCode::from(Class::Usage.exit_code()),
        Err(e) if e.kind() != ErrorKind::BrokenPipe => ExitCode::from(Class::Disk.exit_code()),
        _ => ExitCode::SUCCESS,
    }
}
