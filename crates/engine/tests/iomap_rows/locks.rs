//! The frame of an operation: privileges and times once, locks released whatever happens. Rows 2,
//! 9, 10, for what exists.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_blockdev::MemoryDevice;
use extant_engine::{Cred, Error, Node, SetAttr, SetTime, Timestamp, Volume};
use extant_testkit::{Fault, FaultyDevice, Request, RequestKind};

use crate::rig::{self, Rig, image};

fn plain() -> Cred {
    Cred {
        uid: 1000,
        privileged: false,
        ..Cred::root()
    }
}

fn set(volume: &Volume, node: &Node, changes: SetAttr, cred: &Cred) -> Result<(), Error> {
    volume.setattr(node, &changes, cred).map(drop)
}

#[test]
fn iomap_02_privileges_and_times_go_once_per_operation() {
    let rig = Rig::new("-b 1024");
    let node = rig.create("tool");
    rig.write(&node, 0, &[1; 10]);
    let suid = SetAttr {
        perm: Some(0o4755),
        uid: Some(1000),
        mtime: Some(SetTime::At(Timestamp::default())),
        ..SetAttr::default()
    };
    for size in [None, Some(100_000)] {
        set(&rig.volume, &node, suid, &Cred::root()).unwrap();
        let before = rig.volume.getattr(&node).unwrap();
        assert_eq!(before.perm & 0o4000, 0o4000);
        let counted = rig.counted(|| match size {
            None => {
                let data = vec![2; 1 << 20];
                let done = rig.volume.write(&node, 0, &data, &plain()).unwrap();
                assert_eq!(done, data.len());
            }
            size => {
                let to = SetAttr {
                    size,
                    ..SetAttr::default()
                };
                set(&rig.volume, &node, to, &plain()).unwrap();
            }
        });
        let after = rig.volume.getattr(&node).unwrap();
        assert_eq!(after.perm, 0o755, "the bit is gone");
        assert!(after.mtime > before.mtime);
        assert_eq!(after.mtime, after.ctime, "one moment");
        // Of 1024 blocks, none stored the inode again. A cut file is an orphan for a while.
        assert!(counted["inode_dirty_calls"] <= 5, "{counted:?}");
    }
    rig.end();
}

/// Each failure leaves the file usable: the next operation gets its locks.
#[test]
fn iomap_10_failures_release_every_lock() {
    let failing = Arc::new(AtomicBool::new(false));
    let armed = failing.clone();
    let device = MemoryDevice::from_bytes(&image(32, "-b 4096"));
    let device = FaultyDevice::new(device, move |request: Request| {
        if request.kind == RequestKind::Read && armed.load(Ordering::Relaxed) {
            Fault::Fail(ErrorKind::Other)
        } else {
            Fault::Pass
        }
    });
    let volume = rig::mount(Arc::new(device), "", |_| ());
    let root = volume.root().unwrap();
    let node = volume.create(&root, b"f", 0o644, &Cred::root()).unwrap();
    volume.write(&node, 0, &[1; 50_000], &Cred::root()).unwrap();
    volume.fsync(&node, false).unwrap();
    let to = |size| SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    let works = |what: &str| {
        // From another thread, so that a lock that is still held shows.
        std::thread::scope(|scope| {
            let done = scope.spawn(|| volume.write(&node, 30, b"next", &Cred::root()));
            assert_eq!(done.join().unwrap().unwrap(), 4, "after {what}");
        });
        assert!(set(&volume, &node, to(40_000), &Cred::root()).is_ok());
        assert!(set(&volume, &node, to(50_000), &Cred::root()).is_ok());
        volume.fsync(&node, false).unwrap();
    };

    volume.drop_caches();
    failing.store(true, Ordering::Relaxed);
    // The cut block cannot be read, so it cannot be zeroed.
    let cut = set(&volume, &node, to(4099), &Cred::root());
    assert!(matches!(cut, Err(Error::Io(_))), "{cut:?}");
    assert_eq!(volume.getattr(&node).unwrap().size, 50_000);
    let edge = volume.write(&node, 8200, b"edge", &Cred::root());
    assert!(matches!(edge, Err(Error::Io(_))), "{edge:?}");
    let read = volume.read(&node, 0, &mut [0; 10]);
    assert!(matches!(read, Err(Error::Io(_))), "{read:?}");
    failing.store(false, Ordering::Relaxed);
    works("failed reads");

    let limit = set(&volume, &node, to(u64::MAX), &Cred::root());
    assert!(matches!(limit, Err(Error::FileTooBig)), "{limit:?}");
    let limit = volume.write(&node, u64::MAX - 5, b"x", &Cred::root());
    assert!(matches!(limit, Err(Error::FileTooBig)), "{limit:?}");
    works("limits");

    let flags = volume.flags(&node).unwrap();
    volume
        .set_flags(&node, flags | 0x10, &Cred::root())
        .unwrap();
    let immutable = volume.write(&node, 0, b"x", &Cred::root());
    assert!(
        matches!(immutable, Err(Error::NotPermitted)),
        "{immutable:?}"
    );
    let immutable = set(&volume, &node, to(5), &Cred::root());
    assert!(
        matches!(immutable, Err(Error::NotPermitted)),
        "{immutable:?}"
    );
    volume.set_flags(&node, flags, &Cred::root()).unwrap();
    works("refusals");
    volume.unmount().unwrap();
}
