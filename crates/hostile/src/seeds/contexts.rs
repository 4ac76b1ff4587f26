//! Encrypted inodes whose key is nowhere: contexts that debugfs writes, and names of 16 bytes and
//! more, which could be ciphertext.

use std::path::Path;

use extant_testkit::{Cmd, Result, TempDir, content, ensure};

/// The directory.
const DIR: &str = "encrypted";
const FILE: &str = "encrypted/a-file-of-a-name";
const SUBDIR: &str = "encrypted/a-dir-with-a-long-name-of-32-byt";
const BELOW: &str = "encrypted/a-dir-with-a-long-name-of-32-byt/a-file-below-it!";
const LINK: &str = "encrypted/a-link-of-a-name";
/// A target, and before it where its length will be.
const TARGET: &str = "~~target-of-sixteen";
/// `EXT4_ENCRYPT_FL`, and `EXT4_EXTENTS_FL` with it.
const FLAG: u32 = 0x800;
const FLAG_AND_EXTENTS: u32 = 0x8_0800;
/// Version 2: AES-256-XTS, AES-256-CTS, no flags.
const POLICY: &[u8] = b"\x02\x01\x04\0\0\0\0\0key of 16 bytes.";

/// Adds what will be encrypted to the tree at `at`.
pub(super) fn tree(at: &Path) -> Result<()> {
    std::fs::create_dir_all(at.join(SUBDIR))?;
    std::fs::write(at.join(FILE), content::fill(3, 0, 2500))?;
    std::fs::write(at.join(BELOW), b"short")?;
    std::os::unix::fs::symlink(TARGET, at.join(LINK))?;
    Ok(())
}

/// The image at `path` with contexts for it. Its inodes have no checksums.
pub(super) fn written(path: &Path, dir: &TempDir) -> Result<Vec<u8>> {
    let mut requests = String::new();
    for (number, name) in [DIR, FILE, SUBDIR, BELOW, LINK].into_iter().enumerate() {
        let context = dir.join(format!("context{number}"));
        let nonce = format!("nonce of inode {number}");
        std::fs::write(&context, [POLICY, nonce.as_bytes()].concat())?;
        let flags = if name == LINK { FLAG } else { FLAG_AND_EXTENTS };
        let context = context.display();
        requests += &format!("ea_set -f {context} {name} c\nsif {name} flags {flags}\n");
    }
    let script = dir.join("script");
    std::fs::write(&script, requests)?;
    let debugfs = Cmd::new("debugfs").args(["-w", "-f"]).arg(&script);
    debugfs
        .arg(path)
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .ok()?;
    let mut image = std::fs::read(path)?;
    // It knows no name of index 9: the attributes are called `c`, of index 0.
    let contexts = replaced(&mut image, b"\0\0\x02\xea\x01\0", b"\0\0\x02\xea\x01\x09");
    let targets = replaced(&mut image, b"~~target-", b"\x11\0target-");
    ensure!((contexts, targets) == (5, 1), "{contexts} and {targets}");
    Ok(image)
}

/// Puts `new` for each `old`, which is as long; how many there were.
fn replaced(image: &mut [u8], old: &[u8], new: &[u8]) -> usize {
    let starts = 0..image.len().saturating_sub(old.len());
    let mut count = 0;
    for at in starts {
        if let Some(found) = image.get_mut(at..at + old.len())
            && found == old
        {
            found.copy_from_slice(new);
            count += 1;
        }
    }
    count
}
