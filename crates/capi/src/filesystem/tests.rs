use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extant::device::{BlockDevice, DevOff, MemoryDevice};
use extant_testkit::{Image, Need, need};

use super::*;
use crate::file::{OpenFile, extant_close, extant_open, extant_pread};
use crate::message::extant_error;

/// A device whose reads panic on demand.
struct Panicking {
    memory: MemoryDevice,
    armed: AtomicBool,
}

impl BlockDevice for Panicking {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        assert!(!self.armed.load(Ordering::Relaxed), "the device panics");
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.memory.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }
}

fn message() -> String {
    let mut buf = [0_u8; 200];
    // SAFETY: the buffer has this length.
    let len = unsafe { extant_error(buf.as_mut_ptr().cast(), buf.len()) };
    let len = usize::try_from(len).expect("a length").min(buf.len() - 1);
    String::from_utf8_lossy(&buf[..len]).into_owned()
}

fn opened(fs: &MountedFs) -> Box<OpenFile> {
    let mut file = MaybeUninit::new(null_mut());
    // SAFETY: the path is a string; the result is written on success.
    unsafe {
        let flags = libc::O_RDWR;
        let told = extant_open(Some(fs), c"/file".as_ptr(), flags, 0, Some(&mut file));
        assert_eq!(told, 0, "{}", message());
        Box::from_raw(file.assume_init())
    }
}

#[test]
fn a_panic_below_ends_the_file_system_and_not_the_process() {
    if !need(&[Need::Tool("mke2fs")]) {
        return;
    }
    let image = Image::of_mib(16).make().expect("mke2fs");
    let device = Arc::new(Panicking {
        memory: MemoryDevice::from_bytes(&std::fs::read(image.path()).expect("the image")),
        armed: AtomicBool::new(false),
    });
    let mut options = Filesystem::options();
    let on_device: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let fs = options.write(true).open_device(on_device).expect("a mount");
    fs.write("/file", vec![7; 100_000]).expect("a file");
    fs.sync().expect("a sync");
    fs.volume().drop_caches();
    let fs = Box::new(MountedFs { fs });
    let file = opened(&fs);
    let mut buf = [0_u8; 10];
    let mut read = || {
        // SAFETY: the buffer has this length.
        unsafe { extant_pread(Some(&file), buf.as_mut_ptr().cast(), 10, 0) }
    };
    device.armed.store(true, Ordering::Relaxed);
    assert_eq!(read(), -5);
    let words = message();
    device.armed.store(false, Ordering::Relaxed);
    assert!(words.contains("the device panics"), "{words}");
    assert_eq!(read(), -5);
    assert!(message().contains("shut down"), "{}", message());
    // SAFETY: the handles are of this test alone.
    let (synced, closed, unmounted) = unsafe {
        let synced = extant_sync(Some(&fs));
        (synced, extant_close(Some(file)), extant_unmount(Some(fs)))
    };
    assert_eq!((synced, closed), (-5, 0));
    assert_eq!(unmounted, -5, "{}", message());
}
