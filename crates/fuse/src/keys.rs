//! Keys and policies of encrypted files on a mount, asked for from outside of its daemon.
//!
//! The ioctls of Linux have arguments whose length their numbers do not say, or that go the other
//! way, so that FUSE does not pass them on: there are two of Extant's in their place. One is about
//! a master key of the volume, and one about the policy of a file or directory. `server/ioctls.rs`
//! says which callers may ask.

#![allow(unsafe_code, reason = "the requests are ioctls")]

use std::fs::File;
use std::io;
use std::path::Path;

use extant_engine::{EncryptionContext, EncryptionPolicy, KeyId, KeyStatus};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};

/// `_IOWR('E', 85, [u8; 96])`: a master key.
pub(crate) const KEY: u32 = 0xc060_4555;
/// `_IOWR('E', 86, [u8; 64])`: a policy.
pub(crate) const POLICY: u32 = 0xc040_4556;
const KEY_OPCODE: Opcode = KEY as Opcode;
const POLICY_OPCODE: Opcode = POLICY as Opcode;
/// Bytes of the first's argument: the action or, in the answer, the state; the kind of id; the
/// bytes of the key; at [`ID`] the id; at [`RAW`] the key.
const KEY_ARGUMENT: usize = 96;
/// Bytes of the second's argument: the action; the bytes of the policy; at [`ID`] these, or those
/// of a context in the answer.
const POLICY_ARGUMENT: usize = 64;
const ID: usize = 8;
const RAW: usize = 24;
/// The longest master key.
const MAX_RAW: usize = 64;

const ADD: u8 = 0;
const REMOVE: u8 = 1;
const ASK: u8 = 2;
const DESCRIPTOR: u8 = 1;
const IDENTIFIER: u8 = 2;
const GET: u8 = 0;
const SET: u8 = 1;

/// A request about a master key.
#[derive(Debug)]
pub(crate) enum KeyRequest<'a> {
    /// Adds a key, under a descriptor that is given or under its own identifier.
    Add(Option<[u8; 8]>, &'a [u8]),
    /// Removes one.
    Remove(KeyId),
    /// Asks for its state.
    Ask(KeyId),
}

