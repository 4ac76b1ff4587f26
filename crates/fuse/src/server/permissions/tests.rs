use extant_engine::{Cred, SetAttr, Volume, VolumeOptions};
use extant_testkit::{Image, Need, need};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::abi::{AccessIn, CreateIn, OpenIn, OutHeader, ROOT_ID, SetxattrIn, op};
use crate::testing::{FuzzServer, with_server_beside};

const OWNER: u32 = 1000;
const GROUP: u32 = 50;
const ALL: u32 = 7;

/// Asks for an operation on the root directory; the error's number.
fn asked(server: &mut FuzzServer<'_>, uid: u32, opcode: u32, body: &[u8]) -> i32 {
    let mut header = InHeader {
        opcode,
        unique: 2,
        nodeid: ROOT_ID,
        uid,
        gid: GROUP,
        ..InHeader::default()
    };
    let len = header.as_bytes().len() + body.len();
    header.len = u32::try_from(len).unwrap();
    let reply = server
        .by_device(&[header.as_bytes(), body].concat())
        .unwrap();
    OutHeader::ref_from_prefix(&reply).unwrap().0.error
}

/// A volume whose root directory is [`OWNER`]'s.
fn owned(image: &Image, gid: u32, perm: u16) -> Volume {
    let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
    let changes = SetAttr {
        uid: Some(OWNER),
        gid: Some(gid),
        perm: Some(perm),
        ..SetAttr::default()
    };
    let root = volume.root().unwrap();
    volume.setattr(&root, &changes, &Cred::root()).unwrap();
    volume
}

/// The answers to listing, to creating a file, to access(2) for `mask`, and to chmod.
fn answers(server: &mut FuzzServer<'_>, uid: u32, mask: u32) -> [i32; 4] {
    let open = OpenIn::default();
    let create = [CreateIn::default().as_bytes(), b"f\0"].concat();
    let access = AccessIn { mask, padding: 0 };
    let chmod = SetattrIn {
        valid: SetattrValid::MODE.bits(),
        mode: 0o750,
        ..SetattrIn::default()
    };
    [
        asked(server, uid, op::OPENDIR, open.as_bytes()),
        asked(server, uid, op::CREATE, &create),
        asked(server, uid, op::ACCESS, access.as_bytes()),
        asked(server, uid, op::SETATTR, chmod.as_bytes()),
    ]
}

/// Nothing can be looked up here: neither groups nor capabilities.
#[test]
fn what_is_not_granted_is_refused() {
    if !need(&[Need::Tool("mke2fs")]) {
        return;
    }
    let (access, perm, nosys) = (Errno::ACCESS, Errno::PERM, Errno::NOSYS);
    let [access, perm, nosys] = [access, perm, nosys].map(Errno::negative);
    let image = Image::of_mib(16).make().unwrap();
    for (gid, mode, uid, mask, expected) in [
        (GROUP, 0o750, OWNER + 1, 5, [0, access, 0, perm]),
        (GROUP, 0o705, OWNER + 1, 1, [access, access, access, perm]),
        // Others may more than members of a group that cannot be found out.
        (
            GROUP + 1,
            0o705,
            OWNER + 1,
            1,
            [access, access, access, perm],
        ),
        (GROUP + 1, 0o775, OWNER + 1, ALL, [0, access, access, perm]),
        (GROUP + 1, 0o755, OWNER, ALL, [0, 0, 0, 0]),
        (GROUP, 0o077, OWNER, 0, [access, access, 0, 0]),
        (GROUP, 0o700, 0, 4, [access, access, access, perm]),
    ] {
        let volume = owned(&image, gid, mode);
        let told = with_server_beside(&volume, false, |server| answers(server, uid, mask));
        assert_eq!(told.unwrap(), expected, "{mode:o} of {gid}, by {uid}");
        let root = volume.root().unwrap();
        let _ = volume.unlink(&root, b"f");
        volume.unmount().unwrap();
    }
    let volume = owned(&image, GROUP, 0o700);
    let told = with_server_beside(&volume, true, |server| answers(server, OWNER + 1, ALL));
    assert_eq!(
        told.unwrap(),
        [nosys, 0, nosys, 0],
        "the kernel has checked"
    );
}

#[test]
fn an_open_wants_what_its_flags_say() {
    let wanted = [0, 1, 2, 3, FMODE_EXEC].map(wanted_by_open);
    assert_eq!(wanted, [READ, WRITE, READ | WRITE, READ | WRITE, EXECUTE]);
}

