//! Encrypted directories in turn with Linux's ext4: each reads what the other has written, and goes
//! on with it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant_engine::{Cred, EncryptionPolicy, FileKind, KeyId, Node, SetAttr, Volume};
use extant_testkit::encryption::{self, EncryptionPolicy as LinuxPolicy};
use extant_testkit::{Image, Mount, Need, Rng, Subject, content, need};

use super::kit::{DESCRIPTOR, KEY, create, image, list, open_with_key, policies, read, rename};

const LINUX: &[Need] = &[
    Need::Root,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("xfs_io"),
];
/// Names in a tree.
const NAMES: u64 = 60;

/// A tree as the two see it: contents of files, targets of links, and nothing of directories.
type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

fn name_of(number: u64) -> Vec<u8> {
    let len = 1 + usize::try_from(number * 4 % 250).unwrap();
    [format!("{number}").into_bytes(), vec![b'x'; 255]].concat()[..len.max(3)].to_vec()
}

/// Changes of one side, the same for both: which name, and what becomes of it.
#[derive(Clone, Copy)]
enum Change {
    Write(u64, u64, usize),
    Cut(u64, u64),
    Link(u64, usize),
    Remove(u64),
    Rename(u64, u64),
}

fn draw(rng: &mut Rng) -> Change {
    let name = rng.below(NAMES);
    match rng.below(9) {
        0 => Change::Remove(name),
        1 => Change::Rename(name, rng.below(NAMES)),
        2 => Change::Link(name, 1 + rng.index(200)),
        3 => Change::Cut(name, rng.below(60_000)),
        _ => Change::Write(name, rng.below(50_000), 1 + rng.index(20_000)),
    }
}

/// The bytes of a file after a write.
fn written(mut old: Vec<u8>, at: u64, bytes: &[u8]) -> Vec<u8> {
    let at = usize::try_from(at).unwrap();
    old.resize(old.len().max(at + bytes.len()), 0);
    old[at..at + bytes.len()].copy_from_slice(bytes);
    old
}

/// Links are kept apart in the tree by a byte before their targets.
fn expect(tree: &mut Tree, change: Change, bytes: &[u8]) -> bool {
    let is_link = |tree: &Tree, name: &[u8]| tree.get(name).is_some_and(|it| it[0] == b'l');
    match change {
        Change::Write(name, at, _) if !is_link(tree, &name_of(name)) => {
            let old = tree.remove(&name_of(name)).unwrap_or_else(|| vec![b'f']);
            let new = written(old[1..].to_vec(), at, bytes);
            tree.insert(name_of(name), [&b"f"[..], &new].concat());
        }
        Change::Cut(name, size) => match tree.get_mut(&name_of(name)) {
            Some(old) if old[0] == b'f' => old.resize(1 + usize::try_from(size).unwrap(), 0),
            _ => return false,
        },
        Change::Link(name, len) if !tree.contains_key(&name_of(name)) => {
            tree.insert(name_of(name), [&b"l"[..], &vec![b't'; len]].concat());
        }
        Change::Remove(name) => return tree.remove(&name_of(name)).is_some(),
        Change::Rename(old, new) if old != new => match tree.remove(&name_of(old)) {
            Some(it) => drop(tree.insert(name_of(new), it)),
            None => return false,
        },
        _ => return false,
    }
    true
}

fn by_us(volume: &Volume, dir: &Node, change: Change, bytes: &[u8]) {
    let cred = Cred::root();
    match change {
        Change::Write(name, at, _) => {
            let file = match volume.lookup(dir, &name_of(name)) {
                Ok(file) => file,
                Err(_) => create(volume, dir, &name_of(name), b""),
            };
            assert_eq!(volume.write(&file, at, bytes, &cred).unwrap(), bytes.len());
        }
        Change::Cut(name, size) => {
            let file = volume.lookup(dir, &name_of(name)).unwrap();
            let size = SetAttr {
                size: Some(size),
                ..SetAttr::default()
            };
            volume.setattr(&file, &size, &cred).unwrap();
        }
        Change::Link(name, len) => {
            volume
                .symlink(dir, &name_of(name), &vec![b't'; len], &cred)
                .unwrap();
        }
        Change::Remove(name) => volume.unlink(dir, &name_of(name)).unwrap(),
        Change::Rename(old, new) => {
            rename(volume, (dir, &name_of(old)), (dir, &name_of(new))).unwrap();
        }
    }
}

