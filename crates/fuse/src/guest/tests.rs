use std::sync::Mutex;
use std::time::Duration;

use extant_engine::VolumeOptions;
use extant_testkit::{Image, Need, need};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::abi::{
    AttrOut, CreateIn, EntryOut, FOPEN_KEEP_CACHE, GetxattrIn, InHeader, InitFlags, InitIn,
    InitOut, MAJOR, MINOR, MknodIn, OpenIn, OpenOut, OutHeader, ROOT_ID, WriteIn,
};

const INIT: InitIn = InitIn {
    major: MAJOR,
    minor: MINOR,
    max_readahead: 1 << 20,
    flags: u32::MAX,
};

fn request(opcode: u32, nodeid: u64, uid: u32, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let header = InHeader {
        len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
        opcode,
        unique: 7,
        nodeid,
        uid,
        ..InHeader::default()
    };
    [header.as_bytes(), &body].concat()
}

/// The error and the body of a reply.
fn parts(reply: &[u8]) -> (i32, Vec<u8>) {
    let (header, body) = OutHeader::read_from_prefix(reply).unwrap();
    assert_eq!((header.unique, header.len as usize), (7, reply.len()));
    (header.error, body.to_vec())
}

/// A volume, and the session of a guest with it.
fn with_session(work: impl FnOnce(&GuestVolume, &GuestSession<'_>)) {
    if !need(&[Need::Tool("mke2fs")]) {
        return;
    }
    let image = Image::of_mib(16).make().unwrap();
    let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
    let guest = GuestVolume::new(volume, 2, &MountOptions::default()).unwrap();
    let init = request(op::INIT, 0, 0, &[INIT.as_bytes(), &[0xff; 48]]);
    let session = guest.session(&init, |session, reply| {
        let (error, body) = parts(reply);
        assert_eq!(error, 0);
        let out = InitOut::read_from_bytes(&body).unwrap();
        // The guest keeps nothing dirty.
        let flags = InitFlags::from_bits_retain(out.flags.into());
        assert!(!flags.contains(InitFlags::WRITEBACK_CACHE));
        assert!(flags.contains(InitFlags::POSIX_ACL));
        work(&guest, session.unwrap());
    });
    session.unwrap();
    guest.close().unwrap();
    drop(image);
}

/// Serves a request with all the room that there is.
fn ask(session: &GuestSession<'_>, request: &[u8]) -> (i32, Vec<u8>) {
    let reply = Mutex::new(Vec::new());
    let mut room = vec![0; GuestVolume::REPLY_LEN];
    session.serve(1, request, &mut room, |bytes| {
        *reply.lock().unwrap() = bytes.to_vec();
        true
    });
    let reply = reply.into_inner().unwrap();
    parts(&reply)
}

fn made(session: &GuestSession<'_>, name: &[u8], mode: u32) -> EntryOut {
    let head = MknodIn {
        mode: 0o100_000 | mode,
        ..MknodIn::default()
    };
    let request = request(op::MKNOD, ROOT_ID, 0, &[head.as_bytes(), name, b"\0"]);
    let (error, body) = ask(session, &request);
    assert_eq!(error, 0);
    EntryOut::read_from_bytes(&body).unwrap()
}

/// A write clears set-id bits, of which a guest is not told: it asks each time.
#[test]
fn attributes_that_a_write_changes_are_not_kept() {
    with_session(|_, session| {
        assert!(made(session, b"plain", 0o755).attr_valid > 0);
        let entry = made(session, b"set", 0o4755);
        assert_eq!(entry.attr_valid, 0);
        let head = WriteIn {
            size: 1,
            write_flags: crate::abi::WRITE_KILL_SUIDGID,
            ..WriteIn::default()
        };
        let write = request(op::WRITE, entry.nodeid, 1000, &[head.as_bytes(), b"x"]);
        assert_eq!(ask(session, &write).0, 0);
        let (_, body) = ask(session, &request(op::GETATTR, entry.nodeid, 0, &[&[0; 16]]));
        let out = AttrOut::read_from_bytes(&body).unwrap();
        assert_eq!((out.attr.mode & 0o7777, out.attr_valid > 0), (0o755, true));
    });
}

/// An open for reading updates the time of access: the guest drops its pages, so that it asks.
#[test]
fn pages_are_dropped_where_the_time_of_access_is_news() {
    with_session(|_, session| {
        let entry = made(session, b"file", 0o644);
        let open = request(op::OPEN, entry.nodeid, 0, &[OpenIn::default().as_bytes()]);
        let flags = || {
            let (error, body) = ask(session, &open);
            assert_eq!(error, 0);
            OpenOut::read_from_bytes(&body).unwrap().open_flags
        };
        // The clock of inodes goes on.
        thread::sleep(Duration::from_millis(20));
        // As old as the last change, and up to date after that.
        assert_eq!((flags(), flags()), (0, FOPEN_KEEP_CACHE));
    });
}

#[test]
fn nothing_of_the_host_is_told_or_taken_for_the_guests() {
    with_session(|_, session| {
        let get = |uid, name: &[u8]| {
            let head = GetxattrIn {
                size: 60000,
                padding: 0,
            };
            let body: &[&[u8]] = &[head.as_bytes(), name, b"\0"];
            ask(session, &request(op::GETXATTR, ROOT_ID, uid, body)).0
        };
        assert!(get(0, crate::CONTROL_ATTRIBUTE.as_bytes()) < 0);
        assert_eq!(get(0, crate::STATS_ATTRIBUTE.as_bytes()), 0);
        assert_eq!(get(1000, crate::STATS_ATTRIBUTE.as_bytes()), -13);
    });
}

/// A reply that does not arrive names no node, and one that has no room is an error.
#[test]
fn replies_that_do_not_arrive_are_undone() {
    with_session(|_, session| {
        let head = CreateIn {
            flags: 1,
            mode: 0o100_644,
            ..CreateIn::default()
        };
        let create = request(op::CREATE, ROOT_ID, 0, &[head.as_bytes(), b"name\0"]);
        let mut room = vec![0; GuestVolume::LEAST_REPLY];
        let mut error = 0;
        session.serve(0, &create, &mut room, |reply| {
            error = parts(reply).0;
            true
        });
        assert!(error < 0, "{error}");
        let lookup = request(op::LOOKUP, ROOT_ID, 0, &[b"lost+found\0"]);
        let mut room = vec![0; GuestVolume::REPLY_LEN];
        let mut node = 0;
        session.serve(0, &lookup, &mut room, |reply| {
            let (_, body) = parts(reply);
            node = EntryOut::read_from_bytes(&body).unwrap().nodeid;
            false
        });
        let getattr = request(op::GETATTR, node, 0, &[&[0; 16]]);
        assert_eq!(ask(session, &getattr).0, Errno::STALE.negative());
    });
}

#[test]
fn requests_without_a_session_are_refused() {
    let lookup = request(op::LOOKUP, ROOT_ID, 0, &[b"name\0"]);
    assert_eq!(
        parts(&GuestVolume::refusal(&lookup)).0,
        Errno::IO.negative()
    );
    for silent in [op::FORGET, op::BATCH_FORGET] {
        assert!(GuestVolume::refusal(&request(silent, 1, 0, &[])).is_empty());
    }
    for garbage in [&[][..], &[1; 39], &[0xff; 200]] {
        assert!(GuestVolume::refusal(garbage).is_empty() && !GuestVolume::is_init(garbage));
    }
}

/// The end of a session is told, forgets have no reply, and a kernel that is too old gets none.
#[test]
fn a_session_ends_with_destroy() {
    with_session(|guest, session| {
        let silent = |request: &[u8]| {
            let mut room = vec![0; GuestVolume::LEAST_REPLY];
            let mut len = 1;
            let ends = session.serve(0, request, &mut room, |reply| {
                len = reply.len();
                true
            });
            (ends, len)
        };
        assert_eq!(silent(&request(op::FORGET, 12, 0, &[&[1; 8]])), (false, 0));
        assert_eq!(silent(b"no request"), (false, 0));
        assert_eq!(silent(&request(op::DESTROY, 0, 0, &[])), (true, 16));
        let old = InitIn { minor: 20, ..INIT };
        let old = request(op::INIT, 0, 0, &[old.as_bytes()]);
        let refused = guest.session(&old, |session, reply| (session.is_none(), parts(reply).0));
        assert_eq!(refused.unwrap(), (true, Errno::OPNOTSUPP.negative()));
    });
}
