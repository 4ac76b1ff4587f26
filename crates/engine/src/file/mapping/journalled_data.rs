//! Journalled data: `data=journal`, and files with the flag `JOURNAL_DATA` on the buffer-head path.
//!
//! Data blocks are then treated as metadata is: changed under a handle, copied into the log,
//! written home by a checkpoint, revoked when they are freed. Until a checkpoint, a block's newest
//! version is in the journal's cache, so such files are read through a `LoggedDevice`.

use extant_jbd2::Handle;
use extant_units::{DevOff, Pblk};

use crate::state::inode::Inode;
use crate::state::volume::CheckKind;
use crate::types::error::Result;
use crate::volume::Fs;

/// Takes the content of whole blocks into the journal. Uses one credit for each.
///
/// # Errors
/// The journal has stopped, or the blocks lie past the end of the device.
pub(in crate::file) fn log(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    blocks: &[(DevOff, &[u8])],
) -> Result<()> {
    let key = CheckKind::FileData.of_inode(inode.ino);
    let shift = fs.layout.block_size.log2();
    for (at, bytes) in blocks {
        debug_assert_eq!(
            at.get() % fs.layout.block_size.bytes_u64(),
            0,
            "whole blocks"
        );
        let block = h.create(Pblk::new(at.get() >> shift), key)?;
        h.modify(&block, |to| to.copy_from_slice(bytes))?;
    }
    inode.note_change(h);
    Ok(())
}
