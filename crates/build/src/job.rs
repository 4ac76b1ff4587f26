//! From sources to a volume: the steps in their order.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use extant_blockdev::BlockDevice;
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
    let folder = match &target {
        Target::File => folder_of(image).to_path_buf(),
        // What is beside a device's node is memory.
        Target::Device(_) => std::env::temp_dir(),
    };
    let skipped: Vec<_> = key_of(image).into_iter().collect();
    let inputs = Inputs {
        sources,
        skipped: &skipped,
        folder: &folder,
        device_len: target.device_len(),
        stamped: false,
    };
    let job = Job::plan(&inputs, options, (volume, block_size), watch)?;
    let output = match target {
        Target::File => Output::file(image, job.bytes())?,
        Target::Device(_) => {
            let device = take_device(image, block_size.bytes_u64(), &job.volume)?;
            Output::Device(device)
        }
    };
    job.write(output, image, options, watch)
}

/// Chooses what the options leave open. Returns the block size.
pub(crate) fn choose_defaults(volume: &mut extant_mkfs::Options) -> Result<BlockSize> {
    volume.reserved_percent.get_or_insert(0.0);
    let size = *volume.block_size.get_or_insert(BLOCK_SIZE);
    BlockSize::from_bytes(size).ok_or_else(|| {
        let why = "it has to be a power of two from 1024 to 65536";
        Error::Options(format!("the block size is {size}: {why}"))
    })
}

/// A volume that is planned, and what it is written from.
pub(crate) struct Job {
    pub(crate) tree: Tree,
    pub(crate) origins: Vec<Origin>,
    /// The files with data, in their order.
    pub(crate) files: Vec<NodeId>,
    pub(crate) planned: Planned,
    volume: extant_mkfs::Options,
    /// Of the names and what they lead to.
    digest: Digest,
}

/// The inputs of a plan beside its options.
pub(crate) struct Inputs<'a> {
    pub(crate) sources: &'a [Source],
    /// Files that are no part of a folder.
    pub(crate) skipped: &'a [FileKey],
    /// The folder that archives are unpacked to.
    pub(crate) folder: &'a Path,
    /// Bytes of the device, where it is one.
    pub(crate) device_len: Option<u64>,
    /// Files are remembered with the marks by which a later change shows.
    pub(crate) stamped: bool,
}

impl Job {
    /// Reads the sources, and plans their volume.
    ///
    /// # Errors
    /// Those of the host; sources that no volume can have; a volume that is too small.
    pub(crate) fn plan(
        inputs: &Inputs<'_>,
        options: &Options,
        (mut volume, block_size): (extant_mkfs::Options, BlockSize),
        watch: &dyn Watch,
    ) -> Result<Job> {
        let rules = EntryRules {
            options,
            watch,
            block_size: block_size.bytes_u64(),
            stamped: inputs.stamped,
        };
        let (mut tree, origins, files) = read(inputs, &rules, &volume)?;
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
            device: inputs.device_len,
        };
        let planned = sizing.plan()?;
        Ok(Job {
            tree,
            origins,
            files,
            planned,
            volume,
            digest,
        })
    }

    /// Bytes of the volume.
    pub(crate) fn bytes(&self) -> u64 {
        self.planned.layout.bytes()
    }

    /// Bytes of a block.
    pub(crate) fn block_size(&self) -> u64 {
        self.planned.layout.geometry().block_size.bytes_u64()
    }

    /// Returns whether the volume's UUID is known without the contents.
    pub(crate) fn has_uuid(&self) -> bool {
        self.volume.uuid.is_some()
    }

    /// Bytes of files' contents, without their holes.
    fn data_bytes(&self) -> u64 {
        let bs = self.block_size();
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
        self.read_data((output.device(), output.sharing()), options, watch)?;
        let before = match output.is_blank() {
            true => Before::Zeros,
            false => Before::Unknown,
        };
        let identity = self.write_metadata(output.device(), before)?;
        if !watch.goes_on() {
            return Err(Error::Stopped);
        }
        output.finish(path, &self.volume)?;
        Ok(self.built(identity))
    }

    /// Copies the data to a device, which may be a file that shares blocks with others, and adds
    /// them to the digest.
    pub(crate) fn read_data(
        &mut self,
        (device, sharing): (&dyn BlockDevice, Option<&File>),
        options: &Options,
        watch: &dyn Watch,
    ) -> Result<()> {
        let bytes = self.files.iter().map(|&id| self.tree.node(id).size);
        watch.expect(bytes.sum());
        let copy = Copy {
            tree: &self.tree,
            origins: &self.origins,
            placement: &self.planned.placement,
            files: &self.files,
            block_size: self.block_size(),
            device,
            sharing,
            watch,
        };
        let processors = || available_parallelism().map_or(1, usize::from);
        let digest = copy.all(options.threads.unwrap_or_else(processors))?;
        self.digest.add(digest);
        Ok(())
    }

    /// Writes the metadata. The UUID is one that the options name, or follows from the digest.
    pub(crate) fn write_metadata(
        &mut self,
        device: &dyn BlockDevice,
        before: Before,
    ) -> Result<Identity> {
        self.volume.uuid.get_or_insert(self.digest.uuid(b"volume"));
        let identity = Identity::of(&self.volume)?;
        let image = Image {
            tree: &self.tree,
            planned: &self.planned,
            formats: Formats::of(&self.planned.layout, &identity),
            files: &self.files,
        };
        let layout = &self.planned.layout;
        write_populated(device, layout, &identity, before, &image)?;
        Ok(identity)
    }

    /// The result, once everything is written.
    pub(crate) fn built(&self, identity: Identity) -> Built {
        let numbering = &self.planned.numbering;
        assert_eq!(
            self.planned.layout.last_inode(),
            numbering.last(),
            "the volume has the inodes that were numbered"
        );
        Built {
            layout: self.planned.layout.clone(),
            identity,
            // The root and lost+found beside those that were numbered.
            entries: numbering.nodes.len() as u64 + 2,
            data_bytes: self.data_bytes(),
        }
    }
}

/// Reads all sources.
fn read(
    inputs: &Inputs<'_>,
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
    let &Inputs {
        sources,
        skipped,
        folder,
        ..
    } = inputs;
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
