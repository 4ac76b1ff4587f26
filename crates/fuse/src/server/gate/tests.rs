//! A server without a kernel: a socket stands for `/dev/fuse`, whose other end the tests read.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use extant_engine::{FallocateMode, Node, Volume, VolumeOptions};
use extant_testkit::{Image, Need, need, wait_until};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::abi::{
    AttrOut, CreateIn, FallocateIn, GETATTR_FH, GetattrIn, InterruptIn, InvalInodeOut, LinkIn,
    MkdirIn, NOTIFY_INVAL_INODE, OUT_HEADER, OutHeader, SetattrIn, SetattrValid, SetxattrIn,
    WriteIn, op,
};
use crate::counters::Counters;
use crate::device::Device;
use crate::in_flight::InFlight;
use crate::init::Agreed;
use crate::mount::{Connection, MountPoint};
use crate::node_table::NodeTable;
use crate::serve::Serve;
use crate::server::Settings;

mod takers;

const MIB: u64 = 1 << 20;
/// The error of a reply to a caller that got a signal.
const INTERRUPTED: i32 = -rustix::io::Errno::INTR.raw_os_error();
const NO_SPACE: i32 = -rustix::io::Errno::NOSPC.raw_os_error();
/// `O_DIRECT`.
const DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
/// What the kernel reads at once.
const MESSAGE: usize = 4096;

/// A server, its two files, and the kernel's end of its device.
struct Setup<'a> {
    server: Server<'a>,
    volume: &'a Volume,
    nodes: &'a NodeTable,
    in_flight: &'a InFlight,
    kernel: OwnedFd,
}

