//! The archive that is unpacked: a file or standard input, whose bytes the progress bar counts.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

use extant_archive::{BLOCK, fill};

use crate::args::Untar;
use crate::failure::{At, Failure};
use crate::progress::Progress;

/// Bytes read from the host at once, at least.
const BUFFER: usize = 256 << 10;

/// An archive that is open.
pub(super) struct ArchiveInput<'a> {
    /// For messages.
    pub(super) name: String,
    pub(super) input: Box<dyn Read + 'a>,
    /// A writer at its other end may wait for its reader.
    pub(super) is_pipe: bool,
}

/// Opens the archive, and looks at its beginning: a compressed one is refused.
///
/// # Errors
/// Those of the host; what is no archive.
pub(super) fn open<'a>(args: &Untar, progress: &'a Progress) -> Result<ArchiveInput<'a>, Failure> {
    let (name, input) = match &args.file {
        Some(path) if path.as_os_str() != "-" => {
            let file = File::open(path).at(path.display())?;
            (path.display().to_string(), file)
        }
        _ => {
            let input = io::stdin().as_fd().try_clone_to_owned();
            let input = File::from(input.at("standard input")?);
            ("standard input".into(), input)
        }
    };
    let mut is_pipe = false;
    if let Ok(metadata) = input.metadata() {
        let kind = metadata.file_type();
        is_pipe = kind.is_fifo() || kind.is_socket();
        if kind.is_file() {
            progress.expect(metadata.len());
        }
    }
    // Headers are small; what is larger than the buffer is read past it.
    let input = BufReader::with_capacity(BUFFER, input);
    let mut input = Metered { input, progress };
    let mut head = vec![0; BLOCK];
    let len = fill(&mut input, &mut head).at(&name)?;
    head.truncate(len);
    let what = match head.as_slice() {
        [] => Some("nothing in it: not an archive"),
        [0x1f, 0x8b, ..] => Some("compressed: zcat it into extant untar"),
        [0xfd, b'7', b'z', ..] => Some("compressed: xzcat it into extant untar"),
        [b'B', b'Z', b'h', ..] => Some("compressed: bzcat it into extant untar"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("compressed: zstdcat it into extant untar"),
        _ => None,
    };
    match what {
        Some(what) => Err(Failure::at(name, what)),
        None => Ok(ArchiveInput {
            name,
            input: Box::new(io::Cursor::new(head).chain(input)),
            is_pipe,
        }),
    }
}

/// An archive whose bytes count as progress.
struct Metered<'a> {
    input: BufReader<File>,
    progress: &'a Progress,
}

impl Read for Metered<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buf)?;
        self.progress.add(len as u64);
        Ok(len)
    }
}
