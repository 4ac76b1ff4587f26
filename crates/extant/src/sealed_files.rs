//! Files whose content fs-verity fixes.

use std::path::Path;

use extant_engine::{Result, TreeHash, VerityParams};

use crate::file::File;
use crate::filesystem::Filesystem;

impl Filesystem {
    /// Fixes the content of a file: see [`Volume::enable_verity`]. No [`File`] may be open for
    /// writing it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let image = extant_testkit::Image::of_mib(16).args("-O verity -b 4096");
    /// # let image = image.make().expect("mke2fs");
    /// use extant::{Error, Filesystem, VerityParams};
    ///
    /// let fs = Filesystem::options().write(true).open(image.path())?;
    /// fs.write("/release", b"as it was signed")?;
    /// fs.enable_verity("/release", &VerityParams::default())?;
    /// let (hash, digest) = fs.measure_verity("/release")?;
    /// assert_eq!((hash.name(), digest.len()), ("sha256", 32));
    /// assert!(matches!(fs.write("/release", b"else"), Err(Error::NotPermitted)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As there; those of finding the file.
    ///
    /// [`Volume::enable_verity`]: extant_engine::Volume::enable_verity
    pub fn enable_verity(&self, path: impl AsRef<Path>, params: &VerityParams) -> Result<()> {
        let node = self.node(path, true)?;
        self.volume().enable_verity(&node, params, self.cred())
    }

    /// The digest of a file whose content is fixed, and its hash function.
    ///
    /// # Errors
    /// [`Error::NoAttribute`] if it is not; those of finding the file.
    ///
    /// [`Error::NoAttribute`]: extant_engine::Error::NoAttribute
    pub fn measure_verity(&self, path: impl AsRef<Path>) -> Result<(TreeHash, Vec<u8>)> {
        let node = self.node(path, true)?;
        self.volume().measure_verity(&node)
    }
}

impl File {
    /// As [`Filesystem::enable_verity`], of a file that is open for reading.
    ///
    /// # Errors
    /// As there.
    pub fn enable_verity(&self, params: &VerityParams) -> Result<()> {
        let (volume, node, cred) = self.parts();
        volume.enable_verity(node, params, cred)
    }

    /// As [`Filesystem::measure_verity`].
    ///
    /// # Errors
    /// As there.
    pub fn measure_verity(&self) -> Result<(TreeHash, Vec<u8>)> {
        let (volume, node, _) = self.parts();
        volume.measure_verity(node)
    }
}
