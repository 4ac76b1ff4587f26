//! Makes an image and fills it, without root and without mounting it: a directory, a file, a link,
//! owners and times.
//!
//! ```sh
//! cargo run --example build -- disk.img
//! ```

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use extant::{FileTimes, Filesystem, Permissions, mkfs};

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: build IMAGE")?;
    build(image.as_ref())
}

pub(crate) fn build(image: &Path) -> Result<(), Box<dyn Error>> {
    mkfs::make(image, Some(64 << 20), &mkfs::Options::default())?;
    let fs = Filesystem::options().write(true).open(image)?;

    fs.create_dir_all("/etc/site")?;
    let mut config = fs.create("/etc/site/config")?;
    config.write_all(b"colour = green\n")?;
    drop(config);
    fs.set_permissions("/etc/site/config", Permissions::from_mode(0o640))?;
    fs.set_owner("/etc/site/config", Some(0), Some(4))?;
    fs.symlink("site/config", "/etc/site.conf")?;

    // The same bytes whenever it is built.
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let times = FileTimes::new().set_accessed(then).set_modified(then);
    fs.set_times("/etc/site/config", times)?;

    for entry in fs.read_dir("/etc")? {
        let entry = entry?;
        println!("{}", entry.path().display());
    }
    // Everything is durable, and the journal empty, when this returns.
    fs.unmount()?;
    Ok(())
}
