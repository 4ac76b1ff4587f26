//! The option `--key`: files with master keys of encrypted files, for the images of a command.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;

use extant::{KeyId, Volume};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zeroize::Zeroizing;

use crate::failure::{At, Failure};

/// The longest master key, and a byte more, to tell a longer file.
const MOST: u64 = 65;

/// The keys of this command.
static KEYS: OnceLock<Vec<MasterKeyFile>> = OnceLock::new();

/// `FILE`, or `DESCRIPTOR=FILE` for policies of the first version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyArgument {
    descriptor: Option<[u8; 8]>,
    file: String,
}

/// A key that was read.
struct MasterKeyFile {
    descriptor: Option<[u8; 8]>,
    key: Zeroizing<Vec<u8>>,
    file: String,
}

impl FromStr for KeyArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = text
            .split_once('=')
            .and_then(|(name, file)| match name.parse() {
                Ok(KeyId::Descriptor(descriptor)) => Some((descriptor, file)),
                _ => None,
            });
        let (descriptor, file) = match named {
            Some((descriptor, file)) => (Some(descriptor), file),
            None => (None, text),
        };
        match file.is_empty() {
            true => Err("a file is needed".to_owned()),
            false => Ok(Self {
                descriptor,
                file: file.to_owned(),
            }),
        }
    }
}

/// Reads the keys that this command is given.
pub(crate) fn read_all(arguments: &[KeyArgument]) -> Result<(), Failure> {
    if arguments.is_empty() {
        return Ok(());
    }
    leave_no_core();
    let mut keys = Vec::new();
    for KeyArgument { descriptor, file } in arguments {
        keys.push(MasterKeyFile {
            descriptor: *descriptor,
            key: read(Path::new(file))?,
            file: file.clone(),
        });
    }
    KEYS.get_or_init(|| keys);
    Ok(())
}

/// The bytes of a master key: those of `file`, or of standard input for `-`.
pub(crate) fn read(file: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    // With room for all: it does not grow, which would leave copies behind.
    let mut key = Zeroizing::new(Vec::with_capacity(2 * usize::try_from(MOST).unwrap_or(0)));
    let read = match file == Path::new("-") {
        true => std::io::stdin().lock().take(MOST).read_to_end(&mut key),
        false => File::open(file).and_then(|file| file.take(MOST).read_to_end(&mut key)),
    };
    read.at(file.display())?;
    match key.len() {
        16..=64 => Ok(key),
        len => {
            let many = if len > 64 {
                "more than 64".to_owned()
            } else {
                len.to_string()
            };
            let what = format!("{many} bytes are no master key: it has 16 to 64");
            Err(Failure::at(file.display(), what))
        }
    }
}

/// Adds the keys of this command to a volume; to none that cannot have encrypted files.
pub(crate) fn add_to(volume: &Volume) -> Result<(), Failure> {
    match volume.may_encrypt() {
        true => all()
            .iter()
            .try_for_each(|key| key.add_to(volume).map(drop)),
        false => Ok(()),
    }
}

/// Adds the keys of this command to the mount at `dir`.
pub(crate) fn add_to_mount(dir: &Path) -> Result<(), Failure> {
    all()
        .iter()
        .try_for_each(|key| key.add_to_mount(dir).map(drop))
}

/// Returns whether this command was given one key.
pub(crate) fn is_one_given() -> bool {
    all().len() == 1
}

/// Adds the key of this command to a volume; returns its name.
pub(crate) fn add_one_to(volume: &Volume) -> Result<KeyId, Failure> {
    one()?.add_to(volume)
}

/// Adds the key of this command to the mount at `dir`; returns its name.
pub(crate) fn add_one_to_mount(dir: &Path) -> Result<KeyId, Failure> {
    one()?.add_to_mount(dir)
}

fn all() -> &'static [MasterKeyFile] {
    KEYS.get().map_or(&[], Vec::as_slice)
}

fn one() -> Result<&'static MasterKeyFile, Failure> {
    all().first().ok_or_else(|| Failure::new("a key is needed"))
}

impl MasterKeyFile {
    fn add_to(&self, volume: &Volume) -> Result<KeyId, Failure> {
        let added = match self.descriptor {
            Some(descriptor) => volume.add_key_with_descriptor(descriptor, &self.key),
            None => volume.add_key(&self.key),
        };
        added.at(&self.file)
    }

    fn add_to_mount(&self, dir: &Path) -> Result<KeyId, Failure> {
        extant_fuse::add_key(dir, &self.key, self.descriptor).at(&self.file)
    }
}

/// Has the system write no core of this process. Where that cannot be, it says so in the log.
pub(crate) fn leave_no_core() {
    let none = Rlimit {
        current: Some(0),
        maximum: getrlimit(Resource::Core).maximum,
    };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!("a core of this process may have keys in it: {error}");
    }
}

/// Returns whether this command was given keys.
pub(crate) fn are_given() -> bool {
    !all().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_may_stand_before_the_file() {
        let plain = "dir/a=b".parse::<KeyArgument>().unwrap();
        assert_eq!(plain.descriptor, None);
        assert_eq!(plain.file, "dir/a=b");
        let named = "0011223344556677=key".parse::<KeyArgument>().unwrap();
        assert_eq!(
            named.descriptor,
            Some([0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77])
        );
        assert_eq!(named.file, "key");
        assert!("".parse::<KeyArgument>().is_err());
        assert!("0011223344556677=".parse::<KeyArgument>().is_err());
    }
}
