//! The manual pages and what shells complete, from the grammar.

use std::fs;
use std::path::Path;

use clap::CommandFactory;

use crate::args::Cli;
use crate::failure::{At, Failure, Outcome};
use crate::output::Output;

/// Writes `extant.1` and a page for every command to `dir`.
pub(crate) fn write(dir: &Path) -> Outcome {
    pages(dir).into()
}

/// Prints a shell's script.
pub(crate) fn complete(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "extant", &mut script);
    let mut out = Output::new();
    out.bytes(&script).and_then(|()| out.finish()).into()
}

fn pages(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).at(dir.display())?;
    let grammar = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(grammar, dir).at(dir.display())
}
