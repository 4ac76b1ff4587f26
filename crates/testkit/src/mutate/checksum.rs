//! The checksums of ext4's structures.

/// crc32c as ext4 keeps it: no inversion at either end.
pub(super) fn feed(raw: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!raw, bytes)
}

/// crc16 as `uninit_bg` uses it.
pub(super) fn crc16(start: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(start, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0xa001
            } else {
                crc >> 1
            }
        })
    })
}
