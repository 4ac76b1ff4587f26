//! The command line's grammar.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::operand::{ImagePath, Operand};
use crate::size;

/// What is said about all commands at once.
const AFTER_HELP: &str = "\
Exit status: 0 success, 1 failure, 2 wrong usage; check has its own. What a command changed in an image is durable when it ends with 0; one that is \
killed leaves an image that is consistent once its journal is replayed, which everything that opens it does: in memory, where it may not \
be written. An image can be opened by \
many readers or by one writer: the others are told that it is in use.

Failures go to standard error, a line each: extant: COMMAND: WHERE: WHAT. Output for programs (--json) is one JSON value on standard \
output; bytes of names that are not UTF-8 are in it as hexadecimal digits too, under the key with \"_hex\" behind it.

EXTANT_LOG says how much is logged: error, warn (the default), info, debug or trace. It goes to standard error, and to the system's log from a mount in the background.

Examples:
  extant cp -r ./site disk.img:/srv/site
  docker export CONTAINER | extant untar disk.img:/
  extant ls -l disk.img:/etc
  extant mount disk.img /mnt && extant umount /mnt
  extant check --json disk.img";

/// Read, write and mount ext4 images without the kernel's ext4.
///
/// Paths inside of an image are written IMAGE:/path, where IMAGE is an image file or a block device. Symbolic links in an image lead to
/// places in the same image, never out of it. No command but mount needs root, or FUSE.
#[derive(Parser, Debug)]
#[command(
    name = "extant",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_long_help = AFTER_HELP
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Mount(Mount),
    Umount(Umount),
    Ls(Ls),
    Tree(Tree),
    Stat(Stat),
    Cat(Cat),
    Cp(Cp),
    Tar(Tar),
    Untar(Untar),
    Mv(Mv),
    Rm(Rm),
    Mkdir(Mkdir),
    Ln(Ln),
    Chmod(Chmod),
    Chown(Chown),
    Fallocate(Fallocate),
    Convert(Convert),
    Defrag(Defrag),
    Info(Info),
    Check(Check),
    Map(Map),
    Trim(Trim),
    Stats(Stats),
    Bench(Bench),
    /// Write the manual pages
    #[command(name = "manual", hide = true)]
    Manual {
        dir: PathBuf,
    },
    /// Print what a shell needs to complete command lines
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// The word that the person typed.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Command::Mount(_) => "mount",
            Command::Umount(_) => "umount",
            Command::Ls(_) => "ls",
            Command::Tree(_) => "tree",
            Command::Stat(_) => "stat",
            Command::Cat(_) => "cat",
            Command::Cp(_) => "cp",
            Command::Tar(_) => "tar",
            Command::Untar(_) => "untar",
            Command::Mv(_) => "mv",
            Command::Rm(_) => "rm",
            Command::Mkdir(_) => "mkdir",
            Command::Ln(_) => "ln",
            Command::Chmod(_) => "chmod",
            Command::Chown(_) => "chown",
            Command::Fallocate(_) => "fallocate",
            Command::Convert(_) => "convert",
            Command::Defrag(_) => "defrag",
            Command::Info(_) => "info",
            Command::Check(_) => "check",
            Command::Map(_) => "map",
            Command::Trim(_) => "trim",
            Command::Stats(_) => "stats",
            Command::Bench(_) => "bench",
            Command::Manual { .. } => "manual",
            Command::Completions { .. } => "completions",
        }
    }
}

