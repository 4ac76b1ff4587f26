//! Refusals: row by row the code, and that nothing has changed. Where Linux is there, it gives the
//! same answer.

use std::fs::File;

use extant_engine::FallocateMode::*;
use extant_engine::{Attr, Cred, Extent, FallocateMode, FileKind, Node, Volume};
use extant_testkit::{Cmd, Image, Need, Subject, need};
use rustix::io::Errno;

use crate::world::{flags, open};

const ALLOCATE: FallocateMode = Allocate { keep_size: false };
const ZERO: FallocateMode = ZeroRange { keep_size: false };
const EVERY: [FallocateMode; 7] = [
    ALLOCATE,
    Allocate { keep_size: true },
    PunchHole,
    ZERO,
    ZeroRange { keep_size: true },
    CollapseRange,
    InsertRange,
];

const BLOCK: u64 = 1024;
/// Whole blocks, some of them holes, the last cut.
const SIZE: u64 = 40 * BLOCK + 300;
/// The longest that a file of such blocks can be.
const LIMIT: u64 = (u32::MAX as u64) * BLOCK;

/// One refusal: of which file, what, and why.
struct Row {
    name: &'static str,
    mode: FallocateMode,
    offset: u64,
    len: u64,
    errno: Errno,
}

/// The rows of a kind, for each mode.
fn each(
    modes: &[FallocateMode],
    name: &'static str,
    (offset, len): (u64, u64),
    errno: Errno,
) -> Vec<Row> {
    let row = |&mode| Row {
        name,
        mode,
        offset,
        len,
        errno,
    };
    modes.iter().map(row).collect()
}

fn rows() -> Vec<Row> {
    let moves = [CollapseRange, InsertRange];
    let all = [
        each(&EVERY, "plain", (0, 0), Errno::INVAL),
        each(&EVERY, "plain", (1 << 63, BLOCK), Errno::INVAL),
        each(&EVERY, "plain", (0, 1 << 63), Errno::INVAL),
        // What is wrong in itself comes before what is too large.
        each(&EVERY, "plain", (u64::MAX, 0), Errno::INVAL),
        each(&EVERY, "plain", (LIMIT, BLOCK), Errno::FBIG),
        each(&EVERY, "plain", (BLOCK, LIMIT), Errno::FBIG),
        each(&EVERY, "plain", ((1 << 63) - BLOCK, BLOCK), Errno::FBIG),
        each(&EVERY, "immutable", (0, BLOCK), Errno::PERM),
        // Space may be added to what may be added to.
        each(&EVERY[2..], "append-only", (0, BLOCK), Errno::PERM),
        // An older map is noticed before alignment is.
        each(
            &[ALLOCATE, ZERO, CollapseRange, InsertRange],
            "old-map",
            (100, 100),
            Errno::OPNOTSUPP,
        ),
        each(&moves, "plain", (BLOCK / 2, BLOCK), Errno::INVAL),
        each(&moves, "plain", (BLOCK, BLOCK / 2), Errno::INVAL),
        // The end of a file is for truncation.
        each(&[CollapseRange], "plain", (BLOCK, 40 * BLOCK), Errno::INVAL),
        each(&[CollapseRange], "whole", (BLOCK, 3 * BLOCK), Errno::INVAL),
        each(
            &[CollapseRange],
            "plain",
            (100 * BLOCK, BLOCK),
            Errno::INVAL,
        ),
        each(&[CollapseRange], "empty", (0, BLOCK), Errno::INVAL),
        each(&[InsertRange], "plain", (41 * BLOCK, BLOCK), Errno::INVAL),
        each(&[InsertRange], "whole", (4 * BLOCK, BLOCK), Errno::INVAL),
        each(&[InsertRange], "empty", (0, BLOCK), Errno::INVAL),
        // A place behind the end is worse than too much.
        each(
            &[InsertRange],
            "plain",
            (100 * BLOCK, LIMIT - 110 * BLOCK),
            Errno::INVAL,
        ),
        each(
            &[InsertRange],
            "plain",
            (0, LIMIT - 10 * BLOCK),
            Errno::FBIG,
        ),
        // The file would fit, what is allocated behind its end would not.
        each(&[InsertRange], "ahead", (0, 100 * BLOCK), Errno::INVAL),
    ];
    all.into_iter().flatten().collect()
}

