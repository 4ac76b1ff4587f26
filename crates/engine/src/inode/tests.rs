#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod hostile_inodes;
mod inodes_like_linux;
mod lazy_times;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use extant_blockdev::{FileDevice, MemoryDevice, OpenMode};
use extant_testkit::{
    Cmd, Fault, FaultyDevice, Image, Request, RequestKind, Rng, Stop, wait_until,
};
use extant_units::Ino;

use super::*;
use crate::alloc;
use crate::attr::{FlagSet, get_flags, getattr, set_flags, setattr};
use crate::config::{MountOptions, Tuning};
use crate::file;
use crate::mount;
use crate::namei;
use crate::symlink::readlink;
use crate::test_support::test_mount::TestFs;
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::types::{FallocateMode, FileKind, SetAttr, SetTime, Timestamp, XattrMode};
use crate::volume::credits;
use crate::xattr;
use crate::xattr::privileges::file_modified;

fn errno<T>(result: Result<T>) -> i32 {
    result.err().map_or(0, |e| e.errno())
}

fn at(secs: i64, nanos: u32) -> SetTime {
    SetTime::At(Timestamp { secs, nanos })
}

#[test]
fn one_read_serves_all_that_ask_at_once() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let ino = fs.create("f").ino;
    fs.unmount();
    let fs = TestFs::mount(image.path(), "");
    let before = fs.stats.inode_loads.get();
    let start = Barrier::new(8);
    let inodes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    fs.iget(ino).unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(inodes.iter().all(|i| Arc::ptr_eq(i, &inodes[0])));
    assert_eq!(fs.stats.inode_loads.get() - before, 1);
}

#[test]
fn unused_inodes_leave_and_come_back() {
    // A log that takes all of it in one transaction.
    let image = Image::of_mib(256).args("-N 40000 -J size=64");
    let image = image.make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let root = fs.root();
    for i in 0..20_000 {
        let name = format!("f{i}");
        namei::create(&fs, &root, name.as_bytes(), 0o600, &Cred::root()).unwrap();
    }
    drop(root);
    assert!(fs.inodes.len() < 18_000, "{} in memory", fs.inodes.len());
    assert!(fs.stats.inode_evictions.get() > 2000);
    // They left before their creation was durable, and fsync knows it.
    let loads = fs.stats.inode_loads.get();
    let first = fs.find("f0");
    assert_eq!(fs.stats.inode_loads.get(), loads + 1, "it had left");
    let commits = fs.journal.stats().commits;
    file::fsync(&fs, &first, None, true).unwrap();
    assert!(fs.journal.stats().commits > commits);
    drop(first);
    for i in (0..20_000).step_by(777) {
        assert_eq!(fs.find(&format!("f{i}")).core.read().mode, 0o100_600);
    }
    fs.unmount();
    image.fsck_clean().unwrap();
}

/// Inodes whose part of the table was read ahead cost no further request.
#[test]
fn the_table_is_read_ahead_in_few_requests() {
    let image = Image::of_mib(32).args("-b 1024 -N 4000").make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let inodes: Vec<Ino> = (0..600).map(|i| fs.create(&format!("f{i}")).ino).collect();
    fs.unmount();
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    let memory = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
    let dev = FaultyDevice::new(Arc::new(memory), move |request: Request<'_>| {
        counted.fetch_add(
            (request.kind == RequestKind::Read).into(),
            Ordering::Relaxed,
        );
        Fault::Pass
    });
    let fs = TestFs::on(Arc::new(dev), "").unwrap();
    reads.store(0, Ordering::Relaxed);
    fs.read_inodes_ahead(&inodes);
    // 150 blocks.
    let ahead = reads.swap(0, Ordering::Relaxed);
    assert!((1..=3).contains(&ahead), "{ahead} reads");
    for ino in inodes {
        fs.iget(ino).unwrap();
    }
    assert_eq!(reads.load(Ordering::Relaxed), 0);
}

