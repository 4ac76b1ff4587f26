//! Damage to an image: one bit, in one structure, found with debugfs.

use extant_testkit::{Cmd, Error, Image, Result, Subject, content, ensure};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Offset of the superblock.
const SUPERBLOCK: u64 = 1024;

/// The structure that is damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Damage {
    /// The superblock's volume name.
    Superblock,
    /// The first group's descriptor.
    GroupDescriptor,
    /// The journal's superblock.
    Journal,
    /// The inode of `/file`.
    Inode,
    /// A leaf of the extent tree of `/comb`.
    ExtentBlock,
    /// A block of `/dir`.
    DirectoryBlock,
    /// The attribute block of `/attr`.
    XattrBlock,
    /// The first group's block bitmap.
    BlockBitmap,
    /// The first group's inode bitmap.
    InodeBitmap,
}

/// A small image with a file of each sort that the damages need, and `/other`, which none touches.
pub(crate) fn with_files() -> Result<Image> {
    let image = Image::of_mib(16).args("-b 1024").make()?;
    let linux = Subject::Ext4.mount(image.path(), "")?;
    fs::write(linux.join("other"), b"untouched")?;
    // An inode table block of its own: damage to one must not be damage to the other's checksum.
    for i in 0..8 {
        fs::write(linux.join(format!("pad{i}")), b"")?;
    }
    fs::write(linux.join("file"), b"some text ".repeat(500))?;
    let comb = File::create(linux.join("comb"))?;
    for i in 0..100u64 {
        comb.write_all_at(b"tooth", i * 4096)?;
    }
    comb.sync_all()?;
    drop(comb);
    fs::create_dir(linux.join("dir"))?;
    for i in 0..10 {
        fs::write(linux.join(format!("dir/entry{i}")), b"")?;
    }
    fs::write(linux.join("attr"), b"has attributes")?;
    let value = content::fill(3, 0, 700);
    rustix_set(&linux.join("attr"), &value)?;
    linux.unmount()?;
    image.fsck_clean()?;
    Ok(image)
}

fn rustix_set(path: &std::path::Path, value: &[u8]) -> Result<()> {
    // setfattr takes binary values in hexadecimal.
    let hex: String = value.iter().map(|b| format!("{b:02x}")).collect();
    Cmd::new("setfattr")
        .args(["-n", "user.large", "-v", &format!("0x{hex}")])
        .arg(path)
        .ok()?;
    Ok(())
}

/// The same, copied while Linux had it mounted.
pub(crate) fn with_dirty_journal() -> Result<Image> {
    let image = with_files()?;
    let linux = Subject::Ext4.mount(image.path(), "")?;
    fs::write(linux.join("late"), b"in the log")?;
    File::open(linux.join("late"))?.sync_all()?;
    let copy = image.copy()?;
    linux.unmount()?;
    ensure!(copy.needs_recovery()?, "the copy has nothing to replay");
    Ok(copy)
}

impl Damage {
    /// Flips one bit of the structure.
    pub(crate) fn inflict(self, image: &Image) -> Result<()> {
        let at = self.place(image)?;
        image.patch(at, 1, |b| b.iter_mut().for_each(|b| *b ^= 0x10))
    }

    fn place(self, image: &Image) -> Result<u64> {
        let bs = image.block_size()?;
        let block = |n: u64, inside: u64| n * bs + inside;
        Ok(match self {
            Damage::Superblock => SUPERBLOCK + 0x78,
            Damage::GroupDescriptor => block(2, 0x0c),
            Damage::Journal => block(first_number(&image.debugfs("bmap <8> 0")?)?, 0x50),
            Damage::Inode => {
                let text = image.debugfs("imap /file")?;
                let (_, after) = text
                    .split_once("at block ")
                    .ok_or_else(|| Error::new(text.clone()))?;
                let offset = after.split_once("0x").map(|(_, hex)| hex.trim());
                let offset = offset.ok_or_else(|| Error::new(text.clone()))?;
                // i_size's low bytes: a plausible value, only the checksum shows it.
                block(first_number(after)?, u64::from_str_radix(offset, 16)? + 4)
            }
            Damage::ExtentBlock => {
                let text = image.debugfs("dump_extents -n /comb")?;
                // " 0/ 1   1/  1     0 -   100  8193        101": level, entries, logical,
                // physical.
                let line = text.lines().find(|l| l.trim_start().starts_with("0/"));
                let line = line.ok_or_else(|| Error::new(text.clone()))?;
                let after = line
                    .split('-')
                    .nth(1)
                    .ok_or_else(|| Error::new(text.clone()))?;
                let block_number = after.split_whitespace().nth(1);
                block(first_number(block_number.unwrap_or_default())?, 12 + 4 + 3)
            }
            Damage::DirectoryBlock => {
                block(first_number(&image.debugfs("blocks /dir")?)?, 24 + 8 + 1)
            }
            Damage::XattrBlock => {
                let text = image.debugfs("stat /attr")?;
                let (_, after) = text
                    .split_once("File ACL: ")
                    .ok_or_else(|| Error::new(text.clone()))?;
                block(first_number(after)?, bs - 10)
            }
            Damage::BlockBitmap => block(bitmap(image, "Block bitmap at ")?, 700),
            Damage::InodeBitmap => block(bitmap(image, "Inode bitmap at ")?, 100),
        })
    }
}

fn bitmap(image: &Image, label: &str) -> Result<u64> {
    let text = Cmd::new("dumpe2fs").arg(image.path()).ok()?.out;
    let (_, after) = text
        .split_once(label)
        .ok_or_else(|| Error::new(format!("no {label}")))?;
    first_number(after)
}

fn first_number(text: &str) -> Result<u64> {
    let digits: String = text
        .trim_start()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    Ok(digits.parse()?)
}

/// Adds a bit to the incompatible features, the checksum made right.
pub(crate) fn set_incompat(image: &Image, bit: u32) -> Result<()> {
    add_feature(image, 0x60, bit)
}

/// Adds a bit to the read-only compatible features, the checksum made right.
pub(crate) fn set_ro_compat(image: &Image, bit: u32) -> Result<()> {
    add_feature(image, 0x64, bit)
}

fn add_feature(image: &Image, at: u64, bit: u32) -> Result<()> {
    image.patch(SUPERBLOCK, 1024, |sb| {
        let at = usize::try_from(at).unwrap_or(0);
        if let Some(Ok(old)) = sb.get(at..at + 4).map(<[u8; 4]>::try_from) {
            let new = (u32::from_le_bytes(old) | bit).to_le_bytes();
            sb.iter_mut()
                .skip(at)
                .zip(new)
                .for_each(|(to, from)| *to = from);
        }
        let sum = crc32c(sb.get(..1020).unwrap_or_default()).to_le_bytes();
        sb.iter_mut()
            .skip(1020)
            .zip(sum)
            .for_each(|(to, from)| *to = from);
    })
}

/// CRC-32C as ext4 stores it: seeded with all ones, not inverted at the end.
fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0u32, |crc, b| {
        (0..8).fold(crc ^ u32::from(*b), |c, _| {
            if c & 1 == 1 {
                (c >> 1) ^ 0x82f6_3b78
            } else {
                c >> 1
            }
        })
    })
}

/// Checksums that mke2fs itself wrote must agree with the arithmetic above.
#[test]
fn the_checksum_here_is_the_one_mke2fs_writes() -> Result<()> {
    let image = Image::of_mib(16).make()?;
    let before = image.fingerprint()?;
    set_incompat(&image, 0)?;
    ensure!(
        image.fingerprint()? == before,
        "the superblock's checksum came out differently"
    );
    Ok(())
}
