//! The command about quotas.

use std::path::PathBuf;

use clap::{Args, Subcommand, value_parser};

use crate::operand::ImagePath;
use crate::owner;
use crate::size;

/// The largest limit that Linux takes.
const MOST: u64 = i64::MAX as u64;

/// Reads a limit of space.
fn space(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    (bytes <= MOST)
        .then_some(bytes)
        .ok_or_else(|| format!("{text}: too large a limit"))
}

/// Show and change what users, groups and projects may use
///
/// The volume has to count usage (mkfs -O quota, and project as well for projects). Limits are kept
/// by mounts with the options usrquota, grpquota and prjquota. Hard limits are never passed; soft
/// ones for a grace time only, which is one week unless it was set. A directory stands for the
/// mount there, and its user and root may ask.
#[derive(Args, Debug)]
pub(crate) struct Quota {
    #[command(subcommand)]
    pub(crate) action: QuotaAction,
}

#[derive(Subcommand, Debug)]
pub(crate) enum QuotaAction {
    Report(QuotaReport),
    Edit(QuotaEdit),
    Project(QuotaProject),
}

/// Show usage and limits of every id
///
/// Space is in KiB, as in repquota(8). An id over its soft limit is marked with "+", and the grace
/// time that is left stands behind. A mount does not count data yet that it has not written.
#[derive(Args, Debug)]
pub(crate) struct QuotaReport {
    #[command(flatten)]
    pub(crate) kinds: QuotaKinds,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Image file, block device, NBD address, or the directory of a mount
    #[arg(value_name = "IMAGE|DIR")]
    pub(crate) image: PathBuf,
}

/// The kinds that are shown; all that the volume counts if none is named.
#[derive(Args, Debug)]
pub(crate) struct QuotaKinds {
    /// Users
    #[arg(short, long)]
    pub(crate) users: bool,
    /// Groups
    #[arg(short, long)]
    pub(crate) groups: bool,
    /// Projects
    #[arg(short = 'P', long)]
    pub(crate) projects: bool,
}

/// Set limits of a user, a group or a project, or the grace times of a kind
///
/// Limits that are not named stay; 0 takes one away. Sizes may end in K, M, G ... (KB, MB, GB ...
/// are powers of 1000) and become whole KiB. Grace times are in seconds, and are those of all
/// users, groups or projects: with -u, -g or -P and any id.
#[derive(Args, Debug)]
pub(crate) struct QuotaEdit {
    #[command(flatten)]
    pub(crate) of: QuotaOwner,
    /// Bytes that are never passed
    #[arg(long, value_name = "BYTES", value_parser = space)]
    pub(crate) space_hard: Option<u64>,
    /// Bytes that are passed for the grace time only
    #[arg(long, value_name = "BYTES", value_parser = space)]
    pub(crate) space_soft: Option<u64>,
    /// Inodes that are never passed
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u64).range(..=MOST))]
    pub(crate) inodes_hard: Option<u64>,
    /// Inodes that are passed for the grace time only
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u64).range(..=MOST))]
    pub(crate) inodes_soft: Option<u64>,
    /// The grace time of bytes
    #[arg(long, value_name = "SECONDS")]
    pub(crate) space_grace: Option<u32>,
    /// The grace time of inodes
    #[arg(long, value_name = "SECONDS")]
    pub(crate) inodes_grace: Option<u32>,
    /// Image file, block device, NBD address, or the directory of a mount
    #[arg(value_name = "IMAGE|DIR")]
    pub(crate) image: PathBuf,
}

impl QuotaEdit {
    /// Returns whether a limit or a grace time is named.
    pub(crate) fn changes_something(&self) -> bool {
        let limits = [
            self.space_hard,
            self.space_soft,
            self.inodes_hard,
            self.inodes_soft,
        ];
        let times = [self.space_grace, self.inodes_grace];
        limits.iter().any(Option::is_some) || times.iter().any(Option::is_some)
    }
}

/// The id that is meant.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct QuotaOwner {
    /// The user: a number, or a name that this machine knows
    #[arg(short, long, value_parser = owner::parse_user)]
    pub(crate) user: Option<u32>,
    /// The group
    #[arg(short, long, value_parser = owner::parse_group)]
    pub(crate) group: Option<u32>,
    /// The number of the project
    #[arg(short = 'P', long, value_name = "NUMBER")]
    pub(crate) project: Option<u32>,
}

/// Put files into a project
///
/// Directories pass it on to what is made in them (chattr +P), unless --no-inherit is given.
#[derive(Args, Debug)]
pub(crate) struct QuotaProject {
    /// Change what is in directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Directories do not pass the project on
    #[arg(long)]
    pub(crate) no_inherit: bool,
    /// The number of the project; 0 for none
    pub(crate) project: u32,
    /// The files to change
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}
