//! Keys of encrypted files.
//!
//! The kernel keeps names, attributes and pages of its own. With a key that comes or goes, those of
//! encrypted files are others: it is told to drop them, and after a removal to forget the files
//! that are not in use, as a file that it knows stays in use here, with its key.

use std::thread;
use std::time::{Duration, Instant};

use extant_engine::{Error, KeyId, KeyStatus, Node};

use super::Server;
use crate::abi::InHeader;
use crate::errno::Errno;
use crate::keys::{self, KeyRequest};

/// `FS_ENCRYPT_FL`.
const ENCRYPTED: u32 = 0x800;
/// The time that a caller waits until the kernel has dropped what it keeps.
const DROP_PATIENCE: Duration = Duration::from_secs(2);
/// The time that a caller waits until the kernel has told of the files that it has forgotten.
const FORGET_PATIENCE: Duration = Duration::from_millis(500);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(5);

impl Server<'_> {
    /// The ioctl about a master key. Every caller may ask for its state; that of the others has
    /// been checked.
    pub(super) fn key_request(&self, data: &[u8]) -> Result<Vec<u8>, Errno> {
        match keys::asked_of_key(data).ok_or(Errno::INVAL)? {
            KeyRequest::Add(descriptor, raw) => {
                let id = match descriptor {
                    Some(descriptor) => self.volume.add_key_with_descriptor(descriptor, raw)?,
                    None => self.volume.add_key(raw)?,
                };
                self.have_encrypted_dropped();
                Ok(keys::answer_of_key(&id, KeyStatus::Present))
            }
            KeyRequest::Remove(id) => {
                let state = self.remove_key(&id)?;
                Ok(keys::answer_of_key(&id, state))
            }
            KeyRequest::Ask(id) => Ok(keys::answer_of_key(&id, self.volume.key_status(&id))),
        }
    }

    /// Returns whether `data` only asks for the state of a key.
    pub(super) fn only_asks(data: &[u8]) -> bool {
        matches!(keys::asked_of_key(data), Some(KeyRequest::Ask(_)))
    }

    fn remove_key(&self, id: &KeyId) -> Result<KeyStatus, Error> {
        if self.volume.key_status(id) == KeyStatus::Absent {
            return Err(Error::NoKey);
        }
        // What is dirty in the kernel is written before the key goes.
        self.have_encrypted_dropped();
        let begun = Instant::now();
        let mut state = self.volume.remove_key(id)?;
        // What it has read since is old as well.
        self.have_encrypted_dropped();
        while state == KeyStatus::PartlyRemoved && begun.elapsed() < FORGET_PATIENCE {
            thread::sleep(LOOK);
            state = match self.volume.remove_key(id) {
                Err(Error::NoKey) => KeyStatus::Absent,
                removed => removed?,
            };
        }
        Ok(state)
    }

    /// The ioctl about a policy.
    pub(super) fn policy_request(
        &self,
        header: &InHeader,
        node: &Node,
        data: &[u8],
    ) -> Result<Vec<u8>, Errno> {
        match keys::asked_of_policy(data).ok_or(Errno::INVAL)? {
            None => Ok(keys::answer_of_policy(Some(&self.volume.encryption(node)?))),
            Some(policy) => {
                let cred = super::cred(header, 0);
                self.volume.set_encryption_policy(node, &policy, &cred)?;
                Ok(keys::answer_of_policy(None))
            }
        }
    }

    /// Has the thread of the gates tell the kernel to drop all that it keeps of encrypted files,
    /// and waits for that, but not for long.
    fn have_encrypted_dropped(&self) {
        let is_encrypted = |node: &Node| {
            let flags = self.volume.flags(node);
            flags.is_ok_and(|flags| flags & ENCRYPTED != 0)
        };
        let nodes = self.nodes.of(is_encrypted);
        let end = Instant::now() + DROP_PATIENCE;
        self.writers
            .note_stale(&nodes, end, || self.full.parking.wake());
    }
}
