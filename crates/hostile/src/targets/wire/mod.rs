//! The wire of a mount: several workers at a socket that stands for `/dev/fuse`, two queues of
//! rings, and a kernel that sends requests before the last ones are answered, interrupts them, and
//! forgets nodes.
//!
//! Each request is answered once, whether it was interrupted or not; what the kernel has forgotten
//! as often as it was named is not known any more; and the server ends when the kernel lets go.

mod kernel;

use extant::Volume;
use extant_fuse::testing::with_wire;

use self::kernel::WireKernel;
use super::{Cost, change};
use crate::feed::Feed;

/// The most steps of the kernel.
const STEPS: usize = 48;

pub(super) fn run(data: &[u8]) -> Cost {
    change(data, &[], |seed| seed.mounts, serve)
}

/// Steps until the bytes run out; whether one of them has shut the file system down.
fn serve(volume: &Volume, feed: &mut Feed<'_>) -> bool {
    let flags = feed.u8();
    let (is_honest, writeback) = (flags & 3 != 3, flags & 4 == 0);
    let ended = with_wire(volume, writeback, |wire| {
        let mut kernel = WireKernel::new(wire, is_honest);
        for _ in 0..STEPS {
            if feed.is_empty() {
                break;
            }
            kernel.step(feed);
        }
        kernel.end()
    });
    // A damaged root directory has no server.
    let Ok(ended) = ended else {
        return true;
    };
    assert!(ended.served.is_ok(), "the workers: {:?}", ended.served);
    if is_honest {
        let (left, sent) = (&ended.lookups, ended.value);
        assert!(
            left.is_empty(),
            "known still, after {sent} requests: {left:?}"
        );
    }
    volume.sync().is_err()
}
