//! Clean-up when a signal ends this process: it leaves nothing behind.
//!
//! A guard cleans up when it is dropped, and a signal drops none. [`clean_up`] does the same for
//! all guards at once: programs that were started, mounts, loop devices, temporary directories, the
//! kernel's switch for rings.
//!
//! # Concurrency
//! Every guard is made, and every program started, under the lock of the list of them. [`clean_up`]
//! takes it and never gives it back: other threads start and make nothing more.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::made::made;
use crate::{loop_device, mount, need, tmp};

/// Undoes what the guards of this process would undo. The process has to end then: its other
/// threads wait for ever where they make a guard or start a program.
pub fn clean_up() {
    let made = made();
    // Those that end may start none: the children of a child are its own matter.
    for child in children() {
        let _ = kill_process(child, Signal::KILL);
    }
    let is_below = |path: &Path| made.dirs.iter().any(|dir| path.starts_with(dir));
    let mut mounts = mount::mount_points().unwrap_or_default();
    mounts.retain(|dir| is_below(dir));
    // What is mounted on a mount goes first.
    for dir in mounts.iter().rev() {
        let unmount: &[&str] = match need::is_root() {
            true => &["umount", "-l"],
            false => &["fusermount3", "-u", "-z"],
        };
        run(unmount, dir);
    }
    for device in loop_device::over_files(is_below) {
        run(&["losetup", "-d"], &device);
    }
    for dir in made.dirs.iter().filter(|_| !tmp::are_kept()) {
        if let Err(error) = fs::remove_dir_all(dir) {
            eprintln!("cannot remove {}: {error}", dir.display());
        }
    }
    if let Some((file, before)) = &made.switch {
        let _ = fs::write(file, before);
    }
    std::mem::forget(made);
}

/// Runs a program on a path, where a terminal's signals do not reach it.
fn run(words: &[&str], path: &Path) {
    let Some((program, words)) = words.split_first() else {
        return;
    };
    let mut command = Command::new(program);
    command.args(words).arg(path).process_group(0);
    let _ = command.stdin(Stdio::null()).status();
}

/// The children of this process.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let children = processes.filter_map(|process| {
        // The second field, in brackets, may hold anything.
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
        let pid = process.file_name().to_str()?.parse().ok()?;
        (parent == own).then(|| Pid::from_raw(pid)).flatten()
    });
    children.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(children().iter().any(|c| c.as_raw_nonzero().get() == pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().iter().any(|c| c.as_raw_nonzero().get() == pid));
    }
}
