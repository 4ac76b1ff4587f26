//! Encryption keys and policies of a mounted file system, by the ioctls that `xfs_io` has.
//!
//! `xfs_io` is of xfsprogs, and works on Linux's ext4 as on any mount that knows the ioctls. A key
//! is named by the hexadecimal digits of its descriptor (16) or identifier (32); a name of 16
//! digits makes a policy one of version 1.

use crate::{Cmd, Result, bail, cmd::Output, ensure};
use std::path::Path;

/// A policy by the numbers of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncryptionPolicy<'a> {
    /// The mode of contents.
    pub contents: u8,
    /// The mode of names.
    pub names: u8,
    /// The padding of names, and whose the key is.
    pub flags: u8,
    /// The name of the key.
    pub key: &'a str,
}

/// The state of a key in a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// Not there.
    Absent,
    /// Added.
    Present,
    /// Removed, with files still open.
    PartlyRemoved,
}

/// Adds a key for policies of version 2 to the file system mounted at `mount`; its identifier.
///
/// # Errors
/// The message of `xfs_io`.
pub fn add_key(mount: &Path, key: &[u8]) -> Result<String> {
    let said = ask(mount, "add_enckey", key)?;
    match said.out.trim().rsplit_once("identifier ") {
        Some((_, identifier)) => Ok(identifier.to_owned()),
        None => bail!("no identifier: {}", said.describe()),
    }
}

/// Adds a key for policies of version 1 under `descriptor`.
///
/// # Errors
/// The message of `xfs_io`.
pub fn add_key_v1(mount: &Path, descriptor: &str, key: &[u8]) -> Result<()> {
    ask(mount, &format!("add_enckey -d {descriptor}"), key).map(drop)
}

/// Gives the empty directory `dir` a policy.
///
/// # Errors
/// The message of `xfs_io`.
pub fn set_policy(dir: &Path, policy: EncryptionPolicy<'_>) -> Result<()> {
    let EncryptionPolicy {
        contents,
        names,
        flags,
        key,
    } = policy;
    let version = if key.len() == 16 { 1 } else { 2 };
    let request = format!("set_encpolicy -c {contents} -n {names} -f {flags} -v {version} {key}");
    ask(dir, &request, &[]).map(drop)
}

/// Removes a key for all users.
///
/// # Errors
/// The message of `xfs_io`.
pub fn remove_key(mount: &Path, key: &str) -> Result<()> {
    ask(mount, &format!("rm_enckey -a {key}"), &[]).map(drop)
}

/// The state of a key.
///
/// # Errors
/// The message of `xfs_io`.
pub fn key_status(mount: &Path, key: &str) -> Result<KeyStatus> {
    let said = ask(mount, &format!("enckey_status {key}"), &[])?;
    match said.out.split_whitespace().next() {
        Some("Absent") => Ok(KeyStatus::Absent),
        Some("Present") => Ok(KeyStatus::Present),
        Some("Incompletely") => Ok(KeyStatus::PartlyRemoved),
        _ => bail!("no state of a key: {}", said.describe()),
    }
}

/// One request of `xfs_io`, which says its errors on standard error.
fn ask(path: &Path, request: &str, input: &[u8]) -> Result<Output> {
    let xfs_io = Cmd::new("xfs_io").args(["-r", "-c", request]).arg(path);
    let said = xfs_io.stdin(input).ok()?;
    ensure!(said.err.is_empty(), "{}", said.describe());
    Ok(said)
}
