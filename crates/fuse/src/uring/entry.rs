//! An entry of a queue: memory that the kernel puts a request in, and takes the reply from.
//!
//! ```text
//!   0        288        512    1024             4080    4096
//!   | header |  ...     | iovec | short request | reply's | payload ...
//!   |        |          |       |               | header  |
//!              a request with a payload ends here --------^
//! ```
//!
//! The kernel writes a request in three parts: its header and the fixed part of its operation into
//! the entry's header, and the rest (names, data) into the payload. The parser wants them in one
//! piece, as they come from `/dev/fuse`. So the first two are put together right before the
//! payload, which stays where it is. A request without a payload is put together further ahead, and
//! its reply is made in the payload: what is read is copied once.
//!
//! # Invariants
//! Nothing of an entry is touched while the kernel has it: its ring has lent it (`ring`). Lengths
//! that the kernel gives are checked against the memory; what does not fit is no request.

use std::io;
use std::mem::size_of;
use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{InHeader, OUT_HEADER, OutHeader, RING_HEADER, RingInOut};
use crate::reply::{ReplyBuf, ReplyMemory, zeroed};

/// Bytes of a page of memory, to which the payload is aligned.
pub(super) const PAGE: usize = 4096;
/// Where the parts begin.
const OPERATION: usize = RING_HEADER;
const IN_OUT: usize = 2 * RING_HEADER;
const IOVECS: usize = 512;
const SHORT: usize = 1024;
const PAYLOAD: usize = PAGE;
/// Bytes of the entry's header.
const HEADER_LEN: usize = IN_OUT + size_of::<RingInOut>();
/// Bytes of a request's header.
const IN_HEADER: usize = size_of::<InHeader>();

/// An address and a length, as the kernel wants them.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct IoVec {
    base: usize,
    len: usize,
}

/// See the module's header.
pub(super) struct Entry {
    memory: Box<[u8]>,
    /// Of `memory`, from a page's beginning on.
    used: Range<usize>,
}

/// A request that an entry holds.
pub(super) struct EntryRequest<'a> {
    pub(super) request: &'a [u8],
    pub(super) reply: ReplyBuf<'a>,
    /// The reply is made where the kernel looks for it.
    pub(super) in_place: bool,
}

impl Entry {
    /// An entry for requests and replies with payloads of up to `payload_len` bytes. The kernel
    /// insists on room for the largest; only the pages that requests touch take memory.
    pub(super) fn new(payload_len: usize) -> io::Result<Self> {
        let len = PAYLOAD + payload_len.next_multiple_of(PAGE);
        let memory = zeroed(len + PAGE - 1)?;
        let address = memory.as_ptr().addr();
        let start = address.next_multiple_of(PAGE) - address;
        Ok(Self {
            memory,
            used: start..start + len,
        })
    }

