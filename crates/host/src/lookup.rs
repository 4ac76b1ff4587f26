//! Search for a program: on the path, or where the system has those of its administrator.

use std::ffi::OsStr;
use std::path::PathBuf;

/// Finds a program on the path, or in the system's directories that a user's path may lack.
pub fn find(name: &str) -> Option<PathBuf> {
    on_the_path(name).or_else(|| in_system(name))
}

/// A program that the path lacks and the system's directories have; `None` for all others, and for
/// paths.
pub(crate) fn off_the_path(program: &OsStr) -> Option<PathBuf> {
    let name = program.to_str().filter(|name| !name.contains('/'))?;
    match on_the_path(name) {
        Some(_) => None,
        None => in_system(name),
    }
}

fn on_the_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    first(std::env::split_paths(&path), name)
}

fn in_system(name: &str) -> Option<PathBuf> {
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    first(system.into_iter().map(PathBuf::from), name)
}

fn first(mut dirs: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    dirs.find_map(|dir| Some(dir.join(name)).filter(|path| path.is_file()))
}
