//! A launcher: opens an image and `/dev/fuse` with privileges, mounts, and hands both descriptors
//! over to a daemon of another user. That daemon never has a privilege.
//!
//! `hand_over IMAGE DIR UID`; `umount DIR` ends it. `EXTANT_BIN` says where `extant` is.
#![forbid(unsafe_code)]

use std::error::Error;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, exit};
use std::{env, path::Path};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [image, dir, uid] = arguments.as_slice() else {
        return Err("usage: hand_over IMAGE DIR UID".into());
    };
    let uid: u32 = uid.parse()?;
    let open = |path: &Path| File::options().read(true).write(true).open(path);
    let (image_fd, fuse_fd) = (open(image.as_ref())?, open("/dev/fuse".as_ref())?);
    // The kernel checks permissions, and lets all users in.
    let words = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={uid},default_permissions,allow_other",
        fuse_fd.as_raw_fd()
    );
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(
        image,
        dir,
        "fuse.extant",
        flags,
        CString::new(words)?.as_c_str(),
    )?;
    // The daemon inherits them.
    for fd in [&image_fd, &fuse_fd] {
        fcntl_setfd(fd, FdFlags::empty())?;
    }
    let program = env::var_os("EXTANT_BIN").unwrap_or("extant".into());
    let status = Command::new(program)
        .args(["mount", "--image-fd", &image_fd.as_raw_fd().to_string()])
        .args(["--fuse-fd", &fuse_fd.as_raw_fd().to_string()])
        .uid(uid)
        .gid(uid)
        .status()?;
    if !status.success() {
        // It has said why.
        unmount(dir, UnmountFlags::DETACH)?;
        exit(1);
    }
    Ok(())
}