/// Adds a master key to the mount at `dir`: for policies of the first version under `descriptor`,
/// otherwise under its identifier, which is returned.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if it is not a mount of Extant, or its volume has no encrypted
/// files; [`io::ErrorKind::PermissionDenied`] if the mount is another user's;
/// [`io::ErrorKind::InvalidInput`] for a key that is not of 16 to 64 bytes; those of reaching
/// `dir`.
pub fn add_key(dir: &Path, key: &[u8], descriptor: Option<[u8; 8]>) -> io::Result<KeyId> {
    let mut argument = [0; KEY_ARGUMENT];
    let len = u8::try_from(key.len())
        .ok()
        .filter(|_| key.len() <= MAX_RAW);
    argument[0] = ADD;
    argument[1] = if descriptor.is_some() {
        DESCRIPTOR
    } else {
        IDENTIFIER
    };
    argument[2] = len.ok_or(io::ErrorKind::InvalidInput)?;
    argument[ID..ID + 8].copy_from_slice(&descriptor.unwrap_or_default());
    argument[RAW..RAW + key.len()].copy_from_slice(key);
    let answered = ask_key(dir, &mut argument);
    let id = id_of(&argument);
    argument.fill(0);
    // Looked at, so that the key is really gone from the stack.
    std::hint::black_box(&argument);
    answered?;
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Removes a master key from the mount at `dir`. Files that are open keep theirs.
///
/// # Errors
/// As [`add_key`]; [`io::ErrorKind::NotFound`] if it is not there.
pub fn remove_key(dir: &Path, id: &KeyId) -> io::Result<KeyStatus> {
    state_after(dir, REMOVE, id)
}

/// The state of a master key in the mount at `dir`.
///
/// # Errors
/// As [`add_key`].
pub fn key_status(dir: &Path, id: &KeyId) -> io::Result<KeyStatus> {
    state_after(dir, ASK, id)
}

fn state_after(dir: &Path, action: u8, id: &KeyId) -> io::Result<KeyStatus> {
    let mut argument = [0; KEY_ARGUMENT];
    argument[0] = action;
    put_id(&mut argument, id);
    ask_key(dir, &mut argument)?;
    Ok(match argument[0] {
        0 => KeyStatus::Absent,
        1 => KeyStatus::Present,
        _ => KeyStatus::PartlyRemoved,
    })
}

fn ask_key(dir: &Path, argument: &mut [u8; KEY_ARGUMENT]) -> io::Result<()> {
    let file = File::open(dir)?;
    // SAFETY: the number says that the kernel reads and writes `KEY_ARGUMENT` bytes, which are
    // there.
    let done = unsafe {
        ioctl(
            &file,
            Updater::<KEY_OPCODE, [u8; KEY_ARGUMENT]>::new(argument),
        )
    };
    done.map_err(failure)
}

/// Encrypts an empty directory of a mount, and all that will be made in it.
///
/// # Errors
/// As [`add_key`]; [`io::ErrorKind::DirectoryNotEmpty`]; [`io::ErrorKind::AlreadyExists`] if it has
/// another policy; what [`extant_engine::Volume::set_encryption_policy`] says else, by its number.
pub fn set_encryption_policy(dir: &Path, policy: &EncryptionPolicy) -> io::Result<()> {
    let mut argument = [0; POLICY_ARGUMENT];
    let bytes = policy.to_bytes();
    argument[0] = SET;
    argument[1] = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    let place = argument.get_mut(ID..ID + bytes.len());
    place
        .ok_or(io::ErrorKind::InvalidInput)?
        .copy_from_slice(&bytes);
    ask_policy(dir, &mut argument)
}

/// The encryption context of a file or directory of a mount; `None` if it is not encrypted.
///
/// # Errors
/// As [`add_key`].
pub fn encryption(path: &Path) -> io::Result<Option<EncryptionContext>> {
    let mut argument = [0; POLICY_ARGUMENT];
    argument[0] = GET;
    match ask_policy(path, &mut argument) {
        Err(error) if error.raw_os_error() == Some(Errno::NODATA.raw_os_error()) => {
            return Ok(None);
        }
        done => done?,
    }
    let bytes = argument.get(ID..ID + usize::from(argument[1]));
    let context = bytes.and_then(|bytes| EncryptionContext::parse(bytes).ok());
    context
        .map(Some)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn ask_policy(path: &Path, argument: &mut [u8; POLICY_ARGUMENT]) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: the number says that the kernel reads and writes `POLICY_ARGUMENT` bytes, which are
    // there.
    let done = unsafe {
        ioctl(
            &file,
            Updater::<POLICY_OPCODE, [u8; POLICY_ARGUMENT]>::new(argument),
        )
    };
    done.map_err(failure)
}

fn failure(error: Errno) -> io::Error {
    match error {
        Errno::NOTTY | Errno::NOSYS => io::Error::new(
            io::ErrorKind::Unsupported,
            "not a mount of Extant with encryption",
        ),
        Errno::NOKEY => io::Error::new(io::ErrorKind::NotFound, "the key is not there"),
        other => other.into(),
    }
}

fn put_id(argument: &mut [u8; KEY_ARGUMENT], id: &KeyId) {
    argument[1] = match id {
        KeyId::Descriptor(_) => DESCRIPTOR,
        KeyId::Identifier(_) => IDENTIFIER,
    };
    let bytes = id.bytes();
    argument[ID..ID + bytes.len()].copy_from_slice(bytes);
}

fn id_of(argument: &[u8]) -> Option<KeyId> {
    match *argument.get(1)? {
        DESCRIPTOR => Some(KeyId::Descriptor(*argument.get(ID..)?.first_chunk()?)),
        IDENTIFIER => Some(KeyId::Identifier(*argument.get(ID..)?.first_chunk()?)),
        _ => None,
    }
}

/// The request about a key that `data`, the argument of an ioctl, is.
pub(crate) fn asked_of_key(data: &[u8]) -> Option<KeyRequest<'_>> {
    let data: &[u8; KEY_ARGUMENT] = data.first_chunk()?;
    let id = id_of(data)?;
    match data[0] {
        ADD => {
            let len = usize::from(data[2]);
            let raw = data.get(RAW..RAW + len).filter(|_| len <= MAX_RAW)?;
            let descriptor = match id {
                KeyId::Descriptor(descriptor) => Some(descriptor),
                KeyId::Identifier(_) => None,
            };
            Some(KeyRequest::Add(descriptor, raw))
        }
        REMOVE => Some(KeyRequest::Remove(id)),
        ASK => Some(KeyRequest::Ask(id)),
        _ => None,
    }
}

