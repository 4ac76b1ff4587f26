//! Images that mke2fs makes are what they claim.

use extant_testkit::content::JUNK;
use extant_testkit::{Image, Need, need};

const TOOLS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
    Need::Tool("debugfs"),
];

#[test]
fn a_fresh_image_is_clean_and_says_what_it_is() {
    if !need(TOOLS) {
        return;
    }
    let i = Image::of_mib(16).args("-b 1024").make().unwrap();
    i.fsck_clean().unwrap();
    assert_eq!(i.block_size().unwrap(), 1024);
    assert!(!i.needs_recovery().unwrap());
    assert!(i.debugfs("stat <2>").unwrap().contains("directory"));
}

#[test]
fn damage_is_noticed_and_a_repair_is_not_taken_for_a_replay() {
    if !need(TOOLS) {
        return;
    }
    let i = Image::of_mib(16).make().unwrap();
    let before = i.fingerprint().unwrap();
    i.debugfs_write("set_inode_field <2> links_count 7")
        .unwrap();
    assert_ne!(i.fingerprint().unwrap(), before);
    assert!(i.fsck_clean().is_err());
    assert!(i.copy().unwrap().fsck_replay().is_err());
    assert_eq!(i.fsck_repair().unwrap().code, Some(1));
    i.fsck_clean().unwrap();
}

/// An orphan with a block of attributes, as a power cut leaves it in the middle of a truncation.
#[test]
fn an_orphan_that_e2fsck_miscounts_is_replayed() {
    if !need(TOOLS) {
        return;
    }
    let i = Image::of_mib(16).args("-b 4096 -I 128").make().unwrap();
    let requests = [
        "write /dev/null file",
        "ea_set file user.name value",
        "set_super_value last_orphan 12",
    ];
    for request in requests {
        i.debugfs_write(request).unwrap();
    }
    assert!(i.debugfs("stat <12>").unwrap().contains("Blockcount: 8"));
    i.copy().unwrap().fsck_replay().unwrap();
    i.debugfs_write("set_inode_field <11> links_count 7")
        .unwrap();
    assert!(i.fsck_replay().is_err(), "another repair beside it");
}

#[test]
fn junk_fills_what_mke2fs_leaves_alone() {
    if !need(TOOLS) {
        return;
    }
    let i = Image::of_mib(8).args("-b 4096").junk().make().unwrap();
    i.fsck_clean().unwrap();
    let junk = i
        .bytes(0, 8 << 20)
        .unwrap()
        .iter()
        .filter(|b| **b == JUNK)
        .count();
    assert!(junk > 2 << 20, "only {junk} bytes");
}

/// An image in use is copied between the writes of a bitmap and of the descriptor that has its
/// checksum.
#[test]
fn debugfs_reads_what_waits_for_a_replay_and_says_when_it_cannot() {
    if !need(TOOLS) {
        return;
    }
    let i = Image::of_mib(8).args("-b 1024").make().unwrap();
    let groups = i.debugfs("stats").unwrap();
    let (_, rest) = groups.split_once("block bitmap at ").unwrap();
    let (bitmap, _) = rest.split_once(',').unwrap();
    let at = bitmap.parse::<u64>().unwrap() * 1024;
    i.patch(at + 1000, 1, |byte| byte[0] ^= 0x10).unwrap();
    let refused = i.debugfs("stat <8>").unwrap_err().to_string();
    assert!(refused.contains("bitmap"), "{refused}");
    let found = i.debugfs_as_it_is("stat <8>").unwrap();
    assert!(found.contains("EXTENTS:"), "{found}");
}
