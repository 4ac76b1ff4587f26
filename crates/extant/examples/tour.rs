//! The program of the tutorial: makes an image, fills it and reads it again.
//!
//! ```sh
//! cargo run --example tour -- disk.img
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use extant::{Filesystem, mkfs};

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: tour IMAGE")?;
    tour(image.as_ref())
}

fn tour(image: &Path) -> Result<(), Box<dyn Error>> {
    mkfs::make(image, Some(64 << 20), &mkfs::Options::default())?;

    let fs = Filesystem::options().write(true).open(image)?;
    fs.create_dir_all("/notes/2026")?;
    let mut file = fs.create("/notes/2026/today")?;
    writeln!(file, "buy milk")?;
    writeln!(file, "call home")?;
    // Durable from here on, whatever happens to this process or to the host's power.
    file.sync_all()?;
    // Writes, flushes and closes everything. A drop does the same, and logs what failed.
    fs.unmount()?;

    let fs = Filesystem::open(image)?;
    for entry in fs.read_dir("/notes")? {
        println!("{}", entry?.path().display());
    }
    for line in BufReader::new(fs.open_file("/notes/2026/today")?).lines() {
        println!("- {}", line?);
    }
    Ok(())
}
