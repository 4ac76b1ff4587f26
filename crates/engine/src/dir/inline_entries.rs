//! Changes of the entries of a directory that has them inside of its inode (`inline_data`), and
//! their move to a block.
//!
//! Each change is one of the inode. Where an entry has no room, the directory takes all that the
//! inode has, as on Linux; if that is not enough, it gets its first block, with the entries where
//! they were. So a reader's position stays right: both are read in the order of hashes or, without
//! `dir_index`, by offsets, which do not change.

use extant_disk::dir_edit::NewEntry;
use extant_disk::dirent::{DirFormat, DirentError};
use extant_disk::features::Incompat;
use extant_jbd2::Handle;
use extant_units::{Blocks, Ino, Lblk};

use super::fs_store::profile;
use crate::inode::InodeFlags;
use crate::state::alloc::AllocRequest;
use crate::state::inode::Inode;
use crate::state::quota::SpaceClaim;
use crate::state::volume::CheckKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;
use crate::{alloc, inline_data};

/// Gives a new directory, which no other thread knows, its "..", inside of its inode. Returns false
/// if it has to have a block.
pub(super) fn init(fs: &Fs, h: &mut Handle, dir: &Inode, parent: Ino) -> Result<bool> {
    if dir.flags().contains(InodeFlags::ENCRYPT) {
        return Ok(false);
    }
    let data = profile(fs, dir).format.inside().init_inside(parent);
    inline_data::begin(fs, h, dir, &data)
}

/// Adds `entry`, whose name the directory does not have. Returns false if the entries moved to a
/// block instead, and nothing is added.
///
/// # Errors
/// [`Error::NoSpace`]; damage; a stopped journal.
pub(super) fn insert(
    fs: &Fs,
    h: &mut Handle,
    dir: &Inode,
    entry: &NewEntry<'_>,
    privileged: bool,
) -> Result<bool> {
    let format = profile(fs, dir).format.inside();
    let mut data = read(fs, dir)?;
    let mut is_there = check(fs, dir, format.insert_inside(&mut data, entry))?;
    let room = inline_data::room(fs, dir)?;
    if !is_there && check(fs, dir, format.grow_inside(&mut data, room))? {
        is_there = check(fs, dir, format.insert_inside(&mut data, entry))?;
    }
    if is_there && inline_data::store(fs, h, dir, &data)? {
        return Ok(true);
    }
    move_to_block(fs, h, dir, privileged)?;
    Ok(false)
}

/// Makes ".." lead to `parent`.
///
/// # Errors
/// As [`change`].
pub(super) fn set_parent(fs: &Fs, h: &mut Handle, dir: &Inode, parent: Ino) -> Result<()> {
    change(fs, h, dir, |_, data| {
        DirFormat::set_parent_inside(data, parent);
        Ok(())
    })
}

/// Changes the entries, which take no more room than before.
///
/// # Errors
/// Damage; a stopped journal.
pub(super) fn change(
    fs: &Fs,
    h: &mut Handle,
    dir: &Inode,
    change: impl FnOnce(&DirFormat, &mut [u8]) -> std::result::Result<(), DirentError>,
) -> Result<()> {
    let mut data = read(fs, dir)?;
    check(
        fs,
        dir,
        change(&profile(fs, dir).format.inside(), &mut data),
    )?;
    match inline_data::store(fs, h, dir, &data)? {
        true => Ok(()),
        // They take no more room than before, unless attributes overlap.
        false => check(fs, dir, Err(DirentError::NoEntry { offset: 0 })),
    }
}

fn read(fs: &Fs, dir: &Inode) -> Result<Vec<u8>> {
    inline_data::read(fs, dir)?.ok_or(Error::Stale)
}

/// Adds the directory to damage of its entries.
fn check<T>(fs: &Fs, dir: &Inode, result: std::result::Result<T, DirentError>) -> Result<T> {
    result.map_err(|error| {
        let error = Error::corrupt(Location::DirBlock(dir.ino, Lblk::ZERO), error);
        fs.fault.report(fs, &error);
        error
    })
}

/// Moves the entries to a block.
pub(super) fn move_to_block(fs: &Fs, h: &mut Handle, dir: &Inode, privileged: bool) -> Result<()> {
    let data = read(fs, dir)?;
    let bytes = profile(fs, dir).format.block_of_inside(dir.ino, &data);
    let bytes = bytes.ok_or(Error::NoSpace)?;
    let request = AllocRequest {
        goal: alloc::goal_for(fs, dir),
        want: Blocks::ONE,
        min: Blocks::ONE,
        metadata: true,
        privileged,
        reserved: false,
        pool: false,
        narrow: !fs.layout.features.has_incompat(Incompat::EXTENTS),
        stream: None,
    };
    let bytes_more = fs.layout.cluster_bytes();
    let _claim = SpaceClaim::take(dir.quota.as_ref(), bytes_more, privileged)?;
    let run = alloc::allocate_blocks(fs, h, &request)?;
    let block = h.create(run.start, CheckKind::Directory.of_inode(dir.ino))?;
    h.modify(&block, |new| new.copy_from_slice(&bytes))?;
    inline_data::leave(fs, h, dir, Some(run.start), bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use extant_testkit::Image;

    use super::*;
    use crate::dir;
    use crate::namei;
    use crate::test_support::test_mount::TestFs;
    use crate::types::Cred;

    /// Whatever comes and goes while a directory is listed, and though its entries move to a block
    /// and get an index: what stays is listed once.
    #[test]
    fn a_listing_goes_on_where_entries_move_to_a_block() {
        for args in ["-O inline_data -I 512", "-O inline_data,^dir_index -I 512"] {
            for seen in 0..6 {
                let image = Image::of_mib(8).args("-b 1024").args(args).make().unwrap();
                let fs = TestFs::mount(image.path(), "");
                let top = namei::mkdir(&fs, &fs.root(), b"top", 0o755, &Cred::root()).unwrap();
                let make = |name: String| {
                    namei::create(&fs, &top, name.as_bytes(), 0o644, &Cred::root()).unwrap()
                };
                let stays: Vec<String> = (0..6).map(|at| format!("stays{at}")).collect();
                for name in &stays {
                    make(name.clone());
                }
                assert!(inline_data::is_inline(&top));
                let mut listed = Vec::new();
                let mut from = 0;
                dir::read(&fs, &top, 0, &mut |entry| {
                    listed.push(String::from_utf8(entry.name.to_vec()).unwrap());
                    from = entry.next_pos;
                    listed.len() < 3 + seen
                })
                .unwrap();
                for at in 0..60 {
                    make(format!("a-longer-name-{at}"));
                }
                assert!(!inline_data::is_inline(&top));
                dir::read(&fs, &top, from, &mut |entry| {
                    listed.push(String::from_utf8(entry.name.to_vec()).unwrap());
                    true
                })
                .unwrap();
                listed.retain(|name| name.starts_with("stays"));
                listed.sort();
                assert_eq!(listed, stays, "{args}: after {seen}");
                drop(top);
                fs.unmount();
                image.fsck_clean().unwrap();
            }
        }
    }
}
