//! Copies of files and trees: from the host, to the host, and between volumes.
//!
//! # Responsibility
//! `sides` has the calls of both sides, `host` and `volume` implement them. `copy_options` is the
//! request, `copy_error` the failure of one file. `job` copies one tree, `content` the bytes of one
//! file; `stream` is what only goes forward, `total` counts for a progress bar.
//!
//! # Invariants
//! Another program may change a tree of the host while it is copied: see [`sides`].

mod content;
mod copy_error;
mod copy_options;
mod host;
mod job;
pub(crate) mod sides;
mod stream;
mod total;
mod volume;

use std::path::Path;

pub use content::filled;
pub use copy_error::{CopyError, CopyRefusal, CopySide};
pub use copy_options::{CopyEnd, CopyOptions, CopyWatch, Existing, FileIdentity, Sparse};
pub use copy_options::{device_number, device_numbers};
pub use host::HostTree;
use job::Job;
use sides::FileTree;
pub use volume::VolumeTree;

use crate::filesystem::Filesystem;

/// Copies a file or a tree. Holes stay holes unless [`CopyOptions::sparse`] says otherwise, and a
/// file that shrinks meanwhile gives a shorter copy. Returns the bytes of content.
///
/// ```
/// use extant::{CopyEnd, CopyOptions};
/// # use std::path::Path;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let one = extant::testing::filesystem(16 << 20)?;
/// let two = extant::testing::filesystem(16 << 20)?;
/// one.write("/motd", "hello")?;
/// let from = CopyEnd::Volume(&one, Path::new("/motd"));
/// let to = CopyEnd::Volume(&two, Path::new("/copy"));
/// assert_eq!(extant::copy(&from, &to, &CopyOptions::default(), &mut ())?, 5);
/// assert_eq!(two.read_to_string("/copy")?, "hello");
/// # Ok(()) }
/// ```
///
/// # Errors
/// The first failure that [`CopyWatch::failed`] returns.
pub fn copy(
    from: &CopyEnd<'_>,
    to: &CopyEnd<'_>,
    options: &CopyOptions<'_>,
    watch: &mut dyn CopyWatch,
) -> Result<u64, CopyError> {
    let same = match (from, to) {
        (CopyEnd::Volume(from, _), CopyEnd::Volume(to, _)) => from.volume().is_same(to.volume()),
        (CopyEnd::Host(_), CopyEnd::Host(_)) => true,
        _ => false,
    };
    let (source, target) = (tree(from), tree(to));
    let job = Job::new(&*source, &*target, same, options, watch);
    job.copy(path(from), path(to))
}

/// Returns the bytes that [`copy`] would copy, as far as they can be found out: for a progress bar.
pub fn copy_size(from: &CopyEnd<'_>, options: &CopyOptions<'_>) -> u64 {
    total::count(&*tree(from), path(from), options)
}

/// The files of one end.
fn tree<'a>(end: &CopyEnd<'a>) -> Box<dyn FileTree<'a> + 'a> {
    match end {
        CopyEnd::Host(_) => Box::new(HostTree),
        CopyEnd::Volume(fs, _) => Box::new(VolumeTree(fs)),
        CopyEnd::Stream(file) => Box::new(host::OpenInput(file)),
    }
}

fn path<'a>(end: &CopyEnd<'a>) -> &'a Path {
    match end {
        CopyEnd::Host(path) | CopyEnd::Volume(_, path) => path,
        CopyEnd::Stream(_) => Path::new("-"),
    }
}

/// The options of the methods below.
fn whole(xattrs: bool) -> CopyOptions<'static> {
    CopyOptions {
        xattrs,
        ..CopyOptions::whole()
    }
}

impl Filesystem {
    /// Copies a file or a tree of the host to `path`: content with its holes, permissions, times,
    /// hard links, device nodes, and owners unless `owner` names one for all: a file that gets
    /// another owner loses its set-id bits, as by chown(2). Extended attributes are left out.
    /// Directories that are there are filled and keep their attributes; what else is in the way is
    /// replaced. Symbolic links are copied, not followed. Returns the bytes of content.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = std::env::temp_dir().join(format!("extant-copy-{}", std::process::id()));
    /// # std::fs::create_dir_all(&host)?;
    /// # std::fs::write(host.join("motd"), "hello")?;
    /// let fs = extant::testing::filesystem(16 << 20)?;
    /// assert_eq!(fs.copy_in(&host, "/etc", Some((0, 0)))?, 5);
    /// assert_eq!(fs.read_to_string("/etc/motd")?, "hello");
    /// # std::fs::remove_dir_all(&host)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The first failure, of either side.
    pub fn copy_in(
        &self,
        host: impl AsRef<Path>,
        path: impl AsRef<Path>,
        owner: Option<(u32, u32)>,
    ) -> Result<u64, CopyError> {
        let (uid, gid) = owner.unzip();
        let options = CopyOptions {
            uid,
            gid,
            ..whole(false)
        };
        let (from, to) = (host.as_ref(), path.as_ref());
        copy(
            &CopyEnd::Host(from),
            &CopyEnd::Volume(self, to),
            &options,
            &mut (),
        )
    }

    /// Copies a file or a tree to `host`, a path of the host. As [`Filesystem::copy_in`], but the
    /// copies are the caller's and have no set-id bits. Device nodes need privileges.
    ///
    /// # Errors
    /// The first failure, of either side; [`std::io::ErrorKind::AlreadyExists`] where a device
    /// node, a pipe or a socket of the host is in the way.
    pub fn copy_out(
        &self,
        path: impl AsRef<Path>,
        host: impl AsRef<Path>,
    ) -> Result<u64, CopyError> {
        let options = CopyOptions {
            owners: false,
            ..whole(false)
        };
        let (from, to) = (path.as_ref(), host.as_ref());
        copy(
            &CopyEnd::Volume(self, from),
            &CopyEnd::Host(to),
            &options,
            &mut (),
        )
    }

    /// Copies a file or a tree to `to` in `target`, which may be this file system. As
    /// [`Filesystem::copy_in`], with extended attributes.
    ///
    /// # Errors
    /// The first failure; [`extant_engine::Error::Invalid`] for a copy of a file or a directory
    /// into itself.
    pub fn copy_tree(
        &self,
        path: impl AsRef<Path>,
        target: &Filesystem,
        to: impl AsRef<Path>,
    ) -> Result<u64, CopyError> {
        let (from, to) = (path.as_ref(), to.as_ref());
        let (from, to) = (CopyEnd::Volume(self, from), CopyEnd::Volume(target, to));
        copy(&from, &to, &whole(true), &mut ())
    }
}
