//! Inodes that Linux writes and Extant reads, and the other way round.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use extant_testkit::{Cmd, Image, Need, Subject, need};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::*;
use crate::state::inode::InodeRef;
use crate::types::Attr;

const CONFIGURATIONS: [&str; 4] = [
    "-b 4096 -I 256 -O orphan_file",
    "-b 1024 -I 128",
    "-b 1024 -I 1024 -O ^metadata_csum,^64bit",
    "-b 2048 -I 256 -O ^has_journal,^orphan_file",
];

/// Around every limit of the stored times.
const SECONDS: [i64; 8] = [
    -0x8000_0001,
    -0x8000_0000,
    -1,
    0x7fff_ffff,
    0x8000_0000,
    0x2_7fff_ffff,
    0x3_7fff_fffe,
    0x4_0000_0000,
];

/// Facts that both sides can say about an inode.
#[derive(PartialEq, Eq, Debug)]
struct Facts {
    mode: u32,
    links: u64,
    owner: (u32, u32),
    rdev: u64,
    size: u64,
    blocks: u64,
    atime: (i64, i64),
    mtime: (i64, i64),
    target: Option<Vec<u8>>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn ours(fs: &TestFs, inode: &InodeRef) -> Facts {
    let attr: Attr = getattr(fs, inode);
    let (major, minor) = (
        attr.rdev >> 8 & 0xfff,
        attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00,
    );
    Facts {
        mode: attr.mode().into(),
        links: attr.nlink.into(),
        owner: (attr.uid, attr.gid),
        rdev: rustix::fs::makedev(major, minor),
        size: attr.size,
        blocks: attr.blocks,
        atime: (attr.atime.secs, attr.atime.nanos.into()),
        mtime: (attr.mtime.secs, attr.mtime.nanos.into()),
        target: (attr.kind == FileKind::Symlink).then(|| readlink(fs, inode).unwrap()),
        xattrs: xattr::list(fs, inode)
            .unwrap()
            .into_iter()
            .map(|name| {
                let value = xattr::get(fs, inode, &name).unwrap();
                (name, value)
            })
            .collect(),
    }
}

fn linux(path: &Path) -> Facts {
    // Before the times: it moves one.
    let target = fs::read_link(path);
    let meta = fs::symlink_metadata(path).unwrap();
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let xattrs = names[..len]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 65536];
            let text = std::str::from_utf8(name).unwrap();
            let len = rustix::fs::lgetxattr(path, text, &mut value[..]).unwrap();
            value.truncate(len);
            (name.to_vec(), value)
        })
        .collect();
    Facts {
        mode: meta.mode(),
        links: meta.nlink(),
        owner: (meta.uid(), meta.gid()),
        rdev: meta.rdev(),
        size: meta.size(),
        blocks: meta.blocks(),
        atime: (meta.atime(), meta.atime_nsec()),
        mtime: (meta.mtime(), meta.mtime_nsec()),
        target: target.ok().map(|t| t.into_os_string().into_encoded_bytes()),
        xattrs,
    }
}

/// Makes inodes of all kinds under Linux; their names.
fn populate(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut named = |name: &str| {
        names.push(name.to_owned());
        root.join(name)
    };
    let file = named("file");
    fs::write(&file, vec![5; 10_000]).unwrap();
    std::os::unix::fs::chown(&file, Some(70_001), Some(4_000_000_000)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6751)).unwrap();
    Cmd::new("setfacl")
        .args(["-m", "u:7:rw,g:9:r"])
        .arg(&file)
        .ok()
        .unwrap();
    fs::create_dir(named("dir")).unwrap();
    std::os::unix::fs::symlink("x".repeat(59), named("fast")).unwrap();
    std::os::unix::fs::symlink("y".repeat(60), named("slow")).unwrap();
    for (name, kind) in [("block", "b"), ("char", "c")] {
        let numbers = if kind == "b" {
            ["8", "1"]
        } else {
            ["300", "70000"]
        };
        Cmd::new("mknod")
            .arg(named(name))
            .arg(kind)
            .args(numbers)
            .ok()
            .unwrap();
    }
    Cmd::new("mknod").arg(named("pipe")).arg("p").ok().unwrap();
    for (i, tv_sec) in SECONDS.into_iter().enumerate() {
        let path = named(&format!("time{i}"));
        File::create(&path).unwrap();
        let time = |tv_nsec| Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: time(1),
            last_modification: time(999_999_999),
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    }
    names
}

