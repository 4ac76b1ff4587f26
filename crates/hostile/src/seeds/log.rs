//! Logs that Extant does not write itself: older checksums, revoke records in odd places, fast
//! commits.

use std::path::Path;

use extant_testkit::mutate::{Found, Kind, Map, seal};
use extant_testkit::{Cmd, Result, TempDir, content, ensure};

/// The image at `path` with two transactions in its log: copies of free blocks, and revoke records
/// for some of them.
pub(super) fn by_debugfs(path: &Path, dir: &TempDir, checksums: &str) -> Result<Vec<u8>> {
    let (blocks, script) = (dir.join("blocks"), dir.join("script"));
    let mut copies = content::fill(5, 0, 4 * 1024);
    // The second copy looks like a block of the log and must be escaped.
    for (to, from) in copies.iter_mut().skip(1024).zip([0xc0, 0x3b, 0x39, 0x98]) {
        *to = from;
    }
    std::fs::write(&blocks, copies)?;
    let file = blocks.display();
    let commands = format!(
        "jo {checksums}\njw -b 2000,2001,2002,2003 {file}\njw -r 2001,2003\njw -b 2003 {file}\njc\n"
    );
    std::fs::write(&script, commands)?;
    Cmd::new("debugfs")
        .args(["-w", "-f"])
        .arg(&script)
        .arg(path)
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .ok()?;
    Ok(std::fs::read(path)?)
}

/// The image with a complete fast commit for another transaction than the next: it is there, and
/// does not count. Mutations of its numbers make it count.
pub(super) fn fast_commits(mut image: Vec<u8>) -> Result<Vec<u8>> {
    const BLOCK: usize = 1024;
    let map = Map::of(&image);
    let journal = map.found().iter().find(|f| f.kind == Kind::JournalSuper);
    let root = |f: &&Found| Some(f.owner) == journal.map(|j| j.owner) && f.kind == Kind::ExtentRoot;
    let root = map.found().iter().find(root);
    let (Some(at), Some(root)) = (journal.map(|f| f.at), root.map(|f| f.at)) else {
        extant_testkit::bail!("the image has no journal");
    };
    let number = |image: &[u8], at: usize| {
        let four = image.get(at..at + 4).and_then(|four| four.try_into().ok());
        four.map_or(0, u32::from_be_bytes)
    };
    let incompat = number(&image, at + 0x28) | 0x20;
    put(&mut image, at + 0x28, &incompat.to_be_bytes());
    put(&mut image, at + 0x54, &64u32.to_be_bytes());
    // The area is the end of the log, which is the end of the last extent.
    let half = |at: usize| {
        let two = image.get(at..at + 2).and_then(|two| two.try_into().ok());
        usize::from(two.map_or(0, u16::from_le_bytes))
    };
    let last = root + 12 * half(root + 2);
    let area = (half(last + 8) + half(last + 4) - 64) * BLOCK;
    ensure!(area + BLOCK <= image.len(), "the log's end is not found");
    let mut block = Vec::new();
    let record = |block: &mut Vec<u8>, tag: u16, value: &[u8]| {
        let len = u16::try_from(value.len()).unwrap_or(0);
        block.extend(tag.to_le_bytes());
        block.extend(len.to_le_bytes());
        block.extend(value);
    };
    let transaction = 77u32.to_le_bytes();
    record(&mut block, 9, &[[0; 4], transaction].concat());
    record(&mut block, 6, &[1; 100]);
    record(&mut block, 7, &[0; 40]);
    let tail = BLOCK - block.len() - 4;
    block.extend(8u16.to_le_bytes());
    block.extend(u16::try_from(tail).unwrap_or(0).to_le_bytes());
    block.extend(transaction);
    let sum = !crc32c::crc32c_append(!0, &block);
    block.extend(sum.to_le_bytes());
    block.resize(BLOCK, 0);
    put(&mut image, area, &block);
    seal(&mut image);
    Ok(image)
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in image.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}
