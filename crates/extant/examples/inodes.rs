//! Walks an image at the level of inodes, as a front end does: names, numbers and attributes, no paths.
//!
//! `cargo run --example inodes disk.img`

use std::error::Error;

use extant::{FileKind, Node, Options, Volume};

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: inodes IMAGE")?;
    let volume = Options::new().open_volume(image)?;
    let mut directories = vec![volume.root()?];
    while let Some(dir) = directories.pop() {
        directories.extend(list(&volume, &dir)?);
    }
    let totals = volume.statfs()?;
    println!("{} of {} blocks free", totals.blocks_free, totals.blocks);
    volume.unmount()?;
    Ok(())
}

/// Prints the entries of a directory and returns the directories among them.
fn list(volume: &Volume, dir: &Node) -> extant::Result<Vec<Node>> {
    let mut names = Vec::new();
    volume.readdir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        true
    })?;
    let mut directories = Vec::new();
    for name in names {
        let node = volume.lookup(dir, &name)?;
        let attr = volume.getattr(&node)?;
        println!(
            "{:>8} {:06o} {:>10} {}",
            attr.ino,
            attr.mode(),
            attr.size,
            name.escape_ascii()
        );
        if attr.kind == FileKind::Directory {
            directories.push(node);
        }
    }
    Ok(directories)
}
