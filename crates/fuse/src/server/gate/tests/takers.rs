//! Operations that take space by name.

use super::*;

/// The kernel has accepted a write; another process takes all space by name before the write-back.
#[test]
fn what_takes_space_by_name_leaves_what_was_accepted() {
    with_server(16, 3 * MIB / 2, |setup| {
        let (a, b) = (setup.open(b"a"), setup.open(b"b"));
        setup.dirty(MIB);
        let node = setup.nodes.get(a.0).unwrap();
        let accepted = vec![7; 1 << 20];
        let dirty = Mutex::new(Some((setup.volume.clone(), node.clone(), accepted.clone())));
        setup.writes_back(move || {
            if let Some((volume, node, data)) = dirty.lock().unwrap().take() {
                let cred = extant_engine::Cred::root();
                let write = || volume.write_back(&node, 0, &data, &cred);
                volume.dirty_bound().spending(u64::MAX, write).unwrap();
            }
            Ok(())
        });
        assert!(setup.allocate(b.0, 2, MIB).is_none(), "it waits");
        assert_eq!(setup.reply_after_drains(), (2, NO_SPACE));
        let mut there = vec![0; accepted.len()];
        assert_eq!(
            setup.volume.read(&node, 0, &mut there).unwrap(),
            there.len()
        );
        assert!(there == accepted);
        assert_eq!(setup.may_be_dirty(), 0);
        // What is left it may have while no other file is written, and with nothing dirty a refusal
        // does not wait.
        setup.server.closed_for_writing(a.0, a.1);
        let allocated = |unique, len| setup.allocate(b.0, unique, len).map(|reply| reply.error);
        assert_eq!(allocated(4, MIB / 4), Some(0));
        assert_eq!(allocated(6, MIB), Some(NO_SPACE));
    });
}

/// Each kind of operation that takes blocks waits until the kernel has written back, and then gets
/// them: nothing was dirty.
#[test]
fn what_fits_after_the_write_back_is_carried_out() {
    let zero = FallocateIn {
        length: 8192,
        mode: 0x10,
        ..FallocateIn::default()
    };
    let write = WriteIn {
        size: 4096,
        flags: DIRECT,
        ..WriteIn::default()
    };
    let setxattr = SetxattrIn {
        size: 2000,
        ..SetxattrIn::default()
    };
    let mkdir = MkdirIn {
        mode: 0o755,
        umask: 0,
    };
    let (page, target) = ([1; 4096], [b't'; 200]);
    let operations: [(u32, Vec<u8>); 6] = [
        (
            op::FALLOCATE,
            FallocateIn { mode: 0, ..zero }.as_bytes().to_vec(),
        ),
        (op::FALLOCATE, zero.as_bytes().to_vec()),
        (op::WRITE, [write.as_bytes(), &page].concat()),
        (
            op::SETXATTR,
            [setxattr.as_bytes(), b"user.a\0", &page[..2000]].concat(),
        ),
        (op::MKDIR, [mkdir.as_bytes(), b"d\0"].concat()),
        (op::SYMLINK, [b"s\0", &target[..], b"\0"].concat()),
    ];
    for (opcode, body) in operations {
        with_server(16, MIB, |setup| {
            setup.writes_back(|| Ok(()));
            let (_, b) = (setup.open(b"a"), setup.open(b"b"));
            setup.dirty(2 * MIB);
            let in_root = matches!(opcode, op::MKDIR | op::SYMLINK);
            let node = if in_root { crate::abi::ROOT_ID } else { b.0 };
            let reply = setup.serve(opcode, node, 2, &body);
            assert!(reply.is_none(), "{opcode}: {reply:?}");
            assert!(setup.server.is_short() && setup.server.full.parking.has_takers());
            assert_eq!(setup.reply_after_drains(), (2, 0), "{opcode}");
            assert!(!setup.server.full.parking.has_takers());
        });
    }
}

