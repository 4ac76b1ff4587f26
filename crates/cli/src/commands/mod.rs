//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod build;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod chmod;
pub(crate) mod chown;
pub(crate) mod convert;
pub(crate) mod cp;
pub(crate) mod defrag;
pub(crate) mod df;
pub(crate) mod diff;
pub(crate) mod du;
pub(crate) mod export;
pub(crate) mod fallocate;
pub(crate) mod find;
pub(crate) mod fix;
pub(crate) mod gc;
pub(crate) mod info;
pub(crate) mod key;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod map;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod mv;
pub(crate) mod nbd;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod quota;
pub(crate) mod resize;
pub(crate) mod rm;
pub(crate) mod setfattr;
pub(crate) mod stat;
pub(crate) mod stats;
pub(crate) mod tar;
pub(crate) mod touch;
pub(crate) mod tree;
pub(crate) mod trim;
pub(crate) mod umount;
pub(crate) mod untar;
pub(crate) mod verity;
pub(crate) mod versions;
pub(crate) mod vhost;

use extant::{Filesystem, SetAttr};

use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::owner::Owner;

/// Splits operands into the last, which is called `last`, and the sources before it. Options may
/// stand between operands, so the grammar cannot tell them apart.
fn split_sources<'a, T>(operands: &'a [T], last: &str) -> Result<(&'a T, &'a [T]), Outcome> {
    match operands.split_last() {
        Some((to, sources)) if !sources.is_empty() => Ok((to, sources)),
        _ => Err(Outcome::Usage(format!("a source and {last} are needed"))),
    }
}

/// Gives what was made at a path the owner that the caller names, if one is named.
fn own(fs: &Filesystem, at: &ImagePath, owner: Option<Owner>) -> Result<(), Failure> {
    let Some((uid, gid)) = owner else {
        return Ok(());
    };
    let changes = SetAttr {
        uid,
        gid,
        ..SetAttr::default()
    };
    fs.set_attributes(&at.path, false, &changes).at(at)
}

/// Ends a command that went through its operands: whatever was changed is durable when it succeeds.
fn finish(images: Images, mut failures: Failures) -> Outcome {
    failures.note(images.close());
    failures.outcome()
}
