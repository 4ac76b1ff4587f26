//! Commands that keep images in an object store: push, pull, versions, gc.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use crate::size;

/// Store an image as the next version of a name in an object store
///
/// The image is cut into chunks. Only those are sent that the store does not have: versions of an
/// image, and images with the same bucket and prefix, share what is alike in them. Zeros are not
/// stored. The image must not be mounted for writing meanwhile. A push that was stopped is pushed
/// again: it sends what is left. Of two pushes of one name at a time, one fails.
///
/// A layer (--layer, mount -o layer) becomes the next version of the image that it changes, and is
/// empty then. Only chunks with changes are read and sent.
///
/// Credentials, region and endpoint are those of the environment: AWS_ACCESS_KEY_ID,
/// AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT ..., GOOGLE_SERVICE_ACCOUNT ...,
/// AZURE_STORAGE_ACCOUNT_NAME ... EXTANT_STORE_KEY names the file of a key (32 bytes): what is
/// pushed is encrypted, and read with the same key alone.
#[derive(Args, Debug)]
pub(crate) struct Push {
    /// Bytes of a chunk, a power of two from 4K to 16M. Images share chunks of one size only
    #[arg(long, value_name = "BYTES", default_value = "512K", value_parser = size::parse)]
    pub(crate) chunk_size: u64,
    /// Threads that read, compress and send
    #[arg(long, value_name = "N", default_value = "8")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) threads: u8,
    /// Send all chunks, also those that the store has: what was damaged there is whole again
    #[arg(long)]
    pub(crate) resend: bool,
    /// Never show a progress bar. It shows on a terminal only, for pushes that take long
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Image file, block device, NBD address or layer
    pub(crate) image: PathBuf,
    /// s3://BUCKET/PREFIX/NAME, gs://, az:// or file:///FOLDER/NAME
    #[arg(value_name = "STORED")]
    pub(crate) stored: PathBuf,
}

/// Make a file of an image in an object store
///
/// Each chunk is verified. The file gets its name when it is whole, and has holes where the image
/// has zeros.
#[derive(Args, Debug)]
pub(crate) struct Pull {
    /// Never show a progress bar. It shows on a terminal only, for pulls that take long
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// s3://BUCKET/PREFIX/NAME or NAME@VERSION; gs://, az:// or file:///FOLDER/NAME
    #[arg(value_name = "STORED")]
    pub(crate) stored: PathBuf,
    /// The image file to make
    pub(crate) image: PathBuf,
}

/// List the versions of an image in an object store
#[derive(Args, Debug)]
pub(crate) struct Versions {
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// s3://BUCKET/PREFIX/NAME, gs://, az:// or file:///FOLDER/NAME
    #[arg(value_name = "STORED")]
    pub(crate) stored: PathBuf,
}

/// Remove what no version of an image in an object store needs
///
/// A run lists chunks and manifests that no version names. A run a day later removes those of the
/// list that are still in none. So it is run again and again: each night, say. Pushes and other
/// runs may go on meanwhile, on any host. What is younger than half a day is not listed, as a push
/// may be about to name it.
///
/// Versions are removed with --keep only. Mounts and pulls of a version that was removed go on
/// until what only it has is removed: usually a day later. Layers over it cannot be used any more.
/// A version that cannot be read ends the run, as it may need anything; so it is with a list.
#[derive(Args, Debug)]
pub(crate) struct Gc {
    /// Remove all but the last N versions of each image
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<NonZeroUsize>,
    /// Say what would be removed, by the host's clock, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Never show a progress bar. It shows on a terminal only
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// s3://BUCKET/PREFIX, gs://, az:// or file:///FOLDER: an address of images without the names
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
}
