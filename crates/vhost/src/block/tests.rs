use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_units::DevOff;
use virtio_queue::QueueT;

use super::*;
use crate::guest_rig::{
    BUFFERS, DESCRIPTORS, GuestRig, INDIRECT, MEMORY, NEXT, Numbers, SIZE, WRITE,
};

/// Bytes of the device.
const LEN: u64 = 1 << 20;
const STATUS: u64 = BUFFERS - 1;
const DATA: u64 = BUFFERS + 0x1000;

/// A device that counts flushes, and can fail.
struct Counted {
    inner: MemoryDevice,
    flushes: AtomicU64,
    flush_fails_from: u64,
    read_only: bool,
}

impl Counted {
    fn new() -> Self {
        Self {
            inner: MemoryDevice::new(LEN),
            flushes: AtomicU64::new(0),
            flush_fails_from: u64::MAX,
            read_only: false,
        }
    }
}

impl BlockDevice for Counted {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn is_read_only(&self) -> bool {
        self.read_only
    }
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        match self.flushes.fetch_add(1, Ordering::Relaxed) == self.flush_fails_from {
            true => Err(io::Error::other("no medium")),
            false => Ok(()),
        }
    }
}

struct Disk {
    rig: GuestRig,
    device: Arc<Counted>,
    server: BlockServer,
    buffer: QueueBuffer,
    durable: bool,
}

impl Disk {
    fn new(device: Counted) -> Self {
        let device = Arc::new(device);
        Self {
            rig: GuestRig::new(),
            server: BlockServer::new(Arc::clone(&device) as _, "disk.img"),
            device,
            buffer: QueueBuffer::default(),
            durable: false,
        }
    }

    fn next(&mut self) -> Result<bool, Broken> {
        let Some(chain) = self.rig.take()? else {
            return Ok(false);
        };
        let len = self.server.serve(&chain, self.durable, &mut self.buffer)?;
        self.rig.complete(chain.head(), len)?;
        Ok(true)
    }

    /// A request of `kind` at `sector` with buffers behind its header; returns the status.
    fn request(&mut self, kind: u32, sector: u64, buffers: &[(u64, u32, u16)]) -> u8 {
        let mut header = kind.to_le_bytes().to_vec();
        header.extend([0; 4]);
        header.extend(sector.to_le_bytes());
        self.rig.put(BUFFERS, &header);
        self.rig.put(STATUS, &[0xff]);
        let mut all = vec![(BUFFERS, 16, 0)];
        all.extend_from_slice(buffers);
        all.push((STATUS, 1, WRITE));
        self.rig.offer_chain(&all);
        assert_eq!(self.next(), Ok(true));
        self.rig.get(STATUS, 1)[0]
    }
}

#[test]
fn what_is_written_is_read_and_flushed() {
    let mut disk = Disk::new(Counted::new());
    let bytes: Vec<u8> = (0..8192_u32).map(|n| n.to_le_bytes()[0]).collect();
    disk.rig.put(DATA, &bytes);
    // In pieces that end within sectors.
    let pieces = [(DATA, 100, 0), (DATA + 100, 8092, 0)];
    assert_eq!(disk.request(OUT, 3, &pieces), 0);
    assert_eq!(disk.rig.used(), (1, 0, 1));
    let to = DATA + 0x10000;
    let pieces = [(to, 4096, WRITE), (to + 4096, 4096, WRITE)];
    assert_eq!(disk.request(IN, 3, &pieces), 0);
    assert_eq!(disk.rig.used(), (2, 0, 8193));
    assert_eq!(disk.rig.get(to, 8192), bytes);
    assert_eq!(disk.device.flushes.load(Ordering::Relaxed), 0);
    assert_eq!(disk.request(FLUSH, 0, &[]), 0);
    assert_eq!(disk.device.flushes.load(Ordering::Relaxed), 1);
    // A driver that does not flush has durable writes.
    disk.durable = true;
    assert_eq!(disk.request(OUT, 0, &[(DATA, 512, 0)]), 0);
    assert_eq!(disk.device.flushes.load(Ordering::Relaxed), 2);
    assert_eq!(disk.request(GET_ID, 0, &[(to, 20, WRITE)]), 0);
    assert_eq!(disk.rig.get(to, 20), b"disk.img\0\0\0\0\0\0\0\0\0\0\0\0");
}

/// A range that leaves the device, or is not of sectors, is an error, and changes nothing.
#[test]
fn ranges_outside_are_refused() {
    let mut disk = Disk::new(Counted::new());
    disk.rig.put(DATA, &[7; 8192]);
    let last = LEN / SECTOR;
    for (sector, len) in [
        (last, 512),
        (last - 1, 1024),
        (u64::MAX, 512),
        (u64::MAX / 512, 512),
        (u64::MAX / 512 + 1, 512),
        // More than is copied at once: the first part would fit.
        (0, 2 << 20),
        (0, 511),
        (0, 513),
    ] {
        assert_eq!(disk.request(OUT, sector, &[(DATA, len, 0)]), 1, "{sector}");
        assert_eq!(disk.request(IN, sector, &[(DATA, len, WRITE)]), 1);
    }
    assert_eq!(disk.request(OUT, last - 1, &[(DATA, 512, 0)]), 0);
    let mut found = vec![0; usize::try_from(LEN).unwrap()];
    disk.device.read_at(DevOff::new(0), &mut found).unwrap();
    assert!(found[..found.len() - 512].iter().all(|&byte| byte == 0));
    assert_eq!(disk.request(99, 0, &[]), 2);
    assert_eq!(disk.request(FLUSH, 0, &[]), 0);
}

