//! From sources to a volume: the steps in their order.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use extant_disk::file_kind::FileKind;
use extant_mkfs::{Before, Formats, Identity, Layout, take_device, write_populated};
use extant_units::BlockSize;

use crate::attrs::AttrStore;
use crate::copy::Copy;
use crate::digest::{self, Digest};
use crate::entry_rules::EntryRules;
use crate::error::{Error, Result};
use crate::extents::{count, logical};
use crate::folder::FileKey;
use crate::image::Image;
use crate::new_file::folder_of;
use crate::numbering::{add_lost_found, date_implied};
use crate::options::{Options, Watch};
use crate::order;
use crate::origin::Origin;
use crate::output::{Output, Target, key_of, spare_inputs};
use crate::placer::Over;
use crate::sizing::{Planned, Sizing};
use crate::sources::{Reading, Source};
use crate::spool;
use crate::tree::{Node, NodeId, Tree};

/// Bytes of a block, where nothing is said.
const BLOCK_SIZE: u32 = 4096;
/// Bytes of an inode, where nothing is said.
const INODE_SIZE: u32 = 256;
/// Bytes of the fixed fields of a large inode.
const FIXED: u32 = 128 + 32;

/// The result of a build.
#[derive(Clone, Debug)]
pub struct Built {
    /// Its layout.
    pub layout: Layout,
    /// Its names and times.
    pub identity: Identity,
    /// Inodes of files and directories, the root and lost+found among them.
    pub entries: u64,
    /// Bytes of files' contents, without their holes.
    pub data_bytes: u64,
}

/// Builds a volume of `sources`, later ones over earlier ones, on `image`: a file, which is made,
/// or a block device.
///
/// # Errors
/// Every refusal of [`Error`]; there is no new image then.
pub fn build(
    sources: &[Source],
    image: &Path,
    options: &Options,
    watch: &dyn Watch,
) -> Result<Built> {
    let mut volume = options.volume.clone();
    let block_size = choose_defaults(&mut volume)?;
    let target = Target::of(image, &volume)?;
    let paths = sources.iter().filter_map(Source::host);
    let lists = [&options.manifest, &options.order].into_iter().flatten();
    spare_inputs(image, paths.chain(lists.map(PathBuf::as_path)))?;
    let rules = EntryRules {
        options,
        watch,
        block_size: block_size.bytes_u64(),
    };
    let folder = match &target {
        Target::File => folder_of(image).to_path_buf(),
        // What is beside a device's node is memory.
        Target::Device(_) => std::env::temp_dir(),
    };
    let skipped: Vec<_> = key_of(image).into_iter().collect();
    let (mut tree, origins, files) = read(sources, &skipped, &folder, &rules, &volume)?;
    let time = *volume.time.get_or_insert(newest(&tree));
    date_implied(&mut tree, time);
    let digest = digest::of_tree(&tree);
    volume.hash_seed.get_or_insert(digest.uuid(b"hash seed"));
    let sizing = Sizing {
        tree: &mut tree,
        options,
        volume: volume.clone(),
        block_size,
        files: &files,
        device: target.device_len(),
    };
    let planned = sizing.plan()?;
    let output = match target {
        Target::File => Output::file(image, planned.layout.bytes())?,
        Target::Device(_) => Output::Device(take_device(image, block_size.bytes_u64(), &volume)?),
    };
    let job = Job {
        tree,
        origins,
        files,
        planned,
        volume,
        digest,
    };
    job.write(output, image, options, watch)
}

/// Chooses what the options leave open. Returns the block size.
fn choose_defaults(volume: &mut extant_mkfs::Options) -> Result<BlockSize> {
    volume.reserved_percent.get_or_insert(0.0);
    let size = *volume.block_size.get_or_insert(BLOCK_SIZE);
    BlockSize::from_bytes(size).ok_or_else(|| {
        let why = "it has to be a power of two from 1024 to 65536";
        Error::Options(format!("the block size is {size}: {why}"))
    })
}

/// A volume that is planned, and what it is written from.
struct Job {
    tree: Tree,
    origins: Vec<Origin>,
    /// The files with data, in their order.
    files: Vec<NodeId>,
    planned: Planned,
    volume: extant_mkfs::Options,
    /// Of the names and what they lead to.
    digest: Digest,
}

impl Job {
    /// Bytes of files' contents, without their holes.
    fn data_bytes(&self) -> u64 {
        let bs = self.planned.layout.geometry().block_size.bytes_u64();
        let files = self.files.iter().map(|&id| {
            let blocks = count(&logical(&self.tree, id, bs));
            // The last block of a file may be longer than what is in it.
            blocks.saturating_mul(bs).min(self.tree.node(id).size)
        });
        files.sum()
    }