/// Everything that may not change.
#[derive(PartialEq, Debug)]
struct State {
    attr: Attr,
    flags: u32,
    extents: Vec<Extent>,
    bytes: Vec<u8>,
}

fn state(volume: &Volume, node: &Node) -> State {
    let attr = volume.getattr(node).unwrap();
    let (mut bytes, mut extents) = (Vec::new(), Vec::new());
    if attr.kind == FileKind::Regular {
        bytes.resize(usize::try_from(attr.size).unwrap(), 0);
        volume.read(node, 0, &mut bytes).unwrap();
        extents = volume.map(node, 0).map(Result::unwrap).collect();
    }
    let attr = Attr {
        atime: attr.mtime,
        ..attr
    };
    State {
        attr,
        flags: volume.flags(node).unwrap(),
        extents,
        bytes,
    }
}

/// An image with a file for each name; `old-map` has a block map of the older kind.
fn furnished() -> Image {
    // A journal's blocks would move the old file about.
    let image = Image::of_mib(16)
        .args("-b 1024 -O ^extents,^64bit,^metadata_csum")
        .make()
        .unwrap();
    let source = image.path().with_extension("old");
    std::fs::write(&source, vec![5; 20_000]).unwrap();
    image
        .debugfs_write(&format!("write {} old-map", source.display()))
        .unwrap();
    Cmd::new("tune2fs")
        .args(["-O", "extents"])
        .arg(image.path())
        .ok()
        .unwrap();
    let volume = open(&image, true, "");
    let root = volume.root().unwrap();
    let cred = Cred::root();
    for (name, size) in [
        ("plain", SIZE),
        ("immutable", SIZE),
        ("append-only", SIZE),
        ("whole", 4 * BLOCK),
        ("empty", 0),
        ("ahead", 3 * BLOCK),
    ] {
        let node = volume.create(&root, name.as_bytes(), 0o644, &cred).unwrap();
        let bytes: Vec<u8> = (1..=u8::MAX)
            .cycle()
            .take(usize::try_from(size).unwrap())
            .collect();
        volume.write(&node, 0, &bytes, &cred).unwrap();
        if size > 20 * BLOCK {
            volume
                .fallocate(&node, PunchHole, 5 * BLOCK, 7 * BLOCK, &cred)
                .unwrap();
            volume
                .fallocate(&node, ZERO, 20 * BLOCK, 2 * BLOCK, &cred)
                .unwrap();
        }
        match name {
            "immutable" | "append-only" => {
                let more = if name == "immutable" { 0x10 } else { 0x20 };
                let flags = volume.flags(&node).unwrap() | more;
                volume.set_flags(&node, flags, &cred).unwrap();
            }
            "ahead" => {
                let keep = Allocate { keep_size: true };
                volume
                    .fallocate(&node, keep, LIMIT - 50 * BLOCK, BLOCK, &cred)
                    .unwrap();
            }
            _ => {}
        }
    }
    add_other_kinds(&volume);
    drop(root);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
    image
}

/// Makes what is not a regular file.
fn add_other_kinds(volume: &Volume) {
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    for (name, kind) in [
        ("pipe", FileKind::Fifo),
        ("socket", FileKind::Socket),
        ("device", FileKind::CharDevice),
    ] {
        volume
            .mknod(&root, name.as_bytes(), kind, 0o644, 0x103, &cred)
            .unwrap();
    }
    volume.symlink(&root, b"link", b"plain", &cred).unwrap();
    volume.mkdir(&root, b"dir", 0o755, &cred).unwrap();
}

