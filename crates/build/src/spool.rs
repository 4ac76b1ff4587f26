//! Compressed archives and streams, unpacked into a file without a name, so that they can be read
//! anywhere.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use rustix::fs::statvfs;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::{At, Error, Result};
use crate::new_file::nameless;

/// Bytes that are read and written at once.
const CHUNK: usize = 256 << 10;
/// The most memory that xz may ask for, in KiB: what its strongest preset takes, and as much again.
const XZ_MEMORY_KIB: u32 = 128 << 10;
/// The most bytes that sources may unpack to, where nothing is said.
const LIMIT: u64 = 256 << 30;

/// Bytes that sources may unpack to in `folder`, where nothing is said: most of what is free there.
/// The image needs about as much again.
pub(crate) fn limit(folder: &Path) -> u64 {
    match statvfs(folder) {
        Ok(found) if found.f_blocks > 0 => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            LIMIT.min(free / 4 * 3)
        }
        _ => LIMIT,
    }
}

/// How an archive is compressed, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
}

impl Compression {
    /// The compression of what begins with `head`.
    ///
    /// # Errors
    /// One that is not read.
    pub(crate) fn of(head: &[u8]) -> std::result::Result<Self, &'static str> {
        match head {
            [0x1f, 0x8b, ..] => Ok(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Ok(Self::Xz),
            [b'B', b'Z', b'h', ..] => Err("compressed by bzip2: bzcat it into extant build -"),
            [0x04, 0x22, 0x4d, 0x18, ..] => Err("compressed by lz4: lz4cat it into extant build -"),
            _ => Ok(Self::None),
        }
    }

    /// The bytes that `input` unpacks to.
    fn reader<'a>(self, input: impl BufRead + 'a) -> Box<dyn Read + 'a> {
        match self {
            Self::None => Box::new(input),
            Self::Gzip => Box::new(MultiGzDecoder::new(input)),
            Self::Zstd => Box::new(Frames::of(input)),
            Self::Xz => Box::new(XzReader::new_mem_limit(input, true, XZ_MEMORY_KIB)),
        }
    }
}

/// The frames of a zstd stream, one after the other.
struct Frames<R> {
    input: R,
    decoder: FrameDecoder,
    /// Within a frame.
    open: bool,
}

impl<R: BufRead> Frames<R> {
    fn of(input: R) -> Self {
        Self {
            input,
            decoder: FrameDecoder::new(),
            open: false,
        }
    }

    /// Goes to the next frame with content; whether there is one.
    fn next(&mut self) -> io::Result<bool> {
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.init(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let len = u64::from(length);
                    let gone = io::copy(&mut (&mut self.input).take(len), &mut io::sink())?;
                    if gone < len {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !buf.is_empty() {
            if !self.open {
                if !self.next()? {
                    break;
                }
                self.open = true;
            }
            let decoder = &mut self.decoder;
            while decoder.can_collect() == 0 && !decoder.is_finished() {
                let more = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = decoder.decode_blocks(&mut self.input, more);
                decoded.map_err(io::Error::other)?;
            }
            let len = decoder.read(buf)?;
            if len > 0 {
                return Ok(len);
            }
            let stored = decoder.get_checksum_from_data();
            if stored.is_some() && stored != decoder.get_calculated_checksum() {
                return Err(io::Error::other("a checksum is wrong"));
            }
            self.open = false;
        }
        Ok(0)
    }
}

/// Unpacks `input` into a file without a name in `folder`. Returns the file and its length.
///
/// # Errors
/// Those of the host; a compression that is not read; damage; more than `limit` bytes.
pub(crate) fn spool(
    name: &str,
    input: impl Read,
    folder: &Path,
    limit: u64,
) -> Result<(File, u64)> {
    let mut input = BufReader::with_capacity(CHUNK, input);
    let head = input.fill_buf().at(Path::new(name))?;
    let compression = Compression::of(head).map_err(|what| Error::at(name, what))?;
    let (file, named) = nameless(folder, 0o600).at(folder)?;
    // It needs no name.
    drop(named);
    let mut from = compression.reader(input);
    let mut buf = vec![0; CHUNK];
    let mut len = 0;
    loop {
        let read = match from.read(&mut buf) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other,
        };
        let read =
            read.map_err(|error| Error::at(name, format!("it cannot be unpacked: {error}")))?;
        if read == 0 {
            break;
        }
        len += read as u64;
        if len > limit {
            let what = format!("it unpacks to more than {limit} bytes, the limit");
            return Err(Error::at(name, what));
        }
        (&file).write_all(&buf[..read]).at(folder)?;
    }
    Ok((file, len))
}