#[test]
fn a_device_that_is_only_read_takes_no_writes() {
    let read_only = true;
    let mut disk = Disk::new(Counted {
        read_only,
        ..Counted::new()
    });
    assert_eq!(disk.request(OUT, 0, &[(DATA, 512, 0)]), 1);
    assert_eq!(disk.request(WRITE_ZEROES, 0, &[(DATA, 16, 0)]), 1);
    assert_eq!(disk.request(IN, 0, &[(DATA, 512, WRITE)]), 0);
}

#[test]
fn ranges_are_emptied_all_or_none() {
    let mut disk = Disk::new(Counted::new());
    disk.device.write_at(DevOff::new(0), &[9; 4096]).unwrap();
    let segment = |sector: u64, sectors: u32, flags: u32| {
        let mut bytes = sector.to_le_bytes().to_vec();
        bytes.extend(sectors.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes
    };
    // The second is bad.
    for (second, status) in [
        (segment(LEN / SECTOR, 1, 0), 1),
        (segment(0, u32::MAX, 0), 1),
        (segment(0, 1, 2), 2),
    ] {
        disk.rig.put(DATA, &[segment(0, 2, 1), second].concat());
        assert_eq!(disk.request(WRITE_ZEROES, 0, &[(DATA, 32, 0)]), status);
    }
    let mut found = [0; 4096];
    disk.device.read_at(DevOff::new(0), &mut found).unwrap();
    assert_eq!(found, [9; 4096]);
    for len in [0, 15, 17] {
        assert_eq!(disk.request(WRITE_ZEROES, 0, &[(DATA, len, 0)]), 1, "{len}");
    }
    disk.rig.put(DATA, &segment(1, 2, 1));
    assert_eq!(disk.request(WRITE_ZEROES, 0, &[(DATA, 16, 0)]), 0);
    // A discard may not say that it may deallocate.
    assert_eq!(disk.request(DISCARD, 0, &[(DATA, 16, 0)]), 2);
    disk.device.read_at(DevOff::new(0), &mut found).unwrap();
    assert_eq!(found[..512], [9; 512]);
    assert_eq!(found[512..1536], [0; 1024]);
    assert_eq!(found[1536..], [9; 2560]);
}

/// The host tells of lost writes once: the guest hears of them at each flush from then on.
#[test]
fn a_flush_that_has_failed_fails_for_good() {
    let mut disk = Disk::new(Counted {
        flush_fails_from: 1,
        ..Counted::new()
    });
    let statuses: Vec<u8> = (0..4).map(|_| disk.request(FLUSH, 0, &[])).collect();
    assert_eq!(statuses, [0, 1, 1, 1]);
}

/// Chains that no driver makes break the queue; nothing is answered.
#[test]
fn damaged_chains_break_the_queue() {
    let broken = |make: &dyn Fn(&mut GuestRig)| {
        let mut disk = Disk::new(Counted::new());
        make(&mut disk.rig);
        let outcome = disk.next();
        assert_eq!(disk.rig.used().0, 0);
        outcome
    };
    let header = (BUFFERS, 16, 0);
    let chain = |buffers: &[(u64, u32, u16)]| {
        let buffers = buffers.to_vec();
        move |rig: &mut GuestRig| rig.offer_chain(&buffers)
    };
    assert_eq!(broken(&chain(&[header])), Err(Broken::NoAnswer));
    let order = [(STATUS, 1, WRITE), header];
    assert_eq!(broken(&chain(&order)), Err(Broken::Order));
    let nowhere = [(MEMORY, 16, 0), (STATUS, 1, WRITE)];
    assert_eq!(broken(&chain(&nowhere)), Err(Broken::Memory));
    let nowhere = [header, (u64::MAX, 1, WRITE)];
    assert_eq!(broken(&chain(&nowhere)), Err(Broken::Memory));
    // A loop, a way out of the table, no table at all, one in another, an odd one.
    let described = |flags: u16, next: u16, (addr, len): (u64, u32)| {
        move |rig: &mut GuestRig| {
            rig.describe((DESCRIPTORS, 0), ((addr, len), (flags, next)));
            rig.describe((BUFFERS, 0), ((BUFFERS, 16), (INDIRECT, 0)));
            rig.offer(0);
        }
    };
    assert_eq!(
        broken(&described(NEXT, 0, (BUFFERS, 16))),
        Err(Broken::Chain)
    );
    assert_eq!(
        broken(&described(NEXT, SIZE, (BUFFERS, 16))),
        Err(Broken::Chain)
    );
    assert_eq!(
        broken(&described(INDIRECT, 0, (MEMORY, 16))),
        Err(Broken::Chain)
    );
    assert_eq!(
        broken(&described(INDIRECT, 0, (BUFFERS, 16))),
        Err(Broken::Chain)
    );
    assert_eq!(
        broken(&described(INDIRECT, 0, (BUFFERS, 17))),
        Err(Broken::Chain)
    );
    assert_eq!(broken(&|rig| rig.offer(SIZE)), Err(Broken::Chain));
    // More requests than the ring has.
    let jump = |rig: &mut GuestRig| (0..=SIZE).for_each(|_| rig.offer(0));
    assert_eq!(broken(&jump), Err(Broken::Ring));
    let ring = |rig: &mut GuestRig| {
        rig.offer_chain(&[header, (STATUS, 1, WRITE)]);
        rig.queue.set_used_ring_address(Some(0xffff_fff0), Some(0));
    };
    assert_eq!(broken(&ring), Err(Broken::Ring));
    let long = |rig: &mut GuestRig| {
        for number in 0..2000 {
            rig.describe((BUFFERS, number), ((BUFFERS, 1), (NEXT, number + 1)));
        }
        rig.describe((DESCRIPTORS, 0), ((BUFFERS, 32000), (INDIRECT, 0)));
        rig.offer(0);
    };
    assert_eq!(broken(&long), Err(Broken::Length));
}

#[test]
fn a_table_of_descriptors_may_lie_anywhere() {
    let mut disk = Disk::new(Counted::new());
    let table = BUFFERS + 0x8000;
    disk.rig
        .put(BUFFERS, &[&FLUSH.to_le_bytes()[..], &[0; 12]].concat());
    disk.rig.describe((table, 0), ((BUFFERS, 16), (NEXT, 1)));
    disk.rig.describe((table, 1), ((STATUS, 1), (WRITE, 0)));
    disk.rig
        .describe((DESCRIPTORS, 5), ((table, 32), (INDIRECT, 0)));
    disk.rig.put(STATUS, &[0xff]);
    disk.rig.offer(5);
    assert_eq!(disk.next(), Ok(true));
    assert_eq!(
        (disk.rig.get(STATUS, 1)[0], disk.rig.used()),
        (0, (1, 5, 1))
    );
}

/// Any bytes in the ring and in requests: each step ends, and takes bounded memory.
#[test]
fn garbage_ends_in_a_status_or_a_broken_queue() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut served, mut broken) = (0, 0);
    for _ in 0..20_000 {
        let mut disk = Disk::new(Counted::new());
        disk.durable = numbers.below(2) == 0;
        for number in 0..SIZE {
            let (place, flags, next) = garbage(&mut numbers);
            disk.rig
                .describe((DESCRIPTORS, number), (place, (flags, next)));
            let (place, flags, next) = garbage(&mut numbers);
            disk.rig.describe((BUFFERS, number), (place, (flags, next)));
        }
        for _ in 0..numbers.below(u64::from(SIZE) + 2) {
            let kinds = [IN, OUT, FLUSH, GET_ID, DISCARD, WRITE_ZEROES, 77];
            let kind = kinds[usize::try_from(numbers.below(7)).unwrap()];
            let sector = numbers.next() >> numbers.below(64);
            disk.rig.put(BUFFERS + 0x800, &kind.to_le_bytes());
            disk.rig.put(BUFFERS + 0x808, &sector.to_le_bytes());
            disk.rig
                .offer(u16::try_from(numbers.below(u64::from(SIZE) + 1)).unwrap());
        }
        let mut steps = 0;
        loop {
            match disk.next() {
                Ok(true) => served += 1,
                Ok(false) => break,
                Err(_) => {
                    broken += 1;
                    break;
                }
            }
            steps += 1;
            assert!(steps <= SIZE, "a ring has no more");
        }
        assert!(disk.buffer.bytes.len() <= STEP);
    }
    // The garbage reaches both ends.
    assert!(served > 1000 && broken > 1000, "{served} {broken}");
}

/// A descriptor: likely one that leads somewhere.
fn garbage(numbers: &mut Numbers) -> ((u64, u32), u16, u16) {
    let addr = match numbers.below(8) {
        0 => numbers.next(),
        1 => MEMORY - numbers.below(64),
        2 => BUFFERS,
        _ => BUFFERS + 0x800,
    };
    let len = match numbers.below(6) {
        0 => u32::MAX,
        1 => u32::try_from(numbers.below(1 << 23)).unwrap(),
        2 => 0,
        3 => 512,
        _ => 16,
    };
    let flags = match numbers.below(8) {
        0 => u16::MAX,
        1 => INDIRECT,
        2 | 3 => WRITE,
        4 => 0,
        _ => NEXT,
    };
    let next = u16::try_from(numbers.below(u64::from(SIZE) + 2)).unwrap();
    ((addr, len), flags, next)
}