/// Times that wait keep their inodes in memory, but not any number of them.
#[test]
fn many_lazy_times_are_stored_before_they_are_due() {
    let image = Image::of_mib(64).args("-N 24000").make().unwrap();
    let tuning = Tuning {
        page_cache_bytes: Some(16 << 20),
        flushers: 1,
        ..Tuning::default()
    };
    let dev = FileDevice::open(image.path(), OpenMode::ReadWrite).unwrap();
    let options = MountOptions::parse("lazytime,commit=3000").unwrap();
    let fs = TestFs {
        fs: mount::mount(Arc::new(dev), options, tuning).unwrap(),
    };
    let names = || (0..2 * times::MANY).map(|i| format!("f{i}"));
    names().for_each(|name| drop(fs.create(&name)));
    // An access in the same tick of the clock as the creation changes nothing.
    let created = fs.find("f0").core.read().atime;
    wait_until("the clock to advance", || now() > created);
    for name in names() {
        touch_atime(&fs, fs.find(&name).shared());
    }
    let deferred = || fs.inodes.all().iter().filter(|i| i.has_deferred()).count();
    wait_until("times to be stored", || deferred() < times::MANY);
    fs.unmount();
    image.fsck_clean().unwrap();
}

#[test]
fn numbers_that_no_name_leads_to_are_refused() {
    let image = Image::of_mib(8).args("-O orphan_file").make().unwrap();
    let fs = TestFs::mount(image.path(), "errors=continue");
    let orphans = fs.layout.orphan_file_inode.unwrap();
    for ino in [
        1,
        3,
        5,
        7,
        8,
        10,
        orphans.get(),
        fs.layout.inodes_count() + 1,
    ] {
        assert_eq!(errno(fs.iget(Ino::new(ino).unwrap())), 117, "{ino}");
    }
    assert_eq!(errno(fs.iget(Ino::new(100).unwrap())), 116, "free");
    let file = fs.create("f");
    let ino = file.ino;
    fs.unlink("f");
    assert_eq!(errno(fs.iget(ino)), 116, "without a name");
    assert_eq!(getattr(&fs, &file).nlink, 0);
    drop(file);
    fs.reap_all();
    assert_eq!(errno(fs.iget(ino)), 116, "deleted");
}

#[test]
fn a_number_is_reused_with_another_generation() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let first = fs.create("f");
    let (ino, generation) = (first.ino, first.generation);
    fs.unlink("f");
    drop(first);
    fs.reap_all();
    let second = fs.create("f");
    assert_eq!(second.ino, ino);
    assert_ne!(second.generation, generation);
}

/// A look at an inode that is not in memory sees what there is, and leaves it out of memory.
#[test]
fn attributes_come_from_the_record_of_an_inode_that_left() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    for (name, kind) in [("file", 0), ("dir", 1), ("link", 2), ("node", 3)] {
        let (root, cred, name) = (fs.root(), Cred::root(), name.as_bytes());
        let made = match kind {
            0 => namei::create(&fs, &root, name, 0o640, &cred),
            1 => namei::mkdir(&fs, &root, name, 0o750, &cred),
            2 => namei::symlink(&fs, &root, name, b"target", &cred),
            _ => {
                let device = (FileKind::CharDevice, 0x0103);
                namei::mknod(&fs, &root, name, device, 0o600, &cred)
            }
        };
        let inode = made.unwrap();
        if kind == 0 {
            let at = file::WriteAt::Pos(0);
            file::write(&fs, &inode, None, at, &[7; 5000], &cred).unwrap();
            file::fsync(&fs, &inode, None, false).unwrap();
        }
        let expected = getattr(&fs, &inode);
        let look = || namei::stat_path(&fs, std::iter::once(name), false).unwrap();
        assert_eq!(look(), Some(expected));
        drop((inode, root));
        drop(fs.inodes.evict_unused(|_| true));
        let (loads, there) = (fs.stats.inode_loads.get(), fs.inodes.len());
        assert!(fs.inodes.in_memory(expected.ino).is_none());
        assert_eq!(look(), Some(expected));
        assert_eq!(fs.stats.inode_loads.get(), loads);
        // The reaper may have evicted the inode of the name before this one meanwhile.
        assert!(fs.inodes.len() <= there, "no inode came to memory");
        // A name that is gone leads to no record.
        match kind {
            1 => namei::rmdir(&fs, &fs.root(), name).unwrap(),
            _ => namei::unlink(&fs, &fs.root(), name).unwrap(),
        }
        assert_eq!(look(), None);
    }
}

