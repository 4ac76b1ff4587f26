//! Requests of users about quotas: reports, limits, grace times.

use extant_disk::quota::{QuotaEntry, QuotaHeader, QuotaKind, QuotaLimits, QuotaTimes};

use super::file_blocks::FileBlocks;
use super::id_entries::{add_entry, find_dquot};
use crate::inode::InodeFlags;
use crate::state::inode::Inode;
use crate::state::quota::{QuotaFile, Quotas};
use crate::state::volume::mounted_superblock::now;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// The reason why a mount has no quotas of a kind.
const NONE: Error = Error::NotSupported("quotas of this kind, which the volume does not count");

fn quotas(fs: &Fs) -> Result<&Quotas> {
    fs.check_writable()?;
    fs.quotas.get().ok_or(NONE)
}

fn file(quotas: &Quotas, kind: QuotaKind) -> Result<&QuotaFile> {
    quotas.file(kind).ok_or(NONE)
}

/// The grace times of a kind, and all of its entries, in the order of their ids.
///
/// # Errors
/// [`Error::NotSupported`] if the volume does not count them; damage; a failed read.
pub(crate) fn report(fs: &Fs, kind: QuotaKind) -> Result<(QuotaTimes, Vec<QuotaEntry>)> {
    read(fs, kind, |blocks, header| blocks.entries(header))
}

/// The grace times of a kind, and the entry of `id`, or of the first id behind it that has one.
///
/// # Errors
/// As [`report`].
pub(crate) fn next(fs: &Fs, kind: QuotaKind, id: u32) -> Result<(QuotaTimes, Option<QuotaEntry>)> {
    read(fs, kind, |blocks, header| blocks.first_from(header, id))
}

/// Runs `look` on the file of a kind. Returns the grace times as well.
fn read<R>(
    fs: &Fs,
    kind: QuotaKind,
    look: impl FnOnce(&mut FileBlocks<'_>, &QuotaHeader) -> Result<R>,
) -> Result<(QuotaTimes, R)> {
    let ino = fs.layout.quota_inodes[kind.index()].ok_or(NONE)?;
    let inode = fs.inodes.get_internal(fs, ino)?;
    let mut blocks = FileBlocks::to_read(fs, kind, &inode);
    // No entry is added meanwhile. A mount that does not write has no need of that.
    let file = fs.quotas.get().and_then(|quotas| quotas.file(kind));
    let _locked = file.map(QuotaFile::lock);
    let header = blocks.header()?;
    Ok((header.times, look(&mut blocks, &header)?))
}

/// Sets the limits of an id.
///
/// # Errors
/// As [`report`]; [`Error::NoSpace`] for an entry; [`Error::ReadOnly`]; a stopped journal.
pub(crate) fn set_limits(fs: &Fs, kind: QuotaKind, id: u32, limits: QuotaLimits) -> Result<()> {
    let quotas = quotas(fs)?;
    file(quotas, kind)?;
    let dquot = find_dquot(fs, kind, id)?.ok_or(NONE)?;
    add_entry(fs, quotas, &dquot)?;
    let mut h = fs.start(1)?;
    dquot.set_limits(&mut h, limits, now())
}

/// Sets the grace times of a kind.
///
/// # Errors
/// As [`set_limits`].
pub(crate) fn set_times(fs: &Fs, kind: QuotaKind, times: QuotaTimes) -> Result<()> {
    let file = file(quotas(fs)?, kind)?;
    let mut h = fs.start(1)?;
    let mut header = file.lock();
    let inode = fs.inodes.get_internal(fs, file.ino)?;
    let changed = header.with_times(times);
    FileBlocks::to_change(fs, kind, &inode, &mut h).set_header(&changed)?;
    *header = changed;
    file.rules.set_times(times);
    Ok(())
}

/// Usage and limits of the project of `inode`, if its children inherit that and the project has a
/// limit that is kept: what a user sees as the volume there.
pub(crate) fn project_space(fs: &Fs, inode: &Inode) -> Option<QuotaEntry> {
    if !inode.flags().contains(InodeFlags::PROJINHERIT) {
        return None;
    }
    let quotas = fs.quotas.get()?;
    let file = quotas.file(QuotaKind::Project)?;
    let id = inode.core.read().projid;
    let dquot = find_dquot(fs, QuotaKind::Project, id).ok()??;
    let (entry, reserved) = dquot.entry();
    let mut shown = entry;
    shown.usage.bytes = shown.usage.bytes.saturating_add(reserved.bytes);
    file.rules.enforced.then_some(shown)
}
