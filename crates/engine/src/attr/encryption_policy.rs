//! The policies that directories are encrypted by, as callers see and set them.

use extant_crypt::{Context, KeyId, Policy};
use extant_disk::features::Incompat;
use extant_units::Ino;

use crate::crypt::{self, find_key, policies};
use crate::inode::{ExclusiveInode, InodeFlags};
use crate::state::crypt::MasterState;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::types::{Cred, FileKind};
use crate::volume::{Fs, all_or_abort, credits};
use crate::{dir, inode, xattr};

/// The encryption context of an inode.
///
/// # Errors
/// [`Error::NoAttribute`] if it is not; [`Error::Invalid`] if the policy is not known; damage of
/// the attributes; a failed read.
pub(crate) fn get_policy(fs: &Fs, inode: &Inode) -> Result<Context> {
    match inode.flags().contains(InodeFlags::ENCRYPT) {
        true => find_key::context(fs, inode),
        false => Err(Error::NoAttribute),
    }
}

/// Encrypts the empty directory `dir`, and what will be made in it, by `policy`.
///
/// # Errors
/// [`Error::NotSupported`] on a volume without the feature; [`Error::NotPermitted`] for the root;
/// [`Error::AccessDenied`] for a caller that does not own it; [`Error::NotDir`];
/// [`Error::Invalid`] for a policy that the volume cannot have; [`Error::NoKey`] for one of the
/// second version whose key is not there; [`Error::NotEmpty`]; [`Error::Exists`] if it has another
/// one; [`Error::NoSpace`]; damage; a stopped journal.
pub(crate) fn set_policy(fs: &Fs, dir: &Inode, policy: &Policy, cred: &Cred) -> Result<()> {
    fs.check_writable()?;
    if !fs.layout.features.has_incompat(Incompat::ENCRYPT) {
        return Err(Error::NotSupported(
            "encryption without the encrypt feature",
        ));
    }
    if !cred.privileged && cred.uid != dir.core.read().uid {
        return Err(Error::AccessDenied);
    }
    if dir.ino == Ino::ROOT {
        // As on Linux: it has names that both have to know.
        return Err(Error::NotPermitted);
    }
    may_have(fs, dir, policy)?;
    let exclusive = dir.lock_exclusively();
    let locked = exclusive.inode();
    if dir.kind != FileKind::Directory {
        return Err(Error::NotDir);
    }
    if dir.is_unlinked() {
        return Err(Error::NotFound);
    }
    if dir.flags().contains(InodeFlags::ENCRYPT) {
        return match find_key::context(fs, dir)?.policy == *policy {
            true => Ok(()),
            false => Err(Error::Exists),
        };
    }
    dir.check_changeable(false)?;
    let needs_key = matches!(policy.key, KeyId::Identifier(_));
    if needs_key && fs.keys.state(&policy.key) != MasterState::Present {
        return Err(Error::NoKey);
    }
    if !dir::is_empty(fs, locked.shared())? {
        return Err(Error::NotEmpty);
    }
    if dir.flags().contains(InodeFlags::CASEFOLD) {
        dir::may_switch_hashes(fs, locked.shared())?;
    }
    let context = policies::with_new_nonce(*policy)?;
    encrypt(fs, locked, &context, cred)
}

/// Makes an empty directory an encrypted one.
fn encrypt(fs: &Fs, dir: ExclusiveInode<'_>, context: &Context, cred: &Cred) -> Result<()> {
    let attribute = xattr::credits(fs, &dir, context.to_bytes().len())?;
    let needed = [credits::dir_insert(fs), attribute, credits::INODE_UPDATE];
    let mut h = fs.start(credits::sum(needed))?;
    all_or_abort(&mut h, |h| {
        dir::leave_inode(fs, h, dir, cred.privileged)?;
        crypt::store_context(fs, h, &dir, context, cred)?;
        dir.update(fs, h, |core| {
            core.flags.insert(InodeFlags::ENCRYPT);
            inode::changed(core, inode::now());
        })
    })
}

/// Fails for a policy that the volume or the directory cannot have.
fn may_have(fs: &Fs, dir: &Inode, policy: &Policy) -> Result<()> {
    let folds = dir.flags().contains(InodeFlags::CASEFOLD);
    let is_known = policy.check().is_ok() && find_key::fits(fs, policy);
    match is_known && (find_key::may_fold(policy) || !folds) {
        true => Ok(()),
        false => Err(Error::Invalid),
    }
}
