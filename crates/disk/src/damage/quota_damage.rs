//! Damage of files of quotas.

use super::QuotaError;
use crate::quota::QuotaKind;

damage! {
    /// A file of quotas, or the usage that it says.
    QuotaDamage {
        NoFile { kind: QuotaKind } => "{kind} quotas have no file",
        Unlinked { kind: QuotaKind } => "the file of {kind} quotas has no link",
        File { kind: QuotaKind, error: QuotaError } => "{kind} quotas: {error}",
        Usage {
            kind: QuotaKind,
            id: u32,
            bytes: u64,
            inodes: u64,
            used_bytes: u64,
            used_inodes: u64
        } => "{kind} {id} is said to use {bytes} bytes and {inodes} inodes, and uses \
              {used_bytes} and {used_inodes}",
    }
}
