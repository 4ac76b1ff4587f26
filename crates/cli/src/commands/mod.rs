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
pub(crate) mod diff;
pub(crate) mod export;
pub(crate) mod fallocate;
pub(crate) mod fix;
pub(crate) mod info;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod map;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod mv;
pub(crate) mod resize;
pub(crate) mod rm;
pub(crate) mod stat;
pub(crate) mod stats;
pub(crate) mod tar;
pub(crate) mod tree;
pub(crate) mod trim;
pub(crate) mod umount;
pub(crate) mod untar;

use crate::failure::{Failures, Outcome};
use crate::images::Images;

/// Ends a command that went through its operands: whatever was changed is durable when it succeeds.
fn finish(images: Images, mut failures: Failures) -> Outcome {
    failures.note(images.close());
    failures.outcome()
}
