//! Features of ext4 whose costs are measured, and images that have them.
//!
//! All variants measure the same images: the library fills them before. [`FOLDER`] is where the
//! feature shows, and [`DATA`] a file in it.

use std::path::Path;
use std::sync::OnceLock;

use extant::{Cred, EncryptionPolicy, Filesystem, VerityParams};
use extant_host::{Image, Mount, Result, content};

/// The folder of everything that is measured.
pub(crate) const FOLDER: &str = "/feature";

/// The file that is read.
pub(crate) const DATA: &str = "feature/data";

/// The master key of encrypted files.
pub(crate) const KEY: [u8; 64] =
    *b"sixty-four bytes that encrypt what is only written to be timed..";

/// The flag of directories that find names in any spelling, as `chattr` sets it.
const CASEFOLD: u32 = 0x4000_0000;

/// A feature that a volume has beside those of a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Feature {
    /// Nothing.
    Plain,
    /// Usage of users and groups is counted.
    Quota,
    /// Names are found in any spelling.
    Casefold,
    /// Names and data are encrypted.
    Encrypt,
    /// The file that is read is sealed.
    Verity,
    /// An fsync writes what has changed.
    FastCommit,
}

impl Feature {
    pub(crate) const ALL: [Feature; 6] = [
        Feature::Plain,
        Feature::Quota,
        Feature::Casefold,
        Feature::Encrypt,
        Feature::Verity,
        Feature::FastCommit,
    ];

    /// Its name, which is mke2fs' but for [`Feature::Plain`].
    pub(crate) fn name(self) -> &'static str {
        match self {
            Feature::Plain => "plain",
            Feature::Quota => "quota",
            Feature::Casefold => "casefold",
            Feature::Encrypt => "encrypt",
            Feature::Verity => "verity",
            Feature::FastCommit => "fast_commit",
        }
    }

    /// That of a case, whose name begins with it.
    pub(crate) fn of_case(case: &str) -> Feature {
        let is_it = |feature: &Feature| case.split('/').next() == Some(feature.name());
        Feature::ALL
            .into_iter()
            .find(is_it)
            .unwrap_or(Feature::Plain)
    }

    /// Arguments for mke2fs.
    pub(crate) fn args(self) -> String {
        match self {
            Feature::Plain => String::new(),
            feature => format!(" -O {}", feature.name()),
        }
    }

    /// Returns whether this kernel's ext4 has it.
    pub(crate) fn is_known_to_linux(self) -> bool {
        static QUOTAS: OnceLock<bool> = OnceLock::new();
        let has = |name: &str| Path::new("/sys/fs/ext4/features").join(name).exists();
        match self {
            Feature::Plain => true,
            // The format of the files is a driver of its own.
            Feature::Quota => *QUOTAS.get_or_init(|| mounts_quotas().is_ok()),
            Feature::Casefold => has("casefold"),
            Feature::Encrypt => has("encryption"),
            Feature::Verity => has("verity"),
            Feature::FastCommit => has("fast_commit"),
        }
    }

    /// Makes [`FOLDER`], and in it [`DATA`] with `len` bytes.
    pub(crate) fn fill(self, image: &Image, len: u64) -> Result<()> {
        let fs = Filesystem::options().write(true).open(image.path())?;
        fs.create_dir(FOLDER)?;
        match self {
            Feature::Casefold => {
                let volume = fs.volume();
                let folder = volume.lookup(&volume.root()?, b"feature")?;
                let flags = fs.metadata(FOLDER)?.flags() | CASEFOLD;
                volume.set_flags(&folder, flags, &Cred::root())?;
            }
            Feature::Encrypt => {
                let policy = EncryptionPolicy::usual(fs.add_key(&KEY)?);
                fs.set_encryption_policy(FOLDER, &policy)?;
            }
            _ => {}
        }
        let data = format!("/{DATA}");
        let file = fs.create(&data)?;
        let piece = content::fill(7, 0, 1 << 20);
        for at in (0..len).step_by(piece.len()) {
            file.write_at(&piece, at)?;
        }
        file.sync_all()?;
        drop(file);
        if self == Feature::Verity {
            fs.enable_verity(&data, &VerityParams::default())?;
        }
        Ok(fs.unmount()?)
    }
}

fn mounts_quotas() -> Result<()> {
    let image = Image::of_mib(16).args(&Feature::Quota.args()).make()?;
    Mount::by_linux("ext4", image.path(), "")?.unmount()?;
    Ok(())
}
