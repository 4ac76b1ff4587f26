//! Kinds of damage: one type for each structure, and [`CorruptKind`] over all of them.
//!
//! A message stands here once, beside the variant that carries its values: code matches the
//! variant, people read the message. What the bytes of one structure show alone is the error of
//! its parser (such as [`ExtentError`]); what shows between structures is a type of this module.

/// Declares the kinds of damage of one structure: variants, their values and their messages, which
/// are their documentation.
macro_rules! damage {
    (
        $(#[$about:meta])*
        $name:ident {
            $($variant:ident $({ $($field:ident: $type:ty),+ })? => $message:literal,)+
        }
    ) => {
        $(#[$about])*
        #[derive(thiserror::Error, Clone, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the message shows what each field is")]
        pub enum $name {
            $(
                #[doc = concat!("`", $message, "`")]
                #[error($message)]
                $variant $({ $($field: $type),+ })?,
            )+
        }
    };
}

mod attribute_damage;
mod bitmap_damage;
mod block_damage;
mod corrupt_kind;
mod directory_damage;
mod group_damage;
mod inode_damage;
mod journal_damage;
mod link_damage;
mod map_damage;
mod orphan_damage;
mod quota_damage;
mod reserved_damage;
mod superblock_damage;

pub use crate::acl::AclError;
pub use crate::dir_hash::HashError;
pub use crate::dirent::DirentError;
pub use crate::extent::ExtentError;
pub use crate::group_desc::GroupDescError;
pub use crate::htree::HtreeError;
pub use crate::inode::InodeError;
pub use crate::jbd2::LogBlockError;
pub use crate::jbd2::superblock::JournalSuperblockError;
pub use crate::mmp::MmpError;
pub use crate::orphan::OrphanError;
pub use crate::quota::QuotaError;
pub use crate::superblock::SuperblockError;
pub use crate::verity::VerityError;
pub use crate::xattr::XattrError;
pub use attribute_damage::AttributeDamage;
pub use bitmap_damage::{BitRuns, BitmapDamage};
pub use block_damage::BlockDamage;
pub use corrupt_kind::CorruptKind;
pub use directory_damage::{DirectoryDamage, EntryName, IndexDamage};
pub use group_damage::{GroupDamage, GroupPart};
pub use inode_damage::InodeDamage;
pub use journal_damage::{JournalDamage, SkippedCopies, SkippedCopy};
pub use link_damage::LinkDamage;
pub use map_damage::MapDamage;
pub use orphan_damage::OrphanDamage;
pub use quota_damage::QuotaDamage;
pub use reserved_damage::ReservedDamage;
pub use superblock_damage::SuperblockDamage;