/// Runs a row that must be refused, and changes nothing: neither what can be asked nor, once
/// everything is written, a byte of the image.
fn refused(image: &Image, volume: &Volume, row: &Row) {
    let what = format!("{}: {:?} {}+{}", row.name, row.mode, row.offset, row.len);
    let root = volume.root().unwrap();
    let node = volume.lookup(&root, row.name.as_bytes()).unwrap();
    let before = state(volume, &node);
    let handles = counter(volume, "handles");
    let print = image.fingerprint().unwrap();
    let got = volume.fallocate(&node, row.mode, row.offset, row.len, &Cred::root());
    let got = got.map_err(|error| error.errno());
    assert_eq!(got, Err(row.errno.raw_os_error()), "{what}");
    assert_eq!(state(volume, &node), before, "{what}");
    assert_eq!(counter(volume, "handles"), handles, "{what}: a handle");
    volume.sync().unwrap();
    assert_eq!(image.fingerprint().unwrap(), print, "{what}: the image");
}

fn counter(volume: &Volume, name: &str) -> u64 {
    let all = volume.stats();
    all.iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn iomap_06_07_what_is_refused_has_changed_nothing() {
    let image = furnished();
    for options in ["noatime", "noatime,nobuffered_iomap"] {
        let volume = open(&image, true, options);
        volume.sync().unwrap();
        for row in rows() {
            refused(&image, &volume, &row);
        }
        for (name, errno) in [
            ("dir", Errno::ISDIR),
            ("pipe", Errno::SPIPE),
            ("socket", Errno::NODEV),
            ("device", Errno::NODEV),
            ("link", Errno::NODEV),
        ] {
            for row in each(&EVERY, name, (0, BLOCK), errno) {
                refused(&image, &volume, &row);
            }
        }
        volume.unmount().unwrap();
    }
    image.fsck_clean().unwrap();
}

#[test]
fn linux_refuses_the_same() {
    if !need(&[Need::Root, Need::Loop, Need::Tool("tune2fs")]) {
        return;
    }
    let image = furnished();
    let mount = Subject::Ext4.mount(image.path(), "noatime").unwrap();
    for row in rows() {
        let what = format!("{}: {:?} {}+{}", row.name, row.mode, row.offset, row.len);
        // An immutable file cannot be opened for writing: that is where Linux says so.
        let mut options = File::options();
        let append = row.name == "append-only";
        let file = options
            .write(!append)
            .append(append)
            .open(mount.join(row.name));
        let got = match file {
            Ok(file) => rustix::fs::fallocate(&file, flags(row.mode), row.offset, row.len)
                .map_err(Errno::raw_os_error),
            Err(error) => Err(error.raw_os_error().unwrap()),
        };
        assert_eq!(got, Err(row.errno.raw_os_error()), "{what}");
    }
    mount.unmount().unwrap();
}

#[test]
fn what_a_whole_mount_refuses() {
    let image = furnished();
    let volume = open(&image, false, "");
    let plain = |volume: &Volume| volume.lookup(&volume.root().unwrap(), b"plain").unwrap();
    let run = |volume: &Volume, mode| {
        let done = volume.fallocate(&plain(volume), mode, 0, BLOCK, &Cred::root());
        done.map_err(|error| error.errno())
    };
    for mode in EVERY {
        assert_eq!(
            run(&volume, mode),
            Err(Errno::ROFS.raw_os_error()),
            "{mode:?}"
        );
    }
    volume.unmount().unwrap();
    drop(volume);

    let volume = open(&image, true, "");
    let node = plain(&volume);
    volume.shutdown(true).unwrap();
    for mode in EVERY {
        let done = volume.fallocate(&node, mode, 0, BLOCK, &Cred::root());
        let got = done.map_err(|error| error.errno());
        assert_eq!(got, Err(Errno::IO.raw_os_error()), "{mode:?}");
    }
}
