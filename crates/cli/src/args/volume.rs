//! Commands about an image as a whole: info, check, fix, resize, trim.

use std::path::PathBuf;

use clap::Args;
use extant::resize::Target;

use crate::size;

/// Show what an image is made of
#[derive(Args, Debug)]
pub(crate) struct Info {
    /// Show every group
    #[arg(short, long)]
    pub(crate) groups: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Image file, block device or NBD address
    pub(crate) image: PathBuf,
}

/// Verify an image without writing to it
///
/// Verifies what e2fsck verifies and never writes: a dirty journal is replayed in memory.
///
/// Exit status: 0 clean, 4 damage was found, 8 the image could not be checked (not an ext4 image,
/// an unknown feature, a device that fails), 2 wrong usage.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Threads to use, instead of one per processor
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) threads: Option<u8>,
    /// Device or file with the journal, for an image that has it elsewhere
    #[arg(long, value_name = "PATH")]
    pub(crate) journal: Option<PathBuf>,
    /// Image file, block device or NBD address
    pub(crate) image: PathBuf,
}

/// Repair what an image leaves no choice about
///
/// Replays the journal, finishes orphans, and stores anew what the rest of the image says:
/// checksums of sound structures, counts, bitmaps, link counts, kinds in entries; inodes without a
/// name get one in lost+found, which grows if it has to. Once nothing is wrong, copies of
/// superblock and descriptors that cannot be used are written anew, and errors on record forgotten.
/// Everything else is reported and left: where e2fsck asks, this declines. While a structure is in
/// doubt, nothing that depends on it changes. A clean image is not written. After a power cut the
/// next repair goes on. Other hosts are kept away meanwhile if the image has multiple mount
/// protection.
///
/// Exit status: 0 clean, 1 repaired as a whole, 4 damage is left (with -n: found), 8 the image
/// could not be checked or is in use, 2 wrong usage.
#[derive(Args, Debug)]
pub(crate) struct Fix {
    /// Say what would be done, and write nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Give each file its own copy of blocks that it shares
    ///
    /// Files of Android's deduplicated images have blocks in common (the feature shared_blocks),
    /// and such an image can only be read. Once nothing else is wrong, the blocks are copied and
    /// the feature is cleared, in one step that a power cut does not divide. Without enough free
    /// space nothing is changed. Other images have nothing to copy.
    #[arg(long)]
    pub(crate) unshare: bool,
    /// Device or file with the journal, for an image that has it elsewhere
    #[arg(long, value_name = "PATH")]
    pub(crate) journal: Option<PathBuf>,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Image file or block device
    pub(crate) image: PathBuf,
}

/// Grow or shrink an image, or grow a mount
///
/// A directory stands for the mount there, which grows while it is in use, its image file with it;
/// a block device has to be longer first. The user of the mount may do that, and root. It grows
/// within what is reserved for descriptors (1024 times the size at which it was made, unless mkfs
/// was told otherwise), and not past 2^32 blocks; without that reserve, by a few groups at most.
/// The rest is possible once the image is not mounted.
///
/// Otherwise the image must not be mounted. An image file gets the length of its file system; a
/// block device keeps its own. A journal that waits for a replay is replayed first, and the image
/// must be sound: extant check runs before, and once more over what is about to be written. SIZE
/// may end in K, M, G ... (KB, MB, GB ... are powers of 1000). The file system gets whole blocks of
/// it, and a last group only if that is worth its metadata. "min" is the least size that holds what
/// the image holds.
///
/// A power cut at any moment leaves the old size or the new one, and an image that the next mount
/// replays. Without a journal it leaves an image that has to be repaired (e2fsck).
#[derive(Args, Debug)]
pub(crate) struct Resize {
    /// Device or file with the journal, for an image that has it elsewhere
    #[arg(long, value_name = "PATH")]
    pub(crate) journal: Option<PathBuf>,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Image file, block device, or the directory of a mount
    #[arg(value_name = "IMAGE|DIR")]
    pub(crate) image: PathBuf,
    /// Bytes, or "min"
    #[arg(value_parser = parse_size)]
    pub(crate) size: Target,
}

/// The size of a resize.
fn parse_size(text: &str) -> Result<Target, String> {
    match text {
        "min" => Ok(Target::Least),
        bytes => size::parse(bytes).map(Target::Bytes),
    }
}

/// Tell the device which blocks are free
///
/// Does the same as fstrim(8) does to a mount. An image file becomes sparse where nothing is
/// stored; a block device may use or ignore the information. Sizes may end in K, M, G ... (KB, MB,
/// GB ... are powers of 1000).
#[derive(Args, Debug)]
pub(crate) struct Trim {
    /// First byte of the volume to trim
    #[arg(short, long, value_name = "BYTES", default_value = "0")]
    #[arg(value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) offset: u64,
    /// Bytes of the volume to trim, instead of all
    #[arg(short, long, value_name = "BYTES")]
    #[arg(value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) length: Option<u64>,
    /// Skip free ranges that are shorter
    #[arg(short, long, value_name = "BYTES", default_value = "0")]
    #[arg(value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) minimum: u64,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Image file, block device or NBD address
    pub(crate) image: PathBuf,
}
