//! The manual pages, from the grammar.

use std::fs;
use std::path::Path;

use clap::CommandFactory;

use crate::args::Cli;
use crate::failure::{At, Failure, Outcome};

/// Writes `extant.1` and a page for every command to `dir`.
pub(crate) fn write(dir: &Path) -> Outcome {
    pages(dir).into()
}

fn pages(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).at(dir.display())?;
    let grammar = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(grammar, dir).at(dir.display())
}
