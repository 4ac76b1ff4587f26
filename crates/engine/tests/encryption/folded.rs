//! Encrypted directories that fold the case of their names.

use extant_engine::{Cred, Error, FileKind, KeyId, Node, RenameFlags, Volume};
use extant_testkit::Image;

use super::kit::{
    DESCRIPTOR, KEY, create, list, make_secret, open, open_with_key, read, rename, secret, usual,
};

/// `FS_CASEFOLD_FL`.
const CASEFOLD: u32 = 0x4000_0000;
const COUNT: usize = 300;

fn image(args: &str) -> Image {
    let image = Image::of_mib(32).args("-O encrypt,casefold,stable_inodes");
    image.args(args).make().unwrap()
}

fn fold(volume: &Volume, dir: &Node, on: bool) -> Result<(), Error> {
    let flags = volume.flags(dir).unwrap() & !CASEFOLD;
    let flags = flags | if on { CASEFOLD } else { 0 };
    volume.set_flags(dir, flags, &Cred::root())
}

/// A directory that does both; the flag comes first, or the policy.
fn make_folded(volume: &Volume, flag_first: bool) -> Node {
    let id = volume.add_key(&KEY).unwrap();
    let cred = Cred::root();
    if flag_first {
        let root = volume.root().unwrap();
        let dir = volume.mkdir(&root, b"secret", 0o755, &cred).unwrap();
        fold(volume, &dir, true).unwrap();
        volume
            .set_encryption_policy(&dir, &usual(id), &cred)
            .unwrap();
        return dir;
    }
    let dir = make_secret(volume, &usual(id));
    fold(volume, &dir, true).unwrap();
    dir
}

fn name_of(number: usize) -> String {
    format!("Größe {number} {}", "Straße ".repeat(number % 12))
}

/// Makes a directory of its own, with names.
fn fill_below(volume: &Volume, dir: &Node) {
    let below = volume.mkdir(dir, b"Below", 0o755, &Cred::root()).unwrap();
    for number in 0..40 {
        create(volume, &below, format!("Ä{number}").as_bytes(), b"below");
    }
}