/// Ends the server's threads when it is dropped, so that a test that fails ends.
struct End<'a>(&'a Server<'a>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Calls `work` with a server of a volume of `mib` MiB, of which `left` bytes are free at most.
fn with_server(mib: u64, left: u64, work: impl FnOnce(&mut Setup<'_>)) {
    with_limit(mib, left, 1 << 30, work);
}

/// The same where the kernel may hold `dirty_limit` dirty bytes.
fn with_limit(mib: u64, left: u64, dirty_limit: u64, work: impl FnOnce(&mut Setup<'_>)) {
    let point = MountPoint::new("/nowhere".into(), false);
    with_point(point, (mib, left, dirty_limit), work);
}

/// The same for a mount at `point`.
fn with_point(
    point: MountPoint,
    (mib, left, dirty_limit): (u64, u64, u64),
    work: impl FnOnce(&mut Setup<'_>),
) {
    if !need(&[Need::Tool("mke2fs")]) {
        return;
    }
    let image = Image::of_mib(mib).args("-b 4096 -m 0").make().unwrap();
    let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
    let root = volume.root().unwrap();
    let cred = extant_engine::Cred::root();
    let filler = volume.create(&root, b"filler", 0o600, &cred).unwrap();
    let len = volume.room(false).saturating_sub(left);
    let allocate = FallocateMode::Allocate { keep_size: false };
    if len > 0 {
        volume.fallocate(&filler, allocate, 0, len, &cred).unwrap();
    }
    let flags = SocketFlags::NONBLOCK;
    let (ours, kernel) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let device = Device::new(ours).unwrap();
    let nodes = NodeTable::new(root);
    let (counters, in_flight) = (Counters::new(), InFlight::new(1));
    let settings = Settings {
        agreed: Agreed {
            setxattr_ext: true,
            writeback: true,
            no_open: true,
            no_opendir: true,
            rings: false,
            checks_set_gid: true,
            kernel_checks: true,
        },
        strict_open: true,
        control: Vec::new(),
        point,
        dirty_limit,
        facts: Vec::new(),
        volume_len: mib * MIB,
    };
    work(&mut Setup {
        server: Server::new(&volume, &device, &nodes, &counters, &in_flight, settings),
        volume: &volume,
        nodes: &nodes,
        in_flight: &in_flight,
        kernel,
    });
    drop(nodes);
    volume.unmount().unwrap();
}

impl Setup<'_> {
    /// A new file that is open for writing: its number and its handle.
    fn open(&self, name: &[u8]) -> (u64, u64) {
        let cred = extant_engine::Cred::root();
        let root = self.volume.root().unwrap();
        let node: Node = self.volume.create(&root, name, 0o600, &cred).unwrap();
        let id = self.nodes.remember(&node);
        let attr = self.volume.getattr(&node).unwrap();
        (id, self.server.register_writer(id, &node, &attr).unwrap())
    }

    /// Has a request served, and returns its reply if there is one.
    fn serve(&self, opcode: u32, nodeid: u64, unique: u64, body: &[u8]) -> Option<OutHeader> {
        let reply = self.reply(opcode, nodeid, unique, body);
        reply.map(|(header, _)| header)
    }

    /// The same with the bytes behind its header.
    fn reply(
        &self,
        opcode: u32,
        nodeid: u64,
        unique: u64,
        body: &[u8],
    ) -> Option<(OutHeader, Vec<u8>)> {
        let header = InHeader {
            len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
            opcode,
            unique,
            nodeid,
            ..InHeader::default()
        };
        let mut space = ReplyMemory::new(MESSAGE);
        let mut reply = space.start();
        let bytes = [header.as_bytes(), body].concat();
        match self.server.serve(&bytes, &mut reply).unwrap() {
            Completion::Deferred | Completion::Silent => None,
            _ => {
                let (header, rest) = OutHeader::read_from_prefix(reply.bytes()).unwrap();
                Some((header, rest.to_vec()))
            }
        }
    }

    /// The writer of `file` asks before a write.
    fn ask(&self, (id, fh): (u64, u64), unique: u64) -> Option<OutHeader> {
        let getattr = GetattrIn {
            getattr_flags: GETATTR_FH,
            dummy: 0,
            fh,
        };
        self.serve(op::GETATTR, id, unique, getattr.as_bytes())
    }

    /// The caller of request `unique` gets a signal.
    fn interrupt(&self, unique: u64) {
        let interrupt = InterruptIn { unique };
        let reply = self.serve(op::INTERRUPT, 0, unique | 1, interrupt.as_bytes());
        assert!(reply.is_none(), "the kernel would send it again: {reply:?}");
    }

    /// A process allocates the first `len` bytes of a file.
    fn allocate(&self, file: u64, unique: u64, length: u64) -> Option<OutHeader> {
        let fallocate = FallocateIn {
            length,
            ..FallocateIn::default()
        };
        self.serve(op::FALLOCATE, file, unique, fallocate.as_bytes())
    }

    /// The next reply, while the thread of the gates runs.
    fn reply_after_drains(&self) -> (u64, i32) {
        thread::scope(|scope| {
            let _end = End(&self.server);
            scope.spawn(|| self.server.answer_writers());
            self.replies(1)[0]
        })
    }

    /// What the server has sent next, if it has sent something.
    fn sent(&self) -> Option<(OutHeader, Vec<u8>)> {
        let mut message = [0; MESSAGE];
        let len = rustix::io::read(&self.kernel, &mut message).ok()?;
        let (header, _) = OutHeader::read_from_prefix(&message[..len]).unwrap();
        Some((header, message[OUT_HEADER..len].to_vec()))
    }

    /// The next `count` replies to requests, by number and error.
    fn replies(&self, count: usize) -> Vec<(u64, i32)> {
        let mut replies = Vec::new();
        wait_until("the writers are answered", || {
            let sent = self.sent().filter(|(header, _)| header.unique != 0);
            replies.extend(sent.map(|(header, _)| (header.unique, header.error)));
            replies.len() >= count
        });
        replies
    }

    /// Waits until the kernel was told `times` that its attributes of `node` are old.
    fn wait_for_arms(&self, node: u64, times: u32) {
        let mut seen = 0;
        wait_until("a file is armed again", || {
            let told = self.sent().is_some_and(|(header, body)| {
                let body = InvalInodeOut::read_from_prefix(&body);
                header.error == NOTIFY_INVAL_INODE && body.is_ok_and(|(b, _)| b.nodeid == node)
            });
            seen += u32::from(told);
            seen >= times
        });
    }

    /// What the kernel says when it is to write back.
    fn writes_back(&self, outcome: impl Fn() -> io::Result<()> + Send + 'static) {
        let drainer = Drainer::of(|| Ok(()), outcome).unwrap();
        *self.server.full.drainer.lock() = Some(drainer);
    }

    /// So many bytes more are dirty.
    fn dirty(&self, bytes: u64) {
        self.server.step(|admission| admission.dirty(bytes));
    }

    fn may_be_dirty(&self) -> u64 {
        self.server.full.admission.lock().may_be_dirty()
    }

    fn drains(&self) -> u64 {
        self.server.full.drains.load(Ordering::Relaxed)
    }
}

#[test]
fn writers_that_wait_are_admitted_one_by_one() {
    with_server(16, 3 * MIB / 2, |setup| {
        setup.writes_back(|| Ok(()));
        let (a, b) = (setup.open(b"a"), setup.open(b"b"));
        setup.dirty(MIB);
        // For the grant there is room, for another one beside it there is none.
        assert!(setup.ask(a, 2).is_none() && setup.ask(b, 4).is_none());
        thread::scope(|scope| {
            let _end = End(&setup.server);
            scope.spawn(|| setup.server.answer_writers());
            assert_eq!(setup.replies(2), [(2, 0), (4, 0)]);
        });
        // What the first was granted had to be written before the second: a drain at once, which
        // might come before the write, and one later.
        assert_eq!(setup.drains(), 3);
        assert_eq!(setup.may_be_dirty(), MIB);
    });
}

#[test]
fn after_a_drain_that_does_not_end_everything_counts_on() {
    with_server(16, 3 * MIB / 2, |setup| {
        setup.server.full.patience = Duration::from_millis(5);
        setup.writes_back(|| Ok(()));
        let file = setup.open(b"a");
        setup.dirty(2 * MIB);
        assert!(setup.ask(file, 2).is_none());
        // A request that no worker takes: it may be a WRITE of what was dirty.
        rustix::io::write(&setup.kernel, &[0; 80]).unwrap();
        thread::scope(|scope| {
            let _end = End(&setup.server);
            scope.spawn(|| setup.server.answer_writers());
            assert_eq!(setup.replies(1), [(2, NO_SPACE)]);
        });
        assert_eq!(setup.drains(), 2);
        assert_eq!(setup.may_be_dirty(), 2 * MIB, "what was dirty may still be");
    });
}

/// Pages that found no space are written back; those of which the kernel was not asked are not.
#[test]
fn only_what_the_kernel_has_tried_to_write_back_counts_no_more() {
    type Case = (fn() -> io::Result<()>, i32, u64);
    let cases: [Case; 3] = [
        (|| Ok(()), 0, MIB),
        (|| Err(rustix::io::Errno::NOSPC.into()), 0, MIB),
        (|| Err(io::ErrorKind::Unsupported.into()), NO_SPACE, 2 * MIB),
    ];
    for (outcome, error, left) in cases {
        with_server(16, 3 * MIB / 2, |setup| {
            setup.writes_back(outcome);
            let file = setup.open(b"a");
            setup.dirty(2 * MIB);
            assert!(setup.ask(file, 2).is_none());
            thread::scope(|scope| {
                let _end = End(&setup.server);
                scope.spawn(|| setup.server.answer_writers());
                assert_eq!(setup.replies(1), [(2, error)]);
            });
            assert_eq!(setup.may_be_dirty(), left);
        });
    }
}

/// More of them than there are workers: each ends with EINTR, no INTERRUPT is answered, and those
/// that go on waiting are admitted.
#[test]
fn writers_that_are_interrupted_leave_the_gate() {
    with_server(16, 3 * MIB / 2, |setup| {
        setup.writes_back(|| Ok(()));
        let file = setup.open(b"a");
        setup.dirty(MIB);
        let all: Vec<u64> = (1..=16).map(|number| 2 * number).collect();
        for &unique in &all {
            assert!(setup.ask(file, unique).is_none());
        }
        for &unique in &all[1..] {
            setup.interrupt(unique);
            // The kernel may give up on one twice, and on one that was answered.
            setup.interrupt(unique);
        }
        let left: Vec<_> = all[1..]
            .iter()
            .map(|&unique| (unique, INTERRUPTED))
            .collect();
        assert_eq!(setup.replies(15), left);
        let statfs = setup.serve(op::STATFS, crate::abi::ROOT_ID, 100, &[]);
        assert_eq!(statfs.map(|reply| reply.error), Some(0));
        thread::scope(|scope| {
            let _end = End(&setup.server);
            scope.spawn(|| setup.server.answer_writers());
            assert_eq!(setup.replies(1), [(2, 0)]);
        });
        assert_eq!(setup.drains(), 1, "for the one that went on waiting");
    });
}

/// While the kernel writes back for it, too.
#[test]
fn a_writer_that_is_interrupted_during_its_drain_leaves() {
    static WRITES_BACK: AtomicBool = AtomicBool::new(false);
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    with_server(16, 3 * MIB / 2, |setup| {
        setup.writes_back(|| {
            WRITES_BACK.store(true, Ordering::SeqCst);
            wait_until("the writer has left", || GOES_ON.load(Ordering::SeqCst));
            Ok(())
        });
        let file = setup.open(b"a");
        setup.dirty(MIB);
        assert!(setup.ask(file, 2).is_none());
        thread::scope(|scope| {
            let _end = End(&setup.server);
            scope.spawn(|| setup.server.answer_writers());
            wait_until("a drain", || WRITES_BACK.load(Ordering::SeqCst));
            setup.interrupt(2);
            assert_eq!(setup.replies(1), [(2, INTERRUPTED)]);
            GOES_ON.store(true, Ordering::SeqCst);
            // What was dirty is written back: the next one does not wait.
            wait_until("there is room", || setup.may_be_dirty() == 0);
        });
        assert_eq!(setup.ask(file, 4).map(|reply| reply.error), Some(0));
    });
}

/// Whether the interruption comes before a worker has the request, or after that and before the
/// request waits.
#[test]
fn an_interruption_that_comes_before_its_writer_waits_is_not_lost() {
    for is_early in [true, false] {
        with_server(16, 3 * MIB / 2, |setup| {
            let file = setup.open(b"a");
            setup.dirty(MIB);
            if is_early {
                setup.interrupt(2);
            }
            let _served = setup.in_flight.begin(0, 2);
            if !is_early {
                setup.interrupt(2);
            }
            assert!(setup.ask(file, 2).is_none());
            assert_eq!(setup.replies(1), [(2, INTERRUPTED)], "early: {is_early}");
        });
    }
}

/// A writer that leaves with EINTR while it is answered has not heard of a loss.
#[test]
fn a_writer_that_leaves_during_its_answer_is_told_of_a_loss_again() {
    with_server(16, MIB, |setup| {
        let file = setup.open(b"a");
        let writer = Writer {
            node: file.0,
            handle: file.1,
            thread: 7,
        };
        let server = &setup.server;
        server.step(|admission| admission.lose(file.0, Errno::IO));
        let told = server.full.admission.lock().told(writer);
        for _ in 0..2 {
            let outcome = server.ask(writer, Occasion::Last);
            assert!(matches!(outcome, Err(Errno::IO)), "it is told");
            // Its request is not parked any more.
            assert!(!server.answer(2, (writer, told), &[]));
        }
        assert!(matches!(server.ask(writer, Occasion::Last), Err(Errno::IO)));
        assert!(matches!(server.ask(writer, Occasion::Last), Ok(Some(_))));
    });
}

/// Seconds that the kernel may keep the attributes in the reply to a request.
fn seconds_valid(setup: &Setup<'_>, opcode: u32, node: u64, body: &[u8]) -> u64 {
    let (header, reply) = setup.reply(opcode, node, 2, body).unwrap();
    assert_eq!(header.error, 0, "{opcode}");
    let is_entry = matches!(opcode, op::LOOKUP | op::LINK | op::CREATE | op::MKDIR);
    match is_entry {
        true => EntryOut::read_from_prefix(&reply).unwrap().0.attr_valid,
        // STATX has it at the same place.
        false => AttrOut::read_from_prefix(&reply).unwrap().0.attr_valid,
    }
}

/// Replies to all that names a file or shows it.
#[test]
fn attributes_of_files_are_kept_while_there_is_space() {
    const LIMIT: u64 = 8 * MIB;
    for (mib, valid) in [(128, FOREVER), (48, 0)] {
        with_limit(mib, u64::MAX, LIMIT, |setup| {
            let (file, fh) = setup.open(b"a");
            let setattr = SetattrIn {
                valid: SetattrValid::MODE.bits(),
                mode: 0o640,
                ..SetattrIn::default()
            };
            let link = LinkIn { oldnodeid: file };
            let create = CreateIn {
                mode: 0o100_600,
                ..CreateIn::default()
            };
            let getattr = |getattr_flags| GetattrIn {
                getattr_flags,
                fh,
                ..GetattrIn::default()
            };
            let root = crate::abi::ROOT_ID;
            let requests: [(u32, u64, Vec<u8>); 6] = [
                (op::GETATTR, file, getattr(GETATTR_FH).as_bytes().to_vec()),
                (op::GETATTR, file, getattr(0).as_bytes().to_vec()),
                (op::SETATTR, file, setattr.as_bytes().to_vec()),
                (op::LOOKUP, root, b"a\0".to_vec()),
                (op::LINK, root, [link.as_bytes(), b"linked\0"].concat()),
                (op::CREATE, root, [create.as_bytes(), b"new\0"].concat()),
            ];
            for (opcode, node, body) in requests {
                assert_eq!(seconds_valid(setup, opcode, node, &body), valid, "{opcode}");
            }
            let mkdir = MkdirIn {
                mode: 0o755,
                umask: 0,
            };
            let body = [mkdir.as_bytes(), b"d\0"].concat();
            assert_eq!(
                seconds_valid(setup, op::MKDIR, root, &body),
                FOREVER,
                "no file"
            );
        });
    }
}

/// The kernel may have attributes of them from times of plenty.
#[test]
fn files_are_armed_when_space_becomes_short_and_when_they_are_opened_later() {
    with_limit(160, u64::MAX, 8 * MIB, |setup| {
        let (a, b) = (setup.open(b"a"), setup.open(b"b"));
        assert!(!setup.server.is_short() && setup.sent().is_none());
        let most = setup.volume.room(false) - 16 * MIB;
        let allocated = setup.allocate(b.0, 2, most);
        assert_eq!(allocated.map(|reply| reply.error), Some(0));
        setup.server.look_at_room();
        assert!(setup.server.is_short());
        thread::scope(|scope| {
            let _end = End(&setup.server);
            scope.spawn(|| setup.server.answer_writers());
            setup.wait_for_arms(a.0, 1);
        });
        let c = setup.open(b"c");
        setup.wait_for_arms(c.0, 1);
        // With space again, as soon as it is looked for.
        let node = setup.nodes.get(b.0).unwrap();
        let cut = extant_engine::SetAttr {
            size: Some(0),
            ..Default::default()
        };
        let cred = extant_engine::Cred::root();
        setup.volume.setattr(&node, &cut, &cred).unwrap();
        setup.volume.sync().unwrap();
        setup.server.look_at_room();
        assert!(!setup.server.is_short());
    });
}
