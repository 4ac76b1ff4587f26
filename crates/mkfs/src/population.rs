//! Content of a volume beside that of an empty one: a caller chooses its blocks on a plan, and it
//! is written with the rest.

use std::io;

use extant_disk::csum::Crc32c;
use extant_disk::dirent::DirFormat;
use extant_disk::features::{Incompat, RoCompat};
use extant_disk::inode::InodeFormat;
use extant_units::Ino;

use crate::identity::Identity;
use crate::layout::Layout;

/// How the structures of a volume are stored, and what their checksums start from.
#[derive(Clone, Copy, Debug)]
pub struct Formats {
    /// Its inodes.
    pub inode: InodeFormat,
    /// Set if entries of directories have file types.
    file_type: bool,
    inodes: u32,
}

impl Formats {
    /// The formats of `layout` with the names of `identity`.
    pub fn of(layout: &Layout, identity: &Identity) -> Self {
        let geometry = &layout.geometry;
        Self {
            inode: InodeFormat {
                inode_size: geometry.inode_size,
                block_size: geometry.block_size,
                huge_file: geometry.features.has_ro_compat(RoCompat::HUGE_FILE),
                wide_blocks: geometry.features.has_incompat(Incompat::SIXTY_FOUR_BIT),
                large_dir: geometry.features.has_incompat(Incompat::LARGEDIR),
                csum_seed: identity.seed(geometry.features),
            },
            file_type: geometry.features.has_incompat(Incompat::FILETYPE),
            inodes: geometry.inodes(),
        }
    }

    /// The start of all checksums, with `metadata_csum`.
    pub fn seed(&self) -> Option<Crc32c> {
        self.inode.csum_seed
    }

    /// The blocks of directory `ino`.
    pub fn directory(&self, ino: Ino) -> DirFormat {
        DirFormat {
            block_size: self.inode.block_size,
            file_type: self.file_type,
            max_ino: self.inodes,
            seed: self.inode.inode_seed(ino, 0),
            folded: false,
            hashes: false,
        }
    }
}

/// The files of a volume that is not empty. Their blocks and inodes were announced by
/// [`Layout::populate`].
pub trait Population {
    /// Gives all blocks of metadata to `put`: those of the root directory and of lost+found too,
    /// where they differ from an empty volume's.
    ///
    /// # Errors
    /// Those of `put`.
    fn blocks(&self, put: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()>;

    /// Fills the record of inode `ino`. It holds what an empty volume has there.
    ///
    /// # Errors
    /// Values that the record cannot hold.
    fn inode(&self, ino: Ino, record: &mut [u8]) -> io::Result<()>;
}

/// No files: the volume stays empty.
pub(crate) struct Empty;

impl Population for Empty {
    fn blocks(&self, _: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        Ok(())
    }

    fn inode(&self, _: Ino, _: &mut [u8]) -> io::Result<()> {
        Ok(())
    }
}
