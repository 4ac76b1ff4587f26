//! Files and policies that do not go together.

use extant_engine::{
    Cred, EncryptionPolicy, Error, FallocateMode, Ivs, KeyId, NamesMode, RenameFlags,
};

use extant_testkit::{Cmd, Image};

use super::kit::{KEY, create, exchange, image, make_secret, open_with_key, rename, secret, usual};

#[test]
fn a_policy_is_for_empty_directories_of_such_volumes() {
    let image = image("-b 4096");
    let volume = open_with_key(&image);
    let id = volume.add_key(&KEY).unwrap();
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let full = volume.mkdir(&root, b"full", 0o755, &cred).unwrap();
    let file = create(&volume, &full, b"file", b"x");
    let set = |node, policy: &EncryptionPolicy| volume.set_encryption_policy(node, policy, &cred);
    assert!(matches!(set(&full, &usual(id)), Err(Error::NotEmpty)));
    assert!(matches!(set(&file, &usual(id)), Err(Error::NotDir)));
    assert!(matches!(volume.encryption(&full), Err(Error::NoAttribute)));
    let dir = volume.mkdir(&root, b"dir", 0o755, &cred).unwrap();
    let owner = Cred {
        uid: 7,
        gid: 7,
        privileged: false,
        ..Cred::root()
    };
    let other = volume.set_encryption_policy(&dir, &usual(id), &owner);
    assert!(matches!(other, Err(Error::AccessDenied)), "{other:?}");
    let absent = usual(KeyId::Identifier([3; 16]));
    assert!(matches!(set(&dir, &absent), Err(Error::NoKey)));
    let odd = EncryptionPolicy {
        names: NamesMode::Adiantum,
        ..usual(id)
    };
    assert!(matches!(set(&dir, &odd), Err(Error::Invalid)));
    let large = EncryptionPolicy {
        log2_data_unit: 13,
        ..usual(id)
    };
    assert!(matches!(set(&dir, &large), Err(Error::Invalid)));
    set(&dir, &usual(id)).unwrap();
    set(&dir, &usual(id)).unwrap();
    let hidden = EncryptionPolicy {
        names: NamesMode::Aes256Hctr2,
        ..usual(id)
    };
    assert!(matches!(set(&dir, &hidden), Err(Error::Exists)));
    assert_eq!(volume.encryption(&dir).unwrap().policy, usual(id));
    volume.unmount().unwrap();

    // Numbers of inodes are part of what encrypts: they have to stay.
    let image = extant_testkit::Image::of_mib(16)
        .args("-O encrypt")
        .make()
        .unwrap();
    let volume = open_with_key(&image);
    let id = volume.add_key(&KEY).unwrap();
    let dir = volume
        .mkdir(&volume.root().unwrap(), b"dir", 0o755, &cred)
        .unwrap();
    let by_number = EncryptionPolicy {
        ivs: Ivs::InoLblk64,
        ..usual(id)
    };
    let set = volume.set_encryption_policy(&dir, &by_number, &cred);
    assert!(matches!(set, Err(Error::Invalid)), "{set:?}");
}

/// A name that a lookup has missed, or a cache of names knows to be missing, is there once it is
/// made, though its directory was encrypted in between.
#[test]
fn names_that_were_missing_before_the_policy_can_be_made() {
    let image = image("-b 4096");
    let volume = open_with_key(&image);
    let id = volume.add_key(&KEY).unwrap();
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let dir = volume.mkdir(&root, b"dir", 0o755, &cred).unwrap();
    for _ in 0..3 {
        assert!(matches!(volume.lookup(&dir, b"name"), Err(Error::NotFound)));
    }
    volume
        .set_encryption_policy(&dir, &usual(id), &cred)
        .unwrap();
    let made = create(&volume, &dir, b"name", b"x");
    assert_eq!(volume.lookup(&dir, b"name").unwrap().ino(), made.ino());
    let again = volume.create(&dir, b"name", 0o644, &cred).map(drop);
    assert!(matches!(again, Err(Error::Exists)), "{again:?}");
    volume.unlink(&dir, b"name").unwrap();
    assert!(matches!(volume.lookup(&dir, b"name"), Err(Error::NotFound)));
}