fn by_linux(dir: &Path, change: Change, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let path = |number| dir.join(OsStr::from_bytes(&name_of(number)));
    let open = |name| {
        let mut options = std::fs::OpenOptions::new();
        options
            .write(true)
            .create(true)
            .truncate(false)
            .open(path(name))
            .unwrap()
    };
    match change {
        Change::Write(name, at, _) => open(name).write_all_at(bytes, at).unwrap(),
        Change::Cut(name, size) => open(name).set_len(size).unwrap(),
        Change::Link(name, len) => std::os::unix::fs::symlink("t".repeat(len), path(name)).unwrap(),
        Change::Remove(name) => std::fs::remove_file(path(name)).unwrap(),
        Change::Rename(old, new) => std::fs::rename(path(old), path(new)).unwrap(),
    }
}

fn seen_by_us(volume: &Volume, dir: &Node) -> Tree {
    let names = list(volume, dir).into_iter();
    let each = names.map(|name| {
        let node = volume.lookup(dir, &name).unwrap();
        let bytes = match node.kind() {
            FileKind::Symlink => [&b"l"[..], &volume.readlink(&node).unwrap()].concat(),
            _ => [&b"f"[..], &read(volume, &node)].concat(),
        };
        (name, bytes)
    });
    each.collect()
}

fn seen_by_linux(dir: &Path) -> Tree {
    let entries = std::fs::read_dir(dir).unwrap();
    let each = entries.map(|entry| {
        let entry = entry.unwrap();
        let bytes = match entry.file_type().unwrap().is_symlink() {
            true => {
                let target = std::fs::read_link(entry.path()).unwrap();
                let len = entry.metadata().unwrap().len();
                assert_eq!(len, target.as_os_str().len() as u64);
                [b"l", target.as_os_str().as_bytes()].concat()
            }
            false => [&b"f"[..], &std::fs::read(entry.path()).unwrap()].concat(),
        };
        (entry.file_name().as_bytes().to_vec(), bytes)
    });
    each.collect()
}

/// A mount by Linux, with the keys.
fn mount(image: &Image) -> Mount {
    let linux = Subject::Ext4.mount(image.path(), "").unwrap();
    encryption::add_key(linux.dir(), &KEY).unwrap();
    let digits = KeyId::Descriptor(DESCRIPTOR).to_string();
    encryption::add_key_v1(linux.dir(), &digits, &KEY).unwrap();
    linux
}

/// The policies that the host's kernel takes, by directory: made there.
fn make_by_linux(dir: &Path, all: &[EncryptionPolicy]) -> Vec<PathBuf> {
    let mut made = Vec::new();
    for (number, policy) in all.iter().enumerate() {
        let top = dir.join(format!("linux{number}"));
        std::fs::create_dir(&top).unwrap();
        let bytes = policy.to_bytes();
        let key = policy.key.to_string();
        let policy = LinuxPolicy {
            contents: bytes[1],
            names: bytes[2],
            flags: bytes[3],
            key: &key,
        };
        let probe = top.join("probe");
        let is_set = encryption::set_policy(&top, policy).is_ok();
        if is_set && std::fs::write(&probe, b"x").is_ok() {
            std::fs::remove_file(&probe).unwrap();
            made.push(top);
        } else {
            // This kernel does not have the cipher.
            std::fs::remove_dir(&top).unwrap();
        }
    }
    made
}

