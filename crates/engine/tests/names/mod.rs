//! Parts that the suites about names share.
#![allow(dead_code, reason = "each suite uses its part")]

pub(crate) mod folded;
pub(crate) mod world;

use std::collections::BTreeMap;

use extant_engine::{Node, Volume, VolumeOptions};
use extant_testkit::Image;

/// Opens an image to change it.
pub(crate) fn open(image: &Image) -> Volume {
    VolumeOptions::new().write(true).open(image.path()).unwrap()
}

/// Opens an image to look at it.
pub(crate) fn open_read_only(image: &Image) -> Volume {
    VolumeOptions::new().open(image.path()).unwrap()
}

/// The names of a directory, without the dots, and their inode numbers; each name must come once.
pub(crate) fn list(volume: &Volume, dir: &Node) -> BTreeMap<Vec<u8>, u32> {
    let mut names = BTreeMap::new();
    let mut dots = 0;
    volume
        .readdir(dir, 0, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                dots += 1;
            } else {
                let again = names.insert(entry.name.to_vec(), entry.ino.get());
                assert_eq!(again, None, "{}", String::from_utf8_lossy(entry.name));
            }
            true
        })
        .unwrap();
    assert_eq!(dots, 2);
    names
}
