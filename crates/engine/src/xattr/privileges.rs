//! Set-user-ID, set-group-ID and file capabilities: cleared by changes of owner or content.
//!
//! # Locks
//! Callers that change content hold the inode's `lock`, shared or not; a caller that grants
//! privileges holds it exclusively. Handles are started here, for the rare inode that has a
//! privilege to lose. The inode's `plain` remembers that it has none.

use std::sync::Arc;

use extant_disk::xattr::{NameIndex, XattrName};
use extant_jbd2::Handle;

use crate::state::inode::Inode;
use crate::types::error::Result;
use crate::types::{Cred, FileKind};
use crate::volume::{Fs, all_or_abort, credits};
use crate::{inode, xattr};

const SUID: u16 = 0o4000;
const SGID: u16 = 0o2000;
const GROUP_EXEC: u16 = 0o010;

/// The attribute that holds file capabilities.
pub(crate) const CAPABILITY: XattrName<'static> = XattrName {
    index: NameIndex::SECURITY,
    rest: b"capability",
};

/// `mode` without the set-id bits that a change of content or owner clears: set-user-ID, and
/// set-group-ID if the group may execute (else the bit once meant mandatory locking) or if the
/// caller is an `outsider` to the group.
pub(crate) const fn stripped(mode: u16, outsider: bool) -> u16 {
    let mut mode = mode & !SUID;
    if mode & GROUP_EXEC != 0 || outsider {
        mode &= !SGID;
    }
    mode
}

/// Before the content of a file changes: clears set-id bits for unprivileged writers and
/// capabilities for all, and records the modification time (stored within seconds). Starts a handle
/// only if there is something to clear.
///
/// # Errors
/// The failure to clear what must be cleared: the write must fail.
pub(crate) fn file_modified(fs: &Fs, inode: &Arc<Inode>, cred: &Cred) -> Result<()> {
    #[cfg(test)]
    calls::CALLS.set(calls::CALLS.get() + 1);
    remove_privileges(fs, inode, cred)?;
    inode::touch_mtime(fs, inode);
    Ok(())
}

/// Returns whether [`file_modified`] would find nothing to do: the inode has no privileges, and a
/// write noted its time in this tick of the clock.
#[inline]
pub(crate) fn is_modification_recorded(inode: &Inode) -> bool {
    inode.has_no_privileges() && inode::is_write_noted(inode)
}

/// The first half of [`file_modified`]: clears privileges.
///
/// # Errors
/// As [`file_modified`].
pub(crate) fn remove_privileges(fs: &Fs, inode: &Inode, cred: &Cred) -> Result<()> {
    if inode.kind != FileKind::Regular || inode.has_no_privileges() {
        return Ok(());
    }
    let new_mode = {
        let core = inode.core.read();
        let mode = if cred.privileged {
            core.mode
        } else {
            stripped(core.mode, cred.is_outsider(core.gid))
        };
        (mode != core.mode).then_some(mode)
    };
    let capable = xattr::exists(fs, inode, &CAPABILITY)?;
    if new_mode.is_some() || capable {
        let needed = match capable {
            true => xattr::credits(fs, inode, 0)?,
            false => 0,
        };
        let mut h = fs.start(credits::sum([credits::INODE_UPDATE, needed]))?;
        all_or_abort(&mut h, |h| {
            if capable {
                xattr::set_stored(fs, h, inode, &CAPABILITY, None, cred)?;
            }
            take_bits(fs, h, inode, new_mode)
        })?;
    }
    inode.note_no_privileges();
    Ok(())
}

fn take_bits(fs: &Fs, h: &mut Handle, inode: &Inode, new_mode: Option<u16>) -> Result<()> {
    inode.update(fs, h, |core| {
        if let Some(mode) = new_mode {
            core.mode = mode;
        }
        inode::changed(core, inode::now());
    })
}

/// Calls of [`file_modified`], for tests that count them.
#[cfg(test)]
pub(crate) mod calls {
    use std::cell::Cell;

    thread_local! {
        /// Those of this thread.
        pub(crate) static CALLS: Cell<u32> = const { Cell::new(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::stripped;

    #[test]
    fn bits_go_as_in_linux() {
        assert_eq!(stripped(0o106_755, false), 0o100_755);
        assert_eq!(stripped(0o106_745, false), 0o102_745, "no group execution");
        assert_eq!(stripped(0o106_745, true), 0o100_745, "an outsider");
        assert_eq!(stripped(0o101_777, true), 0o101_777, "sticky stays");
    }
}
