//! Names, targets and small files under each policy, with and without the key.

use extant_engine::{Cred, Error, FileKind, KeyId, Node, Volume};

use super::kit::{
    DESCRIPTOR, KEY, create, image, list, make_secret, open, open_with_key, policies, read, rename,
    secret,
};

const MARK: &[u8] = b"plain to see 0123456789";

/// Returns whether `bytes` has `mark` in it.
fn shows(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|part| part == mark)
}

const NAME_LENGTHS: [usize; 12] = [1, 15, 16, 17, 31, 32, 33, 64, 143, 150, 240, 255];
const TARGET_LENGTHS: [usize; 6] = [1, 20, 57, 58, 90, 300];

fn name_of(len: usize) -> Vec<u8> {
    [MARK, &[b'n'; 255]].concat()[..len].to_vec()
}

fn target_of(len: usize) -> Vec<u8> {
    MARK.repeat(20)[..len].to_vec()
}

fn deep_names() -> Vec<Vec<u8>> {
    let mut names: Vec<_> = (0..60)
        .map(|file| format!("{file} plain to see").into_bytes())
        .collect();
    names.sort();
    names
}

/// Fills an encrypted directory.
fn fill(volume: &Volume, top: &Node) {
    let cred = Cred::root();
    for len in NAME_LENGTHS {
        let file = create(volume, top, &name_of(len), &MARK.repeat(len * 3));
        volume.fsync(&file, false).unwrap();
    }
    let deep = volume.mkdir(top, b"deep", 0o755, &cred).unwrap();
    for name in deep_names() {
        create(volume, &deep, &name, MARK);
    }
    for len in TARGET_LENGTHS {
        let name = format!("link{len}");
        let link = volume.symlink(top, name.as_bytes(), &target_of(len), &cred);
        link.unwrap();
    }
    let fifo = volume.mknod(top, b"fifo", FileKind::Fifo, 0o644, 0, &cred);
    fifo.unwrap();
}

/// Compares an encrypted directory with what [`fill`] has put there.
fn compare(volume: &Volume, top: &Node, what: &str) {
    for len in NAME_LENGTHS {
        let file = volume.lookup(top, &name_of(len)).unwrap();
        assert_eq!(read(volume, &file), MARK.repeat(len * 3), "{what} {len}");
    }
    for len in TARGET_LENGTHS {
        let link = volume.lookup(top, format!("link{len}").as_bytes()).unwrap();
        assert_eq!(volume.readlink(&link).unwrap(), target_of(len), "{what}");
        assert_eq!(volume.getattr(&link).unwrap().size, len as u64);
    }
    let count = NAME_LENGTHS.len() + TARGET_LENGTHS.len() + 2;
    assert_eq!(list(volume, top).len(), count, "{what}");
    let deep = volume.lookup(top, b"deep").unwrap();
    assert_eq!(list(volume, &deep), deep_names(), "{what}");
}

/// Names of all lengths, of links and directories too, are there after a mount with the key, and
/// the files with them. Nothing of them is on the device, not even in the log.
#[test]
fn all_is_there_with_the_key_and_nothing_in_the_clear() {
    for (args, version) in [
        ("-b 1024", 2),
        ("-b 4096 -O inline_data -I 512", 1),
        ("-b 4096 -O ^dir_index,quota", 2),
        ("-b 1024 -O ^extent,^64bit", 1),
        ("-b 2048 -O bigalloc -C 16384", 2),
    ] {
        let image = image(args);
        let volume = open_with_key(&image);
        let id = match version {
            1 => KeyId::Descriptor(DESCRIPTOR),
            _ => volume.add_key(&KEY).unwrap(),
        };
        let (root, cred) = (volume.root().unwrap(), Cred::root());
        for (number, policy) in policies(id).iter().enumerate() {
            let top = format!("top{number}");
            let top = volume.mkdir(&root, top.as_bytes(), 0o755, &cred).unwrap();
            volume.set_encryption_policy(&top, policy, &cred).unwrap();
            fill(&volume, &top);
        }
        drop(root);
        volume.unmount().unwrap();
        image.fsck_clean().unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        assert!(!shows(&bytes, MARK), "{args}: something is in the clear");
        let names = shows(&bytes, b"plain to see");
        assert!(!names, "{args}: a name is in the clear");

        let volume = open_with_key(&image);
        let root = volume.root().unwrap();
        for number in 0..policies(id).len() {
            let top = format!("top{number}");
            let top = volume.lookup(&root, top.as_bytes()).unwrap();
            compare(&volume, &top, &format!("{args} {number}"));
        }
        volume.unmount().unwrap();
    }
}

