//! Fills an image with a few files: what an image builder does, without root and without loop devices.
//!
//! `mke2fs -t ext4 disk.img 64M && cargo run --example build_image disk.img`

use std::error::Error;
use std::io::Write;

use extant::{Filesystem, Permissions};

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os()
        .nth(1)
        .ok_or("usage: build_image IMAGE")?;
    let fs = Filesystem::options().write(true).open(image)?;
    fs.create_dir_all("/usr/local/bin")?;
    let mut script = fs
        .open_options()
        .write(true)
        .create(true)
        .truncate(true)
        .open("/usr/local/bin/hello")?;
    script.write_all(b"#!/bin/sh\necho hello\n")?;
    script.set_permissions(Permissions::from_mode(0o755))?;
    if !fs.exists("/bin")? {
        fs.symlink("usr/local/bin", "/bin")?;
    }
    for entry in fs.read_dir("/bin")? {
        let entry = entry?;
        println!(
            "{} {} bytes",
            entry.path().display(),
            entry.metadata()?.len()
        );
    }
    // Dropping it would do the same, but could not say what went wrong.
    fs.unmount()?;
    Ok(())
}