/// Both checkers find nothing.
fn is_sound(image: &Image) {
    image.fsck_clean().unwrap();
    let device =
        extant_blockdev::FileDevice::open(image.path(), extant_blockdev::OpenMode::ReadOnly);
    let options = extant_check::CheckOptions::default();
    let report = extant_check::check(std::sync::Arc::new(device.unwrap()), &options).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// Names are found, kept apart, moved, linked and removed in any spelling, and shown as they were
/// given; after a mount too.
#[test]
fn names_are_found_in_any_spelling() {
    for (args, flag_first) in [
        ("-b 1024", true),
        ("-b 4096 -E encoding_flags=strict", false),
        ("-b 1024 -O ^dir_index,^metadata_csum", false),
        ("-b 2048 -O inline_data -I 512", true),
    ] {
        let (image, cred) = (image(args), Cred::root());
        let volume = open_with_key(&image);
        let dir = make_folded(&volume, flag_first);
        for number in 0..COUNT {
            let name = name_of(number);
            create(&volume, &dir, name.as_bytes(), name.as_bytes());
            let again = volume.create(&dir, name.to_uppercase().as_bytes(), 0o644, &cred);
            assert!(matches!(again, Err(Error::Exists)), "{args}");
        }
        fill_below(&volume, &dir);
        volume.symlink(&dir, b"Link", b"target", &cred).unwrap();
        drop(dir);
        volume.unmount().unwrap();
        is_sound(&image);

        let volume = open_with_key(&image);
        let dir = secret(&volume);
        for number in 0..COUNT {
            let spelled = name_of(number).to_lowercase();
            let file = volume.lookup(&dir, spelled.as_bytes()).unwrap();
            assert_eq!(read(&volume, &file), name_of(number).as_bytes());
        }
        let below = volume.lookup(&dir, b"BELOW").unwrap();
        for number in (0..COUNT).step_by(3) {
            let spelled = name_of(number).to_uppercase();
            match number % 4 {
                0 => volume.unlink(&dir, spelled.as_bytes()).unwrap(),
                1 => rename(
                    &volume,
                    (&dir, spelled.as_bytes()),
                    (&below, spelled.as_bytes()),
                )
                .unwrap(),
                2 => {
                    let file = volume.lookup(&dir, spelled.as_bytes()).unwrap();
                    volume
                        .link(&file, &below, spelled.as_bytes(), &cred)
                        .unwrap();
                }
                _ => {
                    // Over another one.
                    let to = name_of(number + 1).to_lowercase();
                    rename(&volume, (&dir, spelled.as_bytes()), (&dir, to.as_bytes())).unwrap();
                    let file = volume.lookup(&dir, to.as_bytes()).unwrap();
                    assert_eq!(read(&volume, &file), name_of(number).as_bytes());
                }
            }
        }
        let exchange = RenameFlags::EXCHANGE;
        let done = volume.rename(&dir, b"LINK", &below, "ä7".as_bytes(), exchange, &cred);
        done.unwrap();
        assert_eq!(
            volume.lookup(&below, "Ä7".as_bytes()).unwrap().kind(),
            FileKind::Symlink
        );
        assert_eq!(list(&volume, &below).len(), 40 + COUNT / 6);
        assert!(list(&volume, &dir).contains(&name_of(1).into_bytes()));
        drop((dir, below));
        volume.unmount().unwrap();
        is_sound(&image);
    }
}

/// Without the key names are those of the stored bytes; with it the directory is as it was.
#[test]
fn without_the_key_names_can_be_removed() {
    let image = image("-b 1024 -E encoding_flags=strict");
    let volume = open_with_key(&image);
    let dir = make_folded(&volume, true);
    for number in 0..COUNT {
        create(&volume, &dir, name_of(number).as_bytes(), b"x");
    }
    drop(dir);
    volume.unmount().unwrap();

    let volume = open(&image);
    let dir = secret(&volume);
    let shown = list(&volume, &dir);
    assert_eq!(shown.len(), COUNT);
    for name in shown.iter().take(100) {
        volume.unlink(&dir, name).unwrap();
    }
    let found = volume.lookup(&dir, name_of(1).as_bytes()).map(drop);
    assert!(matches!(found, Err(Error::NotFound)), "{found:?}");
    volume.add_key(&KEY).unwrap();
    let plain = list(&volume, &dir);
    assert_eq!(plain.len(), COUNT - 100);
    for name in &plain {
        let spelled = str::from_utf8(name).unwrap().to_uppercase();
        volume.lookup(&dir, spelled.as_bytes()).unwrap();
    }
    let bad = volume.create(&dir, b"bad\xff", 0o644, &Cred::root());
    assert!(matches!(bad, Err(Error::Invalid)));
    drop(dir);
    volume.unmount().unwrap();
    is_sound(&image);
}

/// The flag and the policy come to empty directories only, and the policy is of the second version.
#[test]
fn what_cannot_be_both_is_refused() {
    let image = image("-b 1024");
    let volume = open_with_key(&image);
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let old = usual(KeyId::Descriptor(DESCRIPTOR));
    let dir = volume.mkdir(&root, b"old", 0o755, &cred).unwrap();
    volume.set_encryption_policy(&dir, &old, &cred).unwrap();
    let folded = fold(&volume, &dir, true);
    assert!(matches!(folded, Err(Error::Invalid)), "{folded:?}");
    let dir = volume.mkdir(&root, b"folded", 0o755, &cred).unwrap();
    fold(&volume, &dir, true).unwrap();
    let set = volume.set_encryption_policy(&dir, &old, &cred);
    assert!(matches!(set, Err(Error::Invalid)), "{set:?}");

    let dir = make_folded(&volume, false);
    fold(&volume, &dir, false).unwrap();
    fold(&volume, &dir, true).unwrap();
    create(&volume, &dir, b"Name", b"x");
    for on in [true, false] {
        let done = fold(&volume, &dir, on);
        assert_eq!(done.is_ok(), on, "{done:?}");
    }
    volume.unlink(&dir, b"NAME").unwrap();
    // An index of one kind is none of the other.
    for number in 0..COUNT {
        create(&volume, &dir, name_of(number).as_bytes(), b"");
    }
    for number in 0..COUNT {
        volume
            .unlink(&dir, name_of(number).to_lowercase().as_bytes())
            .unwrap();
    }
    let done = fold(&volume, &dir, false);
    assert!(matches!(done, Err(Error::NotSupported(_))), "{done:?}");
    drop((dir, root));
    volume.unmount().unwrap();
    is_sound(&image);
}

/// An index of hashes that no entry stores, as a directory may have that Linux gave an index before
/// it encrypted and folded names: nothing is found by it and nothing is added, and the volume goes
/// on.
#[test]
fn an_index_of_other_hashes_is_not_followed() {
    let (image, cred) = (image("-b 1024 -O ^metadata_csum"), Cred::root());
    let volume = open_with_key(&image);
    let dir = make_folded(&volume, true);
    for number in 0..COUNT {
        create(&volume, &dir, name_of(number).as_bytes(), b"x");
    }
    drop(dir);
    volume.unmount().unwrap();
    let block: u64 = image
        .debugfs("bmap /secret 0")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let version = |from, to| {
        let change = |byte: &mut [u8]| assert_eq!(std::mem::replace(&mut byte[0], to), from);
        image.patch(block * 1024 + 28, 1, change).unwrap();
    };
    version(6, 1);

    let volume = open_with_key(&image);
    let (root, dir) = (volume.root().unwrap(), secret(&volume));
    let refused = |done: Result<(), Error>| {
        assert!(matches!(done, Err(Error::NotSupported(_))), "{done:?}");
    };
    let name = name_of(3);
    refused(volume.lookup(&dir, name.as_bytes()).map(drop));
    refused(volume.create(&dir, b"new", 0o644, &cred).map(drop));
    refused(volume.unlink(&dir, name.as_bytes()));
    create(&volume, &root, b"elsewhere", b"x");
    drop((root, dir));
    volume.unmount().unwrap();

    version(1, 6);
    is_sound(&image);
    let volume = open_with_key(&image);
    let dir = secret(&volume);
    assert_eq!(list(&volume, &dir).len(), COUNT);
    drop(dir);
    volume.unmount().unwrap();
}