    /// Writes everything: the data, then the metadata, whose checksums depend on it.
    fn write(
        mut self,
        output: Output,
        path: &Path,
        options: &Options,
        watch: &dyn Watch,
    ) -> Result<Built> {
        let bytes = self.files.iter().map(|&id| self.tree.node(id).size);
        watch.expect(bytes.sum());
        let data_bytes = self.data_bytes();
        let copy = Copy {
            tree: &self.tree,
            origins: &self.origins,
            placement: &self.planned.placement,
            files: &self.files,
            block_size: self.planned.layout.geometry().block_size.bytes_u64(),
            device: output.device(),
            sharing: output.sharing(),
            watch,
        };
        let processors = || available_parallelism().map_or(1, usize::from);
        self.digest
            .add(copy.all(options.threads.unwrap_or_else(processors))?);
        self.volume.uuid.get_or_insert(self.digest.uuid(b"volume"));
        let identity = Identity::of(&self.volume)?;
        let image = Image {
            tree: &self.tree,
            planned: &self.planned,
            formats: Formats::of(&self.planned.layout, &identity),
            files: &self.files,
        };
        let before = match output.is_blank() {
            true => Before::Zeros,
            false => Before::Unknown,
        };
        let layout = &self.planned.layout;
        write_populated(output.device(), layout, &identity, before, &image)?;
        if !watch.goes_on() {
            return Err(Error::Stopped);
        }
        output.finish(path, &self.volume)?;
        let numbering = &self.planned.numbering;
        assert_eq!(
            layout.last_inode(),
            numbering.last(),
            "the volume has the inodes that were numbered"
        );
        // The root and lost+found beside those that were numbered.
        let entries = numbering.nodes.len() as u64 + 2;
        Ok(Built {
            layout: self.planned.layout,
            identity,
            entries,
            data_bytes,
        })
    }
}

/// Reads all sources.
fn read(
    sources: &[Source],
    skipped: &[FileKey],
    folder: &Path,
    rules: &EntryRules<'_>,
    volume: &extant_mkfs::Options,
) -> Result<(Tree, Vec<Origin>, Vec<NodeId>)> {
    let inode_size = volume.inode_size.unwrap_or(INODE_SIZE);
    // A size below the fixed fields leaves no room; the plan refuses it later.
    let area = inode_size.saturating_sub(FIXED) as usize;
    let attrs = AttrStore::new(area, extant_units::index(rules.block_size));
    let mut implied = Node {
        mode: FileKind::Directory.mode_bits() | 0o755,
        implied: true,
        ..Node::default()
    };
    rules.options.adapt(&mut implied);
    let mut tree = Tree::new(implied.clone(), attrs);
    let mut reading = Reading {
        tree: &mut tree,
        rules,
        implied,
        skipped,
        origins: Vec::new(),
        folder,
        left: rules.options.limit.unwrap_or_else(|| spool::limit(folder)),
        over: match sources.len() {
            0 | 1 => Over::Nothing,
            _ => Over::Source,
        },
        has_container: false,
    };
    for source in sources {
        reading.source(source)?;
    }
    let Options {
        image, platform, ..
    } = rules.options;
    if (image.is_some() || platform.is_some()) && !reading.has_container {
        let what = "a container image is asked for by name or platform, and no source is one";
        return Err(Error::Options(what.to_owned()));
    }
    if let Some(manifest) = &rules.options.manifest {
        reading.manifest(manifest)?;
    }
    let positions = match &rules.options.order {
        Some(list) => reading.order(list)?,
        None => HashMap::new(),
    };
    let origins = reading.origins;
    // Only an order: a full list of sources shares its last number.
    let last = u16::try_from(origins.len()).unwrap_or(u16::MAX);
    add_lost_found(&mut tree, last, rules.options)?;
    let files = order::files(&tree, &positions);
    Ok((tree, origins, files))
}

/// The time of the newest file.
fn newest(tree: &Tree) -> u64 {
    let mut newest = 0;
    for id in tree.node_ids() {
        let node = tree.node(id);
        let lives = node.links > 0 || id == NodeId::ROOT;
        if lives && !node.implied {
            newest = newest.max(node.mtime.secs);
        }
    }
    // The largest of zero and all times is never below zero.
    u64::try_from(newest).unwrap_or(0)
}
