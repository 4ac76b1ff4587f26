//! Append-only and immutable files: which calls they refuse.

use crate::model::Part;
use crate::program::{Op, Protection};
use crate::world::{Done, Outcome, World, done};

/// The words for a call that a protection refuses.
pub(crate) const NOT_PERMITTED: &str = "not permitted";

/// `FS_APPEND_FL` and `FS_IMMUTABLE_FL`.
const FLAGS: u32 = 0x20 | 0x10;

impl World {
    /// Gives a file a protection.
    pub(crate) fn protect(&self, file: usize, to: Protection) -> Outcome<Done> {
        let node = &self.files[file];
        let wanted = match to {
            Protection::None => 0,
            Protection::AppendOnly => 0x20,
            Protection::Immutable => 0x10,
        };
        let flags = self.volume.flags(node);
        let flags = flags.map_err(|error| format!("flags: {error}"))?;
        match self
            .volume
            .set_flags(node, flags & !FLAGS | wanted, &self.cred)
        {
            Ok(()) => done(vec![Part::Protect(file, to)], ""),
            Err(error) => self.refused(&error),
        }
    }
}

/// The file that a call needs to be free to change, and the highest protection that lets it.
fn changes(op: Op) -> Option<(usize, Protection)> {
    match op {
        // A write that does not append is refused when a file is opened, not here.
        Op::Write(file, ..)
        | Op::Vectored(file, ..)
        | Op::Direct(file, ..)
        | Op::Queued(file, ..)
        | Op::Append(file, ..)
        | Op::Allocate(file, ..) => Some((file, Protection::AppendOnly)),
        Op::Edit(file, ..)
        | Op::Punch(file, ..)
        | Op::Zero(file, ..)
        | Op::Collapse(file, ..)
        | Op::Insert(file, ..)
        | Op::Truncate(file, ..)
        | Op::Copy(_, _, (file, _))
        | Op::Link(file, ..)
        | Op::SetAttr(file)
        | Op::BigAttr(file)
        | Op::RemoveAttr(file) => Some((file, Protection::None)),
        _ => None,
    }
}

/// Returns whether a call writes, and has no part in a protection that comes later.
fn writes(op: Op) -> bool {
    matches!(
        op,
        Op::Write(..) | Op::Vectored(..) | Op::Direct(..) | Op::Queued(..) | Op::Append(..)
    )
}

/// Adds what the outcome of a call says about protections.
pub(crate) fn protected(op: Op, mut done: Done) -> Done {
    let refused = done.text == NOT_PERMITTED;
    match changes(op) {
        Some((file, _)) if refused => done.parts.push(Part::Barred(file)),
        _ if refused => done.parts.push(Part::SomeBarred),
        Some((file, most)) if !done.failed && !done.parts.is_empty() => {
            done.parts.insert(0, Part::Free(file, most));
            // Writes end before a file becomes immutable.
            if writes(op) {
                done.parts.push(Part::Free(file, most));
            }
        }
        _ => {}
    }
    done
}