/// Of a record that is read while the inode is in memory, grows there, and has its permissions
/// stored, nothing is shown: the permissions are newer than the size.
#[test]
fn a_record_is_not_shown_when_its_inode_came_to_memory() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let ino = fs.create("f").ino;
    let meanwhile = |leave: bool| {
        let (inode, cred) = (fs.find("f"), Cred::root());
        file::write(&fs, &inode, None, file::WriteAt::End, b"x", &cred).unwrap();
        let to = SetAttr {
            perm: Some(0o600),
            ..SetAttr::default()
        };
        setattr(&fs, &inode, &to, &cred).unwrap();
        let seen = record::peek(&fs, ino, |_, core| core.disk_size);
        assert!(seen.is_some_and(|size| size < inode.size()));
        drop(inode);
        if leave {
            file::writeback_all_files(&fs).unwrap();
            drop(fs.inodes.evict_unused(|_| true));
            assert!(fs.inodes.in_memory(ino).is_none());
        }
        seen
    };
    for leave in [false, true] {
        file::writeback_all_files(&fs).unwrap();
        drop(fs.inodes.evict_unused(|_| true));
        let seen = fs.inodes.peek(&fs, ino, |kind, _| kind);
        assert!(matches!(seen, Some(Seen::Record(FileKind::Regular))));
        assert!(fs.inodes.peek_by(ino, || meanwhile(leave)).is_none());
    }
}

/// An inode that a damaged bitmap says is free keeps its record while it is in use.
#[test]
fn a_record_in_use_is_not_overwritten() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "errors=continue");
    let file = fs.create("f");
    let mut h = fs.start(credits::inode_delete(&fs)).unwrap();
    alloc::free_inode(&fs, &mut h, file.ino, false).unwrap();
    drop(h);
    let made = namei::create(&fs, &fs.root(), b"g", 0o600, &Cred::root());
    assert_eq!(errno(made), 117);
    let stored = record::read(&fs, file.ino).unwrap();
    assert_eq!(
        (stored.generation, stored.mode),
        (file.generation, 0o100_644)
    );
    assert_ne!(fs.create("h").ino, file.ino, "its number stays taken");
}

/// A thread may ask for any number at any time, as one of NFS does.
#[test]
fn asking_for_a_number_that_is_given_out_is_no_damage() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "errors=continue");
    let first = fs.create("f").ino;
    fs.unlink("f");
    fs.reap_all();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                if let Err(error) = fs.iget(first) {
                    assert_eq!(error.errno(), 116, "{error}");
                }
            }
        });
        let _end = Stop::at_end(&end);
        for _ in 0..10_000 {
            fs.create("f");
            fs.unlink("f");
            fs.reap_all();
        }
    });
    assert_eq!(fs.stats.faults.get(), 0);
}

