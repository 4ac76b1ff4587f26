//! Operations of several changes whose metadata cannot be read: each is done as a whole or not at
//! all, and what it leaves checks clean, with `errors=continue` too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_check::{CheckOptions, check};
use extant_engine::{
    Cred, Error, Node, RenameFlags, Result, SetAttr, Tuning, Volume, VolumeOptions, XattrMode,
};
use extant_testkit::{Fault, FaultyDevice, Image, Request, RequestKind};
use extant_units::DevOff;

/// Directories of one block each: looking into all pushes everything else out of the cache of
/// metadata, which has 256 blocks.
const OTHERS: u32 = 400;

/// A device on which the `countdown`th read from now on, and every later one of the same block,
/// fails.
struct Bad {
    countdown: AtomicU64,
    block: AtomicU64,
    reads: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Bad {
    fn fault(&self, request: Request<'_>) -> Fault {
        if request.kind != RequestKind::Read {
            return Fault::Pass;
        }
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.countdown.load(Ordering::SeqCst) != NEVER
            && self.countdown.fetch_sub(1, Ordering::SeqCst) == 0
        {
            self.countdown.store(NEVER, Ordering::SeqCst);
            self.block.store(request.offset.get(), Ordering::SeqCst);
        }
        let bad = self.block.load(Ordering::SeqCst);
        let start = request.offset.get();
        match bad != NEVER && start <= bad && bad < start + request.len {
            true => Fault::Fail(std::io::ErrorKind::Other),
            false => Fault::Pass,
        }
    }

    fn heal(&self) {
        self.countdown.store(NEVER, Ordering::SeqCst);
        self.block.store(NEVER, Ordering::SeqCst);
    }
}

fn options(policy: &str) -> VolumeOptions {
    let mut tuning = Tuning::default();
    tuning.block_cache_bytes = 1;
    let mut options = VolumeOptions::new();
    options.write(true).mount_options(policy).tuning(tuning);
    options
}

/// Files that the operations work on.
struct Scene {
    volume: Volume,
    a: Node,
    b: Node,
    file: Node,
    over: Node,
    /// Has the block of attributes that `file` would share.
    twin: Node,
}

const LONG: &[u8] = &[b'v'; 300];
const LISTED: &[u8] = b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff\x02\0\x07\0\x01\0\0\0\
\x04\0\x05\0\xff\xff\xff\xff\x10\0\x07\0\xff\xff\xff\xff\x20\0\x05\0\xff\xff\xff\xff";

/// A value that fits no block of attributes.
const HUGE: &[u8] = &[b'h'; 5000];

/// The bytes of a volume with the scene's files. With `values`, attributes have their values in
/// inodes of their own, and two files share a block with one.
fn prepared(values: bool) -> Vec<u8> {
    let args = "-b 1024 -I 128 -N 2048 -O ^resize_inode,^orphan_file";
    let image = Image::of_mib(16).args(args);
    let image = match values {
        true => image.args("-O ea_inode,quota"),
        false => image,
    };
    let image = image.make().unwrap();
    let memory = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
    let dev = Arc::new(memory);
    let cred = Cred::root();
    let volume = options("").open_on(dev.clone()).unwrap();
    let root = volume.root().unwrap();
    for name in [&b"a"[..], b"b"] {
        let dir = volume.mkdir(&root, name, 0o755, &cred).unwrap();
        // More than one block, with an index.
        for n in 0..40 {
            let name = format!("{n:0>40}");
            volume.create(&dir, name.as_bytes(), 0o644, &cred).unwrap();
        }
        for name in [&b"file"[..], b"over", b"twin"] {
            volume.create(&dir, name, 0o644, &cred).unwrap();
        }
        for name in [&b"dir"[..], b"empty"] {
            volume.mkdir(&dir, name, 0o755, &cred).unwrap();
        }
    }
    let a = volume.lookup(&root, b"a").unwrap();
    let set = |name: &[u8], attr: &[u8], value: &[u8]| {
        let node = volume.lookup(&a, name).unwrap();
        let mode = XattrMode::Either;
        volume.setxattr(&node, attr, value, mode, &cred).unwrap();
    };
    set(b"twin", b"user.long", LONG);
    set(b"over", b"user.other", b"x");
    set(b"over", b"system.posix_acl_access", LISTED);
    if values {
        volume.create(&a, b"third", 0o644, &cred).unwrap();
        for name in [&b"twin"[..], b"third"] {
            set(name, b"user.long", LONG);
            set(name, b"user.huge", HUGE);
        }
        set(b"over", b"user.huge", &[b'o'; 5000]);
    }
    drop(a);
    for n in 0..OTHERS {
        let name = format!("other{n}");
        volume.mkdir(&root, name.as_bytes(), 0o755, &cred).unwrap();
    }
    drop(root);
    volume.unmount().unwrap();
    dev.to_bytes()
}

impl Scene {
    fn on(dev: Arc<dyn BlockDevice>, policy: &str) -> Self {
        let volume = options(policy).open_on(dev).unwrap();
        let root = volume.root().unwrap();
        let find = |dir: &Node, name: &[u8]| volume.lookup(dir, name).unwrap();
        let (a, b) = (find(&root, b"a"), find(&root, b"b"));
        let scene = Self {
            file: find(&a, b"file"),
            over: find(&a, b"over"),
            twin: find(&a, b"twin"),
            a,
            b,
            volume: volume.clone(),
        };
        // Known names, and attributes of the twin.
        let inside = [find(&scene.a, b"dir"), find(&scene.a, b"empty")];
        drop(inside);
        for name in [&b"over"[..], b"empty", b"dir", b"file"] {
            find(&scene.b, name);
        }
        assert!(volume.lookup(&scene.b, b"new").is_err());
        assert!(volume.lookup(&scene.a, b"new").is_err());
        volume.listxattr(&scene.twin).unwrap();
        for n in 0..OTHERS {
            let other = find(&root, format!("other{n}").as_bytes());
            assert!(volume.lookup(&other, b"nothing").is_err());
        }
        scene
    }