    /// All of it.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.used.clone()]
    }

    /// The address of what the kernel needs to know of the memory: two vectors, of the header and
    /// of the payload.
    pub(super) fn vectors(&mut self) -> *const u8 {
        let bytes = self.bytes();
        let header = bytes.as_mut_ptr().expose_provenance();
        let vectors = [
            IoVec {
                base: header,
                len: HEADER_LEN,
            },
            IoVec {
                base: header + PAYLOAD,
                len: bytes.len() - PAYLOAD,
            },
        ];
        let place = &mut bytes[IOVECS..IOVECS + size_of_val(&vectors)];
        place.copy_from_slice(vectors.as_bytes());
        place.as_ptr()
    }

    /// The request in the entry, and memory for its reply: the entry's own, or `space` where the
    /// payload is taken. `None` if the lengths contradict each other or the memory.
    pub(super) fn open<'a>(&'a mut self, space: &'a mut ReplyMemory) -> Option<EntryRequest<'a>> {
        let bytes = self.bytes();
        let (in_out, _) = RingInOut::read_from_prefix(&bytes[IN_OUT..]).ok()?;
        let (header, _) = InHeader::read_from_prefix(bytes).ok()?;
        let payload_len = usize::try_from(in_out.payload_len).ok()?;
        let len = usize::try_from(header.len).ok()?;
        let operation_len = len.checked_sub(IN_HEADER)?.checked_sub(payload_len)?;
        if operation_len > RING_HEADER || payload_len > bytes.len() - PAYLOAD {
            return None;
        }
        let head_len = IN_HEADER + operation_len;
        let start = match payload_len {
            0 => SHORT,
            _ => PAYLOAD - head_len,
        };
        bytes.copy_within(..IN_HEADER, start);
        bytes.copy_within(OPERATION..OPERATION + operation_len, start + IN_HEADER);
        if payload_len == 0 {
            let (front, reply) = bytes.split_at_mut(PAYLOAD - OUT_HEADER);
            Some(EntryRequest {
                request: front.get(start..start + head_len)?,
                reply: ReplyBuf::over(reply),
                in_place: true,
            })
        } else {
            Some(EntryRequest {
                request: bytes.get(start..start + len)?,
                reply: space.start(),
                in_place: false,
            })
        }
    }

    /// Puts a request there as the kernel does, with what it says of the payload. Of parts that are
    /// too long only the beginning.
    pub(super) fn fill(
        &mut self,
        header: &[u8],
        operation: &[u8],
        payload: &[u8],
        in_out: &RingInOut,
    ) {
        let bytes = self.bytes();
        let parts = [
            (0..IN_HEADER, header),
            (OPERATION..OPERATION + RING_HEADER, operation),
            (IN_OUT..HEADER_LEN, in_out.as_bytes()),
            (PAYLOAD..bytes.len(), payload),
        ];
        for (place, part) in parts {
            let len = part.len().min(place.len());
            bytes[place][..len].copy_from_slice(&part[..len]);
        }
    }

    /// The reply that [`Entry::answer`] has put there, in one piece.
    pub(super) fn answered(&mut self) -> Vec<u8> {
        let bytes = self.bytes();
        let in_out = RingInOut::read_from_prefix(&bytes[IN_OUT..]);
        let len = in_out.map_or(0, |(in_out, _)| in_out.payload_len as usize);
        let payload = &bytes[PAYLOAD..];
        [&bytes[..OUT_HEADER], &payload[..len.min(payload.len())]].concat()
    }

    /// What the kernel calls the request in the entry.
    pub(super) fn commit_id(&mut self) -> u64 {
        let in_out = RingInOut::read_from_prefix(&self.bytes()[IN_OUT..]);
        in_out.map_or(0, |(in_out, _)| in_out.commit_id)
    }

    /// Puts a reply where the kernel looks for it. The part behind the header is there already if
    /// it was made in place.
    pub(super) fn answer(&mut self, header: &OutHeader, body: ReplyBody<'_>) {
        let bytes = self.bytes();
        let payload = &mut bytes[PAYLOAD..];
        let (header, len) = match body {
            ReplyBody::InPlace(len) => (*header, len),
            ReplyBody::Copy(body) => match payload.get_mut(..body.len()) {
                Some(place) => {
                    place.copy_from_slice(body);
                    (*header, body.len())
                }
                // Not reached: no reply is larger than a payload.
                None => (too_long(header), 0),
            },
        };
        bytes[..OUT_HEADER].copy_from_slice(header.as_bytes());
        let in_out = RingInOut {
            commit_id: self.commit_id(),
            // Checked against the payload, which is far below 4 GiB.
            payload_len: u32::try_from(len).unwrap_or(0),
            ..RingInOut::default()
        };
        let place = &mut self.bytes()[IN_OUT..HEADER_LEN];
        place.copy_from_slice(in_out.as_bytes());
    }
}

/// What is behind a reply's header.
#[derive(Clone, Copy)]
pub(super) enum ReplyBody<'a> {
    /// So many bytes, which are in the entry.
    InPlace(usize),
    Copy(&'a [u8]),
}

