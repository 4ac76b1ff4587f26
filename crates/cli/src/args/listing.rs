//! Commands that show what an image holds: ls, tree, stat, cat.

use clap::Args;

use crate::operand::ImagePath;

/// List directories
///
/// Names are sorted. A directory whose names exceed a few MiB is read several times, and never held
/// in memory as a whole.
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Show names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Show attributes
    #[arg(short)]
    pub(crate) long: bool,
    /// Show the directories themselves, not what is in them
    #[arg(short, long)]
    pub(crate) directory: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// A directory, or anything else
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Show a directory and everything below it
///
/// Each directory is entered once. A second name of a directory is damage, and reported.
#[derive(Args, Debug)]
pub(crate) struct Tree {
    /// Show names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Descend at most N levels
    #[arg(short = 'L', long, value_name = "N")]
    pub(crate) level: Option<usize>,
    /// Where to begin
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Show attributes
#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// Show what symbolic links lead to
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// What to show
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Write files to standard output
///
/// Holes are written as zeros, unless --sparse says otherwise.
#[derive(Args, Debug)]
pub(crate) struct Cat {
    /// Leave holes where standard output is a regular file and nothing is there yet
    #[arg(short = 'S', long)]
    pub(crate) sparse: bool,
    /// A file
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}