#[test]
fn what_linux_wrote_is_read() {
    if !need(&[Need::Loop, Need::Tool("setfacl")]) {
        return;
    }
    for args in CONFIGURATIONS {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let mount = Subject::Ext4.mount(image.path(), "").unwrap();
        let names = populate(mount.dir());
        rustix::fs::syncfs(File::open(mount.dir()).unwrap()).unwrap();
        let seen: Vec<_> = names.iter().map(|n| linux(&mount.join(n))).collect();
        mount.unmount().unwrap();
        let fs = TestFs::mount(image.path(), "");
        for (name, seen) in names.iter().zip(seen) {
            assert_eq!(ours(&fs, &fs.find(name)), seen, "{name} with {args}");
        }
        fs.unmount();
        image.fsck_clean().unwrap();
    }
}

fn perm(perm: u16) -> SetAttr {
    SetAttr {
        perm: Some(perm),
        ..SetAttr::default()
    }
}

/// The same inodes, made by us: Linux reads what we read, with the same clamping as if it had
/// written them.
#[test]
fn what_we_write_linux_reads() {
    for args in CONFIGURATIONS {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let root = Cred::root();
        let file = fs.create("file");
        let owner = SetAttr {
            uid: Some(70_001),
            gid: Some(4_000_000_000),
            ..SetAttr::default()
        };
        setattr(&fs, &file, &owner, &root).unwrap();
        setattr(&fs, &file, &perm(0o6751), &root).unwrap();
        xattr::set(&fs, &file, b"user.x", &[1; 300], XattrMode::Either, &root).unwrap();
        fs.mkdir("dir");
        for (name, target) in [("fast", "x".repeat(59)), ("slow", "y".repeat(60))] {
            namei::symlink(&fs, &fs.root(), name.as_bytes(), target.as_bytes(), &root).unwrap();
        }
        let special = [
            ("block", FileKind::BlockDevice, 0x801),
            ("char", FileKind::CharDevice, 0x1111_2c70),
            ("pipe", FileKind::Fifo, 0),
            ("socket", FileKind::Socket, 0),
        ];
        for (name, kind, rdev) in special {
            let kind = (kind, rdev);
            namei::mknod(&fs, &fs.root(), name.as_bytes(), kind, 0o640, &root).unwrap();
        }
        let mut names = vec![
            "file", "dir", "fast", "slow", "block", "char", "pipe", "socket",
        ];
        let times: Vec<_> = (0..SECONDS.len()).map(|i| format!("time{i}")).collect();
        for (name, secs) in times.iter().zip(SECONDS) {
            let changes = SetAttr {
                atime: Some(at(secs, 1)),
                mtime: Some(at(secs, 999_999_999)),
                ..SetAttr::default()
            };
            setattr(&fs, &fs.create(name), &changes, &root).unwrap();
            names.push(name);
        }
        let seen: Vec<_> = names.iter().map(|n| ours(&fs, &fs.find(n))).collect();
        fs.unmount();
        image.fsck_clean().unwrap();
        if !need(&[Need::Loop]) {
            return;
        }
        let mount = Subject::Ext4.mount(image.path(), "ro").unwrap();
        for (name, seen) in names.iter().zip(&seen) {
            assert_eq!(&linux(&mount.join(name)), seen, "{name} with {args}");
        }
        mount.unmount().unwrap();
        // Setting the same times through Linux stores the same bits.
        let mount = Subject::Ext4.mount(image.path(), "").unwrap();
        for (i, tv_sec) in SECONDS.into_iter().enumerate() {
            let path = mount.join(format!("time{i}"));
            let time = |tv_nsec| Timespec { tv_sec, tv_nsec };
            let times = Timestamps {
                last_access: time(1),
                last_modification: time(999_999_999),
            };
            let before = linux(&path);
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
            assert_eq!(linux(&path), before, "{tv_sec} with {args}");
        }
        mount.unmount().unwrap();
    }
}
