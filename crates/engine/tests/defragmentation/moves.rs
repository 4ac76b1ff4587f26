//! The exchange of blocks with a file of the caller's: its error rows, and what it does.

use std::ops::Range;

use extant_engine::{Cred, Error, FallocateMode, Node, SetAttr, Volume};
use extant_testkit::Image;

use crate::rig::{bytes, close, compare, create, options, runs};

/// A volume with two files of 20 blocks each.
struct Pair {
    image: Image,
    volume: Volume,
    orig: Node,
    donor: Node,
}

const WHOLE: Range<u64> = 0..20 * 1024;

impl Pair {
    fn new() -> Pair {
        let image = Image::of_mib(32).args("-b 1024").make().unwrap();
        let volume = options("").open(image.path()).unwrap();
        let make = |name: &str| {
            let node = create(&volume, name);
            for at in 0..20 {
                let data = bytes(at, 1024);
                volume
                    .write(&node, at * 1024, &data, &Cred::root())
                    .unwrap();
            }
            node
        };
        let (orig, donor) = (make("orig"), make("donor"));
        volume.sync().unwrap();
        Pair {
            image,
            volume,
            orig,
            donor,
        }
    }

    /// Asks for an exchange that fails with an error like `expected`, and changes neither file.
    fn fails(&self, (orig, donor): (&Node, &Node), range: Range<u64>, to: u64, expected: &Error) {
        let volume = &self.volume;
        let before = (runs(volume, orig), runs(volume, donor));
        let got = volume.move_extents(orig, donor, range, to).unwrap_err();
        let same = std::mem::discriminant(&got) == std::mem::discriminant(expected);
        assert!(same, "{got:?}, not {expected:?}");
        assert_eq!((runs(volume, orig), runs(volume, donor)), before);
    }

    /// Asks for an exchange with the donor as it is now.
    fn donor_fails(&self, expected: &Error) {
        self.fails((&self.orig, &self.donor), WHOLE, 0, expected);
    }

    fn close(self) {
        drop((self.orig, self.donor));
        close(&self.image, self.volume);
    }
}

#[test]
fn f_move_extents_refuses_the_ranges_that_linux_refuses() {
    let pair = Pair::new();
    let both = (&pair.orig, &pair.donor);
    pair.fails((&pair.orig, &pair.orig), WHOLE, 0, &Error::Invalid);
    let dir = pair.volume.root().unwrap();
    pair.fails((&pair.orig, &dir), WHOLE, 0, &Error::IsDir);
    let empty = create(&pair.volume, "empty");
    pair.fails((&pair.orig, &empty), WHOLE, 0, &Error::Invalid);
    pair.fails((&empty, &pair.donor), WHOLE, 0, &Error::Invalid);
    // Nothing, behind the end, behind the donor's end, another position in the page, parts of
    // blocks.
    pair.fails(both, 0..0, 0, &Error::Invalid);
    pair.fails(both, 40_960..50_000, 0, &Error::Invalid);
    pair.fails(both, WHOLE, 40_960, &Error::Invalid);
    pair.fails(both, 0..8192, 1024, &Error::Invalid);
    pair.fails(both, 100..8192, 100, &Error::Invalid);
    let hollow = create(&pair.volume, "hollow");
    let long = SetAttr {
        size: Some(20 * 1024),
        ..SetAttr::default()
    };
    pair.volume.setattr(&hollow, &long, &Cred::root()).unwrap();
    pair.fails((&hollow, &pair.donor), WHOLE, 0, &Error::NoAttribute);
    pair.fails((&pair.orig, &hollow), WHOLE, 0, &Error::NoAttribute);
    drop((dir, empty, hollow));
    pair.close();
}

#[test]
fn f_move_extents_refuses_the_donors_that_linux_refuses() {
    let pair = Pair::new();
    let (volume, donor, cred) = (&pair.volume, &pair.donor, Cred::root());
    let perm = |perm| SetAttr {
        perm: Some(perm),
        ..SetAttr::default()
    };
    for bits in [0o4755, 0o2755] {
        volume.setattr(donor, &perm(bits), &cred).unwrap();
        pair.donor_fails(&Error::Invalid);
    }
    volume.setattr(donor, &perm(0o644), &cred).unwrap();
    let flags = volume.flags(donor).unwrap();
    for flag in [0x10, 0x20] {
        volume.set_flags(donor, flags | flag, &cred).unwrap();
        pair.donor_fails(&Error::NotPermitted);
        volume.set_flags(donor, flags, &cred).unwrap();
    }
    pair.close();
}

#[test]
fn f_move_extents_moves_to_another_position_over_holes() {
    let pair = Pair::new();
    let (volume, orig, donor) = (&pair.volume, &pair.orig, &pair.donor);
    let hole = FallocateMode::PunchHole;
    volume
        .fallocate(donor, hole, 13 * 1024, 1024, &Cred::root())
        .unwrap();
    let moved = volume
        .move_extents(orig, donor, 4096..20 * 1024, 8192)
        .unwrap();
    assert_eq!(moved, 11 * 1024);
    compare(volume, orig, 20).unwrap();
    let mut buf = vec![0; 1024];
    for at in 8..20 {
        volume.read(donor, at * 1024, &mut buf).unwrap();
        let want = if at == 13 {
            vec![0; 1024]
        } else {
            bytes(at - 4, 1024)
        };
        assert!(buf == want, "block {at} of the donor");
    }
    pair.close();
}

#[test]
fn f_move_extents_is_refused_on_other_maps_and_data_modes() {
    let cred = Cred::root();
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
