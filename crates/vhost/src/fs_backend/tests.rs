use std::thread;

use extant_engine::VolumeOptions;
use extant_fuse::MountOptions;
use extant_testkit::{Image, Need, need};
use vhost_user_backend::VringT;

use super::*;
use crate::guest_rig::{
    AVAILABLE, BUFFERS, DESCRIPTORS, GuestRig, INDIRECT, MEMORY, NEXT, Numbers, SIZE, USED, WRITE,
};
use crate::sessions::WORKERS;

const OPTIONS: FsOptions = FsOptions {
    queues: 2,
    tag: String::new(),
    keep: false,
};
/// Room for answers.
const ROOM: u64 = BUFFERS + 0x10000;
/// `INIT`, and the length of its request and of its reply.
const INIT: (u32, u32, u32) = (26, 56, 80);

/// A ring at the rig's addresses.
fn ring(rig: &GuestRig) -> Vring {
    let vring = Vring::new(rig.memory(), SIZE).unwrap();
    vring.set_queue_size(SIZE);
    vring.set_queue_info(DESCRIPTORS, AVAILABLE, USED).unwrap();
    vring.set_queue_ready(true);
    vring
}

/// A backend of a volume, and the workers that serve it.
fn with_backend(work: impl FnOnce(&FsBackend)) {
    if !need(&[Need::Tool("mke2fs")]) {
        return;
    }
    let image = Image::of_mib(16).make().unwrap();
    let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
    let volume = GuestVolume::new(volume, WORKERS, &MountOptions::default()).unwrap();
    let volume = Arc::new(volume);
    let backend = FsBackend::new(Arc::clone(&volume), &OPTIONS);
    thread::scope(|scope| {
        let _end = backend.jobs.closing();
        scope.spawn(|| serve_sessions(&volume, &backend.jobs));
        work(&backend);
    });
    drop(backend);
    Arc::into_inner(volume).unwrap().close().unwrap();
    image.fsck_clean().unwrap();
}

/// The bytes of a request of `len` bytes.
fn put_request(rig: &GuestRig, opcode: u32, len: u32) {
    let mut bytes = len.to_le_bytes().to_vec();
    bytes.extend(opcode.to_le_bytes());
    // Number 9, of the root directory, by root.
    bytes.extend(9_u64.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.resize(40, 0);
    // INIT of version 7.36; other kinds read it otherwise.
    for word in [7_u32, 36, 1 << 20, u32::MAX] {
        bytes.extend(word.to_le_bytes());
    }
    rig.put(BUFFERS, &bytes);
}

/// Has the backend serve what a ring offers, and waits until it is done.
fn serve_ring(backend: &FsBackend, rig: &GuestRig, vring: Vring, queue: usize) {
    backend.update_memory(rig.memory()).unwrap();
    backend
        .handle_event(0, EventSet::IN, &[vring], queue)
        .unwrap();
    // A monitor that stops the queue waits for the requests that are under way.
    backend.queues[queue].drain();
}

fn begin_session(backend: &FsBackend) {
    let (opcode, len, reply) = INIT;
    let mut rig = GuestRig::new();
    put_request(&rig, opcode, len);
    rig.offer_chain(&[(BUFFERS, len, 0), (ROOM, reply, WRITE)]);
    serve_ring(backend, &rig, ring(&rig), 1);
    assert_eq!(rig.used(), (1, 0, reply));
    let head = rig.get(ROOM, 16);
    assert_eq!(head[..8], [80, 0, 0, 0, 0, 0, 0, 0], "{head:?}");
}

/// Requests before the first session, forgets and ends are completed; a queue serves the next
/// session behind the last.
#[test]
fn sessions_follow_each_other() {
    with_backend(|backend| {
        let ask = |opcode, room: u32, queue| {
            let mut rig = GuestRig::new();
            put_request(&rig, opcode, 48);
            rig.offer_chain(&[(BUFFERS, 48, 0), (ROOM, room, WRITE)]);
            serve_ring(backend, &rig, ring(&rig), queue);
            let error = i32::from_le_bytes(rig.get(ROOM + 4, 4).try_into().unwrap());
            (rig.used().2, error)
        };
        let (getattr, forget, destroy) = (3, 2, 38);
        assert_eq!(ask(getattr, 4096, 1), (16, -5));
        assert_eq!(ask(forget, 16, 0).0, 0);
        for _ in 0..3 {
            begin_session(backend);
            // Its body is the 8 bytes that are left: too few.
            assert_eq!(ask(getattr, 4096, 2), (16, -22));
            assert_eq!(ask(17, 4096, 2).1, 0, "statfs");
            assert_eq!(ask(forget, 16, 0).0, 0);
        }
        assert_eq!(ask(destroy, 16, 1), (16, 0));
        assert_eq!(ask(getattr, 4096, 1), (16, -5));
    });
}

/// Any bytes in rings and requests: each is completed or breaks its queue, and none is left.
#[test]
fn garbage_is_completed_or_breaks_the_queue() {
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let (mut completed, mut broken) = (0, 0);
    with_backend(|backend| {
        for case in 0..3000 {
            if case % 100 == 0 {
                begin_session(backend);
            }
            let mut rig = GuestRig::new();
            let opcode = u32::try_from(numbers.below(60)).unwrap();
            put_request(&rig, opcode, 56);
            let noise: Vec<u8> = (0..64).map(|_| numbers.next().to_le_bytes()[0]).collect();
            rig.put(BUFFERS + 40, &noise);
            let lens = [56, 56, 56, 0, 4096, u32::MAX];
            let mut some = |all: &[u32]| {
                let index = numbers.below(all.len() as u64);
                all[usize::try_from(index).unwrap()]
            };
            for number in 0..SIZE {
                let place = match some(&[0, 0, 0, 0, 1]) {
                    0 => BUFFERS,
                    _ => MEMORY - 8,
                };
                let flags = some(&[0, NEXT.into(), NEXT.into(), WRITE.into(), INDIRECT.into()]);
                let flags = u16::try_from(flags).unwrap();
                let to = if flags == WRITE { ROOM } else { place };
                let next = (flags, number.wrapping_add(1));
                rig.describe((DESCRIPTORS, number), ((to, some(&lens)), next));
            }
            let offers = u16::try_from(some(&[1, 2, 5, 16, 17])).unwrap();
            for head in 0..offers {
                rig.offer(head);
            }
            let queue = usize::try_from(some(&[0, 1, 2])).unwrap();
            serve_ring(backend, &rig, ring(&rig), queue);
            completed += u32::from(rig.used().0);
            broken += u32::from(backend.queues[queue].broken.is_set());
            backend.stop_vring(u32::try_from(queue).unwrap()).unwrap();
        }
        // It serves on.
        begin_session(backend);
        assert!(completed > 300 && broken > 300, "{completed} {broken}");
    });
}
