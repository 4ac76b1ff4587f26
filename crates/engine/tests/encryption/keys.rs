//! Keys: added, removed while files are in use, and wrong ones.

use extant_engine::{Cred, Error, KeyId, KeyStatus};

use super::kit::{KEY, create, image, list, make_secret, open, open_with_key, read, secret, usual};

/// What a key encrypts is locked with it; a file in use stays usable until its last user goes, and
/// what was written meanwhile is there.
#[test]
fn a_removed_key_locks_all_that_is_not_in_use() {
    let image = image("-b 1024");
    let volume = open(&image);
    let id = volume.add_key(&KEY).unwrap();
    assert_eq!(volume.key_status(&id), KeyStatus::Present);
    let dir = make_secret(&volume, &usual(id));
    let held = create(&volume, &dir, b"held", b"before");
    drop(create(&volume, &dir, b"free", b"content"));
    let link = volume
        .symlink(&dir, b"link", b"target", &Cred::root())
        .unwrap();

    assert_eq!(volume.remove_key(&id).unwrap(), KeyStatus::PartlyRemoved);
    assert_eq!(volume.key_status(&id), KeyStatus::PartlyRemoved);
    assert!(matches!(volume.lookup(&dir, b"free"), Err(Error::NotFound)));
    assert!(!list(&volume, &dir).contains(&b"held".to_vec()));
    assert_ne!(volume.readlink(&link).unwrap(), b"target");
    let new = volume.create(&dir, b"new", 0o644, &Cred::root()).map(drop);
    assert!(matches!(new, Err(Error::NoKey)), "{new:?}");
    volume
        .write(&held, 6, b" and after", &Cred::root())
        .unwrap();
    assert_eq!(read(&volume, &held), b"before and after");
    volume.fsync(&held, false).unwrap();
    drop(held);
    assert_eq!(volume.remove_key(&id).unwrap(), KeyStatus::Absent);
    assert!(matches!(volume.remove_key(&id), Err(Error::NoKey)));

    assert_eq!(volume.add_key(&KEY).unwrap(), id);
    let held = volume.lookup(&dir, b"held").unwrap();
    assert_eq!(read(&volume, &held), b"before and after");
    assert_eq!(
        read(&volume, &volume.lookup(&dir, b"free").unwrap()),
        b"content"
    );
    assert_eq!(volume.readlink(&link).unwrap(), b"target");
    drop(held);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// A key with another identifier opens nothing. One that is given under the descriptor of another
/// finds no names, and harms none.
#[test]
fn a_wrong_key_opens_nothing() {
    let image = image("-b 4096");
    let volume = open_with_key(&image);
    let id = KeyId::Descriptor(super::kit::DESCRIPTOR);
    let dir = make_secret(&volume, &usual(id));
    create(&volume, &dir, b"a name", b"content");
    volume.unmount().unwrap();

    let volume = open(&image);
    let mut wrong = KEY;
    wrong[7] ^= 1;
    let other = volume.add_key(&wrong).unwrap();
    assert_ne!(other, volume.add_key(&KEY).unwrap());
    let dir = secret(&volume);
    assert_eq!(list(&volume, &dir).len(), 1);
    volume
        .add_key_with_descriptor(super::kit::DESCRIPTOR, &wrong)
        .unwrap();
    assert!(matches!(
        volume.lookup(&dir, b"a name"),
        Err(Error::NotFound)
    ));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();

    let volume = open_with_key(&image);
    let file = volume.lookup(&secret(&volume), b"a name").unwrap();
    assert_eq!(read(&volume, &file), b"content");
}

/// Keys of lengths that there are not are refused, and so are keys where nothing is encrypted.
#[test]
fn keys_that_cannot_be_are_refused() {
    let volume = open(&image("-b 4096"));
    for len in [0, 15, 65] {
        let added = volume.add_key(&vec![1; len]);
        assert!(matches!(added, Err(Error::Invalid)), "{len}: {added:?}");
    }
    let plain = extant_testkit::Image::of_mib(8).make().unwrap();
    let added = open(&plain).add_key(&KEY);
    assert!(matches!(added, Err(Error::NotSupported(_))), "{added:?}");
    let absent = KeyId::Descriptor([9; 8]);
    assert_eq!(volume.key_status(&absent), KeyStatus::Absent);
    assert!(matches!(volume.remove_key(&absent), Err(Error::NoKey)));
}
