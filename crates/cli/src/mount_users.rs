//! Which processes use a mount, as far as this user may know. The mount itself is not asked: its
//! daemon may be dead.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use extant_fuse::MountEntry;

/// More processes than these are not named.
const NAMED: usize = 5;

/// Processes with a file, a directory or a program of the mount at `dir` open; the first few.
pub(crate) fn users_of(dir: &Path) -> Vec<String> {
    let inside = |link: PathBuf| fs::read_link(link).is_ok_and(|target| target.starts_with(dir));
    let uses = |process: &Path| {
        let mut files = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        ["cwd", "root", "exe"]
            .iter()
            .any(|link| inside(process.join(link)))
            || files.any(|file| inside(file.path()))
    };
    let users = processes().filter(|(_, path)| uses(path));
    users.take(NAMED).map(name).collect()
}

/// A process of each other mount namespace that has the mount with this device number; the first
/// few.
pub(crate) fn holders_elsewhere(device: (u32, u32)) -> Vec<String> {
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    let ours = namespace(Path::new("/proc/self"));
    let mut seen: HashSet<PathBuf> = ours.into_iter().collect();
    let holders = processes().filter(|(number, path)| {
        namespace(path).is_some_and(|namespace| seen.insert(namespace))
            && MountEntry::of_process(*number, device).is_ok_and(|entries| !entries.is_empty())
    });
    holders.take(NAMED).map(name).collect()
}

/// The numbers of all processes, and their folders in `/proc`.
fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|process| {
        let number = process.file_name().to_str()?.parse().ok()?;
        Some((number, process.path()))
    })
}

/// The name of a process in a message.
fn name((number, path): (u32, PathBuf)) -> String {
    let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
    format!("{} ({number})", name.trim_end())
}
