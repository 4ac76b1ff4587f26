//! Direct requests that are in flight together.

use extant_engine::IoBuf;
use extant_testkit::{Rng, content};

use crate::moves::index;
use crate::world::{Outcome, World, same, text, written};

/// Requests in flight.
const DEPTH: usize = 4;
/// Requests of an operation.
const REQUESTS: u64 = 6;
/// The part of the file that each has to itself, at least: no block is of two.
const PART: u64 = 8192;

/// A request, and the place of its bytes.
struct Request {
    at: u64,
    /// The bytes of a write.
    data: Option<Vec<u8>>,
}

impl World {
    /// Reads what was there before, and writes, in any order.
    pub(super) fn queue(&mut self, file: usize, pos: u64, seed: u64) -> Outcome {
        let mut rng = Rng::new(seed);
        let part_len = PART.max(self.config.block.into());
        let (node, model) = &mut self.files[file];
        let size = model.bytes.len() as u64;
        let mut queue = self.volume.direct_queue(DEPTH, &self.cred);
        let mut requests = Vec::new();
        let mut finished = Vec::new();
        for tag in 0..REQUESTS {
            let unit = [1, 512, 1024, 4096, 4096][rng.index(5)];
            let part = (pos / part_len + tag) * part_len;
            let at = part + rng.below(part_len / unit) * unit;
            let len = (1 + rng.below((part + part_len - at) / unit)) * unit;
            let mut buf = IoBuf::zeroed(index(len));
            // One that is not whole before the end may see the end move.
            let reads = rng.chance(50) && at + len <= size;
            let data = (!reads).then(|| content::fill(seed ^ tag, at, index(len)));
            let submitted = match &data {
                None => queue.read(node, at, buf, tag),
                Some(data) => {
                    buf.copy_from_slice(data);
                    queue.write(node, at, buf, tag)
                }
            };
            submitted.map_err(|error| text(&error))?;
            requests.push(Request { at, data });
            if rng.chance(20) {
                finished.extend(queue.wait(rng.index(2)));
            }
        }
        finished.extend(queue.wait(queue.outstanding()));
        finished.sort_by_key(|request| request.tag);
        if !finished.iter().map(|request| request.tag).eq(0..REQUESTS) {
            return Err(format!("not each request once: {finished:?}"));
        }
        for (request, ended) in requests.iter().zip(finished) {
            match &request.data {
                None => {
                    let done = ended.result.map_err(|error| text(&error))?;
                    let len = ended.buf.len();
                    let expected = model.slice(request.at, len as u64);
                    same(request.at, &ended.buf[..done], expected)?;
                }
                Some(data) => {
                    let done = written(self.config.size, ended.result, data.len())?;
                    model.write(request.at, &data[..done]);
                }
            }
        }
        Ok(())
    }
}
