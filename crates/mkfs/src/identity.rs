//! The identity of a volume among those of one layout: names, seeds, times.

use std::time::{SystemTime, UNIX_EPOCH};

use extant_disk::csum::Crc32c;
use extant_disk::features::FeatureSets;
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, Result};
use crate::options::Options;

/// The bytes that do not follow from the layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// The seed of directory hashes.
    pub hash_seed: [u8; 16],
    /// The volume's label, filled with zeros.
    pub label: [u8; 16],
    /// When it is made, in seconds since 1970.
    pub time: u64,
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
}

impl Identity {
    /// The identity that `options` ask for, with random numbers and the time of now where they do
    /// not. `SOURCE_DATE_EPOCH` of the environment stands for now.
    ///
    /// # Errors
    /// A label that is too long, a bad `SOURCE_DATE_EPOCH`, or no random numbers to be had.
    pub fn of(options: &Options) -> Result<Self> {
        let mut label = [0; 16];
        let room = label.get_mut(..options.label.len());
        let room = room.filter(|_| !options.label.contains(&0));
        let shown = || String::from_utf8_lossy(&options.label).into_owned();
        let too_long = "a label has at most 16 bytes, none of them zero";
        room.ok_or_else(|| Error::bad("the label", shown(), too_long))?
            .copy_from_slice(&options.label);
        Ok(Self {
            uuid: match options.uuid {
                Some(uuid) => uuid,
                None => random_uuid()?,
            },
            hash_seed: match options.hash_seed {
                Some(seed) => seed,
                None => random_uuid()?,
            },
            label,
            time: match options.time {
                Some(time) => time,
                None => now()?,
            },
            root_owner: options.root_owner,
        })
    }
}

impl Identity {
    /// The start of the checksums of a volume with `features`: of `metadata_csum` only.
    pub(crate) fn seed(&self, features: FeatureSets) -> Option<Crc32c> {
        let csum = features.metadata_csum();
        csum.then(|| Crc32c::START.feed(&self.uuid))
    }
}

/// `SOURCE_DATE_EPOCH`, or the time of the clock.
fn now() -> Result<u64> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => {
            let why = "it has to be a number of seconds since 1970";
            let parsed = text.parse();
            parsed.map_err(|_| Error::bad("SOURCE_DATE_EPOCH", text, why))
        }
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            Ok(now.map_or(0, |now| now.as_secs()))
        }
    }
}

/// A random UUID (version 4).
fn random_uuid() -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    // From the kernel itself: an empty root has no /dev. So few bytes come whole.
    let got = retry_on_intr(|| getrandom(&mut uuid, GetRandomFlags::empty()));
    got.map_err(std::io::Error::from)?;
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    Ok(uuid)
}
