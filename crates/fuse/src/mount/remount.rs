//! `mount -o remount`: what the kernel changes of a mount that is there.

use std::io;
use std::path::Path;

use rustix::mount::mount_remount;

use super::options::MountOptions;
use super::table::MountEntry;

/// Changes the flags of the mount at `dir`, which must be canonical: `ro`, `rw`, `suid`, `dev`,
/// `exec` and their opposites. Flags that `words` does not name stay. Returns the words that cannot
/// be changed while it is mounted.
///
/// # Errors
/// Nothing is mounted there; what the kernel says.
pub fn remount(dir: &Path, words: &str) -> io::Result<Vec<String>> {
    let entry = MountEntry::find(dir)?;
    let entry = entry.ok_or_else(|| io::Error::other("not mounted"))?;
    let (options, mut left) = MountOptions::changed(&entry.flags, words);
    // mount(8) passes on what the table has beside what it was given.
    left.retain(|word| entry.options.split(',').all(|present| present != word));
    mount_remount(dir, options.mount_flags(), c"")?;
    Ok(left)
}
