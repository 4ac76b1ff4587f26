//! The exchange of blocks with a file of the caller's: its error rows, and what it does.

use extant_engine::{Cred, Error, FallocateMode, Node, SetAttr};
use extant_testkit::Image;

use crate::rig::{bytes, close, compare, create, options, runs};

#[test]
fn f_move_extents_refuses_what_linux_refuses() {
    let image = Image::of_mib(32).args("-b 1024").make().unwrap();
    let volume = options("").open(image.path()).unwrap();
    let cred = Cred::root();
    let make = |name: &str| {
        let node = create(&volume, name);
        for at in 0..20 {
            volume
                .write(&node, at * 1024, &bytes(at, 1024), &cred)
                .unwrap();
        }
        node
    };
    let (orig, donor) = (make("orig"), make("donor"));
    let whole = 0..20 * 1024;
    let fails = |orig: &Node,
                 donor: &Node,
                 range: std::ops::Range<u64>,
                 to,
                 what: &str,
                 expected: Error| {
        let before = (runs(&volume, orig), runs(&volume, donor));
        let got = volume.move_extents(orig, donor, range, to).unwrap_err();
        let same = std::mem::discriminant(&got) == std::mem::discriminant(&expected);
        assert!(same, "{what}: {got:?}");
        assert_eq!(
            (runs(&volume, orig), runs(&volume, donor)),
            before,
            "{what}"
        );
    };
    volume.sync().unwrap();
    fails(
        &orig,
        &orig,
        whole.clone(),
        0,
        "one file twice",
        Error::Invalid,
    );
    let dir = volume.root().unwrap();
    fails(&orig, &dir, whole.clone(), 0, "a directory", Error::IsDir);
    let empty = create(&volume, "empty");
    fails(
        &orig,
        &empty,
        whole.clone(),
        0,
        "an empty donor",
        Error::Invalid,
    );
    fails(
        &empty,
        &donor,
        whole.clone(),
        0,
        "an empty file",
        Error::Invalid,
    );
    fails(&orig, &donor, 0..0, 0, "nothing", Error::Invalid);
    fails(
        &orig,
        &donor,
        40_960..50_000,
        0,
        "behind the end",
        Error::Invalid,
    );
    fails(
        &orig,
        &donor,
        whole.clone(),
        40_960,
        "behind the donor's end",
        Error::Invalid,
    );
    fails(
        &orig,
        &donor,
        0..8192,
        1024,
        "another place of the page",
        Error::Invalid,
    );
    fails(
        &orig,
        &donor,
        100..8192,
        100,
        "no whole blocks",
        Error::Invalid,
    );
    let hollow = create(&volume, "hollow");
    let long = SetAttr {
        size: Some(20 * 1024),
        ..SetAttr::default()
    };
    volume.setattr(&hollow, &long, &cred).unwrap();
    let nothing = Error::NoAttribute;
    fails(
        &hollow,
        &donor,
        whole.clone(),
        0,
        "a file without blocks",
        nothing.clone(),
    );
    fails(
        &orig,
        &hollow,
        whole.clone(),
        0,
        "a donor without blocks",
        nothing,
    );
    let perm = |perm| SetAttr {
        perm: Some(perm),
        ..SetAttr::default()
    };
    for bits in [0o4755, 0o2755] {
        volume.setattr(&donor, &perm(bits), &cred).unwrap();
        fails(
            &orig,
            &donor,
            whole.clone(),
            0,
            "a set-id donor",
            Error::Invalid,
        );
    }
    volume.setattr(&donor, &perm(0o644), &cred).unwrap();
    let flags = volume.flags(&donor).unwrap();
    for flag in [0x10, 0x20] {
        volume.set_flags(&donor, flags | flag, &cred).unwrap();
        fails(
            &orig,
            &donor,
            whole.clone(),
            0,
            "a protected donor",
            Error::NotPermitted,
        );
        volume.set_flags(&donor, flags, &cred).unwrap();
    }
    // And it works, at a place of its own, over holes of either.
    let punch = |node, at: u64| {
        volume
            .fallocate(node, FallocateMode::PunchHole, at * 1024, 1024, &cred)
            .unwrap();
    };
    punch(&donor, 13);
    let moved = volume
        .move_extents(&orig, &donor, 4096..20 * 1024, 8192)
        .unwrap();
    assert_eq!(moved, 11 * 1024);
    compare(&volume, &orig, 20).unwrap();
    let mut buf = vec![0; 1024];
    for at in 8..20 {
        volume.read(&donor, at * 1024, &mut buf).unwrap();
        let want = if at == 13 {
            vec![0; 1024]
        } else {
            bytes(at - 4, 1024)
        };
        assert!(buf == want, "block {at} of the donor");
    }
    drop((orig, donor, dir, empty, hollow));
    close(&image, volume);

    for (mkfs, mount) in [("-b 1024", "data=journal"), ("-t ext3 -b 1024", "")] {
        let image = Image::of_mib(32).args(mkfs).make().unwrap();
        let volume = options(mount).open(image.path()).unwrap();
        let (a, b) = (create(&volume, "a"), create(&volume, "b"));
        for node in [&a, &b] {
            volume.write(node, 0, &[1; 5000], &cred).unwrap();
        }
        let refused = volume.move_extents(&a, &b, 0..4096, 0);
        assert!(matches!(refused, Err(Error::NotSupported(_))), "{mount}");
        let refused = volume.defragment(&a, &cred, |_, _| {});
        assert!(matches!(refused, Err(Error::NotSupported(_))), "{mount}");
        drop((a, b));
        close(&image, volume);
    }
}