#[test]
fn capabilities_override_what_they_are_for() {
    let (all, search) = (CapabilitySet::DAC_OVERRIDE, CapabilitySet::DAC_READ_SEARCH);
    let (dir, file) = (FileKind::Directory, FileKind::Regular);
    for (capabilities, kind, perm, granted) in [
        (all, dir, 0, [READ, WRITE, EXECUTE, CHANGE_NAMES].as_slice()),
        (search, dir, 0, &[READ, EXECUTE, READ | EXECUTE]),
        (all, file, 0o600, &[READ, WRITE, READ | WRITE]),
        (all, file, 0o010, &[READ, WRITE, EXECUTE, READ | EXECUTE]),
        (search, file, 0o777, &[READ]),
        (CapabilitySet::FOWNER, dir, 0o777, &[]),
    ] {
        for wanted in [
            READ,
            WRITE,
            EXECUTE,
            READ | WRITE,
            READ | EXECUTE,
            CHANGE_NAMES,
        ] {
            let is_granted = overrides(capabilities, kind, perm, wanted);
            let expected = granted.contains(&wanted)
                || capabilities == all && (kind == dir || perm & ANY_EXECUTE != 0);
            assert_eq!(is_granted, expected, "{capabilities:?}, {kind:?}, {wanted}");
        }
    }
}

/// Reports of times are the kernel's, whatever the user; what a user asks for is told apart.
#[test]
fn reports_of_times_are_no_requests() {
    let report = SetattrValid::MTIME | SetattrValid::CTIME;
    assert!(is_report_of_times(report) && is_report_of_times(report | SetattrValid::FH));
    for of_users in [
        SetattrValid::ATIME,
        SetattrValid::MODE,
        SetattrValid::MTIME_NOW,
    ] {
        assert!(!is_report_of_times(report | of_users));
    }
    let now = SetattrValid::ATIME | SetattrValid::ATIME_NOW;
    assert!(!is_now(now) && !is_now(now | SetattrValid::MTIME));
    assert!(is_now(now | SetattrValid::MTIME | SetattrValid::MTIME_NOW));
}

/// An access ACL that a mode cannot stand for: a named user has an entry.
fn acl() -> Vec<u8> {
    const NO_ID: u32 = u32::MAX;
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [
        (1_u16, 7_u16, NO_ID),
        (2, 7, OWNER + 2),
        (4, 7, NO_ID),
        (16, 7, NO_ID),
        (32, 7, NO_ID),
    ] {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Before Linux 6.2 the kernel leaves it to the file system that an ACL is the owner's to change,
/// whatever the mode grants to others.
#[test]
fn acls_are_the_owners_to_change() {
    if !need(&[Need::Tool("mke2fs")]) {
        return;
    }
    let image = Image::of_mib(16).make().unwrap();
    let volume = owned(&image, GROUP, 0o777);
    let (name, value) = (b"system.posix_acl_access\0", acl());
    let head = SetxattrIn {
        size: u32::try_from(value.len()).unwrap(),
        ..SetxattrIn::default()
    };
    let set = [head.as_bytes(), name, &value].concat();
    let refused = Errno::PERM.negative();
    // The last one finds an ACL to remove, and none could be made before.
    for (uid, expected) in [
        (OWNER + 1, refused),
        (OWNER + 2, refused),
        (0, refused),
        (OWNER, 0),
    ] {
        let told = with_server_beside(&volume, false, |server| {
            [
                asked(server, uid, op::SETXATTR, &set),
                asked(server, uid, op::REMOVEXATTR, name),
            ]
        });
        assert_eq!(told.unwrap(), [expected; 2], "by {uid}");
    }
    volume.unmount().unwrap();
}

/// The kernel reports the times of a change that it has made, and takes no refusal. From a caller
/// that may neither set nor write the file such a report changes nothing.
#[test]
fn reported_times_of_a_file_that_the_caller_may_not_write_are_ignored() {
    if !need(&[Need::Tool("mke2fs")]) {
        return;
    }
    let image = Image::of_mib(16).make().unwrap();
    let report = SetattrValid::MTIME | SetattrValid::CTIME;
    let through_handle = report | SetattrValid::FH;
    for (time, (uid, mode, valid, kernel_checks, is_stored)) in (1000..).zip([
        (OWNER + 1, 0o755, report, false, false),
        (0, 0o755, report, false, false),
        (OWNER + 1, 0o775, report, false, true),
        (OWNER, 0o555, report, false, true),
        // A handle that may write was checked when it was made.
        (OWNER + 1, 0o755, through_handle, false, true),
        (OWNER + 1, 0o755, report, true, true),
    ]) {
        let volume = owned(&image, GROUP, mode);
        let times = SetattrIn {
            valid: valid.bits(),
            mtime: time,
            ctime: time,
            ..SetattrIn::default()
        };
        let told = with_server_beside(&volume, kernel_checks, |server| {
            asked(server, uid, op::SETATTR, times.as_bytes())
        });
        assert_eq!(told.unwrap(), 0, "{mode:o}, by {uid}: refused");
        let root = volume.root().unwrap();
        let stored = volume.getattr(&root).unwrap().mtime.secs == time;
        assert_eq!(stored, is_stored, "{mode:o}, by {uid}, {valid:?}");
        volume.unmount().unwrap();
    }
}