fn in_turn(args: &str, seed: u64) {
    let image = image(args);
    let mut rng = Rng::new(seed);
    let linux = mount(&image);
    let volume_key = extant_key();
    let all = [
        policies(volume_key),
        policies(KeyId::Descriptor(DESCRIPTOR)),
    ]
    .concat();
    let all: Vec<_> = all
        .into_iter()
        .filter(|policy| policy.log2_data_unit == 0)
        .collect();
    let made = make_by_linux(linux.dir(), &all);
    assert!(made.len() >= 4, "{made:?}");
    let names: Vec<_> = made
        .iter()
        .map(|top| top.file_name().unwrap().to_owned())
        .collect();
    linux.unmount().unwrap();
    let mut trees = vec![Tree::new(); names.len()];
    for turn in 0..4 {
        let ours = turn % 2 == 0;
        let mut changes = Vec::new();
        for (at, tree) in trees.iter_mut().enumerate() {
            for _ in 0..70 {
                let change = draw(&mut rng);
                let len = match change {
                    Change::Write(_, _, len) => len,
                    _ => 0,
                };
                let bytes = content::fill(rng.next_u64(), 0, len);
                if expect(tree, change, &bytes) {
                    changes.push((at, change, bytes));
                }
            }
        }
        if ours {
            let volume = open_with_key(&image);
            let root = volume.root().unwrap();
            let dir = |at: usize| volume.lookup(&root, names[at].as_bytes()).unwrap();
            for (at, change, bytes) in changes {
                by_us(&volume, &dir(at), change, &bytes);
            }
            volume.unmount().unwrap();
        } else {
            let linux = mount(&image);
            for (at, change, bytes) in changes {
                by_linux(&linux.dir().join(&names[at]), change, &bytes);
            }
            linux.unmount().unwrap();
        }
        image.fsck_clean().unwrap();
        compare(&image, &names, &trees, &format!("{args} {turn}"));
    }
}

/// Compares each tree with what both see of it.
fn compare(image: &Image, names: &[OsString], trees: &[Tree], what: &str) {
    let volume = open_with_key(image);
    let root = volume.root().unwrap();
    for (name, tree) in names.iter().zip(trees) {
        let dir = volume.lookup(&root, name.as_bytes()).unwrap();
        assert!(seen_by_us(&volume, &dir) == *tree, "{what} {name:?}");
    }
    drop(root);
    volume.unmount().unwrap();
    let linux = mount(image);
    for (name, tree) in names.iter().zip(trees) {
        let seen = seen_by_linux(&linux.dir().join(name));
        assert!(seen == *tree, "Linux: {what} {name:?}");
    }
    linux.unmount().unwrap();
}

/// The identifier of the key.
fn extant_key() -> KeyId {
    open_with_key(&image("-b 4096")).add_key(&KEY).unwrap()
}

#[test]
fn each_side_goes_on_with_what_the_other_has_written() {
    if !need(LINUX) {
        return;
    }
    in_turn("-b 4096", 1);
    in_turn("-b 1024 -I 128", 2);
    in_turn("-b 1024 -O ^extent,^64bit,^dir_index", 3);
    in_turn("-b 2048 -O inline_data,bigalloc,ea_inode", 4);
}

/// A policy that is set here, and one that Linux sets, are the same for both.
#[test]
fn a_policy_of_one_side_is_one_for_the_other() {
    if !need(LINUX) {
        return;
    }
    let image = image("-b 4096");
    let volume = open_with_key(&image);
    let id = volume.add_key(&KEY).unwrap();
    let all = policies(id);
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    for (number, policy) in all.iter().enumerate() {
        let dir = volume
            .mkdir(&root, format!("ours{number}").as_bytes(), 0o755, &cred)
            .unwrap();
        volume.set_encryption_policy(&dir, policy, &cred).unwrap();
        create(&volume, &dir, b"file", b"content of a file");
    }
    drop(root);
    volume.unmount().unwrap();
    let linux = mount(&image);
    // No unit but a block can be asked for.
    let all: Vec<_> = all
        .into_iter()
        .filter(|policy| policy.log2_data_unit == 0)
        .collect();
    let made = make_by_linux(linux.dir(), &all);
    let mut known = 0;
    for top in &made {
        let number = top
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace("linux", "");
        let ours = linux.dir().join(format!("ours{number}"));
        assert_eq!(
            std::fs::read(ours.join("file")).unwrap(),
            b"content of a file"
        );
        std::fs::rename(ours.join("file"), top.join("file")).unwrap();
        std::fs::hard_link(top.join("file"), ours.join("again")).unwrap();
        known += 1;
    }
    assert!(known >= 3, "{made:?}");
    linux.unmount().unwrap();
    image.fsck_clean().unwrap();
}
