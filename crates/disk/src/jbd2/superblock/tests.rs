use super::*;
use JournalSuperblockError as E;

const BS: BlockSize = BlockSize::KIB1;

fn plain() -> JournalSuperblock {
    JournalSuperblock::new_empty(BS, 1024, [5; 16])
}

fn reparse(superblock: &JournalSuperblock) -> Result<JournalSuperblock, JournalSuperblockError> {
    JournalSuperblock::parse(&superblock.to_bytes(), BS, 1024)
}

#[test]
fn an_upgraded_superblock_reads_back_and_its_checksum_guards_it() {
    let mut sb = plain();
    assert!(sb.upgrade(true, true));
    assert!(!sb.upgrade(true, true));
    sb.set_tail(17, 99);
    let read = reparse(&sb).unwrap();
    assert_eq!((read.start(), read.sequence()), (17, 99));
    assert_eq!(read.format().checksums, Checksums::V3);
    assert!(read.format().wide);
    let mut bytes = sb.to_bytes();
    bytes[0x1b] ^= 1;
    assert!(matches!(
        JournalSuperblock::parse(&bytes, BS, 1024),
        Err(JournalSuperblockError::BadChecksum { .. })
    ));
}

#[test]
fn version_one_has_no_features_until_upgraded() {
    let mut bytes = plain().to_bytes();
    bytes[7] = 3;
    bytes[0x28..0x30].fill(0xff);
    let mut sb = JournalSuperblock::parse(&bytes, BS, 1024).unwrap();
    assert!(sb.incompat().is_empty());
    assert!(sb.upgrade(false, false));
    assert_eq!(reparse(&sb).unwrap().incompat(), Incompat::REVOKE);
}

#[test]
fn a_log_with_checksums_of_version_two_keeps_them() {
    let mut sb = plain();
    sb.raw.incompat = (Incompat::CHECKSUM_V2 | Incompat::ASYNC_COMMIT)
        .bits()
        .into();
    sb.raw.checksum_type = TYPE_CRC32C;
    assert!(sb.upgrade(false, true));
    let read = reparse(&sb).unwrap();
    assert_eq!(read.format().checksums, Checksums::V2);
    assert_eq!(read.incompat(), Incompat::CHECKSUM_V2 | Incompat::REVOKE);
}

type Damage = fn(&mut Raw);
type Expected = fn(&JournalSuperblockError) -> bool;

const DAMAGES: &[(Damage, Expected)] = &[
    (
        |r| r.header.kind = 1.into(),
        |e| matches!(e, E::NoSuperblock),
    ),
    (
        |r| r.incompat = 0x40.into(),
        |e| {
            matches!(
                e,
                E::UnknownFeatures {
                    incompat: 0x40,
                    ro_compat: 0
                }
            )
        },
    ),
    (
        |r| r.ro_compat = 1.into(),
        |e| {
            matches!(
                e,
                E::UnknownFeatures {
                    incompat: 0,
                    ro_compat: 1
                }
            )
        },
    ),
    (
        |r| r.incompat = 0x18.into(),
        |e| matches!(e, E::SeveralChecksums),
    ),
    (
        |r| r.incompat = 0x10.into(),
        |e| matches!(e, E::ChecksumType(0)),
    ),
    (
        |r| r.block_size = 4096.into(),
        |e| matches!(e, E::BlockSize { found: 4096, .. }),
    ),
    (
        |r| r.max_len = 1025.into(),
        |e| matches!(e, E::Geometry { end: 1025, .. }),
    ),
    (
        |r| r.first = 0.into(),
        |e| matches!(e, E::Geometry { first: 0, .. }),
    ),
    (
        |r| r.first = 1010.into(),
        |e| matches!(e, E::Geometry { .. }),
    ),
    (
        |r| (r.incompat, r.fast_commit_blocks) = (0x20.into(), (!0).into()),
        |e| matches!(e, E::Geometry { end: 0, .. }),
    ),
    (
        |r| r.start = 1024.into(),
        |e| matches!(e, E::Start { start: 1024, .. }),
    ),
];

#[test]
fn damage_is_named() {
    for (i, (damage, expected)) in DAMAGES.iter().enumerate() {
        let mut sb = plain();
        damage(&mut sb.raw);
        let error = JournalSuperblock::parse(sb.raw.as_bytes(), BS, 1024).unwrap_err();
        assert!(expected(&error), "case {i}: {error}");
    }
    let short = JournalSuperblock::parse(&[0; 1023], BS, 1024).unwrap_err();
    assert_eq!(short, E::Short);
}

#[test]
fn the_fast_commit_area_ends_the_log() {
    let mut sb = plain();
    assert!(sb.fast_commit_area().is_empty());
    sb.raw.incompat = Incompat::FAST_COMMIT.bits().into();
    assert_eq!((sb.end(), sb.fast_commit_area()), (768, 769..1024));
    sb.raw.fast_commit_blocks = 64.into();
    assert_eq!((sb.end(), sb.fast_commit_area()), (960, 961..1024));
}

#[test]
fn a_log_makes_room_for_fast_commits_or_stays_as_it_is() {
    const LEN: u32 = 2048;
    let large = || {
        let mut sb = plain();
        sb.set_len(LEN);
        sb
    };
    let mut sb = large();
    sb.raw.fast_commit_blocks = 64.into();
    assert!(sb.enable_fast_commits());
    assert_eq!(sb.fast_commit_area(), 1985..LEN);
    assert!(!sb.enable_fast_commits(), "it has one");
    let mut without = sb.clone();
    without.disable_fast_commits();
    assert_eq!(without.incompat(), plain().incompat());
    assert!(without.fast_commit_area().is_empty());
    // Readers want 1024 blocks beside the area, and it has one more than it uses.
    for blocks in [1, LEN - 1023, LEN, u32::MAX] {
        let mut sb = large();
        sb.raw.fast_commit_blocks = blocks.into();
        assert!(!sb.enable_fast_commits(), "{blocks} blocks");
        assert_eq!(sb.incompat(), plain().incompat());
    }
    let mut sb = large();
    sb.raw.fast_commit_blocks = 0.into();
    assert!(sb.enable_fast_commits());
    assert_eq!(sb.raw.fast_commit_blocks.get(), 256, "others refuse zero");
    let mut sb = large();
    sb.raw.fast_commit_blocks = (LEN - 1024).into();
    assert!(sb.enable_fast_commits());
    assert_eq!(sb.end(), 1024);
}