#[test]
fn nothing_of_another_policy_enters() {
    let image = image("-b 4096");
    let volume = open_with_key(&image);
    let id = volume.add_key(&KEY).unwrap();
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let dir = make_secret(&volume, &usual(id));
    let inside = create(&volume, &dir, b"inside", b"in");
    let plain = create(&volume, &root, b"plain", b"out");
    let other = volume.mkdir(&root, b"other", 0o755, &cred).unwrap();
    let names = EncryptionPolicy {
        names: NamesMode::Aes256Hctr2,
        ..usual(id)
    };
    volume.set_encryption_policy(&other, &names, &cred).unwrap();
    let crosses = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::CrossDevice)), "{result:?}");
    };
    crosses(volume.link(&plain, &dir, b"new", &cred));
    crosses(volume.link(&inside, &other, b"new", &cred));
    crosses(rename(&volume, (&root, b"plain"), (&dir, b"new")));
    crosses(rename(&volume, (&dir, b"inside"), (&other, b"new")));
    crosses(exchange(&volume, (&root, b"plain"), (&dir, b"inside")));
    crosses(exchange(&volume, (&dir, b"inside"), (&root, b"plain")));
    // Out of an encrypted directory, and within it.
    volume.link(&inside, &root, b"outside", &cred).unwrap();
    rename(&volume, (&dir, b"inside"), (&dir, b"renamed")).unwrap();
    create(&volume, &dir, b"second", b"2");
    exchange(&volume, (&dir, b"second"), (&dir, b"renamed")).unwrap();
    let below = volume.mkdir(&dir, b"below", 0o755, &cred).unwrap();
    let whiteout = RenameFlags::WHITEOUT;
    let moved = volume.rename(&dir, b"renamed", &below, b"deep", whiteout, &cred);
    moved.unwrap();
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn blocks_of_encrypted_files_do_not_move_within_them() {
    let image = image("-b 4096");
    let volume = open_with_key(&image);
    let id = volume.add_key(&KEY).unwrap();
    let dir = make_secret(&volume, &usual(id));
    let file = create(&volume, &dir, b"file", &[7; 40_000]);
    for mode in [FallocateMode::CollapseRange, FallocateMode::InsertRange] {
        let moved = volume.fallocate(&file, mode, 4096, 4096, &Cred::root());
        assert!(matches!(moved, Err(Error::NotSupported(_))), "{moved:?}");
    }
    let long = volume
        .create(&dir, &[b'n'; 256], 0o644, &Cred::root())
        .map(drop);
    assert!(matches!(long, Err(Error::NameTooLong)), "{long:?}");
    let target = vec![b't'; 4094];
    let link = volume
        .symlink(&dir, b"link", &target, &Cred::root())
        .map(drop);
    assert!(matches!(link, Err(Error::NameTooLong)), "{link:?}");
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// The root has names that readers without the key have to know.
#[test]
fn the_root_stays_plain() {
    let image = image("-b 4096");
    let volume = open_with_key(&image);
    let id = volume.add_key(&KEY).unwrap();
    let root = volume.root().unwrap();
    volume.rmdir(&root, b"lost+found").unwrap();
    let set = volume.set_encryption_policy(&root, &usual(id), &Cred::root());
    assert!(matches!(set, Err(Error::NotPermitted)), "{set:?}");
}

fn debugfs(image: &Image, request: &str) {
    let told = Cmd::new("debugfs")
        .args(["-w", "-R", request])
        .arg(image.path());
    told.ok().unwrap();
}

/// Files that were put into an encrypted directory without its key are not opened, and can be
/// removed; directories and links are not even found.
#[test]
fn what_was_put_there_without_the_key_is_not_used() {
    let image = image("-b 4096");
    let volume = open_with_key(&image);
    let id = volume.add_key(&KEY).unwrap();
    let (dir, cred) = (make_secret(&volume, &usual(id)), Cred::root());
    let file = create(&volume, &dir, b"file", b"content");
    let inside = create(&volume, &dir, b"inside", b"content");
    let below = volume.mkdir(&dir, b"below", 0o755, &cred).unwrap();
    let numbers = [file.ino(), below.ino(), inside.ino()];
    drop((file, below, dir, inside));
    volume.unmount().unwrap();
    debugfs(
        &image,
        &format!("set_inode_field <{}> flags 0x80000", numbers[0]),
    );
    debugfs(
        &image,
        &format!("set_inode_field <{}> flags 0x80000", numbers[1]),
    );
    // Data inside of an encrypted inode, which would be plain.
    debugfs(
        &image,
        &format!("set_inode_field <{}> flags 0x10000800", numbers[2]),
    );
    debugfs(&image, "feature inline_data");

    let volume = open_with_key(&image);
    let dir = secret(&volume);
    let file = volume.lookup(&dir, b"file").unwrap();
    let opened = volume.check_key(&file);
    assert!(matches!(opened, Err(Error::NotPermitted)), "{opened:?}");
    drop(file);
    let below = volume.lookup(&dir, b"below").map(drop);
    assert!(matches!(below, Err(Error::NotPermitted)), "{below:?}");
    volume.unlink(&dir, b"file").unwrap();
    let inside = volume.lookup(&dir, b"inside").map(drop);
    assert!(matches!(inside, Err(Error::Corrupt { .. })), "{inside:?}");
}