#[test]
fn new_inodes_take_over_what_linux_lets_them() {
    let image = Image::of_mib(8).args("-I 256").make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let root = Cred::root();
    let user = Cred {
        uid: 1000,
        gid: 1000,
        groups: vec![7],
        privileged: false,
        umask: 0o027,
    };
    let dir = fs.mkdir("d");
    let changes = SetAttr {
        perm: Some(0o2777),
        gid: Some(50),
        ..SetAttr::default()
    };
    setattr(&fs, &dir, &changes, &root).unwrap();
    let noatime_dirsync = get_flags(&dir) | 0x80 | 0x1_0000;
    set_flags(&fs, &dir, noatime_dirsync, &root).unwrap();
    let sub = namei::mkdir(&fs, &dir, b"sub", 0o777, &user).unwrap();
    let attr = getattr(&fs, &sub);
    assert_eq!((attr.perm, attr.uid, attr.gid), (0o2750, 1000, 50));
    assert_eq!(get_flags(&sub) & 0x1_0080, 0x1_0080);
    let file = namei::create(&fs, &dir, b"f", 0o2775, &user).unwrap();
    let attr = getattr(&fs, &file);
    assert_eq!(
        (attr.perm, attr.gid),
        (0o750, 50),
        "no set-group-id from outside of the group"
    );
    assert_eq!(get_flags(&file) & 0x1_0080, 0x80, "no dirsync for files");
    let member = Cred {
        groups: vec![50],
        ..user.clone()
    };
    let file = namei::create(&fs, &dir, b"g", 0o2775, &member).unwrap();
    assert_eq!(getattr(&fs, &file).perm, 0o2750);
    let fifo = namei::mknod(&fs, &dir, b"p", (FileKind::Fifo, 0), 0o666, &user).unwrap();
    assert_eq!(get_flags(&fifo), 0x80);
    assert!(!fifo.flags().contains(InodeFlags::EXTENTS));
    let attr = getattr(&fs, &file);
    assert_eq!(attr.crtime, Some(attr.mtime));
    drop((dir, sub, file, fifo));
    fs.unmount();
    image.fsck_clean().unwrap();
}

#[test]
fn protected_inodes_refuse() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let root = Cred::root();
    let file = fs.create("f");
    let (append, immutable) = (0x20, 0x10);
    let base = get_flags(&file);
    let touch = SetAttr {
        mtime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    let changes = [
        SetAttr {
            perm: Some(0),
            ..SetAttr::default()
        },
        SetAttr {
            uid: Some(1),
            ..SetAttr::default()
        },
        SetAttr {
            atime: Some(at(5, 5)),
            ..SetAttr::default()
        },
        SetAttr {
            size: Some(0),
            ..SetAttr::default()
        },
    ];
    for flag in [append, immutable] {
        set_flags(&fs, &file, base | flag, &root).unwrap();
        for change in &changes {
            assert_eq!(errno(setattr(&fs, &file, change, &root)), 1, "{change:?}");
        }
        let touched = errno(setattr(&fs, &file, &touch, &root));
        assert_eq!(touched, if flag == append { 0 } else { 1 });
        let by_front_end = SetAttr {
            atime: Some(SetTime::Now),
            mtime: Some(at(7, 7)),
            noted: true,
            ..SetAttr::default()
        };
        let touched = errno(setattr(&fs, &file, &by_front_end, &root));
        assert_eq!(touched, if flag == append { 0 } else { 1 });
        set_flags(&fs, &file, base, &root).unwrap();
    }
    for change in &changes {
        setattr(&fs, &file, change, &root).unwrap();
    }
    let dir = fs.mkdir("d");
    let size = &changes[3];
    assert_eq!(errno(setattr(&fs, &dir, size, &root)), 21);
    let kind = (FileKind::Fifo, 0);
    let fifo = namei::mknod(&fs, &fs.root(), b"p", kind, 0o600, &root).unwrap();
    assert_eq!(errno(setattr(&fs, &fifo, size, &root)), 22);
    let no_owner = SetAttr {
        gid: Some(u32::MAX),
        ..SetAttr::default()
    };
    assert_eq!(errno(setattr(&fs, &file, &no_owner, &root)), 22);
}

