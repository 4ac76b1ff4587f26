//! Descriptor blocks: a header, then one tag per copy that follows in the log.
//!
//! A tag takes 16 bytes with checksums v3, else 8, and 4 more with 64-bit block numbers, and 2 more
//! with checksums v2. Behind the first tag (each tag without the same-UUID flag, when reading)
//! stands a UUID.

use extant_units::Pblk;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockKind, Checksums, Format, HEADER_LEN, Header, MAGIC};

const UUID_LEN: usize = 16;

/// Bounds that [`Format::write_descriptor`] has checked when it writes a tag.
const FITS: &str = "the tag fits its block";

const FLAG_ESCAPED: u16 = 1;
const FLAG_SAME_UUID: u16 = 2;
const FLAG_LAST: u16 = 8;

/// A tag as stored with checksums v3.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
struct RawTag3 {
    block: U32,
    flags: U32,
    block_high: U32,
    checksum: U32,
}

/// A tag as stored otherwise. `block_high` is there with 64-bit block numbers only.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
struct RawTag {
    block: U32,
    checksum: U16,
    flags: U16,
}

const _: () = assert!(size_of::<RawTag3>() == 16);
const _: () = assert!(size_of::<RawTag>() == 8);

/// Home of one copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The block that the copy is of.
    pub block: Pblk,
    /// True if the copy's first four bytes, the magic number, were zeroed.
    pub escaped: bool,
    /// See [`Format::copy_checksum`]; meaningless without checksums v2 or v3.
    pub checksum: u32,
}

impl Format {
    const fn tag_len(&self) -> usize {
        let wide = if self.wide { 4 } else { 0 };
        match self.checksums {
            Checksums::V3 => size_of::<RawTag3>(),
            Checksums::V2 => size_of::<RawTag>() + wide + 2,
            Checksums::None | Checksums::V1 => size_of::<RawTag>() + wide,
        }
    }

    /// The tags that fit a descriptor block of `block_size` bytes.
    pub const fn tags_per_block(&self, block_size: usize) -> usize {
        // A block that is shorter than the header and the UUID holds none.
        let room = self
            .body_len(block_size)
            .saturating_sub(HEADER_LEN + UUID_LEN);
        room / self.tag_len()
    }

    /// The checksum of a copy as the tag stores it: over the sequence number and the bytes in the
    /// log, zero where tags have none.
    pub fn copy_checksum(&self, sequence: u32, copy: &[u8]) -> u32 {
        let whole = || self.seed().feed(&sequence.to_be_bytes()).feed(copy).raw();
        match self.checksums {
            Checksums::None | Checksums::V1 => 0,
            Checksums::V2 => whole() & 0xffff,
            Checksums::V3 => whole(),
        }
    }

    /// Writes a descriptor for `tags` into `block`, which is zeroed.
    ///
    /// # Panics
    /// There are more tags than [`Format::tags_per_block`]: a copy without a tag would be lost.
    pub fn write_descriptor(&self, block: &mut [u8], sequence: u32, tags: &[Tag]) {
        let most = self.tags_per_block(block.len());
        assert!(
            tags.len() <= most,
            "{} tags fit a descriptor block, not {}",
            most,
            tags.len()
        );
        let header = Header {
            kind: BlockKind::Descriptor,
            sequence,
        };
        header.write(block);
        let mut at = HEADER_LEN;
        for (i, tag) in tags.iter().enumerate() {
            let mut flags = 0;
            if tag.escaped {
                flags |= FLAG_ESCAPED;
            }
            if i > 0 {
                flags |= FLAG_SAME_UUID;
            }
            if i + 1 == tags.len() {
                flags |= FLAG_LAST;
            }
            self.write_tag(&mut block[at..], tag, flags);
            at += self.tag_len();
            if i == 0 {
                block[at..at + UUID_LEN].copy_from_slice(&self.uuid);
                at += UUID_LEN;
            }
        }
        self.seal(block);
    }

    fn write_tag(&self, at: &mut [u8], tag: &Tag, flags: u16) {
        let [low, high] = halves(tag.block);
        if self.checksums == Checksums::V3 {
            let raw = RawTag3 {
                block: low.into(),
                flags: u32::from(flags).into(),
                block_high: high.into(),
                checksum: tag.checksum.into(),
            };
            raw.write_to_prefix(at).expect(FITS);
            return;
        }
        let [_, _, c2, c3] = tag.checksum.to_be_bytes();
        let raw = RawTag {
            block: low.into(),
            checksum: u16::from_be_bytes([c2, c3]).into(),
            flags: flags.into(),
        };
        raw.write_to_prefix(at).expect(FITS);
        if self.wide {
            U32::new(high).write_to_prefix(&mut at[8..]).expect(FITS);
        }
    }

