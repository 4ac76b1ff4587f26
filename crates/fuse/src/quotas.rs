//! Quotas of a mount, asked for from outside of its daemon.
//!
//! `quotactl(2)` needs a block device below a mount, so there are two ioctls in its place: one
//! returns the entry of an id, or of the next one that has any, and one sets limits and grace
//! times. `server/ioctls.rs` says which callers may ask.

#![allow(unsafe_code, reason = "the requests are ioctls")]

use std::fs::File;
use std::io;
use std::path::Path;

use extant_engine::{QuotaEntry, QuotaKind, QuotaLimits, QuotaTimes, QuotaUsage};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};

/// `_IOWR('E', 83, [u8; 96])`: the entry of an id, or of the first one behind it.
pub(crate) const NEXT: u32 = 0xc060_4553;
/// `_IOWR('E', 84, [u8; 96])`: new limits of an id, or grace times.
pub(crate) const SET: u32 = 0xc060_4554;
const NEXT_OPCODE: Opcode = NEXT as Opcode;
const SET_OPCODE: Opcode = SET as Opcode;
const ARGUMENT: usize = 96;

/// A change of quotas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaChange {
    /// The limits of an id.
    Limits(u32, QuotaLimits),
    /// The grace times of the kind.
    Times(QuotaTimes),
}

/// The grace times of a kind of quota and all of its entries, of the mount at `dir`.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if it is not a mount of Extant, or does not count this kind;
/// [`io::ErrorKind::PermissionDenied`] if the mount is another user's; those of reaching `dir`.
pub fn quotas(dir: &Path, kind: QuotaKind) -> io::Result<(QuotaTimes, Vec<QuotaEntry>)> {
    let file = File::open(dir)?;
    let (mut times, mut entries) = (QuotaTimes::default(), Vec::new());
    let mut from = Some(0);
    while let Some(id) = from {
        let mut argument = encode(kind, &QuotaEntry::of(id), times);
        // SAFETY: the number says that the kernel reads and writes `ARGUMENT` bytes, which are
        // there.
        let asked = unsafe {
            ioctl(
                &file,
                Updater::<NEXT_OPCODE, [u8; ARGUMENT]>::new(&mut argument),
            )
        };
        match asked {
            Ok(()) => {}
            Err(Errno::NOENT) => break,
            Err(error) => return Err(failure(error)),
        }
        let (_, entry, found) = decode(&argument).ok_or(io::ErrorKind::InvalidData)?;
        times = found;
        entries.push(entry);
        from = entry.id.checked_add(1);
    }
    Ok((times, entries))
}

/// Changes quotas of the mount at `dir`.
///
/// # Errors
/// As [`quotas()`]; no space for a new entry; a mount that refuses changes.
pub fn set_quota(dir: &Path, kind: QuotaKind, change: QuotaChange) -> io::Result<()> {
    let file = File::open(dir)?;
    let mut argument = match change {
        QuotaChange::Limits(id, limits) => {
            let entry = QuotaEntry {
                limits,
                ..QuotaEntry::of(id)
            };
            encode(kind, &entry, QuotaTimes::default())
        }
        QuotaChange::Times(times) => encode(kind, &QuotaEntry::of(0), times),
    };
    argument[CHANGE] = u8::from(matches!(change, QuotaChange::Times(_)));
    // SAFETY: as above.
    let done = unsafe {
        ioctl(
            &file,
            Updater::<SET_OPCODE, [u8; ARGUMENT]>::new(&mut argument),
        )
    };
    done.map_err(failure)
}

fn failure(error: Errno) -> io::Error {
    match error {
        Errno::NOTTY | Errno::NOSYS => io::Error::new(
            io::ErrorKind::Unsupported,
            "not a mount of Extant with quotas",
        ),
        other => other.into(),
    }
}

/// The byte that says what is changed: 0 limits, 1 grace times.
const CHANGE: usize = 4;

