//! Device numbers: Linux's `stat` encoding, and the two words of `i_block` that store it.
//!
//! The old form keeps major and minor numbers below 256 in the first word. All others go to the
//! second word, in the encoding that `stat` uses for 32-bit numbers: minor bits 0-7, major bits
//! 8-19, the rest of the minor from bit 20.

use extant_disk::inode::BLOCK_AREA;

/// Major and minor number of an encoded device number.
const fn split(rdev: u32) -> (u32, u32) {
    let major = (rdev >> 8) & 0xfff;
    let minor = (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00);
    (major, minor)
}

/// The `i_block` of a device node.
pub(crate) fn encode(rdev: u32) -> [u8; BLOCK_AREA] {
    let (major, minor) = split(rdev);
    let (old, new) = if major < 256 && minor < 256 {
        ((major << 8) | minor, 0)
    } else {
        (0, rdev)
    };
    let mut area = [0; BLOCK_AREA];
    let (first, rest) = area.split_at_mut(4);
    first.copy_from_slice(&u32::to_le_bytes(old));
    for (to, from) in rest.iter_mut().zip(u32::to_le_bytes(new)) {
        *to = from;
    }
    debug_assert_eq!(decode(&area), rdev, "what is stored is what is read");
    area
}

/// The device number in the `i_block` of a device node, in `stat`'s encoding.
pub(crate) fn decode(area: &[u8; BLOCK_AREA]) -> u32 {
    let word = |at: usize| {
        let bytes = area.get(at..at + 4).and_then(|b| b.first_chunk());
        bytes.map_or(0, |b| u32::from_le_bytes(*b))
    };
    match word(0) {
        0 => word(4),
        // Old numbers have eight bits each: there the encodings agree.
        old => old & 0xffff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_come_back() {
        // 8:1, 255:255, 256:0, 0:256, 4095:1048575, 0:0
        for rdev in [0x801, 0xffff, 0x1_0000, 0x10_0000, 0xffff_ffff, 0] {
            assert_eq!(decode(&encode(rdev)), rdev, "{rdev:#x}");
        }
    }

    #[test]
    fn small_numbers_take_the_old_form() {
        assert_eq!(encode(0x0801)[..8], [1, 8, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encode(0x10_0000)[..8], [0, 0, 0, 0, 0, 0, 0x10, 0]);
    }
}