#[test]
fn writes_take_privileges_and_move_times_without_a_handle() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let root = Cred::root();
    let user = Cred {
        uid: 1000,
        gid: 1000,
        privileged: false,
        ..Cred::root()
    };
    let file = fs.create("f");
    let suid = SetAttr {
        perm: Some(0o6755),
        ..SetAttr::default()
    };
    let cap = b"security.capability";
    for (cred, left) in [(&root, 0o6755), (&user, 0o755)] {
        setattr(&fs, &file, &suid, &root).unwrap();
        xattr::set(&fs, &file, cap, &[1; 20], XattrMode::Either, &root).unwrap();
        file_modified(&fs, &file, cred).unwrap();
        assert_eq!(getattr(&fs, &file).perm, left);
        assert_eq!(
            errno(xattr::get(&fs, &file, cap)),
            61,
            "capabilities go in any case"
        );
    }
    // A range operation is a write.
    setattr(&fs, &file, &suid, &root).unwrap();
    let mode = FallocateMode::Allocate { keep_size: true };
    file::fallocate(&fs, &file, mode, (0, 4096), &user).unwrap();
    assert_eq!(getattr(&fs, &file).perm, 0o755);
    let handles = fs.journal.stats().handles;
    let before = getattr(&fs, &file);
    std::thread::sleep(std::time::Duration::from_millis(10));
    file_modified(&fs, &file, &user).unwrap();
    assert_eq!(fs.journal.stats().handles, handles, "no handle");
    let after = getattr(&fs, &file);
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    assert!(fs.stats.times_deferred.get() > 0);
    // Stored with the next reason, or the next round.
    flush_times(&fs, &file).unwrap();
    assert_eq!(fs.journal.stats().handles, handles + 1);
    flush_times(&fs, &file).unwrap();
    assert_eq!(
        fs.journal.stats().handles,
        handles + 1,
        "nothing more to store"
    );
    drop(file);
    fs.unmount();
    let fs = TestFs::mount(image.path(), "");
    assert_eq!(getattr(&fs, &fs.find("f")).mtime, after.mtime);
}

#[test]
fn access_times_follow_the_mount() {
    for (options, moves) in [
        ("noatime", false),
        ("strictatime", true),
        ("lazytime", true),
    ] {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), options);
        let file = fs.create("f");
        let old = SetAttr {
            atime: Some(at(1000, 0)),
            ..SetAttr::default()
        };
        setattr(&fs, &file, &old, &Cred::root()).unwrap();
        let handles = fs.journal.stats().handles;
        touch_atime(&fs, &file);
        let atime = getattr(&fs, &file).atime;
        assert_eq!(atime.secs != 1000, moves, "{options}");
        assert_eq!(fs.journal.stats().handles, handles, "{options}: no handle");
        drop(file);
        fs.unmount();
        let fs = TestFs::mount(image.path(), "noatime");
        assert_eq!(
            getattr(&fs, &fs.find("f")).atime,
            atime,
            "{options}: stored at unmount"
        );
        fs.unmount();
        image.fsck_clean().unwrap();
    }
}

#[test]
fn flags_have_two_views() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let root = Cred::root();
    let file = fs.create("f");
    set_flags(&fs, &file, get_flags(&file) | 0x40 | 0x80, &root).unwrap();
    let mut view = FlagSet::get(&file);
    assert_eq!(view.xflags, 0x80 | 0x40, "nodump, noatime");
    view.xflags = 0x20;
    view.set(&fs, &file, &root).unwrap();
    assert_eq!(
        get_flags(&file),
        0x8_0000 | 0x8,
        "extents stay, sync is set"
    );
    view.project = 5;
    assert_eq!(errno(view.set(&fs, &file, &root)), 95);
    let user = Cred {
        privileged: false,
        ..Cred::root()
    };
    let refused = set_flags(&fs, &file, 0x8_4008, &user);
    assert_eq!(errno(refused), 1, "journalled data needs privilege");
    drop(file);
    fs.unmount();
    let list = Cmd::new("debugfs")
        .args(["-R", "stat f"])
        .arg(image.path())
        .ok()
        .unwrap()
        .out;
    assert!(list.contains("Flags: 0x80008"), "{list}");
}
