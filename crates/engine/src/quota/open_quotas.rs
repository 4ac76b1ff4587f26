//! Opening the files of quotas.

use std::sync::Arc;

use extant_disk::damage::QuotaDamage;
use extant_disk::quota::QuotaKind;
use extant_units::Ino;

use super::file_blocks::FileBlocks;
use crate::inode::InodeFlags;
use crate::state::quota::{QuotaFile, Quotas};
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Opens the files of quotas. Part of a mount that writes, before any inode of a user is read.
///
/// # Errors
/// A file is damaged; a failed read.
pub(crate) fn open(fs: &Arc<Fs>) -> Result<()> {
    let mut files = [None, None, None];
    for kind in QuotaKind::ALL {
        match fs.layout.quota_inodes[kind.index()] {
            Some(ino) => files[kind.index()] = Some(open_file(fs, kind, ino)?),
            None if fs.options.keeps_quota(kind) => {
                return Err(Error::BadOption(format!(
                    "'{}': the volume counts no {kind} quotas (mke2fs -O quota makes them)",
                    ["usrquota", "grpquota", "prjquota"][kind.index()]
                )));
            }
            None => {}
        }
    }
    if files.iter().all(Option::is_none) {
        return Ok(());
    }
    let first = fs.quotas.set(Quotas::new(files)).is_ok();
    debug_assert!(first, "quotas are opened once");
    Ok(())
}

fn open_file(fs: &Arc<Fs>, kind: QuotaKind, ino: Ino) -> Result<QuotaFile> {
    let inode = fs.iget_internal(ino)?;
    let foreign = InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT | InodeFlags::VERITY;
    let is_place = match kind.fixed_inode() {
        Some(fixed) => ino.get() == fixed,
        None => fs.layout.is_user_inode(ino) && ino != Ino::ROOT,
    };
    let is_file = inode.kind == FileKind::Regular && !inode.flags().intersects(foreign);
    let other = [fs.layout.journal_inode, fs.layout.orphan_file_inode];
    if !is_place || !is_file || inode.is_unlinked() || other.contains(&Some(ino)) {
        return Err(Error::corrupt(
            Location::Inode(ino),
            QuotaDamage::NoFile { kind },
        ));
    }
    let header = FileBlocks::to_read(fs, kind, &inode).header()?;
    Ok(QuotaFile::new(ino, header, fs.options.keeps_quota(kind)))
}
