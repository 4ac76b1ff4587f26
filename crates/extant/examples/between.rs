//! Copies a tree from one image into another one that is made for it, without root: owners, times,
//! hard links, device nodes and extended attributes stay as they are.
//!
//! ```sh
//! cargo run --example between -- old.img /srv new.img /srv
//! ```

use std::error::Error;
use std::path::Path;

use extant::{Filesystem, mkfs};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [from, path, to, into] = args.as_slice() else {
        return Err("usage: between IMAGE PATH NEW_IMAGE PATH".into());
    };
    let bytes = copy((from.as_ref(), path.as_ref()), (to.as_ref(), into.as_ref()))?;
    println!("{bytes} bytes");
    Ok(())
}

/// Makes an image with as much space as the old one has in use, and some more, and copies.
pub(crate) fn copy(
    (from, path): (&Path, &Path),
    (to, into): (&Path, &Path),
) -> Result<u64, Box<dyn Error>> {
    let source = Filesystem::open(from)?;
    let used = source.statfs()?;
    let used = (used.blocks - used.blocks_free) * u64::from(used.block_size);
    let size = (used + used / 4 + (16 << 20)).next_multiple_of(1 << 20);
    mkfs::make(to, Some(size), &mkfs::Options::default())?;

    let target = Filesystem::options().write(true).open(to)?;
    if let Some(above) = into.parent() {
        target.create_dir_all(above)?;
    }
    let bytes = source.copy_tree(path, &target, into)?;
    target.unmount()?;
    Ok(bytes)
}