#[test]
fn an_operation_that_waits_for_space_can_be_interrupted() {
    with_server(16, MIB, |setup| {
        let (_, b) = (setup.open(b"a"), setup.open(b"b"));
        setup.dirty(2 * MIB);
        assert!(setup.allocate(b.0, 2, MIB).is_none());
        setup.interrupt(2);
        assert_eq!(setup.replies(1), [(2, INTERRUPTED)]);
        assert!(!setup.server.full.parking.has_takers());
    });
}

/// The kernel may keep pages locked for one, which the write-back needs.
#[test]
fn a_write_does_not_wait_for_a_drain_that_does_not_end() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    with_server(16, MIB, |setup| {
        setup.server.full.patience_of_writes = Duration::from_millis(5);
        setup.writes_back(|| {
            wait_until("the write is answered", || GOES_ON.load(Ordering::SeqCst));
            Ok(())
        });
        let (_, b) = (setup.open(b"a"), setup.open(b"b"));
        setup.dirty(2 * MIB);
        let write = WriteIn {
            size: 4096,
            flags: DIRECT,
            ..WriteIn::default()
        };
        let body = [write.as_bytes(), &[1; 4096]].concat();
        assert!(setup.serve(op::WRITE, b.0, 2, &body).is_none());
        assert!(setup.allocate(b.0, 4, MIB / 4).is_none());
        thread::scope(|scope| {
            let _end = End(&setup.server);
            scope.spawn(|| setup.server.answer_writers());
            assert_eq!(setup.replies(1), [(2, NO_SPACE)]);
            GOES_ON.store(true, Ordering::SeqCst);
            assert_eq!(setup.replies(1), [(4, 0)]);
        });
    });
}

/// As long as there is space, writers are not asked: what they may have dirtied counts all the
/// same.
#[test]
fn what_writers_dirtied_unasked_counts() {
    const LIMIT: u64 = 8 * MIB;
    with_limit(128, u64::MAX, LIMIT, |setup| {
        setup.writes_back(|| Ok(()));
        let (_, b) = (setup.open(b"a"), setup.open(b"b"));
        assert!(!setup.server.is_short());
        assert_eq!(setup.may_be_dirty(), LIMIT);
        let room = setup.volume.room(false);
        let allocated = setup.allocate(b.0, 2, room - LIMIT - 2 * MIB);
        assert_eq!(
            allocated.map(|reply| reply.error),
            Some(0),
            "it leaves enough"
        );
        assert!(setup.allocate(b.0, 4, room - 2 * MIB).is_none());
        assert!(setup.server.is_short(), "writers are asked");
        assert_eq!(setup.may_be_dirty(), LIMIT);
        assert_eq!(setup.reply_after_drains(), (4, 0));
        assert_eq!(setup.may_be_dirty(), 0);
    });
}

/// The reply to a new directory `d` in the root.
fn mkdir(setup: &Setup<'_>, unique: u64) -> Option<i32> {
    let mkdir = MkdirIn {
        mode: 0o755,
        umask: 0,
    };
    let body = [mkdir.as_bytes(), b"d\0"].concat();
    let reply = setup.serve(op::MKDIR, crate::abi::ROOT_ID, unique, &body);
    reply.map(|reply| reply.error)
}

#[test]
fn what_no_write_back_would_help_is_refused_at_once() {
    with_server(16, MIB, |setup| {
        let (_, b) = (setup.open(b"a"), setup.open(b"b"));
        setup.dirty(2 * MIB);
        let setxattr = SetxattrIn {
            size: 5000,
            ..SetxattrIn::default()
        };
        let body = [setxattr.as_bytes(), b"user.a\0", &[1; 5000]].concat();
        let reply = setup.serve(op::SETXATTR, b.0, 2, &body);
        assert_eq!(reply.map(|reply| reply.error), Some(NO_SPACE));
        assert!(!setup.server.full.parking.has_takers());
    });
}

