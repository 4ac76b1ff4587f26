//! Commands about the blocks of files: fallocate, map, convert, defrag.

use std::path::PathBuf;

use clap::Args;

use crate::operand::ImagePath;
use crate::size;

/// Allocate, free, zero, remove or insert a range of a file
///
/// Without a mode, allocates space for the range, which reads as zeros; creates the file if it does
/// not exist, and extends it to the end of the range. Sizes are bytes, or have a suffix: K, M, G
/// ... (KiB, MiB ...: 1024) or KB, MB ... (1000).
#[derive(Args, Debug)]
pub(crate) struct Fallocate {
    /// The file keeps its size
    #[arg(short = 'n', long)]
    pub(crate) keep_size: bool,
    /// Make the range a hole: it reads as zeros and takes no space. The file keeps its size
    #[arg(short, long, group = "mode")]
    pub(crate) punch_hole: bool,
    /// Zero the range: it reads as zeros and has space
    #[arg(short, long, group = "mode")]
    pub(crate) zero_range: bool,
    /// Remove the range, whole blocks before the end of the file: later data moves to its start
    #[arg(short, long, group = "mode", conflicts_with = "keep_size")]
    pub(crate) collapse_range: bool,
    /// Insert a hole, whole blocks: later data moves behind it
    #[arg(short, long, group = "mode", conflicts_with = "keep_size")]
    pub(crate) insert_range: bool,
    /// Start of the range
    #[arg(short, long, value_name = "SIZE", default_value = "0")]
    #[arg(value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) offset: u64,
    /// Length of the range
    #[arg(short, long, value_name = "SIZE")]
    #[arg(value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) length: u64,
    /// The file
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Show where a file's blocks are
///
/// Each line is a range of the file, in blocks: its first and last block in the file, the same on
/// the device, its length and what it is: written; unwritten (allocated, reads as zeros); delayed
/// (in memory, not allocated yet); hole.
///
/// The picture that --plot draws shows how fragmented a file is, or of a directory all files below
/// it: IMAGE:/ is the whole image.
#[derive(Args, Debug)]
pub(crate) struct Map {
    /// Show what symbolic links lead to
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw a picture into a file (SVG) instead of a list
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) plot: Option<PathBuf>,
    /// A file
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Give files that have block maps (ext2, ext3) extents
///
/// The data stays where it is. The file system must have the feature `extent` (`tune2fs -O extent`
/// adds it). Files and directories that have extents are left as they are.
#[derive(Args, Debug)]
pub(crate) struct Convert {
    /// A file or directory
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Defragment files: as few extents as free space allows
///
/// Each file needs free space for a copy of itself, or of parts of it, until it is done. Data moves
/// only where that leaves fewer extents. An interruption, or a power cut, loses nothing. Files with
/// block maps (ext2, ext3) are refused: see `extant convert`.
#[derive(Args, Debug)]
pub(crate) struct Defrag {
    /// No progress bar
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// A file
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}
