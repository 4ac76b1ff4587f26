//! Reading ahead along the list of a start.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::error::Result;
use crate::start_list::StartList;
use crate::stored_image::StoredImage;

/// The first and the longest pause of a thread that waits for readers. After ten times the longest
/// one the start has ended.
const FIRST_WAIT: Duration = Duration::from_millis(2);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Threads that read ahead: requests that are under way at once.
const THREADS: usize = 8;

/// Begins to read the chunks of `list` ahead, in its order, until they are there or the image is
/// dropped. Without a folder of chunks they are read as far ahead of the readers as half of the
/// memory for chunks. A chunk that cannot be read is left to its reader. Of a list with another
/// length of chunks nothing is read.
///
/// # Errors
/// No thread can be started.
pub fn prefetch(image: &Arc<StoredImage>, list: StartList) -> Result<()> {
    if list.chunk_bytes() != image.manifest().chunk_bytes() {
        tracing::warn!("the list of a start is of chunks of another length: nothing is read ahead");
        return Ok(());
    }
    let chunks = image.manifest().chunks();
    let is_stored = |&chunk: &u32| chunks.get(chunk as usize).is_some_and(Option::is_some);
    let work = Arc::new(Work {
        chunks: list.chunks().iter().copied().filter(is_stored).collect(),
        next: AtomicUsize::new(0),
    });
    for _ in 0..THREADS {
        let (work, image) = (Arc::clone(&work), Arc::downgrade(image));
        let thread = thread::Builder::new().name("prefetch".to_owned());
        thread.spawn(move || work.run(&image))?;
    }
    Ok(())
}

/// A list that threads work on. Each takes the next chunk.
struct Work {
    /// Chunks with content.
    chunks: Vec<u32>,
    next: AtomicUsize,
}

impl Work {
    fn run(&self, image: &Weak<StoredImage>) {
        loop {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&chunk) = self.chunks.get(place) else {
                return;
            };
            // Not kept while it waits: the image may be dropped.
            let mut waits = FIRST_WAIT;
            while image
                .upgrade()
                .is_some_and(|image| !image.may_read_ahead(place))
            {
                if waits > LONGEST_WAIT {
                    return;
                }
                thread::sleep(waits);
                waits = waits.mul_f64(1.1);
            }
            let Some(image) = image.upgrade() else {
                return;
            };
            image.read_ahead(chunk as usize);
        }
    }
}
