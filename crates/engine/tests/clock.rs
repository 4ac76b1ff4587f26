//! Every time that the file system gives is of the kernel's coarse clock: the one by which the
//! kernel stamps what it writes through a mount. With a finer one a file would be born after its
//! last change.

use extant_engine::{
    Cred, Node, RenameFlags, SetAttr, SetTime, Timestamp, Volume, VolumeOptions, XattrMode,
};
use extant_testkit::Image;
use rustix::time::{ClockId, clock_gettime};

/// The clock as the kernel reads it.
fn coarse() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let nanos = u32::try_from(now.tv_nsec).unwrap();
    let secs = now.tv_sec;
    Timestamp { secs, nanos }
}

/// Changes `node` by `change` and checks the times that this has moved.
fn stamped(volume: &Volume, what: &str, nodes: &[&Node], change: impl FnOnce()) {
    let all = |node: &&Node| {
        let attr = volume.getattr(node).unwrap();
        [attr.atime, attr.mtime, attr.ctime]
    };
    let old: Vec<_> = nodes.iter().map(all).collect();
    let before = coarse();
    change();
    let after = coarse();
    for (node, old) in nodes.iter().zip(old) {
        for (new, old) in all(node).into_iter().zip(old) {
            let moved = new != old;
            assert!(
                !moved || (before..=after).contains(&new),
                "{what}: {before:?} {new:?} {after:?}"
            );
        }
    }
}

/// A new file, made beside a node of each other kind: their stamps are of the coarse clock.
fn new_file(volume: &Volume, name: &[u8]) -> Node {
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let before = coarse();
    let f = volume.create(&root, name, 0o644, &cred).unwrap();
    let made = [
        f.clone(),
        volume
            .mkdir(&root, &[b"d", name].concat(), 0o755, &cred)
            .unwrap(),
        volume
            .symlink(&root, &[b"s", name].concat(), b"to", &cred)
            .unwrap(),
        volume.tmpfile(&root, 0o600, &cred).unwrap(),
    ];
    let after = coarse();
    for node in &made {
        let attr = volume.getattr(node).unwrap();
        let birth = attr.crtime.unwrap();
        for time in [attr.atime, attr.mtime, attr.ctime, birth] {
            assert!(
                (before..=after).contains(&time),
                "{before:?} {time:?} {after:?}"
            );
        }
    }
    f
}

#[test]
fn every_stamp_is_of_the_coarse_clock() {
    let image = Image::of_mib(8).make().unwrap();
    let mut options = VolumeOptions::new();
    options.write(true).mount_options("strictatime");
    let volume = options.open(image.path()).unwrap();
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    // Stamps of a finer clock lie between two of the coarse one's nearly always.
    for round in 0..20 {
        let name = format!("f{round}").into_bytes();
        let f = new_file(&volume, &name);
        let both: &[&Node] = &[&f, &root];
        let stamped = |what: &str, change: &dyn Fn()| stamped(&volume, what, both, change);
        let flags = volume.flags(&f).unwrap();
        let other = [b"x", &*name].concat();
        let moved = [b"y", &*name].concat();
        stamped("write", &|| {
            assert_eq!(volume.write(&f, 0, b"bytes", &cred).unwrap(), 5);
        });
        stamped("read", &|| {
            assert_eq!(volume.read(&f, 0, &mut [0; 4]).unwrap(), 4);
        });
        stamped("readdir", &|| {
            volume.readdir(&root, 0, &mut |_| true).unwrap()
        });
        stamped("truncate", &|| {
            let size = Some(1);
            let to = SetAttr {
                size,
                ..SetAttr::default()
            };
            volume.setattr(&f, &to, &cred).unwrap();
        });
        stamped("touch", &|| {
            let mtime = Some(SetTime::Now);
            let to = SetAttr {
                mtime,
                ..SetAttr::default()
            };
            volume.setattr(&f, &to, &cred).unwrap();
        });
        stamped("setxattr", &|| {
            volume
                .setxattr(&f, b"user.a", b"b", XattrMode::Either, &cred)
                .unwrap();
        });
        stamped("flags", &|| {
            volume.set_flags(&f, flags ^ 0x40, &cred).unwrap()
        });
        stamped("link", &|| volume.link(&f, &root, &other, &cred).unwrap());
        stamped("rename", &|| {
            let flags = RenameFlags::empty();
            volume
                .rename(&root, &other, &root, &moved, flags, &cred)
                .unwrap();
        });
        stamped("unlink", &|| volume.unlink(&root, &moved).unwrap());
    }
}

/// Reads in every way are accesses: an old time of access moves.
#[test]
fn each_way_to_read_notes_the_time() {
    let image = Image::of_mib(8).make().unwrap();
    let mut options = VolumeOptions::new();
    let volume = options.write(true).open(image.path()).unwrap();
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let node = volume.create(&root, b"f", 0o644, &cred).unwrap();
    volume.write(&node, 0, &[1; 8192], &cred).unwrap();
    volume.fsync(&node, false).unwrap();
    let old = Timestamp { secs: 9, nanos: 0 };
    let aged = SetAttr {
        atime: Some(SetTime::At(old)),
        ..SetAttr::default()
    };
    let moved = |what: &str, read: &dyn Fn()| {
        volume.setattr(&node, &aged, &cred).unwrap();
        assert_eq!(volume.getattr(&node).unwrap().atime, old, "{what}");
        read();
        assert!(volume.getattr(&node).unwrap().atime > old, "{what}");
    };
    let buf = || [0; 4096];
    moved("read", &|| {
        volume.read(&node, 0, &mut buf()).unwrap();
    });
    moved("uncached", &|| {
        volume.read_uncached(&node, 0, &mut buf()).unwrap();
    });
    moved("direct", &|| {
        volume.read_direct(&node, 0, &mut buf()).unwrap();
    });
    moved("view", &|| drop(volume.view(&node, 0, 4096).unwrap()));
    moved("queue", &|| {
        let mut queue = volume.direct_queue(1, &cred);
        let buf = extant_engine::IoBuf::zeroed(4096);
        queue.read(&node, 0, buf, 0).unwrap();
        queue.wait(1).remove(0).result.unwrap();
    });
    volume.unmount().unwrap();
}
