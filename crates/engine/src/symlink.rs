//! Targets of symbolic links: inside the inode (up to 59 bytes) or in the one block that the link
//! maps. An encrypted one is stored with its length before it (`struct fscrypt_symlink_data`).
//!
//! # Locks
//! None of its own. [`set_target`] runs under a handle, on an inode that no other thread can reach
//! yet.

use std::borrow::Cow;

use extant_disk::damage::InodeDamage;
use extant_disk::inode::BLOCK_AREA;
use extant_jbd2::Handle;
use extant_units::Lblk;

use crate::crypt;
use crate::dir::nokey_name;
use crate::inline_data;
use crate::inode::InodeFlags;
use crate::inode::fast_symlink::{fast_target, is_fast};
use crate::map;
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, MapState};
use crate::state::volume::CheckKind;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Bytes of the length before an encrypted target.
const LENGTH_BYTES: usize = 2;

/// The target of a symbolic link. The caller updates the access time.
///
/// # Errors
/// [`Error::Invalid`] for anything but a link; damage; a failed read.
pub(crate) fn readlink(fs: &Fs, inode: &Inode) -> Result<Vec<u8>> {
    if inode.kind != FileKind::Symlink {
        return Err(Error::Invalid);
    }
    let encrypted = inode.flags().contains(InodeFlags::ENCRYPT);
    let target = stored(fs, inode, encrypted).and_then(|bytes| {
        let target = match encrypted {
            true => decrypted(fs, inode, &bytes)?,
            false => Some(bytes).filter(|bytes| !bytes.is_empty() && !bytes.contains(&0)),
        };
        target.ok_or_else(|| damaged(inode, InodeDamage::SymlinkTarget))
    });
    target.inspect_err(|error| fs.fault.report(fs, error))
}

fn damaged(inode: &Inode, damage: InodeDamage) -> Error {
    Error::corrupt(Location::Inode(inode.ino), damage)
}

/// The target as it is stored; with `encrypted` all bytes of its place.
fn stored(fs: &Fs, inode: &Inode, encrypted: bool) -> Result<Vec<u8>> {
    if let Some(target) = inline_data::read(fs, inode)? {
        return Ok(target);
    }
    let len = {
        let core = inode.core.read();
        if is_fast(fs, &core) {
            let target = match encrypted {
                true => Some(&core.i_block[..]),
                false => fast_target(&core),
            };
            return target.map(<[u8]>::to_vec).ok_or(Error::Stale);
        }
        usize::try_from(core.disk_size).map_err(|_| Error::Invalid)?
    };
    let MapState::Written(pblk) = map::lookup(fs, inode, Lblk::ZERO, 1)?.state else {
        return Err(damaged(inode, InodeDamage::SymlinkWithoutBlock));
    };
    let key = CheckKind::Symlink.of_inode(inode.ino);
    let block = fs.cache.read(pblk, key, |_| Ok::<(), Error>(()))?;
    let bytes = block.data();
    let target = if encrypted {
        &bytes[..]
    } else {
        bytes.get(..len).unwrap_or_default()
    };
    Ok(target.to_vec())
}

/// An encrypted target, or the form of it that those without the key see; `None` for damage.
fn decrypted(fs: &Fs, inode: &Inode, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(target) = encrypted_part(bytes) else {
        return Ok(None);
    };
    let key = crypt::key(fs, inode)?;
    let plain = key.and_then(|key| key.decrypt_name(target));
    // A key that makes no target of it may be the wrong one.
    let plain = plain.filter(|bytes| !bytes.is_empty());
    Ok(Some(
        plain.unwrap_or_else(|| nokey_name::shown(0, 0, target)),
    ))
}

/// The encrypted bytes of what is stored: their length comes before them.
fn encrypted_part(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    let target = rest.get(..usize::from(u16::from_le_bytes(*len)))?;
    Some(target).filter(|target| !target.is_empty())
}

/// The stored form of `target` in `inode`, whose key is there if it is encrypted.
fn encoded<'t>(fs: &Fs, inode: &Inode, target: &'t [u8]) -> Result<Cow<'t, [u8]>> {
    if !inode.flags().contains(InodeFlags::ENCRYPT) {
        return Ok(Cow::Borrowed(target));
    }
    // A block has it with its length and, as on Linux, with room for a NUL.
    let most = fs.layout.block_size.bytes() - LENGTH_BYTES - 1;
    let encrypted = crypt::require_key(fs, inode)?.encrypt_name(target, most)?;
    let len = u16::try_from(encrypted.len()).map_err(|_| Error::NameTooLong)?;
    Ok(Cow::Owned([&len.to_le_bytes(), &encrypted[..]].concat()))
}

