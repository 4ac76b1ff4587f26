//! Damaged inodes: errors that name them, at most.

use extant_disk::damage::{CorruptKind, InodeError};

use super::*;
use crate::state::inode::InodeRef;
use crate::types::error::Location;

/// Reads and changes an inode in every way; each may fail.
fn use_inode(fs: &TestFs, inode: &InodeRef, size: u64) {
    getattr(fs, inode);
    let _ = readlink(fs, inode);
    let _ = xattr::list(fs, inode);
    let _ = xattr::set(
        fs,
        inode,
        b"user.n",
        &[1; 200],
        XattrMode::Either,
        &Cred::root(),
    );
    let cut = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    let _ = setattr(fs, inode, &cut, &Cred::root());
    let mut buf = [0; 3000];
    let open = crate::file::open(fs, inode);
    let reader = crate::file::ReadMode::Buffered;
    let _ = crate::file::read(fs, inode, Some(&open), reader, 100, &mut buf);
}

/// Random bytes in the inode table of a volume without checksums: errors at most.
#[test]
fn hostile_inodes_never_panic() {
    let maker = Image::of_mib(8).args("-b 1024 -I 256 -O ^metadata_csum");
    let image = maker.make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let file = fs.create("file");
    crate::file::write(
        &fs,
        &file,
        None,
        crate::file::WriteAt::Pos(0),
        &[7; 5000],
        &Cred::root(),
    )
    .unwrap();
    namei::symlink(&fs, &fs.root(), b"link", b"target", &Cred::root()).unwrap();
    fs.mkdir("dir");
    xattr::set(
        &fs,
        &file,
        b"user.x",
        b"y",
        XattrMode::Either,
        &Cred::root(),
    )
    .unwrap();
    let location = fs.groups.inode_location(&fs.layout, file.ino).unwrap();
    let at = location.block.get() * 1024 + location.offset as u64;
    drop(file);
    fs.unmount();
    let good = image.bytes(0, 8 << 20).unwrap();
    let mut rng = Rng::new(99);
    for round in 0..150 {
        let mut bad = good.clone();
        let start = usize::try_from(at).unwrap();
        // The records of the file, the link and the directory follow each other.
        for _ in 0..=rng.below(5) {
            let limit = if rng.chance(50) { 176 } else { 768 };
            bad[start + rng.index(limit)] = u8::try_from(rng.below(256)).unwrap();
        }
        let dev = Arc::new(extant_blockdev::MemoryDevice::from_bytes(&bad));
        let Ok(fs) = TestFs::on(dev, "errors=continue") else {
            continue;
        };
        for name in ["file", "link", "dir"] {
            let Ok(inode) = namei::lookup(&fs, &fs.root(), name.as_bytes()) else {
                continue;
            };
            use_inode(&fs, &inode, rng.below(6000));
            drop(inode);
            let _ = match name {
                "dir" => namei::rmdir(&fs, &fs.root(), b"dir"),
                _ => namei::unlink(&fs, &fs.root(), name.as_bytes()),
            };
            fs.reap_all();
        }
        assert_eq!(fs.alloc.counts.leaked(), 0, "round {round}");
    }
}

#[test]
fn errors_name_the_inode() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let file = fs.create("f");
    let location = fs.groups.inode_location(&fs.layout, file.ino).unwrap();
    let at = location.block.get() * fs.layout.block_size.bytes_u64() + location.offset as u64;
    let ino = file.ino;
    drop(file);
    fs.unmount();
    image.patch(at + 4, 1, |b| b[0] ^= 1).unwrap();
    let fs = TestFs::mount(image.path(), "");
    let error = namei::lookup(&fs, &fs.root(), b"f").map(drop).unwrap_err();
    let Error::Corrupt { location, kind } = &error else {
        panic!("{error}")
    };
    assert_eq!(*location, Location::Inode(ino));
    let checksum = matches!(
        **kind,
        CorruptKind::InodeRecord(InodeError::Checksum { .. })
    );
    assert!(checksum, "{error}");
    assert!(fs.check_writable().is_err(), "a fault stops changes");
}
