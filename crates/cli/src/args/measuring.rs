//! The command that measures: bench.

use std::path::PathBuf;

use clap::Args;

/// Measure the library, its mount and their peers, in one run
///
/// Everything is compared in turns and in one run, in memory: the library, the same through its mount, Linux's file systems on a
/// loop device, fuse2fs, a pass-through, and plain copying. What cannot run here (some need root) is listed with the reason.
///
/// overwrite: small writes to the same place of a cached file. psync: sequential reads and writes. append: threads that append to one
/// file. parallel: threads that overwrite parts of one file. randwrite: random direct writes, many in flight, and the time of each clear in
/// the file's I/O tree. meta: names in directories of a thousand and of a hundred thousand files.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// Within two minutes, on smaller files
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds, 9 unless set; 7 with --quick
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: Option<u32>,
    /// Only cases of this name, or whose name begins so
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Only these variants
    #[arg(long = "variant", value_name = "V", num_args = 1.., value_delimiter = ',')]
    pub(crate) variants: Vec<String>,
    /// Write every row to a file
    #[arg(long, value_name = "F")]
    pub(crate) json: Option<PathBuf>,
    /// Draw plots into a directory
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
    /// Print Markdown, with the counters that explain the figures
    #[arg(long)]
    pub(crate) markdown: bool,
    /// What to measure
    pub(crate) name: BenchName,
}

/// A family of measurements.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BenchName {
    Overwrite,
    Psync,
    Append,
    Parallel,
    Randwrite,
    Meta,
    All,
}
