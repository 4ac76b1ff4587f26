//! The journal's structures.

use extant_disk::jbd2::commit::Commit;
use extant_disk::jbd2::crc32::Crc32;
use extant_disk::jbd2::descriptor::{escape, needs_escape, unescape};
use extant_disk::jbd2::superblock::{JournalSuperblock, SUPERBLOCK_LEN};
use extant_disk::jbd2::{Checksums, Format, Header};

use super::parts::{block_size, padded};
use crate::feed::Feed;

pub(super) fn superblock(how: u8, feed: &mut Feed<'_>) {
    let bs = block_size(how);
    let len = u64::from(feed.u16()) * u64::from(1 + feed.u8() % 16);
    let mut block = padded(feed, SUPERBLOCK_LEN);
    if how & 4 != 0 {
        // Magic number, kind, block size, and the checksum as versions 2 and 3 have it.
        put(&mut block, 0, &0xc03b_3998_u32.to_be_bytes());
        put(&mut block, 4, &4_u32.to_be_bytes());
        let bytes = u32::try_from(bs.bytes()).unwrap_or(0);
        put(&mut block, 12, &bytes.to_be_bytes());
        put(&mut block, 0xfc, &[0; 4]);
        let sum = extant_disk::csum::Crc32c::START.feed(&block).raw();
        put(&mut block, 0xfc, &sum.to_be_bytes());
    }
    let Ok(mut sb) = JournalSuperblock::parse(&block, bs, len) else {
        return;
    };
    assert!(sb.first() > 0 && sb.end() > sb.first() && u64::from(sb.end()) <= len);
    let area = sb.fast_commit_area();
    assert!(area.is_empty() || area.start >= sb.end());
    assert!(u64::from(area.end) <= len);
    assert!(sb.start() == 0 || (sb.first()..sb.end()).contains(&sb.start()));
    let _ = (sb.errno(), sb.uuid(), sb.sequence(), sb.format());
    // What it writes it reads.
    sb.set_tail(sb.first(), feed.u32());
    sb.set_head(sb.first());
    sb.clear_errno();
    let bytes = sb.to_bytes();
    assert!(JournalSuperblock::parse(&bytes, bs, len).is_ok());
    sb.upgrade(how & 8 != 0, how & 16 != 0);
    let bytes = sb.to_bytes();
    assert!(JournalSuperblock::parse(&bytes, bs, len).is_ok());
}

pub(super) fn blocks(how: u8, feed: &mut Feed<'_>) {
    let format = Format {
        checksums: match how >> 2 & 3 {
            0 => Checksums::None,
            1 => Checksums::V1,
            2 => Checksums::V2,
            _ => Checksums::V3,
        },
        wide: how & 16 != 0,
        uuid: [how; 16],
    };
    let sequence = feed.u32();
    let block = if how & 32 != 0 {
        padded(feed, block_size(how).bytes())
    } else {
        feed.rest().to_vec()
    };
    let _ = (Header::parse(&block), format.tail_is_right(&block));
    // Tags: bounded by the block, and those that fit are written and read again.
    let tags: Vec<_> = format.tags(&block).collect();
    assert!(tags.len() * 8 <= block.len());
    let mut out = vec![0; block.len()];
    let fit = format.tags_per_block(out.len()).min(tags.len());
    if let Some(tags) = tags.get(..fit).filter(|tags| !tags.is_empty()) {
        format.write_descriptor(&mut out, sequence, tags);
        let read: Vec<_> = format.tags(&out).collect();
        let same = read
            .iter()
            .zip(tags)
            .all(|(a, b)| a.block == b.block && a.escaped == b.escaped);
        assert!(read.len() == tags.len() && same && format.tail_is_right(&out));
    }
    // Revoke records.
    let revoked: Vec<_> = format
        .revokes(&block)
        .map(Iterator::collect)
        .unwrap_or_default();
    assert!(revoked.len() * 4 <= block.len());
    let mut out = vec![0; block.len()];
    if revoked.len() <= format.revokes_per_block(out.len()) && !revoked.is_empty() {
        format.write_revokes(&mut out, sequence, &revoked);
        let read: Vec<_> = format
            .revokes(&out)
            .map(Iterator::collect)
            .unwrap_or_default();
        assert!(read == revoked && format.tail_is_right(&out));
    }
    // Commit blocks.
    let commit = Commit::parse(&block);
    let _ = commit.agrees_with(Crc32::START.feed(&block));
    let _ = format.commit_is_right(&block);
    let mut out = vec![0; block.len()];
    if out.len() >= 64 {
        format.write_commit(&mut out, sequence, commit.seconds, commit.nanoseconds);
        assert!(format.commit_is_right(&out));
    }
    // Copies.
    let mut copy = block;
    if needs_escape(&copy) {
        let before = copy.clone();
        escape(&mut copy);
        assert!(!needs_escape(&copy));
        unescape(&mut copy);
        assert!(copy == before);
    }
    let _ = format.copy_checksum(sequence, &copy);
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in block.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}
