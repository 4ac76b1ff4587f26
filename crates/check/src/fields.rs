//! The fields of one inode: rules that need no other inode.

use std::borrow::Cow;

use extant_disk::damage::InodeDamage;
use extant_disk::features::{Compat, Incompat};
use extant_disk::file_kind::FileKind;
use extant_disk::inode::{InodeCore, InodeError, InodeFlags, InodeFormat, RawInode};
use extant_disk::location::Location;
use extant_units::Ino;

use crate::findings::Findings;
use crate::remedy::Repair;
use crate::role::Role;
use crate::volume::Volume;

/// Flags that e2fsck judges on inodes that only have numbers too; nothing reads their others.
const READ_OF_ALL: InodeFlags = InodeFlags::EXTENTS.union(InodeFlags::CASEFOLD);

/// Both halves of `i_size`, whatever the kind of file.
pub(crate) fn full_size(raw: &RawInode) -> u64 {
    u64::from(raw.size_lo.get()) | u64::from(raw.size_hi.get()) << 32
}

/// Decodes a record and reports each fault. Returns the inode as far as the faults leave it
/// readable.
pub(crate) fn decode(
    volume: &Volume,
    findings: &Findings,
    role: Role,
    ino: Ino,
    record: &[u8],
) -> Option<InodeCore> {
    const SIZE_HI: std::ops::Range<usize> = 108..112;
    const EXTRA_SIZE: std::ops::Range<usize> = 128..130;
    let mut format: InodeFormat = volume.format;
    let mut record = Cow::Borrowed(record);
    // Three faults can be passed over: checksum, extra size, size. Each occurs once.
    for _ in 0..4 {
        let error = match InodeCore::decode(&format, ino, &record) {
            Ok(core) => return Some(core),
            Err(error) => error,
        };
        if role.is_read() || !matches!(error, InodeError::ExtraSize { .. }) {
            let place = Location::Inode(ino);
            match error {
                InodeError::Checksum { .. } => {
                    findings.add_repairable(place, error, || Repair::InodeChecksum(ino));
                }
                error => findings.add(place, error),
            }
        }
        let mut put = |range: std::ops::Range<usize>, bytes: &[u8]| {
            if let Some(to) = record.to_mut().get_mut(range) {
                to.copy_from_slice(bytes);
            }
        };
        match error {
            InodeError::Checksum { .. } => {}
            InodeError::ExtraSize { .. } => put(EXTRA_SIZE, &[0; 2]),
            InodeError::Size { .. } => put(SIZE_HI, &[0; 4]),
            _ => return None,
        }
        format.csum_seed = None;
    }
    None
}

/// One inode in use.
pub(crate) struct Fields<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) findings: &'a Findings,
    pub(crate) ino: Ino,
    pub(crate) role: Role,
    pub(crate) kind: Option<FileKind>,
    pub(crate) raw: &'a RawInode,
    pub(crate) core: &'a InodeCore,
}

impl Fields<'_> {
    fn add(&self, damage: InodeDamage) {
        self.findings.add(Location::Inode(self.ino), damage);
    }

    /// Checks all rules but [`Fields::not_deleted`].
    pub(crate) fn check(&self) {
        self.flags();
        if self.role.has_name() {
            self.obsolete();
        }
        if self.is_special() {
            let size = full_size(self.raw);
            if size != 0 {
                self.add(InodeDamage::SpecialSize { size });
            }
            if self.core.flags.contains(InodeFlags::EXTENTS) {
                self.add(InodeDamage::SpecialExtents);
            }
        }
        if self.role.has_name() {
            self.lasting();
        }
    }

    fn is_special(&self) -> bool {
        matches!(
            self.kind,
            Some(FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice)
        )
    }

    /// Only files and directories can be protected from changes. On another kind of inode the flags
    /// alone are wrong if the rest fits the kind: then they are cleared.
    fn lasting(&self) {
        /// Bytes of `i_block` that the number of a device may take.
        const NUMBER: usize = 16;
        let (flags, lasting) = (self.core.flags, InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        let symlink = self.kind == Some(FileKind::Symlink);
        if !flags.intersects(lasting) || !(symlink || self.is_special()) {
            return;
        }
        let rest = self.core.i_block.iter().skip(NUMBER);
        if self.is_special() && rest.into_iter().any(|byte| *byte != 0) {
            self.add(InodeDamage::ProtectedSpecial);
            return;
        }
        let repair = || Repair::Flags(self.ino, flags - lasting);
        let place = Location::Inode(self.ino);
        self.findings
            .add_repairable(place, InodeDamage::Protected, repair);
    }

    /// An inode that is in use and not about to be deleted has no time of deletion.
    pub(crate) fn not_deleted(&self) {
        let dtime = self.core.dtime;
        // A value below the number of inodes is no time but a link of the orphan list.
        let linked = dtime < self.volume.sb.inodes_count();
        if dtime != 0 && (self.role.has_name() || linked) {
            let damage = InodeDamage::DeletionTime { dtime };
            self.findings.add_alone(Location::Inode(self.ino), damage);
        }
    }

    fn flags(&self) {
        let features = self.volume.sb.features();
        let has = |flag| self.core.flags.contains(flag);
        let is_dir = self.kind == Some(FileKind::Directory);
        for (bit, known, flag) in [
            (
                InodeFlags::EXTENTS,
                features.has_incompat(Incompat::EXTENTS),
                "extents",
            ),
            (
                InodeFlags::IMAGIC,
                features.has_compat(Compat::IMAGIC_INODES),
                "imagic",
            ),
            (
                InodeFlags::INLINE_DATA,
                features.has_incompat(Incompat::INLINE_DATA),
                "inline data",
            ),
            (
                InodeFlags::ENCRYPT,
                features.has_incompat(Incompat::ENCRYPT),
                "encrypt",
            ),
            (
                InodeFlags::CASEFOLD,
                features.has_incompat(Incompat::CASEFOLD),
                "casefold",
            ),
            (
                InodeFlags::INDEX,
                features.has_compat(Compat::DIR_INDEX),
                "index",
            ),
        ] {
            let read = self.role.is_read() || READ_OF_ALL.contains(bit);
            if has(bit) && !known && read {
                self.add(InodeDamage::FlagWithoutFeature { flag });
            }
        }
        for (bit, flag) in [
            (InodeFlags::INDEX, "index"),
            (InodeFlags::CASEFOLD, "casefold"),
        ] {
            if has(bit) && !is_dir && (self.role.is_read() || READ_OF_ALL.contains(bit)) {
                self.add(InodeDamage::FlagOfDirectory { flag });
            }
        }
    }

    /// Fields without a meaning on this volume must be zero.
    fn obsolete(&self) {
        let format = &self.volume.format;
        for (field, value, unused) in [
            ("i_faddr", self.raw.obso_faddr.get(), true),
            (
                "i_blocks_hi",
                u32::from(self.raw.blocks_hi.get()),
                !format.huge_file,
            ),
            (
                "i_file_acl_hi",
                u32::from(self.raw.file_acl_hi.get()),
                !format.wide_blocks,
            ),
        ] {
            if unused && value != 0 {
                let damage = InodeDamage::NotZero { field, value };
                self.findings.add_alone(Location::Inode(self.ino), damage);
            }
        }
    }
}
