//! Keys: added, removed while files are in use, and wrong ones.

use extant_engine::{Cred, Error, FileKind, KeyId, KeyStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::kit::{KEY, create, image, list, make_secret, open, open_with_key, read, secret, usual};

/// Files that a key encrypts are locked with it; one in use stays usable until its last user goes,
/// and what was written meanwhile is there.
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
    for number in 0..40 {
        let name = format!("link {number}");
        let link = volume.symlink(&dir, name.as_bytes(), b"a target", &Cred::root());
        link.unwrap();
    }
    volume.unmount().unwrap();

    let volume = open(&image);
    let mut wrong = KEY;
    wrong[7] ^= 1;
    let other = volume.add_key(&wrong).unwrap();
    assert_ne!(other, volume.add_key(&KEY).unwrap());
    let dir = secret(&volume);
    assert_eq!(list(&volume, &dir).len(), 41);
    volume
        .add_key_with_descriptor(super::kit::DESCRIPTOR, &wrong)
        .unwrap();
    // What it makes no name of is shown as without a key, and nothing of it is damage.
    let shown = list(&volume, &dir);
    assert_eq!(shown.len(), 41);
    for name in &shown {
        let node = volume.lookup(&dir, name).unwrap();
        if node.kind() == FileKind::Symlink {
            assert_ne!(volume.readlink(&node).unwrap(), b"a target");
            volume.getattr(&node).unwrap();
        }
    }
    volume
        .mkdir(&volume.root().unwrap(), b"new", 0o755, &Cred::root())
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

/// A volume that has stopped has its keys removed as any other, and an unmount takes all.
#[test]
fn keys_go_with_a_volume_that_has_stopped() {
    let image = image("-b 4096");
    let volume = open(&image);
    let id = volume.add_key(&KEY).unwrap();
    let file = create(
        &volume,
        &make_secret(&volume, &usual(id)),
        b"file",
        b"content",
    );
    volume.shutdown(true).unwrap();
    assert!(volume.remove_key(&id).is_err());
    assert_ne!(volume.key_status(&id), KeyStatus::Present);
    drop(file);
    let added = volume.add_key(&KEY);
    assert!(matches!(added, Err(Error::Shutdown(_))), "{added:?}");
    let volume = open(&super::kit::image("-b 4096"));
    volume.add_key(&KEY).unwrap();
    let clone = volume.clone();
    volume.unmount().unwrap();
    assert_eq!(clone.key_status(&id), KeyStatus::Absent);
}

/// A name that is shown as it is without the key, so that a search for it walks the directory.
const TWIN: &[u8] = b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A key that comes while a name is made does not make it a second time.
#[test]
fn a_key_that_comes_beside_a_new_name_makes_no_second_one() {
    let image = image("-b 1024");
    let volume = open(&image);
    let id = volume.add_key(&KEY).unwrap();
    let dir = make_secret(&volume, &usual(id));
    for number in 0..800 {
        create(&volume, &dir, format!("filler {number}").as_bytes(), b"");
    }
    let twin = create(&volume, &dir, TWIN, b"the one");
    let (round, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut unexpected = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while !ends.load(Ordering::Relaxed) {
                let now = round.load(Ordering::Acquire);
                if now == seen {
                    std::hint::spin_loop();
                    continue;
                }
                seen = now;
                for _ in 0..now * 37 % 40_000 {
                    std::hint::spin_loop();
                }
                volume.add_key(&KEY).unwrap();
            }
        });
        let other = create(&volume, &volume.root().unwrap(), b"other", b"");
        for number in 1..600 {
            let _ = volume.remove_key(&id);
            round.store(number, Ordering::Release);
            let made = match number % 3 {
                0 => volume.create(&dir, TWIN, 0o644, &Cred::root()).map(drop),
                1 => volume.link(&twin, &dir, TWIN, &Cred::root()),
                _ => {
                    let root = volume.root().unwrap();
                    let moved = super::kit::rename(&volume, (&root, b"other"), (&dir, TWIN));
                    match moved {
                        Err(Error::CrossDevice) => Err(Error::Exists),
                        moved => moved,
                    }
                }
            };
            if !matches!(made, Err(Error::Exists | Error::NoKey)) {
                unexpected = Some((number, made));
                break;
            }
        }
        ends.store(true, Ordering::Relaxed);
        drop(other);
    });
    assert!(unexpected.is_none(), "{unexpected:?}");
    volume.add_key(&KEY).unwrap();
    let twins = list(&volume, &dir)
        .iter()
        .filter(|name| &name[..] == TWIN)
        .count();
    assert_eq!(twins, 1);
    drop((dir, twin));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}