/// Asserts that a file cannot be read, written, or given another name.
fn is_locked(volume: &Volume, dir: &Node, name: &[u8], node: &Node) {
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let mut byte = [0];
    let read = volume.read(node, 0, &mut byte);
    assert!(matches!(read, Err(Error::NoKey)), "{read:?}");
    let written = volume.write(node, 0, &byte, &cred);
    assert!(matches!(written, Err(Error::NoKey)), "{written:?}");
    assert!(matches!(volume.check_key(node), Err(Error::NoKey)));
    let link = volume.link(node, dir, b"other", &cred);
    assert!(matches!(link, Err(Error::NoKey)), "{link:?}");
    let moved = rename(volume, (dir, name), (&root, b"out"));
    assert!(matches!(moved, Err(Error::NoKey)), "{moved:?}");
}

/// Without the key names can be listed, found as they are listed, and removed; nothing is read,
/// made, or given another name.
#[test]
fn without_the_key_names_can_be_removed_only() {
    for args in ["-b 1024", "-b 4096 -O ^dir_index"] {
        let image = image(args);
        let volume = open_with_key(&image);
        let id = volume.add_key(&KEY).unwrap();
        let dir = make_secret(&volume, &policies(id)[0]);
        let names: Vec<Vec<u8>> = (0..200_u8)
            .map(|n| vec![b'a' + n % 26; usize::from(n) + 1])
            .collect();
        for name in &names {
            create(&volume, &dir, name, name);
        }
        volume.mkdir(&dir, b"dir", 0o755, &Cred::root()).unwrap();
        volume
            .symlink(&dir, b"link", b"to somewhere", &Cred::root())
            .unwrap();
        volume.unmount().unwrap();

        let volume = open(&image);
        let dir = secret(&volume);
        let shown = list(&volume, &dir);
        assert_eq!(shown.len(), names.len() + 2);
        let cred = Cred::root();
        for (number, name) in shown.iter().enumerate() {
            let node = volume.lookup(&dir, name).unwrap();
            match node.kind() {
                FileKind::Directory => volume.rmdir(&dir, name).unwrap(),
                FileKind::Regular => {
                    is_locked(&volume, &dir, name, &node);
                    if number % 3 > 0 {
                        volume.unlink(&dir, name).unwrap();
                    }
                }
                _ => {
                    volume.readlink(&node).unwrap();
                }
            }
        }
        for name in [&b"new"[..], b"plain name"] {
            let made = volume.create(&dir, name, 0o644, &cred).map(drop);
            assert!(matches!(made, Err(Error::NoKey)), "{made:?}");
            let made = volume.mkdir(&dir, name, 0o755, &cred).map(drop);
            assert!(matches!(made, Err(Error::NoKey)), "{made:?}");
            let made = volume.symlink(&dir, name, b"target", &cred).map(drop);
            assert!(matches!(made, Err(Error::NoKey)), "{made:?}");
            let found = volume.lookup(&dir, name).map(drop);
            assert!(matches!(found, Err(Error::NotFound)), "{found:?}");
        }
        let unnamed = volume.tmpfile(&dir, 0o644, &cred).map(drop);
        assert!(matches!(unnamed, Err(Error::NoKey)), "{unnamed:?}");
        let left = list(&volume, &dir).len();
        assert!(left > 30 && left < 90, "{left}");
        // The key comes while the directory is in use.
        volume.add_key(&KEY).unwrap();
        let plain = list(&volume, &dir);
        assert_eq!(plain.len(), left);
        for name in &shown {
            let found = volume.lookup(&dir, name).map(drop);
            assert!(matches!(found, Err(Error::NotFound)), "{found:?}");
        }
        for name in plain.iter().filter(|name| *name != b"link") {
            let node = volume.lookup(&dir, name).unwrap();
            assert_eq!(read(&volume, &node), *name);
        }
        volume.unmount().unwrap();
        image.fsck_clean().unwrap();
    }
}