/// The size of a link's target as callers see it.
///
/// # Errors
/// As [`readlink`].
pub(crate) fn target_size(fs: &Fs, inode: &Inode) -> Result<u64> {
    readlink(fs, inode).map(|target| target.len() as u64)
}

/// Gives a new link its target, in the inode or in a block. Credits:
/// [`crate::volume::credits::INODE_UPDATE`], and for a target of 60 bytes or more
/// [`crate::volume::credits::allocate`] with one block more.
///
/// # Errors
/// [`Error::NameTooLong`] for a target that does not fit one block with its NUL, [`Error::Invalid`]
/// for an empty one or one with a NUL; [`Error::NoSpace`]; [`Error::NoKey`].
pub(crate) fn set_target(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    target: &[u8],
    privileged: bool,
) -> Result<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(Error::Invalid);
    }
    if target.len() >= fs.layout.block_size.bytes() {
        return Err(Error::NameTooLong);
    }
    let target = &*encoded(fs, inode, target)?;
    if target.len() < BLOCK_AREA {
        inode.update(fs, h, |core| {
            core.flags.remove(InodeFlags::EXTENTS);
            core.i_block = [0; BLOCK_AREA];
            for (to, from) in core.i_block.iter_mut().zip(target) {
                *to = *from;
            }
            core.disk_size = target.len() as u64;
        })?;
    } else {
        let how = AllocateMode {
            metadata: true,
            privileged,
            ..AllocateMode::default()
        };
        let mapping = map::allocate(fs, h, inode, Lblk::ZERO, 1, how)?;
        let MapState::Written(pblk) = mapping.state else {
            return Err(Error::NoSpace);
        };
        let block = h.create(pblk, CheckKind::Symlink.of_inode(inode.ino))?;
        h.modify(&block, |bytes| {
            debug_assert!(
                target.len() < bytes.len(),
                "a target and its NUL fit a block"
            );
            if let Some(to) = bytes.get_mut(..target.len()) {
                to.copy_from_slice(target);
            }
        })?;
        inode.update(fs, h, |core| core.disk_size = target.len() as u64)?;
    }
    let size = target.len() as u64;
    inode
        .size
        .store(size, extant_sync::atomic::Ordering::Release);
    Ok(())
}

#[cfg(test)]
mod tests {
    use extant_testkit::Image;

    use super::*;
    use crate::namei;
    use crate::test_support::test_mount::TestFs;
    use crate::types::Cred;
    use crate::volume::credits;

    /// Targets that [`set_target`] refuses, its callers refuse before; a link must not be made of
    /// one.
    #[test]
    fn a_target_is_no_empty_one_and_fits_a_block_with_its_nul() {
        let image = Image::of_mib(8).args("-b 1024").make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let make = |name: &[u8], target: &[u8]| {
            namei::symlink(&fs, &fs.root(), name, target, &Cred::root())
        };
        for len in [1, 59, 60, 1023] {
            let target = vec![b'a'; len];
            let link = make(len.to_string().as_bytes(), &target).unwrap();
            assert_eq!(readlink(&fs, &link).unwrap(), target);
            assert_eq!(link.core.read().sectors, if len < 60 { 0 } else { 2 });
            let refused = |target: &[u8]| {
                let mut h = fs.start(credits::INODE_UPDATE).unwrap();
                set_target(&fs, &mut h, &link, target, true).unwrap_err()
            };
            for bad in [&b""[..], b"\0", b"a\0b", b"ab\0"] {
                assert!(matches!(refused(bad), Error::Invalid), "{bad:?}");
            }
            assert!(matches!(refused(&[b'b'; 1024]), Error::NameTooLong));
            assert_eq!(readlink(&fs, &link).unwrap(), target);
        }
        let long = make(b"long", &[b'a'; 1024]).map(drop);
        assert!(matches!(long, Err(Error::NameTooLong)), "{long:?}");
        fs.unmount();
        image.fsck_clean().unwrap();
    }
}
