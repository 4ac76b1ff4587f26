//! Encryption contexts: that each encrypted inode has one, and which inodes share a policy.

use std::collections::HashMap;

use extant_crypt::{BadContext, Context, NONCE_BYTES};
use extant_disk::damage::{CorruptKind, DirectoryDamage, InodeDamage};
use extant_disk::features::Compat;
use extant_disk::file_kind::FileKind;
use extant_disk::inode::{InodeCore, InodeFlags};
use extant_disk::location::Location;
use extant_disk::xattr::{Entries, NameIndex, XattrName, area_entries, block_entries};
use extant_units::Ino;
use parking_lot::Mutex;

use crate::error::Result;
use crate::findings::Findings;
use crate::volume::Volume;

/// The attribute of a context.
const CONTEXT: XattrName<'static> = XattrName {
    index: NameIndex::from_raw(9),
    rest: b"c",
};
/// The last version that contexts have so far.
const LAST_VERSION: u8 = 2;
/// Bytes of the shortest encrypted name.
const SHORTEST_NAME: usize = 16;

/// The policy of an encrypted inode: equal ones have the same number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PolicyId(usize);

/// Collects the policies of inodes, several at once. The lock is held for a look-up.
#[derive(Default)]
pub(crate) struct Contexts(Mutex<Policies>);

/// Policies of encrypted inodes.
#[derive(Default)]
pub(crate) struct Policies {
    /// Contexts without their nonces. Those of unknown versions count as one.
    numbers: HashMap<Vec<u8>, PolicyId>,
    /// Encrypted inodes; `None` for the policy if it cannot be read.
    inodes: HashMap<Ino, Option<PolicyId>>,
}

impl Contexts {
    /// Checks the context of an inode in use, if it is encrypted.
    pub(crate) fn inode(
        &self,
        volume: &Volume,
        findings: &Findings,
        ino: Ino,
        core: &InodeCore,
    ) -> Result<()> {
        if !core.flags.contains(InodeFlags::ENCRYPT) {
            return Ok(());
        }
        let place = Location::Inode(ino);
        match context(volume, core)? {
            FoundContext::Context(bytes) => match judge(&bytes) {
                Verdict::Sound => self.0.lock().add(ino, &bytes),
                Verdict::Unknown(kind) => {
                    findings.note(place, kind);
                    self.0.lock().add(ino, &bytes);
                }
                Verdict::Damaged(kind) => {
                    findings.add_alone(place, kind);
                    self.0.lock().inodes.insert(ino, None);
                }
            },
            FoundContext::Nothing => findings.add_alone(place, InodeDamage::NoEncryptionContext),
            FoundContext::Unreadable => {
                self.0.lock().inodes.insert(ino, None);
            }
        }
        Ok(())
    }

    /// The policies, once all inodes were scanned.
    pub(crate) fn finish(self) -> Policies {
        self.0.into_inner()
    }
}

impl Policies {
    fn add(&mut self, ino: Ino, context: &[u8]) {
        let is_known = context.first().is_some_and(|v| *v <= LAST_VERSION);
        let policy = match context.split_last_chunk::<NONCE_BYTES>() {
            Some((policy, _)) if is_known => policy,
            _ => &[],
        };
        let next = PolicyId(self.numbers.len());
        let number = *self.numbers.entry(policy.to_vec()).or_insert(next);
        self.inodes.insert(ino, Some(number));
    }

    /// The policy of a directory, if it is known.
    pub(crate) fn of(&self, dir: Ino) -> Option<PolicyId> {
        self.inodes.get(&dir).copied().flatten()
    }

    /// Damage of an entry in a directory with the policy `dir`, as far as encryption goes: its
    /// name, and the inode of `kind` that it leads to.
    pub(crate) fn entry(
        &self,
        dir: PolicyId,
        name: &[u8],
        ino: Ino,
        kind: Option<FileKind>,
    ) -> Option<DirectoryDamage> {
        if name.len() < SHORTEST_NAME {
            return Some(DirectoryDamage::ShortName { name: name.into() });
        }
        if !matches!(
            kind,
            Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink)
        ) {
            return None;
        }
        let name = name.into();
        match self.inodes.get(&ino) {
            None => Some(DirectoryDamage::Unencrypted { name, ino }),
            Some(Some(policy)) if *policy != dir => {
                Some(DirectoryDamage::OtherPolicy { name, ino })
            }
            Some(_) => None,
        }
    }
}

/// Returns whether an encrypted target is as long as the size says: two bytes of its length, and
/// the target.
pub(crate) fn is_encrypted_target(data: &[u8], size: u64) -> bool {
    let length = data.first_chunk().map(|half| u16::from_le_bytes(*half));
    let whole = length.map(|length| u64::from(length) + 2);
    whole == Some(size) && size <= data.len() as u64
}

/// A context as it was looked for.
enum FoundContext {
    Context(Vec<u8>),
    Nothing,
    /// Damage of attributes, which was reported, may hide it.
    Unreadable,
}

/// Looks for a context in the inode, then in the attribute block.
fn context(volume: &Volume, core: &InodeCore) -> Result<FoundContext> {
    match area_entries(&core.xattrs).map(found_in) {
        Ok(FoundContext::Nothing) => {}
        Ok(found) => return Ok(found),
        Err(_) => return Ok(FoundContext::Unreadable),
    }
    let pblk = core.file_acl;
    let has_block = volume.sb.features().has_compat(Compat::EXT_ATTR);
    if !has_block || pblk.get() == 0 {
        return Ok(FoundContext::Nothing);
    }
    if !volume.holds(pblk, 1) {
        return Ok(FoundContext::Unreadable);
    }
    Ok(match block_entries(&volume.block(pblk)?) {
        Ok(entries) => found_in(entries),
        Err(_) => FoundContext::Unreadable,
    })
}

fn found_in(entries: Entries<'_>) -> FoundContext {
    match entries.find(&CONTEXT) {
        Ok(Some(entry)) => match entry.value_here() {
            Ok(value) => FoundContext::Context(value.to_vec()),
            Err(_) => FoundContext::Unreadable,
        },
        Ok(None) => FoundContext::Nothing,
        Err(_) => FoundContext::Unreadable,
    }
}

/// A context by itself.
enum Verdict {
    Sound,
    /// Of a version or with modes that this program does not know: a later Linux may.
    Unknown(CorruptKind),
    Damaged(CorruptKind),
}

fn judge(bytes: &[u8]) -> Verdict {
    let version = bytes.first().copied().unwrap_or_default();
    let of_length = InodeDamage::EncryptionContext {
        version,
        bytes: bytes.len(),
    };
    match Context::parse(bytes) {
        Ok(_) => Verdict::Sound,
        Err(BadContext::Version(version)) if version > LAST_VERSION => {
            Verdict::Unknown(of_length.into())
        }
        Err(BadContext::Version(_) | BadContext::Empty | BadContext::Length { .. }) => {
            Verdict::Damaged(of_length.into())
        }
        Err(BadContext::Policy(_)) => {
            let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
            let kind = InodeDamage::EncryptionPolicy {
                contents: byte(1),
                names: byte(2),
                flags: byte(3),
            };
            Verdict::Unknown(kind.into())
        }
    }
}