    fn rename(&self, old: (&Node, &[u8]), new: (&Node, &[u8]), flags: RenameFlags) -> Result<()> {
        let cred = Cred::root();
        self.volume.rename(old.0, old.1, new.0, new.1, flags, &cred)
    }

    fn set(&self, node: &Node, name: &[u8], value: &[u8]) -> Result<()> {
        let (mode, cred) = (XattrMode::Either, Cred::root());
        self.volume.setxattr(node, name, value, mode, &cred)
    }
}

type Operation = (&'static str, fn(&Scene) -> Result<()>);

const OPERATIONS: &[Operation] = &[
    ("rename in a directory", |s| {
        s.rename((&s.a, b"file"), (&s.a, b"new"), RenameFlags::empty())
    }),
    ("rename to another", |s| {
        s.rename((&s.a, b"file"), (&s.b, b"new"), RenameFlags::empty())
    }),
    ("rename over another", |s| {
        s.rename((&s.a, b"file"), (&s.b, b"over"), RenameFlags::empty())
    }),
    ("rename of a directory", |s| {
        s.rename((&s.a, b"dir"), (&s.b, b"new"), RenameFlags::empty())
    }),
    ("rename over a directory", |s| {
        s.rename((&s.a, b"dir"), (&s.b, b"empty"), RenameFlags::empty())
    }),
    ("rename that leaves a whiteout", |s| {
        s.rename((&s.a, b"file"), (&s.b, b"new"), RenameFlags::WHITEOUT)
    }),
    ("exchange", |s| {
        s.rename((&s.a, b"file"), (&s.b, b"dir"), RenameFlags::EXCHANGE)
    }),
    ("link", |s| {
        s.volume.link(&s.file, &s.b, b"new", &Cred::root())
    }),
    ("create", |s| {
        let made = s.volume.create(&s.b, b"new", 0o644, &Cred::root());
        made.map(drop)
    }),
    ("mkdir", |s| {
        let made = s.volume.mkdir(&s.b, b"new", 0o755, &Cred::root());
        made.map(drop)
    }),
    ("symlink", |s| {
        let made = s.volume.symlink(&s.b, b"new", &[b't'; 100], &Cred::root());
        made.map(drop)
    }),
    ("tmpfile, and its link", |s| {
        let made = s.volume.tmpfile(&s.a, 0o644, &Cred::root())?;
        s.volume.link(&made, &s.b, b"new", &Cred::root())
    }),
    ("unlink", |s| s.volume.unlink(&s.a, b"file")),
    ("rmdir", |s| s.volume.rmdir(&s.a, b"empty")),
    ("attribute in a new block", |s| {
        s.set(&s.file, b"user.new", LONG)
    }),
    ("attribute in a shared block", |s| {
        s.set(&s.file, b"user.long", LONG)
    }),
    ("attribute in the place of another", |s| {
        s.volume
            .removexattr(&s.over, b"user.other", &Cred::root())?;
        s.volume
            .removexattr(&s.over, b"system.posix_acl_access", &Cred::root())?;
        s.set(&s.over, b"user.long", LONG)
    }),
    ("removal of the last attribute", |s| {
        s.volume.removexattr(&s.twin, b"user.long", &Cred::root())
    }),
    ("permissions with a list", |s| {
        let changes = SetAttr {
            perm: Some(0o640),
            ..SetAttr::default()
        };
        s.volume.setattr(&s.over, &changes, &Cred::root()).map(drop)
    }),
];

/// Those on attributes with values in inodes of their own.
const ON_VALUES: &[Operation] = &[
    ("value in a new inode", |s| {
        s.set(&s.file, b"user.huge", &[b'n'; 3000])
    }),
    ("value in the inode of another", |s| {
        s.volume.getxattr(&s.twin, b"user.huge")?;
        s.set(&s.file, b"user.huge", HUGE)
    }),
    ("value in the place of another", |s| {
        s.set(&s.over, b"user.huge", &[b'n'; 9000])
    }),
    ("removal of a value", |s| {
        s.volume.removexattr(&s.over, b"user.huge", &Cred::root())
    }),
    ("copy of a block with a value", |s| {
        s.set(&s.twin, b"user.small", b"another")
    }),
    ("removal of a value from a shared block", |s| {
        s.volume.removexattr(&s.twin, b"user.huge", &Cred::root())
    }),
    ("permissions with a list beside a value", |s| {
        let changes = SetAttr {
            perm: Some(0o640),
            ..SetAttr::default()
        };
        s.volume.setattr(&s.over, &changes, &Cred::root()).map(drop)
    }),
    ("unlink of a file with a value", |s| {
        s.volume.unlink(&s.a, b"over")
    }),
    ("unlink of a file with a shared value", |s| {
        s.volume.unlink(&s.a, b"twin")
    }),
];

/// Runs `operation` with its read number `n` failing. Returns whether it made so many.
fn round(bytes: &[u8], (what, operation): &Operation, n: u64, policy: &str) -> bool {
    let bad = Arc::new(Bad {
        countdown: AtomicU64::new(NEVER),
        block: AtomicU64::new(NEVER),
        reads: AtomicU64::new(0),
    });
    let plan = {
        let bad = bad.clone();
        move |request: Request<'_>| bad.fault(request)
    };
    let dev = Arc::new(FaultyDevice::new(MemoryDevice::from_bytes(bytes), plan));
    let scene = Scene::on(dev.clone(), policy);
    bad.reads.store(0, Ordering::SeqCst);
    bad.countdown.store(n, Ordering::SeqCst);
    let done = operation(&scene);
    // With the evictions that it left to the reaper.
    scene.volume.wait_for_background_work();
    let reads = bad.reads.load(Ordering::SeqCst);
    bad.heal();
    let volume = scene.volume.clone();
    let stopped = volume.read_only();
    if let Err(Error::NotFound | Error::Exists | Error::NoSpace | Error::Invalid) = &done {
        panic!("{what}, read {n}: {done:?}");
    }
    drop(scene);
    volume.wait_for_background_work();
    let synced = volume.sync();
    assert!(stopped || synced.is_ok(), "{what}, read {n}: {synced:?}");
    volume.unmount().ok();
    drop(volume);
    // What is left of it is found clean, once the journal is replayed and the orphans are gone.
    let left = Arc::new(MemoryDevice::from_bytes(&whole(&dev)));
    let again = options("").open_on(left.clone()).unwrap();
    let root = again.root().unwrap();
    let (a, b) = (again.lookup(&root, b"a"), again.lookup(&root, b"b"));
    let there = |dir: &Result<Node>, name: &[u8]| again.lookup(dir.as_ref().unwrap(), name).is_ok();
    let names = [there(&a, b"file"), there(&a, b"new"), there(&b, b"new")];
    drop((root, a, b));
    again.unmount().unwrap();
    let report = check(
        left,
        &CheckOptions {
            threads: 1,
            max_findings: 10,
            replay_bytes: None,
            journal: None,
            progress: None,
        },
    );
    let report = report.unwrap();
    assert!(
        report.findings.is_empty(),
        "{what} with {policy:?}, read {n} of {reads}, {done:?}, stopped {stopped}: {names:?} {:?}",
        report
            .findings
            .iter()
            .map(|f| f.to_string())
            .collect::<Vec<_>>()
    );
    n < reads
}

/// The bytes of the device below the faults.
fn whole<P>(dev: &FaultyDevice<MemoryDevice, P>) -> Vec<u8>
where
    P: Fn(Request<'_>) -> Fault + Send + Sync,
{
    let len = usize::try_from(dev.inner().len()).unwrap();
    let mut bytes = vec![0; len];
    dev.inner().read_at(DevOff::ZERO, &mut bytes).unwrap();
    bytes
}

#[test]
fn an_operation_that_meets_an_unreadable_block_is_done_or_not_begun() {
    let bytes = prepared(false);
    each(&bytes, OPERATIONS, "errors=continue");
    each(&bytes, &OPERATIONS[..2], "errors=remount-ro");
}

#[test]
fn a_value_whose_metadata_is_unreadable_is_set_or_not_begun() {
    each(&prepared(true), ON_VALUES, "errors=continue");
}

/// Runs each operation with each of its reads failing.
fn each(bytes: &[u8], operations: &[Operation], policy: &str) {
    for operation in operations {
        let rounds = (0..40).take_while(|&n| round(bytes, operation, n, policy));
        let rounds = rounds.count();
        println!("{} with {policy}: {rounds} reads", operation.0);
        assert!((1..40).contains(&rounds), "{}: {rounds}", operation.0);
    }
}
