//! Features and configuration space of a block device, as the specification of virtio numbers
//! them.

/// Unit of the protocol's offsets and lengths in bytes, whatever the device's blocks are.
pub(crate) const SECTOR: u64 = 512;
/// Sectors that one segment of a discard, or of a write of zeros, may name: 1 GiB.
pub(crate) const MAX_SEGMENT_SECTORS: u32 = 1 << 21;
/// Segments of such a request.
pub(crate) const MAX_SEGMENTS: u32 = 64;

/// Numbers of features.
const SEG_MAX: u32 = 2;
const READ_ONLY: u32 = 5;
const BLOCK_SIZE: u32 = 6;
const FLUSH: u32 = 9;
const TOPOLOGY: u32 = 10;
const MULTI_QUEUE: u32 = 12;
const DISCARD: u32 = 13;
const WRITE_ZEROES: u32 = 14;
pub(crate) const INDIRECT: u32 = 28;
pub(crate) const EVENT_IDX: u32 = 29;
pub(crate) const PROTOCOL_FEATURES: u32 = 30;
pub(crate) const VERSION_1: u32 = 32;

/// Bytes of the configuration space.
const LEN: usize = 60;
/// Bytes of it that a monitor may ask for; what is behind [`LEN`] reads as zeros.
const MOST: usize = 256;
/// Buffers of a request: the largest queue less the header and the status.
const MAX_BUFFERS: u32 = 254;
/// Physical blocks have so many sectors, as a power of two: 4096 bytes.
const PHYSICAL_BLOCK_EXP: u8 = 3;

/// The feature bits of a device that is only read, or not, and whose writes are durable when they
/// are answered, or not.
pub(crate) fn features(read_only: bool, write_through: bool) -> u64 {
    let always = [
        SEG_MAX,
        BLOCK_SIZE,
        TOPOLOGY,
        MULTI_QUEUE,
        INDIRECT,
        EVENT_IDX,
        PROTOCOL_FEATURES,
        VERSION_1,
    ];
    let more: &[u32] = match read_only {
        true => &[READ_ONLY],
        false => &[DISCARD, WRITE_ZEROES],
    };
    let flush: &[u32] = if write_through { &[] } else { &[FLUSH] };
    let all = always.iter().chain(more).chain(flush);
    all.fold(0, |bits, number| bits | 1 << number)
}

/// Returns whether the driver flushes what has to be durable. Otherwise each write is to be durable
/// when it is answered.
pub(crate) fn driver_flushes(features: u64) -> bool {
    features & 1 << FLUSH != 0
}

/// A part of the configuration space of a device of `sectors`, with `queues`; nothing if it lies
/// outside.
pub(crate) fn config(sectors: u64, queues: u16, offset: u32, size: u32) -> Vec<u8> {
    let mut space = [0; MOST];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &sectors.to_le_bytes());
    put(12, &MAX_BUFFERS.to_le_bytes());
    put(20, &u32::try_from(SECTOR).unwrap_or(512).to_le_bytes());
    put(24, &[PHYSICAL_BLOCK_EXP]);
    put(26, &1_u16.to_le_bytes());
    put(34, &queues.to_le_bytes());
    put(36, &MAX_SEGMENT_SECTORS.to_le_bytes());
    put(40, &MAX_SEGMENTS.to_le_bytes());
    put(44, &(1_u32 << PHYSICAL_BLOCK_EXP).to_le_bytes());
    put(48, &MAX_SEGMENT_SECTORS.to_le_bytes());
    put(52, &MAX_SEGMENTS.to_le_bytes());
    // A write of zeros may deallocate.
    put(56, &[1]);
    const _: () = assert!(LEN <= MOST, "the space is in what may be asked for");
    let range = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
    let range = range.and_then(|(from, len)| Some(from..from.checked_add(len)?));
    range
        .and_then(|range| space.get(range))
        .unwrap_or_default()
        .to_vec()
}
