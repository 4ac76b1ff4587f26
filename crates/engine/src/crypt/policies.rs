//! The policies of directories: inherited, and kept together.

use extant_crypt::{Context, NONCE_BYTES, Policy};
use extant_disk::xattr::XattrName;
use extant_jbd2::Handle;
use rustix::rand::{GetRandomFlags, getrandom};

use super::find_key::{context, require_key};
use crate::inode::InodeFlags;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::types::{Cred, FileKind};
use crate::volume::Fs;
use crate::xattr;

/// Returns whether inodes of `kind` are encrypted in encrypted directories.
fn has_content(kind: FileKind) -> bool {
    matches!(
        kind,
        FileKind::Regular | FileKind::Directory | FileKind::Symlink
    )
}

/// The context of a new inode of `kind` in `parent`; `None` if it is not encrypted.
///
/// # Errors
/// [`Error::NoKey`]; a failed read; the host has no random bytes.
pub(crate) fn inherit(fs: &Fs, parent: &Inode, kind: FileKind) -> Result<Option<Context>> {
    if !parent.flags().contains(InodeFlags::ENCRYPT) || !has_content(kind) {
        return Ok(None);
    }
    let policy = require_key(fs, parent)?.context.policy;
    with_new_nonce(policy).map(Some)
}

/// `policy`, with a nonce that no other inode has.
///
/// # Errors
/// The host has no random bytes.
pub(crate) fn with_new_nonce(policy: Policy) -> Result<Context> {
    let mut nonce = [0; 16];
    let mut filled = 0;
    while filled < nonce.len() {
        let rest = &mut nonce[filled..];
        filled += getrandom(rest, GetRandomFlags::empty())
            .map_err(|error| Error::from(std::io::Error::from(error)))?;
    }
    Ok(Context { policy, nonce })
}

/// Gives a new inode what [`inherit`] has found. [`crate::volume::credits::XATTR`].
///
/// # Errors
/// As [`store_context`].
pub(crate) fn begin(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    inherited: Option<Context>,
    cred: &Cred,
) -> Result<()> {
    match inherited {
        Some(context) => store_context(fs, h, inode, &context, cred),
        None => Ok(()),
    }
}

/// Stores what `inode` is encrypted by. [`crate::volume::credits::XATTR`].
///
/// # Errors
/// [`Error::NoSpace`]; damage; a stopped journal.
pub(crate) fn store_context(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    context: &Context,
    cred: &Cred,
) -> Result<()> {
    let name = XattrName::ENCRYPTION_CONTEXT;
    xattr::set_stored(fs, h, inode, &name, Some(&context.to_bytes()), cred)
}

/// Fails if `inode` must not get a name in `dir`: in an encrypted directory everything has its
/// policy.
///
/// # Errors
/// [`Error::CrossDevice`]; a failed read.
pub(crate) fn may_enter(fs: &Fs, dir: &Inode, inode: &Inode) -> Result<()> {
    match is_permitted(fs, dir, inode)? {
        true => Ok(()),
        false => Err(Error::CrossDevice),
    }
}

/// The bytes of an inode's context before its nonce.
fn stored_policy(fs: &Fs, inode: &Inode) -> Result<Option<Vec<u8>>> {
    let stored = xattr::get_stored(fs, inode, &XattrName::ENCRYPTION_CONTEXT)?;
    Ok(stored.map(|mut bytes| {
        bytes.truncate(bytes.len().saturating_sub(NONCE_BYTES));
        bytes
    }))
}

/// Returns whether `inode` may be in `dir` by its policy.
///
/// # Errors
/// Damage; a failed read.
pub(crate) fn is_permitted(fs: &Fs, dir: &Inode, inode: &Inode) -> Result<bool> {
    if !dir.flags().contains(InodeFlags::ENCRYPT) || !has_content(inode.kind) {
        return Ok(true);
    }
    if !inode.flags().contains(InodeFlags::ENCRYPT) {
        return Ok(false);
    }
    match (context(fs, dir), context(fs, inode)) {
        (Ok(dir), Ok(inode)) => Ok(dir.policy == inode.policy),
        // A policy that is not known may be the same: such trees can be removed.
        (Err(Error::Invalid), Err(Error::Invalid)) => {
            Ok(stored_policy(fs, dir)? == stored_policy(fs, inode)?)
        }
        (Err(Error::Invalid), Ok(_)) | (Ok(_), Err(Error::Invalid)) => Ok(false),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}
