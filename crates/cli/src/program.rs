//! The program itself, to be started again.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Gives the process the name of the program: one that was started again by [`own_path`] would be
/// called after the last part of that path.
pub(crate) fn name_process() {
    // The name is for people that look for the process.
    let _ = rustix::thread::set_name(c"extant");
}

/// This program, to be started again for a part of a mount.
pub(crate) fn mount_part(options: &[String], part: &str) -> Command {
    let mut command = Command::new(own_path());
    command.arg0("extant").args(["mount", part]);
    for options in options {
        command.arg("-o").arg(options);
    }
    command
}

/// The path of this program, to be started again under its own name.
pub(crate) fn own_path() -> &'static OsStr {
    OsStr::new("/proc/self/exe")
}
