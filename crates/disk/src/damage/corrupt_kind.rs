//! The kind of any damage.

use super::{
    AclError, AttributeDamage, BitmapDamage, BlockDamage, DirectoryDamage, DirentError,
    ExtentError, GroupDamage, GroupDescError, HashError, HtreeError, IndexDamage, InodeDamage,
    InodeError, JournalDamage, JournalSuperblockError, LinkDamage, MapDamage, MmpError,
    OrphanDamage, QuotaDamage, ReservedDamage, SuperblockDamage, SuperblockError, VerityError,
    XattrError,
};

/// Kind of damage, by the structure that has it. The display is the message; the location stands
/// beside the kind.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum CorruptKind {
    /// The bytes of the superblock. The number is the byte of a good copy, if one is known.
    #[error("{0}{hint}", hint = hint(*.1))]
    Superblock(SuperblockError, Option<u64>),
    /// A field of the superblock that contradicts another one, or the volume.
    #[error(transparent)]
    SuperblockField(#[from] SuperblockDamage),
    /// The block of multiple mount protection.
    #[error(transparent)]
    Mmp(#[from] MmpError),
    /// The bytes of a group descriptor.
    #[error(transparent)]
    GroupDesc(#[from] GroupDescError),
    /// A group: what its descriptor says, against the volume.
    #[error(transparent)]
    Group(#[from] GroupDamage),
    /// A bitmap of a group.
    #[error(transparent)]
    Bitmap(#[from] BitmapDamage),
    /// A block number that no structure may have, or a block that is freed wrongly.
    #[error(transparent)]
    Block(#[from] BlockDamage),
    /// The bytes of an inode's record.
    #[error(transparent)]
    InodeRecord(#[from] InodeError),
    /// A field of an inode that contradicts another one, or the volume.
    #[error(transparent)]
    Inode(#[from] InodeDamage),
    /// An inode with a fixed number or an internal use.
    #[error(transparent)]
    Reserved(#[from] ReservedDamage),
    /// The descriptor and the tree that a file with fs-verity keeps behind its data.
    #[error(transparent)]
    Verity(#[from] VerityError),
    /// A node of an extent tree.
    #[error(transparent)]
    ExtentNode(#[from] ExtentError),
    /// The map of a file, of either kind, against the volume.
    #[error(transparent)]
    Map(#[from] MapDamage),
    /// The bytes of a block of a directory.
    #[error(transparent)]
    DirBlock(#[from] DirentError),
    /// An entry of a directory, or the directory as a whole.
    #[error(transparent)]
    Directory(#[from] DirectoryDamage),
    /// The bytes of an index block of a directory.
    #[error(transparent)]
    IndexBlock(HtreeError),
    /// The index of a directory as a whole.
    #[error(transparent)]
    Index(#[from] IndexDamage),
    /// The hash that an index names.
    #[error(transparent)]
    DirHash(#[from] HashError),
    /// Names, link counts and the way to the root.
    #[error(transparent)]
    Link(#[from] LinkDamage),
    /// The bytes of extended attributes, in an inode or in a block.
    #[error(transparent)]
    AttributeTable(#[from] XattrError),
    /// Extended attributes against what uses them.
    #[error(transparent)]
    Attribute(#[from] AttributeDamage),
    /// The access control list of an inode.
    #[error(transparent)]
    Acl(#[from] AclError),
    /// The list of orphans, or the orphan file.
    #[error(transparent)]
    Orphan(#[from] OrphanDamage),
    /// A file of quotas, or the usage that it says.
    #[error(transparent)]
    Quota(#[from] QuotaDamage),
    /// The bytes of the journal's superblock.
    #[error(transparent)]
    JournalSuperblock(#[from] JournalSuperblockError),
    /// The log of the journal.
    #[error(transparent)]
    Journal(#[from] JournalDamage),
}

impl CorruptKind {
    /// Name of the kind for programs in other languages: the variant of this type and of the one
    /// inside it, such as `ExtentNode.BadMagic`.
    pub fn name(&self) -> String {
        let text = format!("{self:?}");
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        let mut word = || words.next().unwrap_or_default();
        [word(), word()].join(".")
    }
}

/// The part of an index block that is a directory block has the kinds of one.
impl From<HtreeError> for CorruptKind {
    fn from(error: HtreeError) -> Self {
        match error {
            HtreeError::Entry(error) => Self::DirBlock(error),
            error => Self::IndexBlock(error),
        }
    }
}

impl From<SuperblockError> for CorruptKind {
    fn from(error: SuperblockError) -> Self {
        Self::Superblock(error, None)
    }
}

/// The advice to a user whose superblock has a good copy at byte `copy`.
fn hint(copy: Option<u64>) -> String {
    let advice = |at| {
        let option = at / 1024;
        format!("; a good backup lies at {at} bytes (mount with ro,sb={option})")
    };
    copy.map(advice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_units::Lblk;

    #[test]
    fn a_kind_has_the_names_of_its_variants() {
        let magic = CorruptKind::from(ExtentError::BadMagic { found: 7 });
        assert_eq!(magic.name(), "ExtentNode.BadMagic");
        assert_eq!(magic.to_string(), "extent node with magic 0x0007");
        let block = Lblk::new(9);
        let target = CorruptKind::from(IndexDamage::Target { block });
        assert_eq!(target.name(), "Index.Target");
        assert_eq!(target.to_string(), "index entry leads to block 9");
        let hole = CorruptKind::from(OrphanDamage::Hole);
        assert_eq!(hole.name(), "Orphan.Hole");
        let found = SuperblockError::BadMagic { found: 1 };
        let copied = CorruptKind::Superblock(found, Some(8192));
        assert_eq!(copied.name(), "Superblock.BadMagic");
        assert!(copied.to_string().ends_with("(mount with ro,sb=8)"));
    }
}