/// The kernel holds pages locked for it.
#[test]
fn a_write_through_leaves_what_was_accepted_and_does_not_wait() {
    with_server(16, MIB, |setup| {
        let (a, b) = (setup.open(b"a"), setup.open(b"b"));
        let write = WriteIn {
            size: 4096,
            ..WriteIn::default()
        };
        let body = [write.as_bytes(), &[1; 4096]].concat();
        let written = |unique| {
            let reply = setup.serve(op::WRITE, b.0, unique, &body);
            reply.map(|reply| reply.error)
        };
        setup.dirty(3 * MIB / 2);
        assert_eq!(written(2), Some(NO_SPACE));
        setup.server.closed_for_writing(a.0, a.1);
        assert_eq!(written(4), Some(0));
    });
}

/// They may not wait, and take a few blocks.
#[test]
fn changes_of_attributes_need_not_leave_what_is_dirty() {
    with_server(16, MIB, |setup| {
        let (a, b) = (setup.open(b"a"), setup.open(b"b"));
        // Both share a block, which a change has to copy.
        let cred = extant_engine::Cred::root();
        for id in [a.0, b.0] {
            let node = setup.nodes.get(id).unwrap();
            for (name, len) in [(b"user.a", 2000), (b"user.b", 500)] {
                let mode = extant_engine::XattrMode::Either;
                let value = vec![1; len];
                (setup.volume)
                    .setxattr(&node, name, &value, mode, &cred)
                    .unwrap();
            }
        }
        setup.dirty(2 * MIB);
        let reply = setup.serve(op::REMOVEXATTR, b.0, 2, b"user.b\0");
        assert_eq!(reply.map(|reply| reply.error), Some(0));
    });
}

/// Data that may be dirty would count for ever.
#[test]
fn where_the_kernel_cannot_be_made_to_write_back_nothing_is_left() {
    let null = std::fs::File::open("/dev/null").unwrap().into();
    let point = Connection::handed_over(null, "/nowhere".as_ref()).0.point;
    with_point(point, (16, MIB, 1 << 30), |setup| {
        let _open = (setup.open(b"a"), setup.open(b"b"));
        setup.dirty(2 * MIB);
        assert_eq!(mkdir(setup, 2), Some(0));
    });
}

#[test]
fn writers_let_operations_go_first_that_wait_for_space() {
    with_server(160, u64::MAX, |setup| {
        setup.writes_back(|| Ok(()));
        let (a, b) = (setup.open(b"a"), setup.open(b"b"));
        let left = setup.volume.room(false) - setup.may_be_dirty();
        setup.dirty(left - 40 * MIB);
        assert!(setup.allocate(b.0, 2, 50 * MIB).is_none());
        assert!(setup.ask(a, 4).is_none(), "there is room for a tick");
        thread::scope(|scope| {
            let _end = End(&setup.server);
            scope.spawn(|| setup.server.answer_writers());
            assert_eq!(setup.replies(2), [(2, 0), (4, 0)]);
        });
    });
}

/// Dirty data keeps its space until it is written back.
#[test]
fn an_operation_on_names_that_has_waited_leaves_the_last_bytes_alone() {
    for (drains, left, outcome) in [
        (true, MIB, 0),
        (true, MIB / 4, NO_SPACE),
        (false, MIB, NO_SPACE),
    ] {
        with_server(16, left, |setup| {
            setup.writes_back(move || match drains {
                true => Ok(()),
                false => Err(io::Error::other("not now")),
            });
            let _open = (setup.open(b"a"), setup.open(b"b"));
            setup.dirty(2 * MIB);
            assert_eq!(mkdir(setup, 2), None);
            thread::scope(|scope| {
                let _end = End(&setup.server);
                scope.spawn(|| setup.server.answer_writers());
                assert_eq!(setup.replies(1), [(2, outcome)], "{left} left");
            });
        });
    }
}
