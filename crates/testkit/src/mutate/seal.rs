//! Makes the checksums of an image right again, so that a mutation is not stopped by them.

use super::bytes::{be32, index, le16, low32, part, put};
use super::checksum::{crc16, feed};
use super::geometry::{Geometry, LogFormat};
use super::walk::{Found, Kind, copies};
use std::collections::HashMap;

/// Sets every checksum of the structures found. Bitmaps come before descriptors, copies in the log
/// before the tags that name them, superblocks last.
pub(super) fn seal(image: &mut [u8], g: &Geometry, found: &[Found]) {
    let of = |kinds: &'static [Kind]| found.iter().filter(move |f| kinds.contains(&f.kind));
    if g.metadata_csum() {
        for f in found {
            owned(image, g, f);
        }
        for f in of(&[Kind::Inode]) {
            inode(image, g, f);
        }
        for f in of(&[Kind::BlockBitmap, Kind::InodeBitmap]) {
            bitmap(image, g, f);
        }
    }
    journal(image, found);
    for f in of(&[Kind::Descriptor]) {
        descriptor(image, g, f);
    }
    if g.metadata_csum() {
        for f in of(&[Kind::Superblock, Kind::Backup]) {
            let sum = feed(!0, part(image, f.at, 0x3fc));
            put(image, f.at + 0x3fc, 4, false, u64::from(sum));
        }
    }
}

/// The blocks that belong to an inode.
fn owned(image: &mut [u8], g: &Geometry, f: &Found) {
    let bytes = part(image, f.at, f.len);
    let block = (f.at / g.block_size) as u64;
    let (at, sum) = match f.kind {
        Kind::ExtentNode => {
            let at = 12 + 12 * index(le16(bytes, 4));
            let seed = g.owner_seed(image, f.owner);
            (at, feed(seed, part(bytes, 0, at)))
        }
        Kind::DirLeaf => {
            let at = f.len.saturating_sub(12);
            let seed = g.owner_seed(image, f.owner);
            (at + 8, feed(seed, part(bytes, 0, at)))
        }
        Kind::DirRoot | Kind::DirNode => {
            let table = if f.kind == Kind::DirRoot { 0x20 } else { 8 };
            let (limit, count) = (index(le16(bytes, table)), index(le16(bytes, table + 2)));
            let tail = table + 8 * limit;
            let mut sum = feed(
                g.owner_seed(image, f.owner),
                part(bytes, 0, table + 8 * count),
            );
            sum = feed(sum, part(bytes, tail, 4));
            (tail + 4, feed(sum, &[0; 4]))
        }
        Kind::XattrBlock => {
            let mut sum = feed(g.seed, &block.to_le_bytes());
            sum = feed(sum, part(bytes, 0, 16));
            sum = feed(sum, &[0; 4]);
            (16, feed(sum, part(bytes, 20, f.len)))
        }
        Kind::OrphanBlock => {
            let at = f.len.saturating_sub(8);
            let sum = feed(g.owner_seed(image, f.owner), &block.to_le_bytes());
            (at + 4, feed(sum, part(bytes, 0, at)))
        }
        _ => return,
    };
    if at + 4 <= f.len {
        put(image, f.at + at, 4, false, u64::from(sum));
    }
}

fn inode(image: &mut [u8], g: &Geometry, f: &Found) {
    let high = f.len > 128 && le16(image, f.at + 128) >= 4;
    put(image, f.at + 0x7c, 2, false, 0);
    if high {
        put(image, f.at + 0x82, 2, false, 0);
    }
    let sum = feed(g.owner_seed(image, f.owner), part(image, f.at, f.len));
    put(image, f.at + 0x7c, 2, false, u64::from(sum));
    if high {
        put(image, f.at + 0x82, 2, false, u64::from(sum >> 16));
    }
}

fn bitmap(image: &mut [u8], g: &Geometry, f: &Found) {
    let (bits, low, uninit) = match f.kind {
        Kind::BlockBitmap => (g.clusters_per_group, 0x18, 2),
        _ => (u64::from(g.inodes_per_group), 0x1a, 1),
    };
    let sum = feed(g.seed, part(image, f.at, index(bits / 8).min(f.len)));
    let at = g.descriptor(f.owner);
    if le16(image, at + 0x12) & uninit != 0 {
        // What was never written is not read, nor is its checksum.
        return;
    }
    put(image, at + low, 2, false, u64::from(sum));
    if g.desc_size >= 64 {
        put(image, at + low + 0x20, 2, false, u64::from(sum >> 16));
    }
}

fn descriptor(image: &mut [u8], g: &Geometry, f: &Found) {
    const AT: usize = 0x1e;
    let number = f.owner.to_le_bytes();
    let bytes = part(image, f.at, f.len);
    let (before, after) = (part(bytes, 0, AT), part(bytes, AT + 2, f.len));
    let sum = if g.metadata_csum() {
        let sum = feed(feed(g.seed, &number), before);
        u64::from(feed(feed(sum, &[0; 2]), after))
    } else if g.gdt_csum() {
        let sum = crc16(crc16(crc16(!0, &g.uuid), &number), before);
        u64::from(crc16(sum, after))
    } else {
        return;
    };
    put(image, f.at + AT, 2, false, sum);
}

fn journal(image: &mut [u8], found: &[Found]) {
    let Some(sb) = found.iter().find(|f| f.kind == Kind::JournalSuper) else {
        return;
    };
    let format = LogFormat::of(image, sb.at);
    if !format.checksums {
        return;
    }
    put(image, sb.at + 0xfc, 4, false, 0);
    let sum = feed(!0, part(image, sb.at, 1024));
    put(image, sb.at + 0xfc, 4, true, u64::from(sum));
    let copies: HashMap<u64, &Found> = found
        .iter()
        .filter(|f| f.kind == Kind::JournalCopy)
        .map(|f| (f.place, f))
        .collect();
    for f in found {
        match f.kind {
            Kind::JournalDescriptor => {
                tags(image, &format, f, &copies);
                tail(image, &format, f);
            }
            Kind::JournalRevoke => tail(image, &format, f),
            Kind::JournalCommit => {
                put(image, f.at + 16, 4, true, 0);
                let sum = feed(format.uuid_seed, part(image, f.at, f.len));
                put(image, f.at + 16, 4, true, u64::from(sum));
            }
            _ => {}
        }
    }
}

/// The checksums of the copies that a descriptor names.
fn tags(image: &mut [u8], format: &LogFormat, f: &Found, found: &HashMap<u64, &Found>) {
    let sequence = low32(be32(image, f.at + 8)).to_be_bytes();
    let tags = format.tags(part(image, f.at, f.len));
    for (tag, copy) in tags.iter().zip(copies(format, index(f.place), tags.len())) {
        let Some(copy) = found.get(&(copy as u64)) else {
            continue;
        };
        let sum = feed(format.uuid_seed, &sequence);
        let sum = u64::from(feed(sum, part(image, copy.at, copy.len)));
        if format.v3 {
            put(image, f.at + tag + 12, 4, true, sum);
        } else {
            put(image, f.at + tag + 4, 2, true, sum);
        }
    }
}

fn tail(image: &mut [u8], format: &LogFormat, f: &Found) {
    let at = f.at + f.len.saturating_sub(4);
    put(image, at, 4, true, 0);
    let sum = feed(format.uuid_seed, part(image, f.at, f.len));
    put(image, at, 4, true, u64::from(sum));
}
