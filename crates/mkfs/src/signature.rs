//! Content that a device may hold already, by the magic numbers of other formats.

use std::io;

use extant_blockdev::BlockDevice;
use extant_units::DevOff;

/// Something of value that was found on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    /// The format, in words.
    pub what: &'static str,
    /// The offset of its magic number.
    pub offset: u64,
    /// Bytes of the magic number.
    pub len: usize,
}

impl Signature {
    /// Returns whether it is a boot sector, for which every file system of ext leaves room: it does
    /// not say that another format took the place of one.
    pub fn is_boot_sector(&self) -> bool {
        self.what == BOOT
    }

    /// Returns whether it is a GUID partition table, or its second copy.
    pub fn is_guid_table(&self) -> bool {
        self.what == GUID_TABLE
    }
}

/// The offset of a magic number.
#[derive(Clone, Copy)]
enum At {
    /// So many bytes from the beginning.
    Start(u64),
    /// So many bytes before the end.
    End(u64),
    /// At the start of the last whole 64 KiB but one.
    LastBut64K,
}

struct Magic {
    what: &'static str,
    at: At,
    bytes: &'static [u8],
}

const fn magic(what: &'static str, at: At, bytes: &'static [u8]) -> Magic {
    Magic { what, at, bytes }
}

use At::{End, LastBut64K, Start};

/// The name of the formats that are no other.
const EXT: &str = "an ext2, ext3 or ext4 file system";

/// The name of what may stand in front of a superblock of ext.
const BOOT: &str = "a partition table or a boot sector";

/// The name of the tables of partitions that UEFI has.
const GUID_TABLE: &str = "a GUID partition table";

/// The bytes at the start of a device in which formats have their first magic number.
const START: u64 = 1 << 17;

/// The magic numbers that are looked for; of several that fit, the first names the format.
const MAGICS: &[Magic] = &[
    magic(EXT, Start(1080), &[0x53, 0xEF]),
    magic("an xfs file system", Start(0), b"XFSB"),
    magic("a btrfs file system", Start(65_536 + 64), b"_BHRfS_M"),
    magic(
        "a bcachefs file system",
        Start(4096 + 24),
        &[
            0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d,
            0xf7, 0xef,
        ],
    ),
    magic(
        "an f2fs file system",
        Start(1024),
        &[0x10, 0x20, 0xF5, 0xF2],
    ),
    magic(
        "an erofs file system",
        Start(1024),
        &[0xE2, 0xE1, 0xF5, 0xE0],
    ),
    magic("a jfs file system", Start(32_768), b"JFS1"),
    magic("a minix file system", Start(1040), &[0x7F, 0x13]),
    magic("a minix file system", Start(1040), &[0x8F, 0x13]),
    magic("a minix file system", Start(1040), &[0x68, 0x24]),
    magic("a minix file system", Start(1040), &[0x78, 0x24]),
    magic("a minix file system", Start(1048), &[0x5A, 0x4D]),
    magic("an hfs file system", Start(1024), b"BD"),
    magic("an hfs+ file system", Start(1024), b"H+"),
    magic("an hfs+ file system", Start(1024), b"HX"),
    magic("an apfs container", Start(32), b"NXSB"),
    magic("a udf file system", Start(32_769), b"BEA01"),
    magic(
        "a member of a zpool",
        Start(16_384),
        &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    ),
    magic(
        "a bcache device",
        Start(4096 + 24),
        &[
            0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba,
            0x6d, 0x81,
        ],
    ),
    magic("a bluestore device", Start(0), b"bluestore block device"),
    magic("a dm-integrity volume", Start(0), b"integrt\0"),
    magic("a dm-verity volume", Start(0), b"verity\0\0"),
    magic("a reiserfs file system", Start(65_536 + 52), b"ReIsEr"),
    magic("a nilfs2 file system", Start(1024 + 6), &[0x34, 0x34]),
    magic("an ocfs2 file system", Start(8192), b"OCFSV2"),
    magic(
        "a gfs2 file system",
        Start(65_536),
        &[0x01, 0x16, 0x19, 0x70],
    ),
    magic("a squashfs file system", Start(0), b"hsqs"),
    magic("an iso9660 file system", Start(32_769), b"CD001"),
    magic("an ntfs file system", Start(3), b"NTFS    "),
    magic("an exfat file system", Start(3), b"EXFAT   "),
    magic("a vfat file system", Start(82), b"FAT32   "),
    magic("a vfat file system", Start(54), b"FAT16   "),
    magic("a vfat file system", Start(54), b"FAT12   "),
    magic("a LUKS volume", Start(0), b"LUKS\xba\xbe"),
    magic("a LUKS volume", Start(0x4000), b"SKUL\xba\xbe"),
    magic("a BitLocker volume", Start(3), b"-FVE-FS-"),
    magic("a physical volume of LVM", Start(512 + 24), b"LVM2 001"),
    magic("a physical volume of LVM", Start(24), b"LVM2 001"),
    magic("a physical volume of LVM", Start(1024 + 24), b"LVM2 001"),
    magic("a physical volume of LVM", Start(1536 + 24), b"LVM2 001"),
    magic(
        "a member of an md RAID",
        Start(4096),
        &[0xfc, 0x4e, 0x2b, 0xa9],
    ),
    magic(
        "a member of an md RAID",
        Start(0),
        &[0xfc, 0x4e, 0x2b, 0xa9],
    ),
    magic(
        "a member of an md RAID",
        End(8192),
        &[0xfc, 0x4e, 0x2b, 0xa9],
    ),
    magic(
        "a member of an md RAID",
        LastBut64K,
        &[0xfc, 0x4e, 0x2b, 0xa9],
    ),
    magic("swap space", Start(4086), b"SWAPSPACE2"),
    magic("swap space", Start(4086), b"SWAP-SPACE"),
    magic("swap space", Start(16_374), b"SWAPSPACE2"),
    magic("swap space", Start(65_526), b"SWAPSPACE2"),
    magic("a hibernated system", Start(4086), b"S1SUSPEND"),
    magic("a qcow2 image", Start(0), b"QFI\xfb"),
    magic("a vmdk image", Start(0), b"KDMV"),
    magic("a vhdx image", Start(0), b"vhdxfile"),
    magic("a vdi image", Start(64), &[0x7f, 0x10, 0xda, 0xbe]),
    magic(GUID_TABLE, Start(512), b"EFI PART"),
    magic(GUID_TABLE, Start(4096), b"EFI PART"),
    magic(GUID_TABLE, End(512), b"EFI PART"),
    magic(BOOT, Start(510), &[0x55, 0xAA]),
];

