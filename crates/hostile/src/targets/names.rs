//! Text of callers: paths, mount options, names of attributes.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use extant::{Filesystem, MountOptions};
use extant_disk::acl::Acl;
use extant_disk::xattr::XattrName;

use super::Cost;
use crate::disk::Disk;
use crate::feed::Feed;
use crate::seeds;

thread_local! {
    /// One sound image, mounted read-only once: paths are what varies.
    static VOLUME: RefCell<Option<Filesystem>> = const { RefCell::new(None) };
}

pub(super) fn run(data: &[u8]) -> Cost {
    let mut feed = Feed::new(data);
    match feed.u8() % 4 {
        0 => path(feed.rest()),
        1 => {
            let text = String::from_utf8_lossy(feed.rest());
            let _ = MountOptions::parse(&text).map_err(|error| error.to_string());
        }
        2 => {
            let bytes = feed.rest();
            if let Some(name) = XattrName::parse(bytes) {
                assert_eq!(name.full().as_deref(), Some(bytes));
            }
        }
        _ => {
            // ACLs come from callers as well as from images.
            if let Ok(acl) = Acl::from_posix(feed.rest()) {
                assert_eq!(Acl::from_posix(&acl.to_posix()), Ok(acl));
            }
        }
    }
    Cost::default()
}

fn path(bytes: &[u8]) {
    VOLUME.with_borrow_mut(|kept| {
        let volume = kept.get_or_insert_with(|| {
            let image = seeds::all().first().map(|seed| seed.image.clone());
            let disk = Disk::new(image.unwrap_or_default(), true);
            let opened = Filesystem::options()
                .tuning(seeds::tuning())
                .open_device(Arc::new(disk));
            opened.unwrap_or_else(|error| panic!("the first seed: {error}"))
        });
        let path = Path::new(OsStr::from_bytes(bytes));
        let _ = volume.metadata(path).map_err(|error| error.to_string());
        let _ = volume.symlink_metadata(path);
        let _ = volume.remove_file(path);
    });
}
