//! Seeds as files, for machines that run fuzz targets and have no mke2fs.

use std::path::{Path, PathBuf};

use extant_testkit::{Context, Result};

/// The name of the folder beside an executable.
const FOLDER: &str = "extant-seeds";

fn file(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("{number:02}.img"))
}

/// The folder of seeds beside the executable, if there is one.
pub(super) fn folder() -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    let folder = executable.parent()?.join(FOLDER);
    folder.is_dir().then_some(folder)
}

/// The image of seed `number`.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(folder: &Path, number: usize) -> Result<Vec<u8>> {
    let path = file(folder, number);
    std::fs::read(&path).context(|| path.display())
}

/// Writes the image of seed `number`.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(folder: &Path, number: usize, image: &[u8]) -> Result<()> {
    let path = file(folder, number);
    std::fs::write(&path, image).context(|| path.display())
}