/// The answer to it. The key itself is not in it.
pub(crate) fn answer_of_key(id: &KeyId, state: KeyStatus) -> Vec<u8> {
    let mut argument = [0; KEY_ARGUMENT];
    put_id(&mut argument, id);
    argument[0] = match state {
        KeyStatus::Absent => 0,
        KeyStatus::Present => 1,
        KeyStatus::PartlyRemoved => 2,
    };
    argument.to_vec()
}

/// The policy that `data`, the argument of an ioctl, sets; `None` inside if it asks for one.
pub(crate) fn asked_of_policy(data: &[u8]) -> Option<Option<EncryptionPolicy>> {
    let data: &[u8; POLICY_ARGUMENT] = data.first_chunk()?;
    match data[0] {
        GET => Some(None),
        SET => {
            let bytes = data.get(ID..ID + usize::from(data[1]))?;
            EncryptionPolicy::parse(bytes).ok().map(Some)
        }
        _ => None,
    }
}

/// The answer to it.
pub(crate) fn answer_of_policy(context: Option<&EncryptionContext>) -> Vec<u8> {
    let mut argument = [0; POLICY_ARGUMENT];
    let bytes = context.map(EncryptionContext::to_bytes).unwrap_or_default();
    if let (Ok(len), Some(place)) = (
        u8::try_from(bytes.len()),
        argument.get_mut(ID..ID + bytes.len()),
    ) {
        place.copy_from_slice(&bytes);
        argument[1] = len;
    }
    argument.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_was_asked_and_nothing_else() {
        assert_eq!(KEY >> 16 & 0x3fff, 96);
        assert_eq!(POLICY >> 16 & 0x3fff, 64);
        let id = KeyId::Identifier([7; 16]);
        let mut argument = [0; KEY_ARGUMENT];
        put_id(&mut argument, &id);
        argument[2] = 3;
        argument[RAW..RAW + 3].copy_from_slice(b"key");
        let asked = asked_of_key(&argument).unwrap();
        assert!(matches!(asked, KeyRequest::Add(None, b"key")), "{asked:?}");
        argument[0] = REMOVE;
        let asked = asked_of_key(&argument).unwrap();
        assert!(matches!(asked, KeyRequest::Remove(found) if found == id));
        argument[0] = ASK;
        assert!(matches!(asked_of_key(&argument), Some(KeyRequest::Ask(found)) if found == id));
        for (at, value) in [(0, 3), (1, 0), (1, 3)] {
            let mut wrong = argument;
            wrong[at] = value;
            assert!(asked_of_key(&wrong).is_none(), "{at} {value}");
        }
        argument[0] = ADD;
        argument[2] = 65;
        assert!(asked_of_key(&argument).is_none());
        assert!(asked_of_key(&argument[1..]).is_none());
        let answer = answer_of_key(&id, KeyStatus::PartlyRemoved);
        assert_eq!((answer[0], id_of(&answer)), (2, Some(id)));
        assert_eq!(asked_of_policy(&[0; POLICY_ARGUMENT]), Some(None));
        let mut wrong = [0; POLICY_ARGUMENT];
        (wrong[0], wrong[1]) = (SET, 60);
        assert_eq!(asked_of_policy(&wrong), None);
        assert_eq!(answer_of_policy(None), [0; POLICY_ARGUMENT]);
    }
}