/// Kind, what is changed and id; eight numbers of 64 bits; the grace times.
fn encode(kind: QuotaKind, entry: &QuotaEntry, times: QuotaTimes) -> [u8; ARGUMENT] {
    let numbers = [
        entry.usage.bytes,
        entry.usage.inodes,
        entry.limits.bytes_hard,
        entry.limits.bytes_soft,
        entry.limits.inodes_hard,
        entry.limits.inodes_soft,
        entry.bytes_until,
        entry.inodes_until,
    ];
    let mut argument = [0; ARGUMENT];
    argument[0] = kind as u8;
    argument[8..12].copy_from_slice(&entry.id.to_ne_bytes());
    for (at, number) in numbers.iter().enumerate() {
        argument[16 + 8 * at..24 + 8 * at].copy_from_slice(&number.to_ne_bytes());
    }
    argument[80..84].copy_from_slice(&times.bytes.to_ne_bytes());
    argument[84..88].copy_from_slice(&times.inodes.to_ne_bytes());
    argument
}

fn decode(argument: &[u8]) -> Option<(QuotaKind, QuotaEntry, QuotaTimes)> {
    let argument: &[u8; ARGUMENT] = argument.first_chunk()?;
    let word = |at: usize| u32::from_ne_bytes(*argument[at..].first_chunk().unwrap_or(&[0; 4]));
    let long = |nth: usize| {
        let bytes = argument[16 + 8 * nth..].first_chunk();
        u64::from_ne_bytes(*bytes.unwrap_or(&[0; 8]))
    };
    let kind = *QuotaKind::ALL.get(usize::from(argument[0]))?;
    let entry = QuotaEntry {
        id: word(8),
        usage: QuotaUsage {
            bytes: long(0),
            inodes: long(1),
        },
        limits: QuotaLimits {
            bytes_hard: long(2),
            bytes_soft: long(3),
            inodes_hard: long(4),
            inodes_soft: long(5),
        },
        bytes_until: long(6),
        inodes_until: long(7),
    };
    let times = QuotaTimes {
        bytes: word(80),
        inodes: word(84),
    };
    Some((kind, entry, times))
}

/// The kind and the id that a request for an entry names.
pub(crate) fn asked(data: &[u8]) -> Option<(QuotaKind, u32)> {
    let (kind, entry, _) = decode(data)?;
    Some((kind, entry.id))
}

/// The answer to it.
pub(crate) fn answer(kind: QuotaKind, entry: &QuotaEntry, times: QuotaTimes) -> Vec<u8> {
    encode(kind, entry, times).to_vec()
}

/// The change that a request asks for.
pub(crate) fn change(data: &[u8]) -> Option<(QuotaKind, QuotaChange)> {
    let (kind, entry, times) = decode(data)?;
    let change = match data.get(CHANGE)? {
        0 => QuotaChange::Limits(entry.id, entry.limits),
        1 => QuotaChange::Times(times),
        _ => return None,
    };
    Some((kind, change))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(NEXT >> 16 & 0x3fff, 96);
        assert_eq!(SET >> 16 & 0x3fff, 96);
        let entry = QuotaEntry {
            id: 7,
            usage: QuotaUsage {
                bytes: 1,
                inodes: 2,
            },
            limits: QuotaLimits {
                bytes_hard: 3,
                bytes_soft: 4,
                inodes_hard: 5,
                inodes_soft: 6,
            },
            bytes_until: 8,
            inodes_until: 9,
        };
        let times = QuotaTimes {
            bytes: 10,
            inodes: 11,
        };
        let mut bytes = answer(QuotaKind::Project, &entry, times);
        assert_eq!(decode(&bytes), Some((QuotaKind::Project, entry, times)));
        let limits = QuotaChange::Limits(7, entry.limits);
        assert_eq!(change(&bytes), Some((QuotaKind::Project, limits)));
        bytes[CHANGE] = 1;
        let changed = (QuotaKind::Project, QuotaChange::Times(times));
        assert_eq!(change(&bytes), Some(changed));
        bytes[CHANGE] = 2;
        assert_eq!(change(&bytes), None);
        assert_eq!(asked(&bytes), Some((QuotaKind::Project, 7)));
        bytes[0] = 3;
        assert_eq!(asked(&bytes), None);
        assert_eq!(asked(&bytes[1..]), None);
    }
}