/// Allocate, free, zero, take out or put in a range of a file
///
/// Without a mode, gives the range space that reads as zeros, creates the file if there is none, and makes it as long as that needs.
/// Sizes are bytes, or have a suffix: K, M, G ... (KiB, MiB ...: 1024) or KB, MB ... (1000).
#[derive(Args, Debug)]
pub(crate) struct Fallocate {
    /// The file keeps its size
    #[arg(short = 'n', long)]
    pub(crate) keep_size: bool,
    /// Make the range a hole: it reads as zeros and takes no space. The file keeps its size
    #[arg(short, long, group = "mode")]
    pub(crate) punch_hole: bool,
    /// Have the range read as zeros, and allocate it
    #[arg(short, long, group = "mode")]
    pub(crate) zero_range: bool,
    /// Take the range, whole blocks before the end of the file, out: what follows moves up
    #[arg(short, long, group = "mode", conflicts_with = "keep_size")]
    pub(crate) collapse_range: bool,
    /// Put a hole in, whole blocks: what lay there moves down
    #[arg(short, long, group = "mode", conflicts_with = "keep_size")]
    pub(crate) insert_range: bool,
    /// Where the range begins
    #[arg(short, long, value_name = "SIZE", default_value = "0", value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) offset: u64,
    /// How long it is
    #[arg(short, long, value_name = "SIZE", value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) length: u64,
    /// The file
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Give files that have block maps (ext2, ext3) extents
///
/// The data stays where it is. The file system must have the feature `extent` (`tune2fs -O extent` adds it). Files and directories that
/// have extents are left as they are.
#[derive(Args, Debug)]
pub(crate) struct Convert {
    /// A file or directory
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Put the data of files into as few pieces as free space allows
///
/// Each file needs free space for a copy of itself, or of parts of it, until it is done. Nothing moves where that would not make the pieces
/// fewer. An interruption, or a power cut, loses nothing. Files with block maps (ext2, ext3) are refused: see `extant convert`.
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

/// Mount an image on a directory
///
/// Returns once the mount answers; the file system is then served by a process in the background.
///
/// Root mounts directly, other users through fusermount3. The image stays locked until it is unmounted. An image that another process
/// has open for writing is waited for up to 2 seconds. A volume with multiple mount protection (mmp) that was not unmounted, or that
/// another host uses, is watched first: usually 2 times 11 seconds, at most 2 times 6 minutes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Mount {
    /// Mount options, separated by commas: ext4's by Linux's names, and FUSE's (allow_other, fsname=NAME,
    /// subtype=NAME, suid, dev, ...). Set-id bits and device nodes are without effect unless suid and dev are given.
    #[arg(short = 'o', value_name = "OPTS")]
    pub(crate) options: Vec<String>,
    /// Mount read-only, as -o ro
    #[arg(short = 'r', long)]
    pub(crate) read_only: bool,
    /// Stay in the foreground
    #[arg(short = 'f', long)]
    pub(crate) foreground: bool,
    /// Image file or block device
    pub(crate) image: PathBuf,
    /// Directory to mount on
    pub(crate) dir: PathBuf,
    /// Started by another `extant mount`, which waits for a line on standard output
    #[arg(long, hide = true)]
    pub(crate) daemon: bool,
}

/// Unmount, and wait until the image is closed
///
/// Returns once everything is written, the journal is empty and the image is closed. If that failed, says so.
#[derive(Args, Debug)]
pub(crate) struct Umount {
    /// Detach now, even if something still uses the mount; waits for nothing
    #[arg(short, long)]
    pub(crate) lazy: bool,
    /// Directories that are mount points; one that fails does not keep the others
    #[arg(required = true, value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,
}

/// List directories
///
/// Names come in order. A directory with more of them than some MiB is read several times for that, and never held in memory as a whole.
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
/// A directory is entered once: one that is there by a second name is damage, and told.
#[derive(Args, Debug)]
pub(crate) struct Tree {
    /// Show names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Go down so many levels only
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

/// Copy files and trees into, out of and between images
///
/// At least one of source and destination is in an image. With several sources the destination is a directory.
/// IMAGE:/ and DIR/. as a source mean what is in the directory. Holes stay holes.
///
/// Without -r and -a, devices and pipes of the host are read and written as cp(1) does. A symbolic link that was named as the destination is
/// followed; one that is in the way further down is replaced. On the host none is followed there, so that an image that nobody trusts
/// is copied to where it was meant to go. Whose owners cannot be kept (the host lets only root do so) loses its set-id bits.
#[derive(Args, Debug)]
pub(crate) struct Cp {
    /// Copy directories and what is in them; symbolic links are copied as links
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// As -r, and keep owners, permissions, times, extended attributes and hard links
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Keep owners, permissions and times
    #[arg(short)]
    pub(crate) preserve: bool,
    /// Leave files alone that exist
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Holes: auto keeps those of the source, always makes holes of zeros too, never writes them as zeros
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) sparse: Sparse,
    /// Never show a progress bar. It shows on a terminal only, for copies that take long
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// What is copied: IMAGE:/path, a path of the host, or - for standard input
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<Operand>,
    /// Where to: IMAGE:/path, or a path of the host
    #[arg(value_name = "DESTINATION")]
    pub(crate) destination: Operand,
}

/// Write a directory and what is in it to standard output, as an archive
///
/// The archive is what tar(1) makes of a mount with --format=pax --sort=name --xattrs --numeric-owner: owners, permissions,
/// times with nanoseconds, extended attributes, hard links and device nodes, and with --acls and --sparse: ACLs are there in words, too, and holes stay
/// holes. The same tree gives the same bytes. Sockets are left out.
#[derive(Args, Debug)]
pub(crate) struct Tar {
    /// Write to a file instead
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The directory; names in the archive begin below it
    #[arg(value_name = "IMAGE:/DIR")]
    pub(crate) from: ImagePath,
}

/// Unpack an archive from standard input
///
/// Takes what tar(1), docker export and the like write: ustar, pax and GNU's format, not compressed; with --sparse, --xattrs and --acls, too.
/// Owners, permissions, times, extended attributes, ACLs, hard links and device nodes are those of the archive, without root. Names in ACLs are
/// those of this machine. What exists is replaced, directories are filled. A full image ends it with one error: what was complete stays.
/// Names with ".." in them are refused. Links in the image are followed, those from the archive too: they never lead out of the image, but a
/// subdirectory is no border for an archive that is not trusted.
/// Blocks of zeros become holes.
#[derive(Args, Debug)]
pub(crate) struct Untar {
    /// Read from a file instead
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Never show a progress bar. It shows on a terminal only, for archives that take long
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The directory to unpack in
    #[arg(value_name = "IMAGE:/DIR")]
    pub(crate) to: ImagePath,
}

/// Rename and move within an image
///
/// All operands are in the same image. With several sources the destination is a directory.
#[derive(Args, Debug)]
pub(crate) struct Mv {
    /// Leave what exists alone
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// What is moved
    #[arg(required = true, value_name = "IMAGE:/SOURCE")]
    pub(crate) sources: Vec<ImagePath>,
    /// Its new name, or the directory that it goes to
    #[arg(value_name = "IMAGE:/DESTINATION")]
    pub(crate) destination: ImagePath,
}

/// Remove files and trees
#[derive(Args, Debug)]
pub(crate) struct Rm {
    /// Remove directories and what is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Remove empty directories
    #[arg(short, long)]
    pub(crate) dir: bool,
    /// Do not complain about what does not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// What to remove
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Make directories
#[derive(Args, Debug)]
pub(crate) struct Mkdir {
    /// Make missing parents too, and do not complain about what exists
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions, as for chmod
    #[arg(short, long)]
    pub(crate) mode: Option<String>,
    /// The new directory
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Make hard and symbolic links
#[derive(Args, Debug)]
pub(crate) struct Ln {
    /// Make a symbolic link; TARGET is then what the link says
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Replace what exists
    #[arg(short, long)]
    pub(crate) force: bool,
    /// What the link leads to
    pub(crate) target: OsString,
    /// The link
    #[arg(value_name = "IMAGE:/LINK")]
    pub(crate) link: ImagePath,
}

/// Change permissions
#[derive(Args, Debug)]
pub(crate) struct Chmod {
    /// Change what is in directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Octal (644), or words as u=rwx,go-w,+X
    #[arg(allow_hyphen_values = true)]
    pub(crate) mode: String,
    /// What to change
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Change owner and group
#[derive(Args, Debug)]
pub(crate) struct Chown {
    /// Change what is in directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Change symbolic links, not what they lead to
    #[arg(short = 'n', long)]
    pub(crate) no_dereference: bool,
    /// USER, USER:GROUP or :GROUP; numbers, or names that this machine knows
    pub(crate) owner: String,
    /// What to change
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Show what an image is made of
#[derive(Args, Debug)]
pub(crate) struct Info {
    /// Show every group
    #[arg(short, long)]
    pub(crate) groups: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Image file or block device
    pub(crate) image: PathBuf,
}

/// Verify an image without writing to it
///
/// Verifies everything that e2fsck verifies, and never writes: a dirty journal is replayed in memory.
///
/// Exit status: 0 clean, 4 something was found, 8 nothing could be said (not an ext4 image, a feature that is not known,
/// a device that fails), 2 wrong usage.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Threads to use, instead of one per processor
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) threads: Option<u8>,
    /// Image file or block device
    pub(crate) image: PathBuf,
}

/// Show where a file's blocks are
///
/// Each line is a range of the file, in blocks: its first and last block in the file, the same on the device, its length and what it
/// is: written; unwritten (allocated, reads as zeros); delayed (in memory, with no place yet); hole.
#[derive(Args, Debug)]
pub(crate) struct Map {
    /// Show what symbolic links lead to
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// A file
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Tell the device which blocks are free
///
/// What fstrim(8) does to a mount. An image file becomes sparse where nothing is stored; a block device may use what it hears as it
/// likes. Sizes may end in K, M, G ... (KB, MB, GB ... are powers of 1000).
#[derive(Args, Debug)]
pub(crate) struct Trim {
    /// Byte of the volume to begin at
    #[arg(short, long, value_name = "BYTES", default_value = "0", value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) offset: u64,
    /// How many bytes to look at, instead of all
    #[arg(short, long, value_name = "BYTES", value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) length: Option<u64>,
    /// Leave out free ranges that are shorter
    #[arg(short, long, value_name = "BYTES", default_value = "0", value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) minimum: u64,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Image file or block device
    pub(crate) image: PathBuf,
}

/// Show the counters of a mount
///
/// What was done since it was mounted, and what is held now. For root and whoever mounted it.
#[derive(Args, Debug)]
pub(crate) struct Stats {
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory that it is mounted on
    pub(crate) dir: PathBuf,
}

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
/// What becomes of holes in a copy.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sparse {
    /// The holes of the source are holes of the copy.
    Auto,
    /// Zeros become holes too.
    Always,
    /// Holes are written as zeros.
    Never,
}

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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }
}
