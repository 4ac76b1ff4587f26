//! Commands that compare: diff.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use extant::build::Pattern;

use crate::operand::Operand;

/// Compare two trees: of images, folders and archives
///
/// Compares what is at each path: kind, content, permissions, owners, the time of modification,
/// extended attributes (ACLs are among them), targets of links, device numbers, and which names are
/// hard links of one file. A hole is equal to zeros. Other times, sizes of directories and link
/// counts are not compared. A file or block device that holds a file system stands for its root, a
/// file that is an archive (tar, not compressed) for what is in it.
/// An empty lost+found at the root of one side is no difference. Links at the top are followed.
///
/// One difference is one line: PATH: WHAT. With --json each line is an object; "differs" is
/// only_left, only_right, kind, mode, owner, group, mtime, size, content ("byte" is the first that
/// differs), target, device, xattr, xattr_only_left, xattr_only_right or links. On the host,
/// attributes that this user may not read (trusted.*) count as missing.
///
/// Memory: the names of one directory on each level that is open, and files that wait for another
/// name; of an archive, all its headers. Exit status: 0 equal, 1 different, 2 something could not
/// be compared.
#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// Compare no times
    #[arg(long)]
    pub(crate) no_times: bool,
    /// Compare no owners and groups
    #[arg(long)]
    pub(crate) no_owners: bool,
    /// Compare no extended attributes and ACLs
    #[arg(long)]
    pub(crate) no_xattrs: bool,
    /// Leave out names like this, and what is below them: * is anything, ? one byte. With a slash,
    /// the whole path below the top is meant
    #[arg(long, value_name = "PATTERN")]
    #[arg(value_parser = OsStringValueParser::new().map(Pattern::from))]
    pub(crate) ignore: Vec<Pattern>,
    /// Print nothing, and end at the first difference
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Output for programs: an object on each line
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
    /// IMAGE, IMAGE:/path, an archive, or a path of the host
    #[arg(value_name = "A")]
    pub(crate) left: Operand,
    /// The same
    #[arg(value_name = "B")]
    pub(crate) right: Operand,
}
