//! A work queue: several threads take files of an image from a queue and count their lines.
//!
//! ```sh
//! cargo run --example work_queue -- disk.img /usr/share
//! ```

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};
use std::thread;

use extant::Filesystem;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let image = args.next().ok_or("usage: work_queue IMAGE [DIRECTORY]")?;
    let top = args.next().unwrap_or_else(|| "/".into());
    let fs = Filesystem::open(image)?;
    for (path, lines) in count(&fs, top.as_ref(), 4)? {
        println!("{lines:8} {}", path.display());
    }
    Ok(())
}

/// The regular files below a directory, in order, each with the number of its lines.
pub(crate) fn count(
    fs: &Filesystem,
    top: &Path,
    threads: usize,
) -> Result<Vec<(PathBuf, usize)>, extant::Error> {
    let (submit, queue) = mpsc::sync_channel::<PathBuf>(64);
    let queue = Mutex::new(queue);
    let (finish, finished) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (queue, finish) = (&queue, finish.clone());
            scope.spawn(move || {
                // The lock is held for the moment in which a path is taken, not while it is read.
                while let Ok(Ok(path)) = queue.lock().map(|queue| queue.recv()) {
                    let counted = lines(fs, &path).map(|lines| (path, lines));
                    if finish.send(counted).is_err() {
                        break;
                    }
                }
            });
        }
        drop(finish);
        for entry in fs.walk_dir(top)? {
            let entry = entry?;
            // The directory knows what is a file: no inode is read for that.
            if entry.file_type()?.is_file() && submit.send(entry.path()).is_err() {
                break;
            }
        }
        drop(submit);
        let mut counts = finished.iter().collect::<Result<Vec<_>, _>>()?;
        counts.sort();
        Ok(counts)
    })
}

fn lines(fs: &Filesystem, path: &Path) -> Result<usize, extant::Error> {
    let mut file = fs.open_file(path)?;
    let (mut piece, mut lines) = ([0; 1 << 16], 0);
    loop {
        // What `Read` returns is an `io::Error`; this is the library's own again.
        let len = file.read(&mut piece).map_err(extant::Error::of_call)?;
        if len == 0 {
            return Ok(lines);
        }
        lines += piece[..len].iter().filter(|&&byte| byte == b'\n').count();
    }
}