/// All that `device` holds, as far as magic numbers tell.
///
/// # Errors
/// Those of the device's reads.
pub fn find_signatures(device: &dyn BlockDevice) -> io::Result<Vec<Signature>> {
    let mut found = Vec::new();
    for magic in MAGICS {
        let len = magic.bytes.len();
        let Some(offset) = offset(magic.at, device.len()) else {
            continue;
        };
        if offset + len as u64 > device.len() {
            continue;
        }
        let mut bytes = vec![0; len];
        device.read_at(DevOff::new(offset), &mut bytes)?;
        if bytes == magic.bytes {
            let what = magic.what;
            found.push(Signature { what, offset, len });
        }
    }
    Ok(found)
}

/// Format that took the place of a file system of ext on `device`: nothing if that still has its
/// magic number, or if all others lie further in. There they may be what was left of an earlier
/// use.
///
/// # Errors
/// Those of the device's reads.
pub fn find_other_format(device: &dyn BlockDevice) -> io::Result<Option<Signature>> {
    let found = find_signatures(device)?;
    let mut starts = found.into_iter().filter(|one| one.offset < START);
    Ok(starts.next().filter(|one| one.what != EXT))
}

fn offset(at: At, len: u64) -> Option<u64> {
    const KIB64: u64 = 1 << 16;
    match at {
        Start(offset) => Some(offset),
        End(before) => len.checked_sub(before),
        LastBut64K => (len / KIB64 * KIB64).checked_sub(KIB64),
    }
}

#[cfg(test)]
mod tests {
    use extant_blockdev::MemoryDevice;

    use super::*;

    #[test]
    fn each_magic_number_is_found_where_it_lies() {
        for magic in MAGICS {
            let device = MemoryDevice::new(1 << 20);
            let at = offset(magic.at, device.len()).unwrap();
            assert_eq!(find_signatures(&device).unwrap(), []);
            device.write_at(DevOff::new(at), magic.bytes).unwrap();
            let found = find_signatures(&device).unwrap();
            assert!(
                found.iter().any(|one| one.what == magic.what),
                "{}",
                magic.what
            );
            assert!(found.iter().all(|one| one.offset == at));
        }
    }

    #[test]
    fn another_format_has_the_start_to_itself() {
        let device = MemoryDevice::new(1 << 20);
        let write = |at, bytes: &[u8]| device.write_at(DevOff::new(at), bytes).unwrap();
        write((1 << 20) - 512, b"EFI PART");
        assert_eq!(find_other_format(&device).unwrap(), None);
        write(512, b"EFI PART");
        let found = find_other_format(&device).unwrap().unwrap();
        assert_eq!((found.what, found.offset), ("a GUID partition table", 512));
        write(1080, &[0x53, 0xEF]);
        assert_eq!(find_other_format(&device).unwrap(), None);
    }

    #[test]
    fn a_device_too_short_for_a_magic_number_has_none() {
        for len in [0, 1, 511, 512, 1081, 1082, 4096] {
            assert_eq!(find_signatures(&MemoryDevice::new(len)).unwrap(), []);
        }
    }
}