    /// The tags of a descriptor block, up to the one marked as last or the end of the block.
    pub fn tags<'a>(&'a self, block: &'a [u8]) -> impl Iterator<Item = Tag> + 'a {
        let body = &block[..self.body_len(block.len())];
        let mut at = Some(HEADER_LEN);
        std::iter::from_fn(move || {
            let start = at?;
            let bytes = body.get(start..start + self.tag_len())?;
            let (tag, flags) = self.read_tag(bytes)?;
            let uuid = if flags & FLAG_SAME_UUID == 0 {
                UUID_LEN
            } else {
                0
            };
            at = (flags & FLAG_LAST == 0).then_some(start + self.tag_len() + uuid);
            Some(tag)
        })
    }

    fn read_tag(&self, bytes: &[u8]) -> Option<(Tag, u16)> {
        let (low, high, flags, checksum) = if self.checksums == Checksums::V3 {
            let (raw, _) = RawTag3::ref_from_prefix(bytes).ok()?;
            let [_, _, f2, f3] = raw.flags.get().to_be_bytes();
            let flags = u16::from_be_bytes([f2, f3]);
            (raw.block, raw.block_high.get(), flags, raw.checksum.get())
        } else {
            let (raw, rest) = RawTag::ref_from_prefix(bytes).ok()?;
            let high = if self.wide {
                U32::read_from_prefix(rest).ok()?.0.get()
            } else {
                0
            };
            (
                raw.block,
                high,
                raw.flags.get(),
                u32::from(raw.checksum.get()),
            )
        };
        let high = if self.wide { u64::from(high) } else { 0 };
        let tag = Tag {
            block: Pblk::new(high << 32 | u64::from(low.get())),
            escaped: flags & FLAG_ESCAPED != 0,
            checksum,
        };
        Some((tag, flags))
    }
}

/// The low and the high half of a block number.
fn halves(block: Pblk) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = block.get().to_be_bytes();
    [
        u32::from_be_bytes([e, f, g, h]),
        u32::from_be_bytes([a, b, c, d]),
    ]
}

/// Returns whether a block must be escaped in the log: it begins like a header.
pub fn needs_escape(data: &[u8]) -> bool {
    data.starts_with(&MAGIC.to_be_bytes())
}

/// Escapes a copy: zeroes its first four bytes.
pub fn escape(copy: &mut [u8]) {
    if let Some(magic) = copy.first_chunk_mut::<4>() {
        *magic = [0; 4];
    }
}

/// Undoes [`escape`].
pub fn unescape(copy: &mut [u8]) {
    if let Some(magic) = copy.first_chunk_mut::<4>() {
        *magic = MAGIC.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formats() -> impl Iterator<Item = Format> {
        [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3]
            .into_iter()
            .flat_map(|checksums| {
                [false, true].map(|wide| Format {
                    checksums,
                    wide,
                    uuid: *b"0123456789abcdef",
                })
            })
    }

    #[test]
    fn tags_have_their_published_sizes() {
        let sizes: Vec<usize> = formats().map(|format| format.tag_len()).collect();
        assert_eq!(sizes, [8, 12, 8, 12, 10, 14, 16, 16]);
    }

    #[test]
    fn full_descriptors_read_back_in_every_format() {
        for format in formats() {
            let high = if format.wide { 5 << 32 } else { 0 };
            let mask = match format.checksums {
                Checksums::V3 => !0,
                _ => 0xffff,
            };
            let tags: Vec<Tag> = (0..format.tags_per_block(1024) as u64)
                .map(|i| Tag {
                    block: Pblk::new(high + i * 7),
                    escaped: i % 3 == 0,
                    checksum: 0x9876_5432 & mask,
                })
                .collect();
            for count in [1, 2, tags.len()] {
                let mut block = vec![0; 1024];
                format.write_descriptor(&mut block, 9, &tags[..count]);
                assert!(format.tail_is_right(&block));
                let read: Vec<Tag> = format.tags(&block).collect();
                assert_eq!(read, tags[..count], "{format:?}");
                block[30] ^= 1;
                assert_eq!(format.tail_is_right(&block), !format.has_block_checksums());
            }
        }
    }

    #[test]
    #[should_panic(expected = "tags fit a descriptor block")]
    fn a_tag_too_many_is_refused() {
        let format = formats().next().unwrap();
        let tag = Tag {
            block: Pblk::new(1),
            escaped: false,
            checksum: 0,
        };
        let tags = vec![tag; format.tags_per_block(1024) + 1];
        format.write_descriptor(&mut vec![0; 1024], 9, &tags);
    }

    #[test]
    fn garbage_ends_at_the_end_of_the_block() {
        for format in formats() {
            for fill in [0, 0xff, 0xf7] {
                let block = vec![fill; 1024];
                assert!(format.tags(&block).count() <= 1024 / format.tag_len());
                assert_eq!(format.tags(&block[..13]).count(), 0);
            }
        }
    }

    #[test]
    fn escaping_is_undone() {
        let mut block = *b"\xc0\x3b\x39\x98rest";
        assert!(needs_escape(&block));
        escape(&mut block);
        assert_eq!(&block, b"\0\0\0\0rest");
        assert!(!needs_escape(&block));
        unescape(&mut block);
        assert!(needs_escape(&block));
    }
}