/// The header of the answer instead of one that is larger than the memory.
fn too_long(header: &OutHeader) -> OutHeader {
    debug_assert!(false, "a reply of {} bytes", header.len);
    OutHeader {
        error: crate::errno::Errno::IO.negative(),
        ..*header
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::abi::op;
    use crate::request::Request;

    const PAYLOAD_LEN: usize = 8192;

    /// An entry as the kernel fills it.
    fn filled(header: InHeader, operation: &[u8], payload: &[u8], said: u32) -> Entry {
        let mut entry = Entry::new(PAYLOAD_LEN).unwrap();
        let in_out = RingInOut {
            commit_id: 99,
            payload_len: said,
            ..RingInOut::default()
        };
        entry.fill(header.as_bytes(), operation, payload, &in_out);
        entry
    }

    fn header(opcode: u32, len: u32) -> InHeader {
        InHeader {
            len,
            opcode,
            unique: 42,
            ..InHeader::default()
        }
    }

    /// What the parser makes of it.
    fn parsed(entry: &mut Entry) -> Option<String> {
        let mut space = ReplyMemory::new(64);
        let opened = entry.open(&mut space)?;
        let request = Request::new(opened.request)?;
        Some(format!("{:?}", request.op(true)))
    }

    /// Pages of the entry that are in memory, as the kernel's map of the process's pages has them:
    /// other threads of the process take memory meanwhile.
    fn resident(entry: &mut Entry) -> usize {
        const WORD: usize = size_of::<u64>();
        const PRESENT: u64 = 1 << 63;
        let bytes = entry.bytes();
        let mut words = vec![0; bytes.len() / PAGE * WORD];
        let at = bytes.as_ptr().addr() / PAGE * WORD;
        let map = File::open("/proc/self/pagemap").unwrap();
        map.read_exact_at(&mut words, at as u64).unwrap();
        let words = words.chunks_exact(WORD);
        let present = |word: &&[u8]| u64::from_ne_bytes((*word).try_into().unwrap()) & PRESENT != 0;
        words.filter(present).count()
    }

    #[test]
    fn entries_take_the_memory_that_requests_touch() {
        // A host may have pages of so many small ones.
        const HUGE: usize = 512;
        // Longer than what the allocator ever takes from memory that was freed.
        let mut entry = Entry::new(40 << 20).unwrap();
        assert_eq!(entry.vectors().addr() % PAGE, IOVECS);
        let header = header(op::LOOKUP, 45);
        entry.fill(header.as_bytes(), &[], b"name\0", &RingInOut::default());
        let taken = resident(&mut entry);
        assert!((2..=2 * HUGE).contains(&taken), "{taken} pages");
    }

    #[test]
    fn a_request_is_parsed_as_from_the_device() {
        let name = b"name\0";
        let mut lookup = filled(header(op::LOOKUP, 45), &[], name, 5);
        assert_eq!(
            parsed(&mut lookup),
            Some("Ok(Lookup { name: [110, 97, 109, 101] })".into())
        );
        let forty = [0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0];
        let operation = [&forty[..], &[0; 20]].concat();
        let mut write = filled(header(op::WRITE, 84), &operation, b"data", 4);
        let text = parsed(&mut write).unwrap();
        assert!(
            text.contains("offset: 7") && text.contains("data: [100, 97"),
            "{text}"
        );
        let mut read = filled(header(op::READ, 80), &operation, &[], 0);
        assert!(parsed(&mut read).unwrap().contains("size: 4"));
    }

    #[test]
    fn a_reply_is_made_in_the_payload_if_the_request_has_none() {
        let mut space = ReplyMemory::new(64);
        let mut entry = filled(header(op::STATFS, 40), &[], &[], 0);
        let mut opened = entry.open(&mut space).unwrap();
        assert!(opened.in_place && opened.request.len() == 40);
        opened.reply.put_bytes(b"answer").unwrap();
        opened.reply.finish(42, Ok(()));
        let (out, _) = OutHeader::read_from_prefix(opened.reply.bytes()).unwrap();
        entry.answer(&out, ReplyBody::InPlace(6));
        let bytes = entry.bytes();
        assert_eq!(&bytes[PAYLOAD..PAYLOAD + 6], b"answer");
        assert_eq!(&bytes[8..16], &42_u64.to_ne_bytes());
        let (in_out, _) = RingInOut::read_from_prefix(&bytes[IN_OUT..]).unwrap();
        assert_eq!((in_out.commit_id, in_out.payload_len), (99, 6));

        let mut named = filled(header(op::LOOKUP, 45), &[], b"name\0", 5);
        assert!(!named.open(&mut space).unwrap().in_place);
        named.answer(&out, ReplyBody::Copy(b"copied"));
        assert_eq!(&named.bytes()[PAYLOAD..PAYLOAD + 6], b"copied");
    }

    #[test]
    fn lengths_of_a_hostile_kernel_are_refused() {
        let mut space = ReplyMemory::new(64);
        let max = u32::MAX;
        let capacity = u32::try_from(PAYLOAD_LEN).unwrap();
        for (len, said) in [
            (0, 0),
            (39, 0),
            (40, 1),
            (44, 5),
            (169, 0),
            (max, 0),
            (max, max),
            (0, max),
            (40 + capacity + 1, capacity + 1),
            (max, capacity),
        ] {
            let mut entry = filled(header(op::WRITE, len), &[], &[], said);
            assert!(entry.open(&mut space).is_none(), "{len} {said}");
        }
        let mut largest = filled(header(op::WRITE, 40 + 128 + capacity), &[], &[], capacity);
        assert!(largest.open(&mut space).is_some());
    }

    #[test]
    fn every_opcode_survives_every_pair_of_lengths() {
        let noise = [0xff; RING_HEADER];
        for opcode in 0..=60 {
            for (operation, payload) in (0..=RING_HEADER)
                .step_by(4)
                .zip((0..300).cycle().step_by(7))
            {
                let len = u32::try_from(IN_HEADER + operation + payload).unwrap();
                let said = u32::try_from(payload).unwrap();
                let mut entry = filled(header(opcode, len), &noise[..operation], &noise, said);
                let _ = parsed(&mut entry);
            }
        }
    }
}
