//! `mlmtrain manual FOLDER`: writes a manual page for each command, in the format of `man`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Command};
use clap_mangen::Man;

use crate::commands::outputs::OverwriteArgs;
use crate::commands::terminal;
use crate::fs;
use crate::fs::Output;

/// Arguments of `manual`.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// Folder for the pages; created if missing
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Writes the pages of a command line and of all its subcommands, except the hidden ones.
pub fn run(args: &ManualArgs, cli: Command) -> Result<()> {
    let mut cli = cli.disable_help_subcommand(true);
    // `build` tells subcommands the name of the program.
    cli.build();
    let mut commands = vec![cli];
    let mut count = 0;
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().filter(|inner| !inner.is_hide_set()).cloned());
        let name = command.get_display_name().unwrap_or(command.get_name()).to_string();
        let path = args.folder.join(format!("{name}.1"));
        let own = Output { is_own: is_manual_page, ..Output::new("FOLDER", &path) };
        OverwriteArgs::default().require(&[own], &[])?;
        fs::write_bytes(&path, &page(command)?)?;
        count += 1;
    }
    terminal::stdout_line(&format!("wrote {count} pages to `{}`", args.folder.display()))
}

/// True if `head` is the beginning of a page that this command wrote.
fn is_manual_page(head: &[u8]) -> bool {
    String::from_utf8_lossy(head).contains(".TH mlmtrain")
}

/// One page in roff. Examples are added here, because the generator would join their lines.
fn page(command: Command) -> Result<Vec<u8>> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut page = Vec::new();
    let program = concat!("mlmtrain ", env!("CARGO_PKG_VERSION"));
    Man::new(command.after_help(None::<&str>)).source(program).render(&mut page)?;
    if !after.is_empty() {
        page.extend(format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", verbatim(&after)).into_bytes());
    }
    Ok(page)
}

/// Escapes text, so that roff shows it unchanged.
fn verbatim(text: &str) -> String {
    let lines = text.strip_prefix("Examples:\n").unwrap_or(text).lines();
    let escaped = lines.map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A dot or a quote at the beginning of a line would start a roff request.
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    });
    escaped.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_looks_like_a_roff_request_is_escaped() {
        assert_eq!(verbatim("Examples:\n  a --b \\\n.c\n'd"), "  a \\-\\-b \\e\n\\&.c\n\\&'d");
    }
}
