//! An inode on the orphan list, and an image that hands its number out again.

use extant_disk::extent::{NodeMut, ROOT_BYTES, ROOT_CAPACITY};
use extant_units::Ino;

use super::*;
use crate::alloc;

/// A volume with a file `bad` whose extent tree leads to a block that is no node, and whose number
/// the inode bitmap calls free.
fn damaged() -> (Image, Ino) {
    let args = "-b 1024 -O ^orphan_file,^metadata_csum";
    let image = Image::of_mib(16).args(args).make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let file = fs.create("bad");
    let ino = file.ino;
    let mut h = fs.start(1).unwrap();
    file.update(&fs, &mut h, |core| {
        // A root of depth one, with an entry for a block of zeros.
        let mut root = [0; ROOT_BYTES];
        assert!(NodeMut::init(&mut root, 1, ROOT_CAPACITY).is_ok());
        root[2] = 1;
        root[16..20].copy_from_slice(&9000_u32.to_le_bytes());
        core.i_block = root;
        core.sectors = 2;
    })
    .unwrap();
    drop(h);
    let mut h = fs.start(credits::INODE_ALLOC).unwrap();
    alloc::free_inode(&fs, &mut h, ino, false).unwrap();
    drop((h, file));
    fs.unmount();
    (image, ino)
}

/// The eviction of `bad` fails, so it stays on the list. The next file that gets its number is an
/// error: with it the list would have one number twice.
#[test]
fn a_number_on_the_list_is_not_handed_out_again() {
    let (image, ino) = damaged();
    let (fs, _dev) = in_memory(&image, "errors=continue");
    fs.unlink("bad");
    fs.reap_all();
    assert_eq!(fs.stats.inode_deletions.get(), 0);
    assert_eq!(fs.orphans.list.lock().len(), 1);
    let faults = fs.stats.faults.get();
    assert!(faults > 0, "the damage was reported");
    let made = namei::create(&fs, &fs.root(), b"next", 0o600, &Cred::root());
    let why = made.map(|made| made.ino).unwrap_err().to_string();
    assert!(why.contains("in use"), "{why}");
    assert!(why.contains(&format!("{ino}")), "{why}");
    assert_eq!(fs.stats.faults.get(), faults + 1);
    assert_eq!(fs.orphans.list.lock().len(), 1);
}
